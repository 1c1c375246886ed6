//! A call to the store, and what it is about.

use std::time::Duration;

use super::callers::PendingRelease;
use super::single_call::SingleCall;
use crate::clock::Moment;
use crate::protocol::{Command, Name, OperationKind, RequestKey};

/// A call to make.
pub(super) struct Call {
    pub(super) command: Command,
    pub(super) timeout: Duration,
    /// The number of replicas that must acknowledge all earlier writes of this connection.
    pub(super) replicas: u32,
    pub(super) sent: SentCall,
}

/// A call, once it was sent.
pub(super) struct SentCall {
    pub(super) semaphore: Name,
    pub(super) sent_at: Moment,
    /// The call has failed if there is no result by then.
    pub(super) until: Moment,
    pub(super) kind: CallKind,
}

/// The subject of a call.
pub(super) enum CallKind {
    Acquire(Vec<RequestKey>),
    Release(Vec<(Moment, PendingRelease)>),
    /// Renew these requests, each with the version of its lease.
    Renew(Vec<(RequestKey, u32)>),
    /// Renew these grants, and ask the replicas whether they have them.
    Confirm(Vec<RequestKey>),
    /// Find out what keeps requests out that have timed out.
    Inspect,
    /// A call that is not batched.
    Single(Box<SingleCall>),
}

impl CallKind {
    pub(super) fn operation(&self) -> OperationKind {
        match self {
            Self::Acquire(_) => OperationKind::Acquire,
            Self::Release(_) => OperationKind::Release,
            Self::Renew(_) | Self::Confirm(_) => OperationKind::Renew,
            Self::Inspect => OperationKind::Inspect,
            Self::Single(call) => call.operation.kind(),
        }
    }

    pub(super) fn requests(&self) -> usize {
        match self {
            Self::Acquire(requests) => requests.len(),
            Self::Release(releases) => releases.len(),
            Self::Renew(requests) => requests.len(),
            Self::Confirm(requests) => requests.len(),
            Self::Inspect | Self::Single(_) => 1,
        }
    }
}
