//! The state that a permit and the engine share: the deadline, and the signal of the loss.
//!
//! The engine works under the lock of its session, where no code of the program may run. So the engine has
//! [`PermitState`], which ends a permit and signals nothing; the holder has [`HeldPermit`], which does both.
//!
//! Invariant: a loss is final. The engine and the holder end a permit whose deadline has passed by the same
//! compare-and-swap that an extension has to win, so a permit that was seen lost is never seen held again.
//! Where a task awaits the loss, the watchdog of the process ends the permit, too.
//!
//! Every permit in a forked child belongs to the parent: here it counts as lost, and nothing behind a lock is
//! touched.

mod holder;
mod kept;
mod watchdog;

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(crate) use self::holder::HeldPermit;
use self::watchdog::Watched;
use super::Requested;
use super::sync::atomic::{self, AtomicBool, AtomicU32, AtomicU64, Ordering};
use super::timers;
use crate::clock::{Clock, Moment, millis};
use crate::error::Lost;
use crate::observe::events;
use crate::observe::meters::{Counted, SemaphoreMeters};
use crate::observe::span::AcquireSpan;
use crate::protocol::{Grant, Holder, Name, PermitTerms, RequestId};
use crate::sys::process::Process;

/// The value of `deadline` once the permit is no longer held.
const ENDED: u64 = 0;

/// The value of `counted` while the holder has corrected nothing.
const NOT_COUNTED: u64 = u64::MAX;

/// A permit, as the engine sees it.
#[derive(Debug)]
pub(crate) struct PermitState {
    pub(crate) semaphore: Name,
    pub(crate) holder: Holder,
    pub(crate) request: RequestId,
    weight: AtomicU32,
    lease_ms: AtomicU64,
    /// How long the grant counts, in milliseconds.
    at_least_ms: AtomicU64,
    /// The terms at the grant. The weight, the lease and `at_least` may have changed since.
    granted: PermitTerms,
    /// The grant as the store made it.
    grant: Grant,
    /// How often the session itself has granted the permit again, while it kept it. Each such grant has the
    /// next token.
    granted_again: AtomicU32,
    /// The holder has changed the terms.
    has_other_terms: AtomicBool,
    /// The time at which the grant of the store arrived.
    granted_at: Moment,
    /// The time of the last grant, in microseconds of [`Moment`].
    held_since: AtomicU64,
    /// How long the caller waited for the grant of the store.
    waited: Duration,
    /// The longest time for which the permit is held, from the grant on.
    max_hold: Option<Duration>,
    /// The units that the grant counts for, if the holder has corrected them; otherwise [`NOT_COUNTED`].
    counted: AtomicU64,
    /// Measures the lease, as the session does.
    clock: Clock,
    meters: SemaphoreMeters,
    /// Counts the permit in the metric of held permits.
    held: Counted,
    /// The deadline in microseconds of [`Moment`]; [`ENDED`] once the permit is released or lost.
    deadline: AtomicU64,
    /// The last renewal failed.
    unsure: AtomicBool,
    /// Cancelled when the permit is lost. Each holder of a kept permit gets a new one.
    lost: Mutex<CancellationToken>,
    reason: OnceLock<Lost>,
    /// Wakes threads that wait for the loss without a runtime.
    blocked: (Mutex<()>, Condvar),
    /// The process that acquired the permit.
    process: Process,
    /// The holder has awaited the loss, or passed on the signal.
    is_watched: AtomicBool,
    /// The loss was signalled, or is being signalled.
    is_signalled: AtomicBool,
    /// The timer of the watchdog, if it watches the permit.
    watch: Mutex<Option<timers::Key>>,
}

/// The finding of [`PermitState::check`].
pub(super) enum Check {
    /// The permit is held until then.
    Held(Moment),
    /// The deadline has passed, and this check has ended the permit. The caller has to signal the loss.
    Expired,
    Ended,
}

/// The state of a permit, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermitStatus {
    /// Held, and renewed as planned.
    Held,
    /// Held, but the last renewal failed: it will be lost at its deadline unless one succeeds.
    Unsure,
    /// The permit is no longer held.
    Lost,
}

impl PermitState {
    /// A permit that is granted at `granted_at`, after the caller waited for `waited`.
    pub(super) fn new(
        requested: Requested,
        grant: Grant,
        deadline: Moment,
        (granted_at, waited): (Moment, Duration),
        process: Process,
    ) -> Self {
        let Requested { semaphore, holder, request, terms, max_hold, clock, meters } = requested;
        Self {
            semaphore,
            holder,
            request,
            weight: AtomicU32::new(terms.weight),
            lease_ms: AtomicU64::new(terms.lease_ms),
            at_least_ms: AtomicU64::new(terms.at_least_ms),
            granted: terms,
            grant,
            granted_again: AtomicU32::new(0),
            has_other_terms: AtomicBool::new(false),
            granted_at,
            held_since: AtomicU64::new(granted_at.as_micros()),
            waited,
            max_hold,
            counted: AtomicU64::new(NOT_COUNTED),
            clock,
            meters,
            held: Default::default(),
            deadline: AtomicU64::new(deadline.as_micros()),
            unsure: AtomicBool::new(false),
            lost: Mutex::default(),
            reason: OnceLock::new(),
            blocked: (Mutex::new(()), Condvar::new()),
            process,
            is_watched: AtomicBool::new(false),
            is_signalled: AtomicBool::new(false),
            watch: Mutex::new(None),
        }
    }

    /// The token and the slot of the store's grant.
    pub(crate) fn stored_grant(&self) -> Grant {
        self.grant
    }

    /// The token and the slot of the last grant, which may be one by the session itself.
    pub(crate) fn grant(&self) -> Grant {
        let Grant { token, slot } = self.grant;
        Grant { token: token + u64::from(self.granted_again.load(Ordering::Relaxed)), slot }
    }

    /// The terms of the store's grant.
    pub(crate) fn granted_terms(&self) -> &PermitTerms {
        &self.granted
    }

    /// The token that is cancelled when the permit is lost.
    fn signal(&self) -> CancellationToken {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if the permit has not ended and its deadline has not passed. Ends nothing.
    fn is_held(&self, now: Moment) -> bool {
        now.as_micros() < self.deadline.load(Ordering::Acquire)
    }

    /// Notes that the holder changes the terms.
    pub(super) fn note_other_terms(&self) {
        self.has_other_terms.store(true, Ordering::Relaxed);
    }

    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(crate) fn terms(&self) -> PermitTerms {
        let lease_ms = self.lease_ms.load(Ordering::Relaxed);
        let at_least_ms = self.at_least_ms.load(Ordering::Relaxed);
        PermitTerms { weight: self.weight(), lease_ms, at_least_ms, ..self.granted.clone() }
    }

    /// Takes `units` from the weight. Returns what is left; `None` if no unit would be.
    pub(crate) fn give_back(&self, units: u32) -> Option<u32> {
        let rest = |weight: u32| weight.checked_sub(units).filter(|rest| *rest > 0);
        let before = self.weight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        before.ok().map(|before| before - units)
    }

    pub(super) fn count_for(&self, at_least_ms: u64) {
        self.at_least_ms.store(at_least_ms, Ordering::Relaxed);
    }

    /// Corrects the units that the grant counts for.
    pub(crate) fn count(&self, units: u32) {
        self.counted.store(units.into(), Ordering::Relaxed);
    }

    /// The units that the grant counts for, if the holder has corrected them.
    pub(crate) fn counted(&self) -> Option<u32> {
        u32::try_from(self.counted.load(Ordering::Relaxed)).ok()
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed))
    }

    /// Sets another lease. From now on the store may count with that, so the permit is held until `until` at
    /// most, unless it has ended.
    pub(super) fn set_lease(self: &Arc<Self>, lease: Duration, until: Moment) {
        self.lease_ms.store(millis(lease), Ordering::Relaxed);
        let sooner = |current| (current != ENDED).then_some(until.as_micros().min(current));
        if let Ok(before) = self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, sooner) {
            let deadline = until.min(Moment::from_micros(before));
            let permit: Arc<dyn Watched> = self.clone();
            watchdog::watch_until(&permit, deadline.since(self.now()));
        }
    }

    /// The deadline, unless the permit has ended.
    pub(super) fn held_until(&self) -> Option<Moment> {
        let deadline = self.deadline.load(Ordering::Acquire);
        (deadline != ENDED).then(|| Moment::from_micros(deadline))
    }

    /// Returns true if the permit belongs to the process that this one was forked from.
    pub(crate) fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    /// Ends the permit, if its deadline has passed at `now`.
    pub(super) fn check(&self, now: Moment) -> Check {
        let mut deadline = self.deadline.load(Ordering::Acquire);
        loop {
            if deadline == ENDED {
                return Check::Ended;
            }
            if now.as_micros() < deadline {
                return Check::Held(Moment::from_micros(deadline));
            }
            match self.deadline.compare_exchange(deadline, ENDED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let _ = self.reason.set(match self.max_hold {
                        Some(limit) if now >= self.granted_at + limit => Lost::HeldTooLong { limit },
                        _ => Lost::Expired,
                    });
                    return Check::Expired;
                }
                Err(changed) => deadline = changed,
            }
        }
    }

    /// The time, by the clock that measures its lease.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Extends the permit to `deadline`, or as far as `max_hold` allows, unless it has ended.
    pub(crate) fn extend(&self, deadline: Moment) {
        self.unsure.store(false, Ordering::Relaxed);
        let deadline = self.max_hold.map_or(deadline, |longest| deadline.min(self.granted_at + longest));
        let later = |current| (current != ENDED).then_some(deadline.as_micros().max(current));
        let _ = self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Notes that a renewal failed, and why.
    pub(crate) fn mark_unsure(&self, reason: &dyn std::fmt::Display) {
        if !self.unsure.swap(true, Ordering::Relaxed) {
            let deadline = Moment::from_micros(self.deadline.load(Ordering::Relaxed));
            if deadline != Moment::from_micros(ENDED) {
                let remaining = deadline.since(self.now());
                events::unsure(&self.semaphore, &self.holder, millis(remaining), reason);
            }
        }
    }

    /// Ends the permit as lost, if it has not ended. If this returns true, the loss has to be signalled, by
    /// [`HeldPermit::signal_loss`].
    pub(super) fn end_as_lost(&self, reason: Lost) -> bool {
        let ended = self.end();
        if ended {
            // Only the thread that ended the permit comes here, so the reason is not set yet.
            let _ = self.reason.set(reason);
        }
        ended
    }

    /// Ends the permit without a signal. Returns whether it was held.
    pub(crate) fn end(&self) -> bool {
        self.deadline.swap(ENDED, Ordering::AcqRel) != ENDED
    }

    /// Reports that the caller of an acquisition has the permit. Calls the recorder and the subscriber of the
    /// program.
    pub(super) fn observe_grant(&self, span: AcquireSpan) {
        self.meters.holds(&self.held);
        self.meters.granted(self.waited);
        let Grant { token, slot } = self.grant();
        events::granted(span, &self.semaphore, &self.holder, token, slot.into(), millis(self.waited));
    }

    /// Reports that a caller has got a permit which the session had kept. Calls the recorder and the
    /// subscriber of the program.
    pub(crate) fn observe_local_grant(&self) {
        self.meters.holds(&self.held);
        self.meters.granted_locally();
        let Grant { token, slot } = self.grant();
        events::granted_again(&self.semaphore, &self.holder, token, slot.into());
    }

    /// Reports that the caller of an adoption has the permit. Calls the recorder.
    pub(crate) fn observe_adoption(&self) {
        self.meters.holds(&self.held);
        let Grant { token, slot } = self.grant();
        events::adopted(&self.semaphore, &self.holder, token, slot.into());
    }

    /// Records that the permit has ended, if a caller had it. Calls the recorder.
    pub(super) fn observe_end(&self, now: Moment) {
        let since = Moment::from_micros(self.held_since.load(Ordering::Relaxed));
        self.meters.stops_holding(&self.held, now.since(since));
    }

    /// Why the permit was lost, in the process that acquired it; `None` while it is held, and after a
    /// release.
    pub(super) fn loss(&self) -> Option<Lost> {
        self.reason.get().cloned()
    }
}

impl Drop for PermitState {
    fn drop(&mut self) {
        let key = self.watch.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(key) = key.filter(|_| !self.process.is_forked()) {
            watchdog::forget(key);
        }
    }
}
