//! A permit that its session keeps: what its next holder must not find of the last one, and its tokens.

use std::sync::{Arc, PoisonError};

use tokio_util::sync::CancellationToken;

use super::atomic::Ordering;
use super::{Check, PermitState, watchdog};
use crate::clock::Moment;
use crate::keeping::{is_token_due, is_token_left};

impl PermitState {
    /// The token of the last grant by the session itself, if there was one.
    pub(crate) fn last_token(&self) -> Option<u64> {
        (self.granted_again.load(Ordering::Relaxed) > 0).then(|| self.grant().token)
    }

    /// Returns true if it may be granted to another request of the session: it is held on the terms on which
    /// it was granted, there is another token for it, and no other reference to it, through which the next
    /// holder's loss would be seen.
    pub(in crate::session) fn can_be_granted_again(self: &Arc<Self>, now: Moment) -> bool {
        is_token_left(self.granted_again.load(Ordering::Relaxed))
            && self.is_held(now)
            && !self.has_other_terms.load(Ordering::Relaxed)
            // The engine's and the holder's.
            && Arc::strong_count(self) == 2
    }

    /// Parts it from the signal that its last holder may have passed on: a loss is the next holder's.
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

    /// Returns true if the next token is not ahead of the time.
    pub(in crate::session) fn has_token(&self, now: Moment) -> bool {
        is_token_due(self.granted_again.load(Ordering::Relaxed), now.since(self.granted_at))
    }

    /// Waits until the next token is not ahead of the time, and returns that time. For one that is so by some
    /// microseconds: less than it takes to sleep.
    pub(in crate::session) fn await_token(&self, mut now: Moment, clock: impl Fn() -> Moment) -> Moment {
        while !self.has_token(now) {
            std::hint::spin_loop();
            now = clock();
        }
        now
    }

    /// Grants it to another request of the session. Returns false if it was lost, or is now: no renewal whose
    /// reply comes at this moment may extend a permit that no request gets.
    pub(in crate::session) fn grant_again(&self, now: Moment) -> bool {
        self.granted_again.fetch_add(1, Ordering::Relaxed);
        self.held_since.store(now.as_micros(), Ordering::Relaxed);
        self.held.renew();
        matches!(self.check(now), Check::Held(_))
    }

    /// Passes over the tokens up to this one, which were used before it was handed over.
    pub(crate) fn pass_tokens(&self, last: u64) {
        let used = last.saturating_sub(self.grant.token);
        self.granted_again.store(u32::try_from(used).unwrap_or_default(), Ordering::Relaxed);
    }
}
