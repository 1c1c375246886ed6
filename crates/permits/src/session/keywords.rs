//! The keywords of outcomes: the field `outcome` of the span `acquire`, the field `reason` of events, and the
//! label `reason` of metrics. `docs/reference/metrics.md` lists them.

use crate::error::{AcquireError, Ended, Lost};

/// The outcome of an acquisition that was granted.
pub(super) const GRANTED: &str = "granted";

/// The outcome of an acquisition whose caller no longer waits.
pub(super) const CANCELLED: &str = "cancelled";

/// The keyword of an acquisition without a permit.
pub(super) fn of_refusal(error: &AcquireError) -> &'static str {
    match error {
        AcquireError::NoPermits => "no_permits",
        AcquireError::Recovering { .. } => "recovering",
        AcquireError::Cooling { .. } => "cooling",
        AcquireError::Paused { .. } => "paused",
        AcquireError::LaneFull { .. } => "lane_full",
        AcquireError::TimedOut { .. } => "timed_out",
        AcquireError::LineClosed { .. } => "line_closed",
        AcquireError::QueueFull { .. } => "queue_full",
        AcquireError::Superseded { .. } => "superseded",
        AcquireError::AlreadyHeld { .. } => "already_held",
        AcquireError::NotReplicated { .. } => "not_replicated",
        AcquireError::ExceedsLimit { .. } => "exceeds_limit",
        AcquireError::ExceedsLaneLimit { .. } => "exceeds_lane_limit",
        AcquireError::NoLimit { .. } => "no_limit",
        AcquireError::LimitMismatch { .. } => "limit_mismatch",
        AcquireError::Revoked { .. } => "revoked",
        AcquireError::Cancelled => CANCELLED,
        AcquireError::Invalid(_) => "invalid",
        AcquireError::Ended(Ended::Closed) => "closed",
        AcquireError::Ended(Ended::Forked) => "forked",
        AcquireError::Ended(Ended::SessionFailed) => "session_failed",
        AcquireError::Store(_) => "store",
    }
}

/// The keyword of the reason of a loss.
pub(super) fn of_loss(lost: &Lost) -> &'static str {
    match lost {
        Lost::Expired => "expired",
        Lost::Gone => "gone",
        Lost::Revoked { .. } => "revoked",
        Lost::HeldTooLong { .. } => "held_too_long",
        Lost::Closed => "closed",
        Lost::Forked => "forked",
        Lost::SessionFailed => "session_failed",
    }
}
