//! The request of a caller: a permit, and the limit that the program declares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::protocol::{Declaration, Holder, Label, Name, RequestId};

/// A request for a permit, checked.
pub(crate) struct AcquireSpec {
    pub(crate) semaphore: Name,
    pub(crate) holder: Holder,
    pub(crate) request: RequestId,
    pub(crate) label: Label,
    pub(crate) weight: u32,
    pub(crate) lease: Duration,
    /// The time for which the grant counts, in whole milliseconds.
    pub(crate) at_least: Duration,
    pub(crate) wait: Wait,
    /// Renew it in the background once it is held. A waiter is always renewed.
    pub(crate) auto_renew: bool,
    pub(crate) limit: Arc<LimitDeclaration>,
    pub(crate) position: Arc<Position>,
}

/// The limit of the wait in the queue. Shorter ones are less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

/// The position of a waiter, as the last reply reported it.
#[derive(Debug)]
pub(crate) struct Position(AtomicU64);

impl Default for Position {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Position {
    pub(super) fn set(&self, position: u64) {
        self.0.store(position, Ordering::Relaxed);
    }

    /// `None` until the store has queued the request.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|position| *position < u64::MAX)
    }
}

/// The limit that a program declares for a semaphore.
#[derive(Debug)]
pub(crate) struct LimitDeclaration {
    /// The declaration of the first request.
    first: Declaration,
    /// The store has it. From then on a declared limit counts only where none is stored, so that two programs that
    /// disagree don't set the limit back and forth.
    sent: AtomicBool,
}

impl LimitDeclaration {
    pub(crate) fn new(first: Declaration) -> Self {
        Self { first, sent: AtomicBool::new(false) }
    }

    /// The declaration of the first request.
    pub(crate) fn first(&self) -> Declaration {
        self.first
    }

    /// The declaration of the next request.
    pub(super) fn next(&self) -> Declaration {
        match self.first {
            Declaration::Declare(limit) if self.sent.load(Ordering::Relaxed) => Declaration::Fallback(limit),
            first => first,
        }
    }

    pub(crate) fn note_sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// The declared or required limit.
    pub(crate) fn limit(&self) -> Option<u32> {
        match self.first {
            Declaration::Stored => None,
            Declaration::Declare(limit) | Declaration::Fallback(limit) | Declaration::Require(limit) => {
                Some(limit)
            }
        }
    }
}
