//! A call to the store, and what it is about.

use std::time::Duration;

use super::inbox::PendingRelease;
use super::single_call::SingleCall;
use crate::clock::Moment;
use crate::protocol::{Command, ReleaseRequest, Reply, RequestId};

/// A call to make.
pub(super) struct Call {
    pub(super) command: Command,
    pub(super) timeout: Duration,
    /// The number of replicas to wait for, which are to have all that this connection has written.
    pub(super) replicas: u32,
    pub(super) sent_at: Moment,
    pub(super) kind: CallKind,
}

/// The subject of a call.
pub(super) enum CallKind {
    Acquire(Vec<ReleaseRequest>),
    Release(Vec<(Moment, PendingRelease)>),
    Renew(Vec<RequestId>),
    /// Renew what was granted, and ask the replicas for it.
    Confirm(Vec<RequestId>),
    /// A call that is not batched.
    Single(Box<SingleCall>),
}

/// A command that the store has executed.
pub(super) struct Executed {
    pub(super) reply: Reply,
    /// The number of replicas that have it, if the call waited for replicas.
    pub(super) confirmed: u32,
}

impl From<Reply> for Executed {
    fn from(reply: Reply) -> Self {
        Self { reply, confirmed: 0 }
    }
}
