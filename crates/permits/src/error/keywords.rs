//! The keyword of each error, which the packages for other languages, HTTP and metrics have in common: Python
//! makes its classes of them, Node and HTTP their codes. `docs/reference/errors.md` lists them.

use super::{
    AcquireAllError, AcquireError, AdminError, AdoptError, CloseError, ConnectError, Ended, Lost,
    ReleaseError, RenewError,
};

/// The keyword of an input that is not valid.
const INVALID: &str = "invalid_input";

impl ConnectError {
    /// The keyword of the error, such as `invalid_url`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::UnknownScheme { .. } | Self::MissingFeature { .. } | Self::Url { .. } => "invalid_url",
            Self::Entropy { .. } | Self::Thread { .. } => "resource",
            Self::Invalid(_) => INVALID,
            Self::Store(error) => error.keyword(),
        }
    }
}

impl AcquireError {
    /// The keyword of the error, such as `timed_out`: for the labels of your own metrics. Spans, events and
    /// the metrics of this crate have the same.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::NoPermits => "no_permits",
            Self::Recovering { .. } => "recovering",
            Self::Cooling { .. } => "cooling",
            Self::Paused { .. } => "paused",
            Self::LaneFull { .. } => "lane_full",
            Self::TimedOut { .. } => "timed_out",
            Self::LineClosed { .. } => "line_closed",
            Self::QueueFull { .. } => "queue_full",
            Self::AlreadyHeld { .. } => "already_held",
            Self::Superseded { .. } => "superseded",
            Self::NotReplicated { .. } => "not_replicated",
            Self::ExceedsLimit { .. } => "exceeds_limit",
            Self::ExceedsLaneLimit { .. } => "exceeds_lane_limit",
            Self::NoLimit { .. } => "no_limit",
            Self::LimitMismatch { .. } => "limit_mismatch",
            Self::Revoked { .. } => "revoked",
            Self::Cancelled => "cancelled",
            Self::Invalid(_) => INVALID,
            Self::Ended(ended) => ended.keyword(),
            Self::Store(error) => error.keyword(),
        }
    }
}

impl AcquireAllError {
    /// The keyword of the error of the semaphore that refused, or `lost`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Acquire { source, .. } => source.keyword(),
            Self::Lost { .. } => "lost",
            Self::Twice { .. } => INVALID,
        }
    }
}

impl AdminError {
    /// The keyword of the error, such as `in_use`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::VersionMismatch { .. } => "version_mismatch",
            Self::NoLimit { .. } => "no_limit",
            Self::LimitMismatch { .. } => "limit_mismatch",
            Self::InUse { .. } => "in_use",
            Self::Recovering { .. } => "recovering",
            Self::TooManyPins { .. } => "too_many_pins",
            Self::LimitOutOfRange { .. } => "limit_out_of_range",
            Self::Invalid(_) => INVALID,
            Self::Ended(ended) => ended.keyword(),
            Self::Store(error) => error.keyword(),
        }
    }
}

impl RenewError {
    /// The keyword of the error, such as `retry_later`; `lost` for each kind of loss.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::RetryLater => "retry_later",
            Self::Invalid(_) => INVALID,
            Self::Store(error) => error.keyword(),
        }
    }
}

impl ReleaseError {
    /// The keyword of the error, such as `no_answer`; `lost` for each kind of loss.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Store(error) => error.keyword(),
        }
    }
}

impl AdoptError {
    /// The keyword of the error, such as `gone`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Invalid(_) => INVALID,
            Self::Ended(ended) => ended.keyword(),
            Self::Store(error) => error.keyword(),
        }
    }
}

impl CloseError {
    /// The keyword of the error, such as `not_released`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::NotReleased { .. } => "not_released",
            Self::Ended(ended) => ended.keyword(),
        }
    }
}

impl Ended {
    /// The keyword of the end, such as `closed`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Forked => "forked",
            Self::SessionFailed => "session_failed",
        }
    }
}

impl Lost {
    /// The keyword of the loss, such as `expired`. Events and metrics have the same.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::Revoked { .. } => "revoked",
            Self::HeldTooLong { .. } => "held_too_long",
            Self::Closed => "closed",
            Self::Forked => "forked",
            Self::SessionFailed => "session_failed",
        }
    }
}
