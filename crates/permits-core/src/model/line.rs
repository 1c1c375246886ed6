//! The line as a whole: an operator's closing refuses its waiters, and an idle semaphore is deleted.

use std::sync::Arc;

use super::execution::Execution;
use crate::protocol::{Answers, DeleteOutcome, EventKind, Holder, MAX_BATCH};

impl Execution<'_> {
    /// Refuses waiters while the line is closed, from the head of the queue on.
    pub(super) fn refuse_waiters(&mut self, reason: &Arc<str>) {
        let refused: Vec<Holder> = self.state.queue.values().take(MAX_BATCH).cloned().collect();
        self.state.counts.refused += refused.len() as u64;
        for holder in &refused {
            self.emit(holder, EventKind::LineClosed(reason.clone()));
            self.forget(holder);
        }
        self.promote_truncated = !self.state.queue.is_empty();
    }

    /// Forgets an idle semaphore, with the changes by operators. Refused while recovering, because holders
    /// that the store forgot may be alive, and a state without a recovery window would not wait for them.
    pub(super) fn delete(&mut self) -> Answers {
        self.promote();
        let recovering = self.is_recovering();
        let state = &mut self.state;
        let waiting = state.queue.len() as u64;
        Answers::Delete(if !self.existed {
            DeleteOutcome::Unknown
        } else if state.held > 0 || waiting > 0 {
            DeleteOutcome::InUse { held: state.held, waiting }
        } else if recovering {
            DeleteOutcome::Recovering
        } else {
            self.deleted = true;
            (state.limit, state.limit_version, state.pinned) = (0, 0, false);
            DeleteOutcome::Deleted
        })
    }
}
