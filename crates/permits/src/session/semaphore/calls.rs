//! The calls to make about a semaphore.
//!
//! **Natural batching.** At most two calls to acquire are in flight, the second only for at least half as
//! many requests as the first. Releases wait by the same rule, but all of them go out before a call to
//! acquire, and at once while nothing is acquired here. Other requests go out in the next call; no clock
//! delays them.
//!
//! **Order.** Acquisitions go out in the order in which they were asked for, and never before a release that
//! was asked for earlier. An operation on the semaphore itself sends the releases first, too, unless they
//! wait for a retry.

use std::time::Duration;

use super::entry::{Entry, InFlight};
use super::{SemaphoreSession, Step};
use crate::acquisition::{Input, Stage, Terms};
use crate::clock::{Moment, millis};
use crate::observe::events;
use crate::protocol::{
    AcquireRequest, Command, Declaration, MAX_BATCH, Operation, RenewRequest, RequestId, RequestKey,
};
use crate::session::call::{Call, CallKind, SentCall};
use crate::session::timers::{Outage, Timer};
use crate::timing::{COMPANIONS_EVERY, call_timeout, renew_every, spread};
use permits_store::StoreError;

/// The most calls to acquire in flight: while the store executes one, the session hands out the replies to
/// the other, and gathers the requests that follow from them. A third call gains nothing
/// (lab/performance.md).
const CALLS_AT_ONCE: usize = 2;

/// Returns true if a call for `requests` requests is due, while `calls` calls of its kind, with `in_flight`
/// requests, are in flight. A second call for a few requests would delay the many that follow.
fn is_worth_a_call(requests: usize, calls: usize, in_flight: usize) -> bool {
    calls == 0 || (calls < CALLS_AT_ONCE && 2 * requests >= in_flight)
}

impl SemaphoreSession {
    /// The calls to make now.
    pub(in crate::session) fn calls(
        &mut self,
        connected: bool,
        down: &Option<Outage>,
        step: &mut Step,
    ) -> Vec<Call> {
        let now = step.now;
        self.dirty = false;
        let mut calls = Vec::new();
        if connected && self.schedule.retry.at.is_none() {
            let acquires = self.may_acquire();
            if acquires || self.may_release() {
                self.release_calls(&mut calls);
            }
            if self.in_flight.renewing == 0 && (self.schedule.renewal.is_due || self.schedule.recheck.is_due)
            {
                self.renewal_calls(now, &mut calls);
            }
            let may_confirm = self.in_flight.confirming == 0 && self.schedule.confirm_retry.at.is_none();
            if may_confirm && !self.unconfirmed.is_empty() {
                let items = self.next_confirmations();
                if !items.is_empty() {
                    self.in_flight.confirming += 1;
                    let requests = items.iter().map(RequestKey::from).collect();
                    calls.push((self.fallback(), Operation::Renew(items), CallKind::Confirm(requests)));
                }
            }
            while self.may_acquire()
                && let Some((declaration, batch)) = self.next_acquisitions(now)
            {
                self.in_flight.acquiring += 1;
                self.in_flight.acquisitions += batch.len();
                let requests = batch.iter().map(RequestKey::from).collect();
                let queue_max = step.config.queue_max;
                let operation = Operation::Acquire { queue_max, requests: batch };
                calls.push((declaration, operation, CallKind::Acquire(requests)));
            }
            if self.in_flight.inspecting == 0
                && let Some(inspection) = self.late.ask()
            {
                self.in_flight.inspecting += 1;
                calls.push((Declaration::Stored, inspection, CallKind::Inspect));
            }
        }
        if !connected && self.schedule.renewal.is_due {
            // A renewal that cannot be sent has failed.
            let unreachable = StoreError::Unreachable { reason: "there is no connection".into() };
            let reason = down.as_ref().map_or(&unreachable, |outage| &outage.error);
            for permit in self.renewed().filter_map(|entry| entry.permit.as_ref()) {
                permit.mark_unsure(reason);
            }
        }
        self.end_unneeded_outages();
        self.set_timer(step);
        self.as_calls(calls, step)
    }

    /// The releases to send before a single call, which must find the units free that were released before
    /// it.
    pub(in crate::session) fn releases_first(&mut self, step: &Step) -> Vec<Call> {
        let mut calls = Vec::new();
        if self.schedule.retry.at.is_none() {
            self.release_calls(&mut calls);
        }
        self.as_calls(calls, step)
    }

    fn as_calls(&mut self, calls: Vec<(Declaration, Operation, CallKind)>, step: &Step) -> Vec<Call> {
        let now = step.now;
        self.in_flight.note(false, now);
        let timeout = call_timeout(self.shortest_lease.unwrap_or(step.config.lease));
        calls
            .into_iter()
            .map(|(declaration, operation, kind)| Call {
                command: step.command(&self.name, declaration, operation),
                timeout,
                replicas: if matches!(kind, CallKind::Confirm(_)) { step.config.replicas } else { 0 },
                sent: SentCall { semaphore: self.name.clone(), sent_at: now, until: now + timeout, kind },
            })
            .collect()
    }

    /// Returns true if acquisitions go out now.
    fn may_acquire(&self) -> bool {
        let InFlight { acquiring, acquisitions, .. } = self.in_flight;
        !self.unsent.is_empty() && is_worth_a_call(self.unsent.len(), acquiring, acquisitions)
    }

    /// Returns true if releases go out now. While the session also acquires here, they wait for the call in
    /// flight, and then travel in batches. Otherwise they go out at once: when a program drops its permits
    /// and ends, no later request would carry them.
    fn may_release(&self) -> bool {
        let InFlight { acquiring, releasing, releases, .. } = self.in_flight;
        is_worth_a_call(self.releases.len(), releasing, releases)
            || (acquiring == 0 && self.unsent.is_empty())
    }

    /// Makes calls for all releases. They go before the acquisitions, so that a holder which returns at once
    /// finds its units free.
    fn release_calls(&mut self, calls: &mut Vec<(Declaration, Operation, CallKind)>) {
        while !self.releases.is_empty() {
            let releases = self.releases.take_batch();
            self.in_flight.releases += releases.len();
            let requests = releases.iter().map(|(_, release)| release.to_request()).collect();
            self.in_flight.releasing += 1;
            calls.push((Declaration::Stored, Operation::Release(requests), CallKind::Release(releases)));
        }
    }

    /// Removes the timer, because the semaphore is no longer needed.
    pub(in crate::session) fn remove_timer(&mut self, step: &mut Step) {
        step.timers.remove(self.timer.take());
    }

    fn set_timer(&mut self, step: &mut Step) {
        let next = self.schedule.next();
        if self.timer.map(|(at, _)| at) != next {
            self.remove_timer(step);
            self.timer = next.map(|at| step.timers.set(at, Timer::Semaphore(self.name.clone())));
        }
    }

    /// Makes calls that renew everything, in parts; or one waiter only, so that the store lets time take
    /// effect.
    fn renewal_calls(&mut self, now: Moment, calls: &mut Vec<(Declaration, Operation, CallKind)>) {
        self.handed_over.clear();
        let mut items: Vec<RenewRequest> = if self.schedule.renewal.is_due {
            self.renewed().map(|entry| entry.to_renewal_or_claim(now)).collect()
        } else {
            self.first_waiter().map(Entry::to_renewal).into_iter().collect()
        };
        // Permits come first: if many waiters make the store slow, it has renewed the permits by then.
        items.sort_by_key(|renew| renew.grant.is_none());
        if self.schedule.renewal.is_due {
            let interval = self.renewal_interval();
            let late = self.schedule.renewal.sent(interval.map(|interval| now + spread(interval)), now);
            // The renewal is so late that the next one would be due by now.
            if let Some(late) = late.filter(|late| interval.is_some_and(|interval| *late > interval)) {
                events::renewal_late(&self.name, millis(late));
            }
        }
        // Send a recheck even if there is nothing to renew: it lets the store finish work that it has left.
        let recheck = std::mem::take(&mut self.schedule.recheck.is_due);
        let declaration = self.fallback();
        while !items.is_empty() || (recheck && self.in_flight.renewing == 0) {
            let part: Vec<_> = items.drain(..items.len().min(MAX_BATCH)).collect();
            let requests = part.iter().map(|renew| (renew.into(), renew.lease_version)).collect();
            self.in_flight.renewing += 1;
            calls.push((declaration, Operation::Renew(part), CallKind::Renew(requests)));
        }
    }

    /// The next acquisitions to send: as many as go into one call, which has one declaration.
    fn next_acquisitions(&mut self, now: Moment) -> Option<(Declaration, Vec<AcquireRequest>)> {
        let mut batch: Option<(Declaration, Vec<AcquireRequest>)> = None;
        let fallback = self.fallback();
        while let Some(first) = self.unsent.first_entry() {
            let entry = self.acquisitions.get_mut(first.get()).expect("unsent acquisitions have entries");
            // The store has forgotten this waiter, which brings the limit under which it was queued.
            let was_queued = entry.acquisition.last_answer_us > 0 && entry.spec.limit.limit().is_none();
            let declaration = if was_queued { fallback } else { entry.spec.limit.next() };
            let (declared, requests) = batch.get_or_insert((declaration, Vec::new()));
            if *declared != declaration || requests.len() == MAX_BATCH {
                break;
            }
            first.remove();
            let terms = Terms { lease: entry.spec.terms.lease(), replicated: false };
            entry.acquisition.step(Input::Sent, &terms, now);
            requests.push(entry.spec.to_request(entry.acquisition.last_answer_us == 0));
        }
        batch
    }

    /// The next grants to ask the replicas about.
    fn next_confirmations(&mut self) -> Vec<RenewRequest> {
        let count = self.unconfirmed.len().min(MAX_BATCH);
        let granted = |request: RequestId| {
            let entry = self.acquisitions.get(&request)?;
            matches!(entry.acquisition.stage, Stage::Unconfirmed(_)).then(|| entry.to_renewal())
        };
        self.unconfirmed.drain(..count).filter_map(granted).collect()
    }

    fn renewed(&self) -> impl Iterator<Item = &Entry> {
        self.acquisitions.values().filter(|entry| entry.needs_renewal())
    }

    /// The interval between two renewals. The shortest lease among the acquisitions that need renewal
    /// decides.
    fn renewal_interval(&self) -> Option<Duration> {
        self.renewed().map(|entry| renew_every(entry.spec.terms.lease())).min()
    }

    /// A waiter to renew, so that the store lets time take effect and reports when to renew it again.
    pub(super) fn first_waiter(&self) -> Option<&Entry> {
        let waiters = self.acquisitions.values().filter(|entry| entry.acquisition.stage == Stage::Waiting);
        waiters.min_by_key(|entry| entry.arrival)
    }

    /// The renewal interval, if a renewal of everything goes out with the next calls.
    pub(in crate::session) fn due_interval(&self) -> Option<Duration> {
        let due = self.schedule.renewal.is_due && self.schedule.retry.at.is_none();
        due.then(|| self.renewal_interval())?
    }

    /// Makes the renewal due now, if at `later` the last one would be too long ago and the next one is
    /// planned for after `later`.
    pub(in crate::session) fn renew_unless_before(&mut self, later: Moment) -> bool {
        self.schedule.renewal.advance_unless_before(later, COMPANIONS_EVERY)
    }
}

impl Step {
    /// Makes a command of this session.
    pub(in crate::session) fn command(
        &self,
        semaphore: &crate::protocol::Name,
        declaration: Declaration,
        operation: Operation,
    ) -> Command {
        Command {
            semaphore: semaphore.clone(),
            session: self.config.session.clone(),
            lease_ms: millis(self.config.lease),
            recovery: self.config.recovery,
            declaration,
            operation,
        }
    }
}
