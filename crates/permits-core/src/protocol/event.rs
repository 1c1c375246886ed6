//! Events: messages to a session that it did not ask for.

use std::sync::Arc;

use super::names::{Holder, Name, RequestId, SessionId};
use super::reply::Grant;

/// A change to an entry, made by another session or by time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Event {
    /// The session that the entry belongs to.
    pub session: SessionId,
    /// The semaphore.
    pub semaphore: Name,
    /// The holder.
    pub holder: Holder,
    /// The acquisition.
    pub request: RequestId,
    /// The change.
    pub kind: EventKind,
}

/// A kind of change to an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EventKind {
    /// The waiter holds this grant now.
    Granted(Grant),
    /// An operator revoked the permit or removed the waiter, for this reason.
    Revoked(Arc<str>),
    /// The session of this waiter is to recheck in so many microseconds: time may free units then, or this
    /// command has left work to do.
    Turn(u64),
    /// The waiter was removed: it is heavier than the limit, or than that of its lane.
    Refused,
    /// The waiter was removed: a newer request has its supersede key.
    Superseded,
    /// The waiter was removed: an operator has closed the line, for this reason.
    LineClosed(Arc<str>),
}

impl EventKind {
    /// Returns true if a session that misses this message gets the same answer from its next renewal, or from
    /// the request that it sends then. After any other message, that request would get a new place.
    pub fn is_told_by_renewal(&self) -> bool {
        match self {
            Self::Granted(_) | Self::Turn(_) | Self::Refused => true,
            Self::Revoked(_) | Self::Superseded | Self::LineClosed(_) => false,
        }
    }
}
