//! The keywords of outcomes: the field `outcome` of the span `acquire`, the field `reason` of events, and the
//! label `reason` of metrics. `docs/reference/metrics.md` lists them.

use crate::error::{AcquireError, Ended, Lost};

/// The outcome of an acquisition that was granted.
pub(super) const GRANTED: &str = "granted";

/// The outcome of an acquisition whose caller no longer waits.
pub(super) const CANCELLED: &str = "cancelled";

impl AcquireError {
    /// The keyword of the outcome, such as `timed_out`: for the labels of your own metrics. Spans, events and
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
            Self::Superseded { .. } => "superseded",
            Self::AlreadyHeld { .. } => "already_held",
            Self::NotReplicated { .. } => "not_replicated",
            Self::ExceedsLimit { .. } => "exceeds_limit",
            Self::ExceedsLaneLimit { .. } => "exceeds_lane_limit",
            Self::NoLimit { .. } => "no_limit",
            Self::LimitMismatch { .. } => "limit_mismatch",
            Self::Revoked { .. } => "revoked",
            Self::Cancelled => CANCELLED,
            Self::Invalid(_) => "invalid",
            Self::Ended(Ended::Closed) => "closed",
            Self::Ended(Ended::Forked) => "forked",
            Self::Ended(Ended::SessionFailed) => "session_failed",
            Self::Store(_) => "store",
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
