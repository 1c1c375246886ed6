//! The line as a whole: paused, closed, watched by an alert, deleted.

use std::sync::Arc;

use super::execution::Execution;
use super::state::PAUSED;
use crate::protocol::{
    Alert, Answers, ChangeEffect, ChangeOrigin, DeleteOutcome, EventKind, Holder, MAX_BATCH, Pause,
};

impl Execution<'_> {
    /// Stops or resumes granting. If there are two pauses, the one that ends later counts.
    pub(super) fn pause(&mut self, origin: &ChangeOrigin, pause: Option<&Pause>) -> Answers {
        let until_ms = pause.map_or(0, |pause| pause.for_ms.map_or(PAUSED, |for_ms| self.now_ms + for_ms));
        let state = &mut self.state;
        let has_effect = match pause {
            None => state.is_paused(),
            Some(_) if until_ms != state.paused_until_ms => until_ms > state.paused_until_ms,
            Some(pause) => *state.pause_reason() != *pause.reason,
        };
        if has_effect && state.change_made(&origin.request).is_none() {
            state.paused_until_ms = until_ms;
            // A pause keeps the state from expiring. One that ends early no longer does, for the rest of its
            // time.
            state.expires_ms = state.expires_ms.min(self.now_ms + 4 * state.lease_max_ms);
            if let Some(ends_ms) = state.pause_ends_ms() {
                state.expires_ms = state.expires_ms.max(ends_ms);
                self.turn_is_new = true;
            }
            let paused = |pause: &Pause| ChangeEffect::Pause { until_ms, reason: pause.reason.clone() };
            self.remember(origin, pause.map_or(ChangeEffect::Resume, paused));
        }
        self.promote();
        Answers::Changed
    }

    /// Closes the line for a reason, or opens it.
    pub(super) fn close_line(&mut self, origin: &ChangeOrigin, reason: Option<&Arc<str>>) -> Answers {
        if self.state.closed.as_ref() != reason && self.state.change_made(&origin.request).is_none() {
            self.state.closed = reason.cloned();
            let effect = reason.map_or(ChangeEffect::Open, |reason| ChangeEffect::Close(reason.clone()));
            self.remember(origin, effect);
        }
        self.promote();
        Answers::Changed
    }

    /// Sets the thresholds beyond which somebody should look at the semaphore.
    pub(super) fn set_alert(&mut self, origin: &ChangeOrigin, alert: Alert) -> Answers {
        if self.state.alert != alert && self.state.change_made(&origin.request).is_none() {
            self.state.alert = alert;
            self.remember(origin, ChangeEffect::Alert(alert));
        }
        self.promote();
        Answers::Changed
    }

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

    /// Forgets an idle semaphore: the changes by operators, too. Not while recovering, because holders that
    /// the store forgot may be alive, and a state without a recovery window would not wait for them.
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
