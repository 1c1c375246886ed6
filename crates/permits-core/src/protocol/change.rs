//! Changes by operators: of the limit, of a pause, of a closed line, and revocations. A store remembers the
//! last ones.

use std::sync::Arc;

use super::names::{Holder, Label, RequestId};

/// The time for which a session sends a change again whose outcome it does not know, in milliseconds; and for
/// which a store remembers a change at least.
pub const CHANGE_RETRIED_MS: u64 = 60_000;

/// The origin of a change by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChangeOrigin {
    /// The id of the change: sent again, it has one effect and one answer.
    pub request: RequestId,
    /// The label of the session that makes the change.
    pub by: Label,
}

impl From<RequestId> for ChangeOrigin {
    /// The origin of a change by a session without a label.
    fn from(request: RequestId) -> Self {
        Self { request, by: Label::default() }
    }
}

/// A change by an operator that had an effect, as a store remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChangeRecord {
    /// Its origin.
    pub origin: ChangeOrigin,
    /// The store's clock when it was made, in microseconds.
    pub at_us: u64,
    /// Its effect.
    pub effect: ChangeEffect,
}

/// The effect of a [`ChangeRecord`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ChangeEffect {
    /// The limit was set, and pinned.
    Limit {
        /// The limit after it.
        limit: u32,
        /// The limit's version after it.
        version: u64,
    },
    /// The limit's pin was lifted.
    Unpin {
        /// The limit after it; 0 if none is stored.
        limit: u32,
        /// The limit's version after it.
        version: u64,
    },
    /// Granting was stopped.
    Pause {
        /// The end of the pause, in milliseconds; [`PAUSED`](crate::model::PAUSED) without one.
        until_ms: u64,
        /// The reason, possibly empty.
        reason: Arc<str>,
    },
    /// Granting was resumed.
    Resume,
    /// The line was closed, for this reason.
    Close(Arc<str>),
    /// The line was opened.
    Open,
    /// A holder or waiter was removed, or a grant that cooled was freed.
    Revoke {
        /// The holder.
        holder: Holder,
        /// True if it waited.
        waited: bool,
        /// The reason, possibly empty.
        reason: Arc<str>,
    },
}

impl ChangeEffect {
    /// Returns true if the other effect is on the same part of the state: a store remembers at least the last
    /// change of each part.
    pub fn is_on_same_part(&self, other: &Self) -> bool {
        self.part() == other.part()
    }

    fn part(&self) -> u8 {
        match self {
            Self::Limit { .. } | Self::Unpin { .. } => 0,
            Self::Pause { .. } | Self::Resume => 1,
            Self::Close(_) | Self::Open => 2,
            Self::Revoke { .. } => 3,
        }
    }
}
