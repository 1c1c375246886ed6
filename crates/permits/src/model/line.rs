//! The line as a whole: paused, or deleted.

use super::execution::Execution;
use crate::protocol::{Answers, DeleteOutcome};

impl Execution<'_> {
    /// Stops or resumes granting.
    pub(super) fn pause(&mut self, paused: bool) -> Answers {
        self.state.paused = paused;
        self.promote();
        Answers::Pause
    }

    /// Forgets an idle semaphore: the changes by operators, too. Not while recovering, because holders that the store forgot
    /// may be alive, and a state without a recovery window would not wait for them.
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
