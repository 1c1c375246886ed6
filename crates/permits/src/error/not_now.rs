//! What a program does about an error: whether the same request may succeed later, and when.

use std::time::Duration;

use super::{AcquireAllError, AcquireError, AdminError, Lost};

impl AcquireAllError {
    /// Returns the time after which the same request may succeed, as [`AcquireError::retry_after`] does for
    /// the semaphore that refused it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Acquire { source, .. } => source.retry_after(),
            Self::Lost { .. } | Self::Twice { .. } => None,
        }
    }

    /// Returns true if the same request may succeed later. That is so after a loss, too.
    pub fn is_not_now(&self) -> bool {
        match self {
            Self::Acquire { source, .. } => source.is_not_now(),
            Self::Lost { reason, .. } => {
                matches!(reason, Lost::Expired | Lost::Gone | Lost::Revoked { .. } | Lost::HeldTooLong { .. })
            }
            Self::Twice { .. } => false,
        }
    }
}

impl AcquireError {
    /// Returns the time after which the same request succeeds if no other comes first, if that is known. It
    /// is known for [`Recovering`](Self::Recovering), for [`Cooling`](Self::Cooling), for
    /// [`Paused`](Self::Paused) if the pause has an end and no holder has to leave first, for
    /// [`LaneFull`](Self::LaneFull) if time alone frees units of the lane, and for
    /// [`TimedOut`](Self::TimedOut) if a recovery, a pause or units that cool have kept the request out. It
    /// is not known if other holders have to leave first.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Recovering { remaining } | Self::Cooling { remaining } => Some(*remaining),
            Self::Paused { remaining } | Self::LaneFull { remaining, .. } => *remaining,
            Self::TimedOut { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns true if a pause, a closed line or a recovery keeps every request out, even if units are free.
    /// A server should reply 503 then, and 429 if others hold the units.
    pub fn stands_still(&self) -> bool {
        match self {
            Self::Recovering { .. } | Self::Paused { .. } | Self::LineClosed { .. } => true,
            Self::TimedOut { inspection: Some(inspection), .. } => inspection.stands_still(),
            _ => false,
        }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_not_now(&self) -> bool {
        matches!(
            self,
            Self::NoPermits
                | Self::Recovering { .. }
                | Self::Cooling { .. }
                | Self::Paused { .. }
                | Self::LaneFull { .. }
                | Self::TimedOut { .. }
                | Self::LineClosed { .. }
                | Self::QueueFull { .. }
                | Self::AlreadyHeld { .. }
                | Self::Superseded { .. }
                | Self::NotReplicated { .. }
        )
    }
}

impl AdminError {
    /// Returns true if the same operation may succeed later.
    pub fn is_not_now(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::Recovering { .. })
    }
}
