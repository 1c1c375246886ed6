//! The messages of callers to the engine.
//!
//! Each message but the withdrawing ones brings the channel for its reply. A receiver may be dropped at any time:
//! sending then fails, and a permit that was on its way is dropped, which releases it.

use std::time::Duration;

use super::callers::PermitGuard;
use super::reply::{Answer, reply};
use super::spec::AcquireSpec;
use crate::error::{AcquireError, AdminError, AdoptError, CloseError, Ended, ReleaseError, RenewError};
use crate::protocol::{AdoptRequest, Name, Operation, ReleaseRequest, Reply, RequestId};

/// A message to the engine.
pub(crate) enum Message {
    Acquire(Box<AcquireSpec>, Answer<PermitGuard, AcquireError>),
    /// The caller no longer waits.
    Cancel {
        semaphore: Name,
        request: RequestId,
    },
    Release {
        semaphore: Name,
        release: PendingRelease,
    },
    /// Renew now, once.
    Renew {
        semaphore: Name,
        request: RequestId,
        answer: Answer<(), RenewError>,
    },
    /// Another process takes over: neither renew nor release any more.
    HandOver {
        semaphore: Name,
        request: RequestId,
    },
    /// Take a permit over from another process.
    Adopt {
        semaphore: Name,
        adopt: Box<AdoptRequest>,
        answer: Answer<PermitGuard, AdoptError>,
    },
    /// An operation on the semaphore itself.
    Admin {
        semaphore: Name,
        operation: Operation,
        answer: Answer<Reply, AdminError>,
    },
    /// List the semaphores.
    List {
        answer: Answer<Vec<Name>, AdminError>,
    },
    /// Release everything, and end. Without a caller: the last client and the last permit were dropped.
    Close {
        answer: Option<Answer<(), CloseError>>,
    },
}

impl Message {
    /// Replies in place of the engine, which has ended or is another process's. To be called under no lock.
    pub(super) fn refuse(self, ended: Ended) {
        match self {
            Self::Acquire(_, answer) => reply(answer, Err(ended.into())),
            Self::Adopt { answer, .. } => reply(answer, Err(ended.into())),
            Self::Admin { answer, .. } => reply(answer, Err(ended.into())),
            Self::List { answer } => reply(answer, Err(ended.into())),
            Self::Renew { answer, .. } if ended != Ended::Closed => {
                reply(answer, Err(RenewError::Lost(ended.into())));
            }
            Self::Close { answer: Some(answer) } => reply(
                answer,
                match ended {
                    Ended::Closed => Ok(()),
                    Ended::Forked => Err(CloseError::Forked),
                    Ended::SessionFailed => Err(CloseError::SessionFailed),
                },
            ),
            // A permit that was lost by the closing has the reason.
            Self::Renew { .. }
            | Self::Cancel { .. }
            | Self::Release { .. }
            | Self::HandOver { .. }
            | Self::Close { answer: None } => {}
        }
    }
}

/// A release that the store has not confirmed.
pub(crate) struct PendingRelease {
    pub(crate) request: ReleaseRequest,
    /// The store drops the entry on its own once this lease has passed.
    pub(crate) lease: Duration,
    /// An earlier release of this request was sent and not answered. If the store does not know the request, that may
    /// be why.
    pub(crate) sent_before: bool,
    pub(crate) answer: Option<Answer<(), ReleaseError>>,
}
