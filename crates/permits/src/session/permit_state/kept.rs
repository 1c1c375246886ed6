//! A permit that its session keeps: what its next holder must not inherit from the last one, and its tokens.

use std::sync::{Arc, PoisonError};

use tokio_util::sync::CancellationToken;

use super::atomic::{Ordering, fence};
use super::{Check, PermitState, watchdog};
use crate::clock::Moment;
use crate::keeping::{is_token_due, is_token_left};

impl PermitState {
    /// The token of the last grant by the session itself, if it has granted the permit again.
    pub(crate) fn last_token(&self) -> Option<u64> {
        (self.granted_again.load(Ordering::Relaxed) > 0).then(|| self.grant().token)
    }

    /// Returns true if the permit may be granted to another request of the session. For that it must still
    /// have the terms of its grant and a token left, and nobody else may have a reference to it, who would
    /// see the loss of the next holder as its own.
    pub(in crate::session) fn can_be_granted_again(self: &Arc<Self>, now: Moment) -> bool {
        // The two references of the engine and of the holder.
        if Arc::strong_count(self) != 2 {
            return false;
        }
        // A thread that has just dropped its reference may have changed the terms before.
        fence(Ordering::Acquire);
        is_token_left(self.granted_again.load(Ordering::Relaxed))
            && self.is_held(now)
            && !self.has_other_terms.load(Ordering::Relaxed)
    }

    /// Gives the permit a new signal of its loss. The last holder may have passed on the old one, and a loss
    /// from now on concerns the next holder only.
    pub(in crate::session) fn forget_watchers(&self) {
        if !self.is_watched.swap(false, Ordering::Relaxed) {
            return;
        }
        let key = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(key) = key {
            watchdog::forget(key);
        }
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = CancellationToken::new();
    }

    /// Returns true if the next token may be used at `now`, which is when the clock has reached it.
    pub(in crate::session) fn has_token(&self, now: Moment) -> bool {
        is_token_due(self.granted_again.load(Ordering::Relaxed), now.since(self.granted_at))
    }

    /// Waits until the next token may be used, and returns the time then. It spins, which is right for a few
    /// microseconds: a sleep would take longer.
    pub(in crate::session) fn await_token(&self, mut now: Moment, clock: impl Fn() -> Moment) -> Moment {
        while !self.has_token(now) {
            std::hint::spin_loop();
            now = clock();
        }
        now
    }

    /// Grants the permit to another request of the session. Returns false if it was lost, or is lost now:
    /// this check ends a permit whose deadline has passed, so that no renewal can extend a permit that no
    /// request gets.
    pub(in crate::session) fn grant_again(&self, now: Moment) -> bool {
        self.granted_again.fetch_add(1, Ordering::Relaxed);
        self.held_since.store(now.as_micros(), Ordering::Relaxed);
        self.held.renew();
        matches!(self.check(now), Check::Held(_))
    }

    /// Passes over the tokens up to `last`: the process that handed the permit over has used them.
    pub(crate) fn pass_tokens(&self, last: u64) {
        let used = last.saturating_sub(self.grant.token);
        self.granted_again.store(u32::try_from(used).unwrap_or_default(), Ordering::Relaxed);
    }
}
