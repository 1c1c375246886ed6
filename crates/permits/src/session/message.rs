//! What callers ask of the engine. Every message but the withdrawing ones brings the channel for its answer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::oneshot;

use super::held::Held;
use crate::error::{AcquireError, AdminError, AdoptError, CloseError, Ended, ReleaseError, RenewError};
use crate::handle::PermitHandle;
use crate::protocol::{Holder, Label, Name, Operation, Reply, RequestId};

/// Where an answer goes. The caller may be gone: sending then fails, and what was sent comes back.
pub(crate) type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// A message to the engine.
pub(crate) enum Message {
    /// Acquire.
    Acquire(Box<Ask>),
    /// The caller does not wait any more.
    Cancel { semaphore: Name, request: RequestId },
    /// Release, whether anybody waits for the answer or not.
    Release { semaphore: Name, leaving: Leaving },
    /// Renew now, once.
    Renew { semaphore: Name, request: RequestId, answer: Answer<(), RenewError> },
    /// Another process takes over: neither renew nor release any more.
    HandOver { semaphore: Name, request: RequestId },
    /// Take over from another process, under a new request id.
    Adopt { handle: Box<PermitHandle>, request: RequestId, answer: Answer<Held, AdoptError> },
    /// An operation on the semaphore itself.
    Admin { semaphore: Name, operation: Operation, answer: Answer<Reply, AdminError> },
    /// Which semaphores there are.
    List { answer: Answer<Vec<Name>, AdminError> },
    /// Give everything back, and end.
    Close { answer: oneshot::Sender<Result<(), CloseError>> },
}

impl Message {
    /// Answers in place of the engine, which has ended or is another process's.
    pub(crate) fn refuse(self, ended: Ended) {
        // A caller that is gone does not mind.
        match self {
            Self::Acquire(ask) => drop(ask.answer.send(Err(ended.into()))),
            Self::Adopt { answer, .. } => drop(answer.send(Err(ended.into()))),
            Self::Admin { answer, .. } => drop(answer.send(Err(ended.into()))),
            Self::List { answer } => drop(answer.send(Err(ended.into()))),
            // A permit that was lost by the closing knows it.
            Self::Renew { answer, .. } if ended != Ended::Closed => {
                drop(answer.send(Err(RenewError::Lost(ended.into()))));
            }
            Self::Close { answer } => drop(answer.send(match ended {
                Ended::Closed => Ok(()),
                Ended::Forked => Err(CloseError::Forked),
                Ended::SessionFailed => Err(CloseError::SessionFailed),
            })),
            Self::Renew { .. } | Self::Cancel { .. } | Self::Release { .. } | Self::HandOver { .. } => {}
        }
    }
}

/// A request for a permit.
pub(crate) struct Ask {
    pub(crate) semaphore: Name,
    pub(crate) holder: Holder,
    pub(crate) request: RequestId,
    pub(crate) label: Label,
    pub(crate) weight: u32,
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    /// Whether to renew it in the background once it is held. A waiter is always renewed.
    pub(crate) renew: bool,
    pub(crate) opening: Arc<Opening>,
    pub(crate) answer: Answer<Held, AcquireError>,
}

/// How long to stand in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

/// What a program said of the limit when it opened a semaphore.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) limit: Option<u32>,
    /// Refuse if another limit is in force.
    pub(crate) require: bool,
    /// The store has heard it: from then on it counts only where nothing is stored, so that two programs
    /// that disagree don't set the limit back and forth.
    pub(crate) declared: AtomicBool,
}

/// Something to be released.
pub(crate) struct Leaving {
    pub(crate) holder: Holder,
    pub(crate) request: RequestId,
    /// After so long the store has forgotten it by itself.
    pub(crate) lease: Duration,
    /// An earlier release was sent and not answered: if it is unknown now, that may have been us.
    pub(crate) sent_before: bool,
    pub(crate) answer: Option<Answer<(), ReleaseError>>,
}
