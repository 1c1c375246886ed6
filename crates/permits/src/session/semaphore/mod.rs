//! A semaphore's part of a session: its acquisitions, the calls about them, and the effects of the replies.
//!
//! Each acquisition decides for itself ([`Acquisition::step`]); this module carries out its effects. `calls`
//! makes batches, and `replies` hands the replies to the acquisitions. `held` is about permits that callers
//! hold, `ends` about ends by time, in an outage and with the session, and `late` about callers whose time is
//! up.

mod calls;
mod ends;
mod entry;
mod held;
mod kept;
mod late;
mod outages;
mod reason;
mod releases;
mod replies;
mod schedule;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use self::entry::{Entry, InFlight};
use self::late::LateCallers;
use self::outages::Outages;
use self::releases::Releases;
use self::schedule::Schedule;
pub(super) use self::view::View;
use super::Config;
use super::callers::{PendingRelease, PermitGuard, Session, Shared};
use super::outbox::Answer;
use super::outbox::Outbox;
use super::permit_state::PermitState;
use super::shelf::Shelf;
use super::spec::{AcquireSpec, Wait};
use super::timers::{self, Retry, Timer, Timers};
use super::{Map, Set};
use crate::acquisition::{Acquisition, Effect, Input, ReplyTimes, Stage, Terms};
use crate::clock::Moment;
use crate::error::{AcquireError, Lost};
use crate::keeping::Notice;
use crate::model::RECALL_US;
use crate::observe::events;
use crate::protocol::{Declaration, Event, EventKind, Grant, Name, RequestId, RequestKey};
use crate::timing::{call_timeout, renew_every, retry_reclaim_after, spread};
use permits_store::StoreError;

/// How often a semaphore looks for idle permits, at most.
const LEAST_IDLE: Duration = Duration::from_millis(10);

/// How long other sessions have to release what they keep, before a request that does not wait is refused.
const RECALL: Duration = Duration::from_micros(RECALL_US);

/// A step of the engine: its time, and the state that all semaphores of the session share.
pub(super) struct Step {
    /// The time at which the step began.
    pub(super) now: Moment,
    pub(super) config: Config,
    /// Weak, so that the session ends when no client and no permit of it is left.
    pub(super) session: Weak<Shared>,
    pub(super) timers: Timers<Timer>,
    /// The deliveries to make when the lock is free.
    pub(super) outbox: Outbox,
    /// The number of acquisitions that have arrived.
    pub(super) arrivals: u64,
}

/// A semaphore's part of a session. It exists as long as there is something in it.
pub(super) struct SemaphoreSession {
    name: Name,
    acquisitions: Map<RequestId, Entry>,
    /// Acquisitions to send, in the order of their arrival.
    unsent: BTreeMap<u64, RequestId>,
    /// Grants that the replicas have yet to be asked about.
    unconfirmed: Vec<RequestId>,
    releases: Releases,
    late: LateCallers,
    in_flight: InFlight,
    /// Permits that were handed over while a renewal was in flight. The reply to that renewal is about a
    /// permit of another process.
    handed_over: Set<RequestId>,
    schedule: Schedule,
    /// The error of the last call, if it failed.
    failure: Option<StoreError>,
    outages: Outages,
    /// The timer for the earliest time in the schedule.
    timer: Option<timers::Key>,
    /// The semaphore is in the engine's list of dirty semaphores.
    pub(super) dirty: bool,
    /// The shortest lease that any request for this semaphore has had.
    shortest_lease: Option<Duration>,
    /// The times of the last reply. The server's time at any later moment follows from them.
    replied: Option<ReplyTimes>,
    /// The semaphore, as the last reply reported it.
    view: View,
    /// The shelf of kept permits, once a permit may be kept.
    shelf: Option<Arc<Shelf>>,
}

impl SemaphoreSession {
    pub(super) fn new(name: Name, view: View) -> Self {
        Self {
            name,
            acquisitions: Map::default(),
            unsent: BTreeMap::new(),
            unconfirmed: Vec::new(),
            releases: Releases::default(),
            late: LateCallers::default(),
            in_flight: InFlight::default(),
            handed_over: Set::default(),
            schedule: Schedule::default(),
            failure: None,
            outages: Outages::default(),
            timer: None,
            dirty: false,
            shortest_lease: None,
            replied: None,
            view,
            shelf: None,
        }
    }

    /// Returns the view, because the semaphore is no longer used.
    pub(super) fn into_view(self) -> View {
        self.view
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_unused = self.unreturned() == 0 && self.late.is_empty();
        is_unused && !self.has_call_in_flight() && !self.schedule.recheck.is_due
    }

    pub(super) fn has_call_in_flight(&self) -> bool {
        let InFlight {
            acquiring,
            acquisitions: _,
            releasing,
            releases: _,
            renewing,
            confirming,
            inspecting,
            unanswered_since: _,
        } = self.in_flight;
        acquiring + releasing + renewing + confirming + inspecting > 0
    }

    /// The number of acquisitions and unconfirmed releases.
    pub(super) fn unreturned(&self) -> usize {
        self.acquisitions.len() + self.releases.len() + self.in_flight.releases
    }

    pub(super) fn acquire(
        &mut self,
        spec: AcquireSpec,
        answer: Answer<PermitGuard, AcquireError>,
        step: &mut Step,
    ) {
        let now = step.now;
        self.use_shelf(&spec);
        let request = spec.request.clone();
        let longest = match spec.client.wait {
            // The request does not wait in line. The limit covers only the time until the store replies.
            Wait::No => Some(call_timeout(step.config.lease)),
            Wait::AtMost(limit) => Some(limit),
            Wait::Forever => None,
        };
        let timer = longest.map(|longest| {
            step.timers.set(now + longest, Timer::Acquisition(self.name.clone(), request.clone()))
        });
        let arrival = self.insert(spec, Acquisition::new(now), Some(answer), step);
        if let Some(entry) = self.acquisitions.get_mut(&request) {
            entry.timer = timer;
        }
        self.unsent.insert(arrival, request);
    }

    fn insert(
        &mut self,
        spec: AcquireSpec,
        acquisition: Acquisition,
        answer: Option<Answer<PermitGuard, AcquireError>>,
        step: &mut Step,
    ) -> u64 {
        let now = step.now;
        step.arrivals += 1;
        let arrival = step.arrivals;
        let lease = spec.terms.lease();
        self.shortest_lease = Some(self.shortest_lease.map_or(lease, |shortest| shortest.min(lease)));
        let entry = Entry {
            spec,
            lease_version: 0,
            acquisition,
            answer,
            permit: None,
            arrival,
            arrived_at: now,
            timer: None,
            recalls: false,
            is_claimed: false,
        };
        self.acquisitions.insert(entry.spec.request.clone(), entry);
        arrival
    }

    /// Steps an acquisition, and carries out the effect.
    fn step(&mut self, request: &RequestId, input: Input, step: &mut Step) {
        let now = step.now;
        let reason = self.reason(request, &input, step);
        let Some(entry) = self.acquisitions.get_mut(request) else { return };
        let terms = terms(entry, step);
        let effect = entry.acquisition.step(input, &terms, now);
        if entry.acquisition.stage != Stage::Unsent {
            self.unsent.remove(&entry.arrival);
        }
        match effect {
            Effect::None => {}
            Effect::Send => drop(self.unsent.insert(entry.arrival, request.clone())),
            Effect::Wait { position } => {
                if entry.spec.client.wait == Wait::No {
                    if std::mem::replace(&mut entry.recalls, true) {
                        return;
                    }
                    // Other sessions release what they keep. If that is not enough, the request is refused.
                    step.timers.remove(entry.timer.take());
                    let timer = Timer::Acquisition(self.name.clone(), request.clone());
                    entry.timer = Some(step.timers.set(now + RECALL, timer));
                } else if entry.spec.position.set(position, now) {
                    let AcquireSpec { semaphore, holder, meters, span, .. } = &entry.spec;
                    events::waiting(span.clone(), semaphore, holder, position);
                    step.outbox.tally.waits(meters.clone(), &entry.spec.position.waiting);
                }
                self.plan_renewal(request);
            }
            Effect::Renew => self.schedule.renewal.is_due = true,
            Effect::Confirm => {
                if entry.recalls {
                    // The wait for the recall is over. That for the replicas is bounded as that for a reply.
                    entry.recalls = false;
                    step.timers.remove(entry.timer.take());
                    let timer = Timer::Acquisition(self.name.clone(), request.clone());
                    entry.timer = Some(step.timers.set(now + call_timeout(step.config.lease), timer));
                }
                self.unconfirmed.push(request.clone());
                self.plan_renewal(request);
            }
            Effect::Deliver { grant, until } => self.deliver(request, grant, until, step),
            Effect::Extend { until } => {
                entry.permit.iter().for_each(|permit| permit.extend(until));
            }
            Effect::MarkUnsure => {
                if let (Some(permit), Some(reason)) = (&entry.permit, &reason) {
                    permit.mark_unsure(reason);
                }
            }
            Effect::RenewSoon => {
                let reason = "the store has lost its state, and cannot put the permit back yet";
                entry.permit.iter().for_each(|permit| permit.mark_unsure(&reason));
                let soon = now + retry_reclaim_after(entry.spec.terms.lease());
                self.schedule.renewal.hasten(soon);
            }
            Effect::Lose { revoked } => {
                let lost = revoked.map_or(Lost::Gone, |reason| Lost::Revoked { reason });
                let permit = entry.permit.clone();
                if let Some(permit) = permit.filter(|permit| !self.was_kept(permit)) {
                    step.outbox.lose(&permit, lost);
                }
                self.forget(request, step);
            }
            Effect::ReleaseBehind => {
                let release = entry.to_release();
                self.queue_release(release, step);
            }
            Effect::End { release } => {
                let Some(mut entry) = self.forget(request, step) else { return };
                match reason {
                    Some(reason) => entry.answer(Err(reason), &mut step.outbox),
                    None => step.outbox.discard(entry.answer.take()),
                }
                if release {
                    self.queue_release(entry.to_release(), step);
                }
            }
        }
    }

    /// Steps an acquisition. If it has ended, releases what the store may still have of it.
    fn step_or_release(&mut self, request: RequestKey, input: Input, step: &mut Step) {
        if self.acquisitions.contains_key(&request.request) {
            self.step(&request.request, input, step);
        } else if !self.handed_over.contains(&request.request) {
            self.step_unknown(request, input, step);
        }
    }

    /// Steps an acquisition that has ended: if the store grants it or queues it all the same, releases it.
    fn step_unknown(&mut self, request: RequestKey, input: Input, step: &mut Step) {
        let now = step.now;
        let lease = step.config.lease;
        let terms = Terms { lease, replicated: false };
        if Acquisition::ended().step(input, &terms, now) == (Effect::End { release: true }) {
            // The request's own lease is forgotten. If it was longer, this release is given up too early.
            let release = PendingRelease {
                request,
                lease,
                last_token: None,
                counted: None,
                sent_before: true,
                answer: None,
            };
            self.queue_release(release, step);
        }
    }

    /// Delivers a permit to its caller.
    fn deliver(&mut self, request: &RequestId, grant: Grant, until: Moment, step: &mut Step) {
        match self.hold(request, grant, until, step) {
            // If the caller has dropped its receiver, this drops the permit, which releases it.
            Some(permit) => {
                if let Some(entry) = self.acquisitions.get_mut(request) {
                    entry.answer(Ok(permit.on_its_way()), &mut step.outbox);
                }
            }
            None => self.step(request, Input::Released, step),
        }
    }

    /// Makes a permit that is held until `until`; `None` if the session ends.
    fn hold(
        &mut self,
        request: &RequestId,
        grant: Grant,
        until: Moment,
        step: &mut Step,
    ) -> Option<PermitGuard> {
        let now = step.now;
        let session = Session::from(step.session.upgrade()?);
        let entry = self.acquisitions.get_mut(request)?;
        let granted = (now, now.since(entry.arrived_at));
        let until = entry.spec.client.max_hold.map_or(until, |longest| until.min(now + longest));
        let requested = entry.spec.requested(step.config.clock);
        let permit = PermitState::new(requested, grant, until, granted, session.process());
        let permit = Arc::new(permit);
        entry.permit = Some(permit.clone());
        step.timers.remove(entry.timer.take());
        let timer = Timer::Acquisition(self.name.clone(), request.clone());
        entry.timer = Some(step.timers.set(until, timer));
        let keep = entry.spec.keep.clone();
        self.plan_renewal(request);
        if let Some(keep) = &keep {
            self.schedule.give_back_by(now + keep.idle.max(LEAST_IDLE));
        }
        Some(PermitGuard::new(permit, session, keep))
    }

    /// Removes an acquisition and its timer.
    fn forget(&mut self, request: &RequestId, step: &mut Step) -> Option<Entry> {
        let entry = self.acquisitions.remove(request)?;
        self.unsent.remove(&entry.arrival);
        step.timers.remove(entry.timer);
        Some(entry)
    }

    fn queue_release(&mut self, release: PendingRelease, step: &mut Step) {
        let now = step.now;
        if let Some(again) = self.releases.push(release, now) {
            step.outbox.discard(again);
        }
    }

    /// Releases a permit that its caller has released or dropped.
    pub(super) fn release(&mut self, release: PendingRelease, step: &mut Step) {
        if let Some(entry) = self.forget(&release.request.request, step)
            && let Some(permit) = entry.permit
        {
            permit.end();
        }
        self.queue_release(release, step);
    }

    /// Withdraws a request whose caller no longer waits. At any stage, nothing of it stays behind.
    fn cancel(&mut self, request: &RequestId, step: &mut Step) {
        if let Some(entry) = self.acquisitions.get_mut(request)
            && entry.permit.is_none()
        {
            step.timers.remove(entry.timer.take());
        }
        self.step(request, Input::Withdrawn, step);
    }

    /// Answers a caller that still waits with an error, and cancels its request. If the request was granted,
    /// the caller has the permit instead.
    pub(super) fn fail(&mut self, request: &RequestId, error: AcquireError, step: &mut Step) {
        if self.late.has(request) {
            self.answer_late(request, |_| error, step);
        } else if let Some(entry) = self.acquisitions.get_mut(request) {
            entry.answer(Err(error), &mut step.outbox);
            self.cancel(request, step);
        }
    }

    /// Takes an event that the store has pushed about a request of this session.
    pub(super) fn on_event(&mut self, event: Event, step: &mut Step) {
        let now = step.now;
        let Event { holder, request, kind, .. } = event;
        if let EventKind::Turn(delay_us) = kind {
            return self.schedule.recheck.at_turn(now + Duration::from_micros(delay_us), 0);
        }
        let Some(entry) = self.acquisitions.get_mut(&request) else {
            return self.step_or_release(RequestKey { holder, request }, Input::Pushed(kind), step);
        };
        if entry.spec.holder != holder {
            // The event is for another holder. Releasing its grant would take the permit from that holder.
            return;
        }
        let error = match &kind {
            EventKind::Revoked(reason) => Some(AcquireError::Revoked { reason: reason.clone() }),
            EventKind::LineClosed(reason) => Some(AcquireError::LineClosed { reason: reason.clone() }),
            EventKind::Superseded => Some(entry.spec.superseded()),
            EventKind::Granted(_) | EventKind::Refused | EventKind::Turn(_) => None,
        };
        if let Some(error) = error {
            entry.answer(Err(error), &mut step.outbox);
        }
        self.step(&request, Input::Pushed(kind), step);
    }

    /// Renews everything, without waiting for a retry, because the store can be reached again.
    pub(super) fn on_reconnected(&mut self, step: &mut Step) {
        self.note(Notice::Unsure, step);
        let by_the_program = |entry: &&mut Entry| entry.permit.is_some() && !entry.spec.client.auto_renew;
        for entry in self.acquisitions.values_mut().filter(by_the_program) {
            // One version is for the claim, and a later one for the program's own renewal.
            entry.is_claimed = true;
            entry.lease_version += 2;
        }
        self.schedule.renewal.is_due = true;
        self.schedule.retry = Retry::default();
        self.schedule.confirm_retry = Retry::default();
    }

    /// Makes due whatever the schedule has for now.
    pub(super) fn on_time(&mut self, step: &mut Step) {
        let now = step.now;
        self.timer = None;
        self.schedule.renewal.on_time(now);
        // A message may have granted the waiter that was to be renewed.
        if self.schedule.recheck.comes(now) {
            self.schedule.recheck.is_due |=
                self.schedule.recheck.is_at_once() || self.first_waiter().is_some();
        }
        self.schedule.retry.on_time(now);
        self.schedule.confirm_retry.on_time(now);
        if self.schedule.give_back_at.take_if(|at| *at <= now).is_some() {
            self.give_back_idle(step);
        }
    }

    /// Plans a renewal within a third of the lease of this acquisition, if it needs renewal.
    fn plan_renewal(&mut self, request: &RequestId) {
        let Some(entry) = self.acquisitions.get(request) else { return };
        if entry.needs_renewal() {
            let extended_at = entry.acquisition.extended_at;
            let at = extended_at + spread(renew_every(entry.spec.terms.lease()));
            self.schedule.renewal.plan(extended_at, at);
        }
    }

    /// The declaration of calls that do not declare a limit themselves.
    fn fallback(&self) -> Declaration {
        self.view.limit.map_or(Declaration::Stored, Declaration::Fallback)
    }
}

fn terms(entry: &Entry, step: &Step) -> Terms {
    Terms { lease: entry.spec.terms.lease(), replicated: step.config.replicas > 0 }
}

/// The error for a reply that does not match its request.
pub(super) fn mismatched_reply() -> StoreError {
    StoreError::Malformed { reason: "a reply to another request".into() }
}
