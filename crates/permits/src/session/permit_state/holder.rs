//! A permit as its holder sees it. A call here that finds the permit lost also signals the loss, which runs
//! wakers of the program.

use std::future::{Future as _, poll_fn};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::atomic::Ordering;
use super::watchdog::{self, Watched};
use super::{Check, PermitState, PermitStatus};
use crate::clock::Moment;
use crate::error::Lost;
use crate::observe::events;
use crate::session::locked::assert_unlocked;
use crate::session::{LONGEST_SLEEP, timers};

/// See the module. Code that runs under the lock of a session must not use it.
#[derive(Debug, Clone)]
pub(crate) struct HeldPermit(Arc<PermitState>);

impl From<Arc<PermitState>> for HeldPermit {
    fn from(state: Arc<PermitState>) -> Self {
        Self(state)
    }
}

impl Deref for HeldPermit {
    type Target = PermitState;

    fn deref(&self) -> &PermitState {
        &self.0
    }
}

impl HeldPermit {
    /// The state, which the engine shares.
    pub(in crate::session) fn shared(&self) -> &Arc<PermitState> {
        &self.0
    }

    /// The deadline; `None` if the permit has ended, or ends now because its deadline is before `now`.
    pub(crate) fn deadline(&self, now: Moment) -> Option<Moment> {
        if self.is_forked() {
            return None;
        }
        self.0.deadline_or_signal(now)
    }

    pub(crate) fn status(&self, now: Moment) -> PermitStatus {
        match self.deadline(now) {
            None => PermitStatus::Lost,
            Some(_) if self.unsure.load(Ordering::Relaxed) => PermitStatus::Unsure,
            Some(_) => PermitStatus::Held,
        }
    }

    /// Signals the loss, once, and reports it.
    pub(in crate::session) fn signal_loss(&self) {
        self.0.signal_loss();
    }

    /// Blocks until the permit is lost, or `limit` has passed. Returns the reason, if the permit is lost.
    pub(crate) fn lost_within(&self, limit: Duration) -> Option<Lost> {
        let end = self.now() + limit;
        loop {
            let now = self.now();
            let deadline = self.deadline(now);
            let reason = self.reason();
            if reason.is_some() || now >= end {
                return reason;
            }
            let until = deadline.map_or(end, |deadline| deadline.min(end)).min(now + LONGEST_SLEEP);
            let (mutex, condition) = &self.blocked;
            let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            let held = |_: &mut ()| self.reason.get().is_none();
            let waited = condition.wait_timeout_while(guard, until.since(now), held);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits until the permit is lost. Needs neither a runtime nor the session's thread.
    pub(crate) async fn lost(&self) -> Lost {
        if self.is_forked() {
            return Lost::Forked;
        }
        self.watch();
        let signal = self.signal();
        let mut cancelled = pin!(signal.cancelled());
        poll_fn(|context| if self.is_forked() { Poll::Ready(()) } else { cancelled.as_mut().poll(context) })
            .await;
        // A loss sets its reason before it signals.
        self.reason().unwrap_or(Lost::Gone)
    }

    /// A token that is cancelled when the permit is lost.
    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        if self.is_forked() {
            let token = CancellationToken::new();
            token.cancel();
            return token;
        }
        self.watch();
        self.signal().child_token()
    }

    /// Lets the watchdog signal the loss at the deadline from now on, even if the session's thread is stuck.
    fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
        let now = self.now();
        if let Some(deadline) = self.deadline(now) {
            let permit: Arc<dyn Watched> = self.0.clone();
            watchdog::watch(&permit, deadline.since(now));
        }
    }

    /// Why the permit was lost; `None` while it is held, and after a release.
    pub(crate) fn reason(&self) -> Option<Lost> {
        if self.is_forked() { Some(Lost::Forked) } else { self.loss() }
    }
}

impl PermitState {
    /// The deadline; `None` if the permit has ended. If it ends now because its deadline is before `now`,
    /// signals the loss.
    fn deadline_or_signal(&self, now: Moment) -> Option<Moment> {
        match self.check(now) {
            Check::Held(deadline) => Some(deadline),
            Check::Expired => {
                self.signal_loss();
                None
            }
            Check::Ended => {
                // The session has ended it. Its signal comes after other signals, and one of those may block.
                if self.loss().is_some() {
                    self.signal_loss();
                }
                None
            }
        }
    }

    /// Signals the loss to the holder, once, and reports it. This runs wakers of the program.
    fn signal_loss(&self) {
        assert_unlocked();
        if self.is_signalled.swap(true, Ordering::AcqRel) {
            return;
        }
        let signal = self.signal();
        let signalled = catch_unwind(AssertUnwindSafe(|| signal.cancel()));
        let (mutex, condition) = &self.blocked;
        drop(mutex.lock().unwrap_or_else(PoisonError::into_inner));
        condition.notify_all();
        self.observe_loss();
        if let Err(panic) = signalled {
            resume_unwind(panic);
        }
    }

    fn observe_loss(&self) {
        let Some(lost) = self.loss() else { return };
        let keyword = lost.keyword();
        match &lost {
            Lost::Revoked { reason } => events::revoked(&self.semaphore, &self.holder, reason),
            _ => events::lost(&self.semaphore, &self.holder, &keyword),
        }
        self.meters.lost(keyword);
        self.observe_end(self.now());
    }
}

impl Watched for PermitState {
    fn left(&self) -> Option<Duration> {
        let now = self.now();
        self.deadline_or_signal(now).map(|deadline| deadline.since(now))
    }

    fn timer(&self) -> &Mutex<Option<timers::Key>> {
        &self.watch
    }
}
