//! Decisions of the engine on their way to callers: replies, and losses of permits.
//!
//! A reply wakes a waker, and a loss cancels a token: both run code of the program, which may use permits of this session.
//! So the engine, which works under the lock of the session, only collects them. The thread that held the lock delivers
//! them once it is free.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::permit_state::PermitState;
use super::reply::{Answer, reply};
use crate::error::Lost;

/// The deliveries, in order.
#[derive(Default)]
pub(super) struct Outbox(Vec<Box<dyn FnOnce() + Send>>);

impl Outbox {
    /// Replies to a caller.
    pub(super) fn reply<T: Send + 'static, E: Send + 'static>(
        &mut self,
        answer: Answer<T, E>,
        result: Result<T, E>,
    ) {
        self.0.push(Box::new(move || reply(answer, result)));
    }

    /// Drops a value that a caller may be waiting for.
    pub(super) fn discard(&mut self, value: impl Send + 'static) {
        self.0.push(Box::new(move || drop(value)));
    }

    /// Ends a permit as lost, if it has not ended. The loss is signalled later.
    pub(super) fn lose(&mut self, permit: &Arc<PermitState>, reason: Lost) {
        if permit.end_as_lost(reason) {
            self.signal_loss(permit);
        }
    }

    /// Signals the loss of a permit.
    pub(super) fn signal_loss(&mut self, permit: &Arc<PermitState>) {
        let permit = permit.clone();
        self.0.push(Box::new(move || permit.signal_loss()));
    }

    /// Delivers everything. To be called under no lock. A waker that panics harms no other caller.
    pub(super) fn deliver(self) {
        for deliver in self.0 {
            // The panic hook has reported it.
            let _ = catch_unwind(AssertUnwindSafe(deliver));
        }
    }
}
