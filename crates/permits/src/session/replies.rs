//! What the engine does with the answers to its calls.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::oneshot;

use super::engine::{Call, Engine, Purpose, answer, margin, note_declared, note_trouble};
use super::errand::{Errand, Kind};
use super::held::Held;
use super::lane::{Entry, Stage};
use super::message::{Answer, Ask, Leaving, Opening, Wait};
use crate::clock::Moment;
use crate::error::{AcquireError, AdoptError, Lost, ReleaseError, RenewError};
use crate::events::emit;
use crate::protocol::{
    AcquireOutcome, AdoptRequest, Answers, Label, Name, Refusal, ReleaseOutcome, RenewOutcome, Reply,
    RequestId,
};
use crate::store::StoreError;

/// The first and the last delay before a lane whose call failed sends another.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A recheck comes so much later than the time that it waits for, at most: of many sessions that wait, one
/// comes first and does the work for all.
const RECHECK_JITTER_MS: u64 = 20;

/// How many rechecks may follow one another at once, and the pause before each that comes after them.
const RECHECKS_AT_ONCE: u32 = 32;
const RECHECK_PAUSE: Duration = Duration::from_millis(100);

/// When an answer was asked for by our clock, and given by the server's.
#[derive(Clone, Copy)]
struct Told {
    sent_at: Moment,
    now_us: u64,
}

/// What the store said beside the answers to acquisitions.
#[derive(Clone, Copy)]
struct Found {
    limit: u32,
    pinned: bool,
    recovering: Duration,
}

impl Engine {
    /// A call has returned.
    pub(crate) fn on_return(&mut self, call: Call, result: Result<Reply, StoreError>, now: Moment) {
        let semaphore = call.command.semaphore;
        if let Some(lane) = self.touch(&semaphore) {
            match &call.purpose {
                Purpose::Acquire(_) => lane.acquiring -= 1,
                Purpose::Release(_) => lane.releasing -= 1,
                Purpose::Renew(_) => lane.renewing -= 1,
                Purpose::Confirm { .. } => lane.confirming = false,
                Purpose::Errand(_) => {}
            }
        }
        if let Purpose::Errand(errand) = &call.purpose {
            self.adopting -= usize::from(errand.adoption().is_some());
        }
        match &result {
            Ok(reply) => {
                self.down = None;
                self.note_reply(&semaphore, reply, now);
            }
            Err(error) if error.is_temporary() => {
                self.troubled = true;
                if let Some(lane) = self.lanes.get_mut(&semaphore) {
                    note_trouble(&mut lane.trouble, error.clone(), now);
                }
            }
            Err(_) => {}
        }
        match (call.purpose, result) {
            (
                Purpose::Acquire(ids),
                Ok(Reply {
                    answers: Answers::Acquire(answers), limit, pinned, recovering_ms, now_us, ..
                }),
            ) => {
                let told = Told { sent_at: call.sent_at, now_us };
                let found = Found { limit, pinned, recovering: Duration::from_millis(recovering_ms) };
                for (request, acquired) in ids.iter().zip(answers) {
                    self.on_acquired(&semaphore, request, acquired, found, told, now);
                }
            }
            (Purpose::Release(items), Ok(Reply { answers: Answers::Release(answers), .. })) => {
                for ((_, leaving), released) in items.into_iter().zip(answers) {
                    self.on_released(&semaphore, leaving, released);
                }
            }
            (Purpose::Renew(ids), Ok(Reply { answers: Answers::Renew(answers), now_us, .. })) => {
                let told = Told { sent_at: call.sent_at, now_us };
                for (request, renewed) in ids.iter().zip(answers) {
                    self.on_renewed(&semaphore, request, renewed, told, now);
                }
            }
            (
                Purpose::Confirm { ids, replicas },
                Ok(Reply { answers: Answers::Renew(answers), now_us, .. }),
            ) => {
                let told = Told { sent_at: call.sent_at, now_us };
                for (request, renewed) in ids.iter().zip(answers) {
                    self.on_renewed(&semaphore, request, renewed, told, now);
                    self.on_confirmed(&semaphore, request, replicas, now);
                }
            }
            (Purpose::Errand(errand), Ok(reply)) => self.on_errand(*errand, reply, call.sent_at, now),
            (purpose, result) => {
                let nonsense = || StoreError::Malformed { reason: "an answer to another question".into() };
                let error = result.err().unwrap_or_else(nonsense);
                self.on_failure(&semaphore, purpose, error, now);
            }
        }
    }

    fn note_reply(&mut self, semaphore: &Name, reply: &Reply, now: Moment) {
        let Some(lane) = self.touch(semaphore) else { return };
        lane.failures = 0;
        lane.trouble = None;
        if reply.limit > 0 {
            lane.limit = Some(reply.limit);
        }
        if let Some(from) = reply.replaced_limit {
            emit!(
                WARN,
                [semaphore = semaphore.clone(), to = reply.limit],
                %semaphore,
                from,
                to,
                "the limit declared here has replaced the stored one"
            );
        }
        match reply.recheck_ms {
            // The store has more to reap than fits into a call.
            Some(0) if lane.rechecked_at_once < RECHECKS_AT_ONCE => {
                lane.rechecked_at_once += 1;
                lane.recheck_due = true;
            }
            // Or its state makes no sense.
            Some(0) => {
                let at = now + RECHECK_PAUSE;
                lane.recheck_at = Some(lane.recheck_at.map_or(at, |planned| planned.min(at)));
            }
            Some(milliseconds) => {
                lane.rechecked_at_once = 0;
                let delay = Duration::from_millis(milliseconds + fastrand::u64(1..=RECHECK_JITTER_MS));
                lane.recheck_at = Some(now + delay);
            }
            None => lane.rechecked_at_once = 0,
        }
    }

    fn on_acquired(
        &mut self,
        semaphore: &Name,
        request: &RequestId,
        acquired: AcquireOutcome,
        found: Found,
        told: Told,
        now: Moment,
    ) {
        let is_refused = matches!(acquired, AcquireOutcome::Refused(_));
        if !is_refused || found.pinned {
            self.warn_of_limit(semaphore, request, found.limit);
        }
        let Some(entry) = self.touch(semaphore).and_then(|lane| lane.entries.get_mut(request)) else {
            return;
        };
        // What went before and had no answer may still arrive: `maybe_known` stays.
        if !is_refused {
            // A refused request changes nothing, so its declaration does not count.
            note_declared(entry);
        }
        match (&entry.stage, acquired) {
            // A message was faster than this reply.
            (Stage::Held(_) | Stage::Unconfirmed(_) | Stage::Pending | Stage::Waiting, _) => {}
            (Stage::Asked { .. }, AcquireOutcome::Refused(refusal)) => {
                if let Some(entry) = self.remove(semaphore, request) {
                    let error = self.refusal(refusal, &entry, found);
                    answer(entry.ask, Err(error));
                }
            }
            (Stage::Asked { cancelled: true }, _) => {
                if let Some(entry) = self.remove(semaphore, request) {
                    self.release(semaphore, entry.leaving(), now);
                }
            }
            (Stage::Asked { cancelled: false }, AcquireOutcome::Granted(grant)) => {
                entry.extended = told.sent_at;
                self.grant(semaphore, request, grant, now);
            }
            (Stage::Asked { cancelled: false }, AcquireOutcome::Waiting { .. }) => {
                entry.extended = told.sent_at;
                entry.told_us = told.now_us;
                entry.stage = Stage::Waiting;
                self.plan_renewal(semaphore, request);
            }
        }
    }

    fn refusal(&self, refusal: Refusal, entry: &Entry, found: Found) -> AcquireError {
        let Found { limit, pinned, recovering } = found;
        let semaphore = entry.ask.semaphore.to_string();
        match refusal {
            Refusal::NoPermits => AcquireError::NoPermits,
            Refusal::Recovering => AcquireError::Recovering { remaining: recovering },
            Refusal::ExceedsLimit => {
                let weight = entry.ask.weight;
                // What it exceeds may be the limit declared with it, which a refusal does not store.
                let declared = entry.ask.opening.limit.filter(|declared| !pinned && weight > *declared);
                AcquireError::ExceedsLimit { weight, limit: declared.unwrap_or(limit) }
            }
            Refusal::AlreadyHeld => AcquireError::AlreadyHeld { holder: entry.ask.holder.to_string() },
            Refusal::QueueFull => AcquireError::QueueFull { max: self.config.queue_max },
            Refusal::NoLimit => AcquireError::NoLimit { semaphore },
            Refusal::LimitMismatch => {
                let required = entry.ask.opening.limit.unwrap_or_default();
                AcquireError::LimitMismatch { semaphore, required, stored: limit }
            }
        }
    }

    /// A program that declared another limit than the one in force should know, once.
    fn warn_of_limit(&mut self, semaphore: &Name, request: &RequestId, limit: u32) {
        let Some(lane) = self.touch(semaphore) else { return };
        let declared = lane.entries.get(request).and_then(|entry| entry.ask.opening.limit);
        if let Some(declared) = declared
            && declared != limit
            && limit != 0
            && lane.warned.replace(limit) != Some(limit)
        {
            emit!(
                WARN,
                [semaphore = semaphore.clone()],
                %semaphore,
                declared,
                limit,
                "another limit is in force than the one declared"
            );
        }
    }

    fn on_released(&mut self, semaphore: &Name, leaving: Leaving, released: ReleaseOutcome) {
        if let Some(lane) = self.touch(semaphore) {
            lane.leaving.remove(&leaving.request);
        }
        if let Some(answer) = leaving.answer {
            let gone = released == ReleaseOutcome::Unknown && !leaving.sent_before;
            // Nobody may be waiting for it.
            let _ = answer.send(if gone { Err(ReleaseError::Lost(Lost::Gone)) } else { Ok(()) });
        }
    }

    fn on_renewed(
        &mut self,
        semaphore: &Name,
        request: &RequestId,
        renewed: RenewOutcome,
        told: Told,
        now: Moment,
    ) {
        let Some(lane) = self.touch(semaphore) else { return };
        let Some(entry) = lane.entries.get_mut(request) else { return };
        match (&entry.stage, renewed) {
            (Stage::Held(core), RenewOutcome::Held | RenewOutcome::Granted(_)) => {
                let lease = entry.ask.lease;
                core.extend(told.sent_at + lease.saturating_sub(margin(lease)));
                entry.extended = told.sent_at;
            }
            (Stage::Held(core), RenewOutcome::RetryLater) => {
                core.mark_unsure();
                let soon = now + (entry.ask.lease / 30).max(RETRY.0);
                lane.renew_at = Some(lane.renew_at.map_or(soon, |at| at.min(soon)));
            }
            // It waited when the store answered; the message of its grant was faster than this.
            (Stage::Held(_), RenewOutcome::Waiting { .. }) => {}
            (Stage::Held(core), RenewOutcome::Lost | RenewOutcome::ExceedsLimit) => {
                core.lose(Lost::Gone);
                self.remove(semaphore, request);
            }
            (Stage::Waiting, RenewOutcome::Granted(grant)) => {
                entry.extended = told.sent_at;
                self.grant(semaphore, request, grant, now);
            }
            (Stage::Waiting, RenewOutcome::Waiting { .. }) => {
                entry.extended = told.sent_at;
                entry.told_us = told.now_us;
            }
            (Stage::Unconfirmed(_), RenewOutcome::Held | RenewOutcome::Granted(_)) => {
                entry.extended = told.sent_at
            }
            // The store has lost it before anybody had it: to the back of the line.
            (Stage::Unconfirmed(_), _) => {
                entry.told_us = told.now_us;
                lane.queue(request);
            }
            (Stage::Waiting, RenewOutcome::ExceedsLimit) => self.refuse_heavy(semaphore, request),
            // Its place in line is lost: to the back of it.
            (Stage::Waiting, _) => {
                entry.told_us = told.now_us;
                lane.queue(request);
            }
            // Not renewed; it has moved on since the call was sent.
            (Stage::Pending | Stage::Asked { .. }, _) => {}
        }
    }

    /// So many replicas have what the store has granted.
    fn on_confirmed(&mut self, semaphore: &Name, request: &RequestId, confirmed: u32, now: Moment) {
        let Some(entry) = self.touch(semaphore).and_then(|lane| lane.entries.get(request)) else { return };
        let Stage::Unconfirmed(grant) = entry.stage else { return };
        let wanted = self.config.replicas;
        if confirmed >= wanted {
            self.hand_out(semaphore, request, grant, now);
        } else {
            self.fail(semaphore, request, AcquireError::NotReplicated { confirmed, wanted }, now);
        }
    }

    fn on_errand(&mut self, errand: Errand, reply: Reply, sent_at: Moment, now: Moment) {
        match (errand.kind, reply) {
            (Kind::Admin(answer), reply) => drop(answer.send(Ok(reply))),
            (Kind::Renew(answer), Reply { answers: Answers::Renew(mut answers), now_us, .. }) => {
                let request = match &errand.operation {
                    crate::protocol::Operation::Renew(items) => items[0].request.clone(),
                    _ => return,
                };
                let Some(renewed) = answers.pop() else { return };
                let again = renewed == RenewOutcome::RetryLater;
                self.on_renewed(&errand.semaphore, &request, renewed, Told { sent_at, now_us }, now);
                let held =
                    self.lanes.get(&errand.semaphore).is_some_and(|lane| lane.entries.contains_key(&request));
                if again {
                    let reason = "it lost its state, and will take the permit back when it fits".into();
                    drop(answer.send(Err(RenewError::Store(StoreError::Unreachable { reason }))));
                } else if held {
                    drop(answer.send(Ok(())));
                }
                // Otherwise the permit is lost, and knows why.
            }
            (Kind::Adopt(adopt, answer), Reply { answers: Answers::Adopt(true), .. }) => {
                self.adopt(&errand.semaphore, adopt, answer, sent_at, now);
            }
            (Kind::Adopt(_, answer), Reply { answers: Answers::Adopt(false), .. }) => {
                drop(answer.send(Err(AdoptError::Gone)));
            }
            // An answer to another question: whoever waits sees the channel close.
            (Kind::Renew(_) | Kind::Adopt(..), _) => {}
        }
    }

    /// Makes an entry of a permit that another process acquired. It is granted to whoever asked to adopt.
    fn adopt(
        &mut self,
        semaphore: &Name,
        adopt: AdoptRequest,
        to: Answer<Held, AdoptError>,
        sent_at: Moment,
        now: Moment,
    ) {
        let (sender, mut receiver) = oneshot::channel();
        let AdoptRequest { holder, weight, lease_ms, grant, new_request: request, .. } = adopt;
        let ask = Ask {
            semaphore: semaphore.clone(),
            holder,
            request: request.clone(),
            label: Label::default(),
            weight,
            lease: Duration::from_millis(lease_ms),
            wait: Wait::No,
            renew: true,
            opening: Arc::new(Opening { limit: None, require: false, declared: AtomicBool::new(true) }),
            answer: sender,
        };
        self.insert_asked(ask, sent_at);
        if self.closing.is_some() {
            // Taken over, and nobody will renew it.
            self.withdraw_held(semaphore, &request, now);
            return drop(to.send(Err(AdoptError::Closed)));
        }
        self.hand_out(semaphore, &request, grant, now);
        let held = match receiver.try_recv() {
            Ok(Ok(held)) => Ok(held),
            _ => {
                // The answer took longer than the lease.
                self.remove(semaphore, &request);
                Err(AdoptError::Gone)
            }
        };
        // If the caller is gone, what comes back is dropped here, and that releases it.
        drop(to.send(held));
    }

    fn on_failure(&mut self, semaphore: &Name, purpose: Purpose, error: StoreError, now: Moment) {
        let retry = error.is_temporary();
        if let Some(lane) = self.touch(semaphore)
            && !matches!(purpose, Purpose::Errand(_))
        {
            lane.failures = lane.failures.saturating_add(1);
            let delay = RETRY.0.saturating_mul(1 << lane.failures.min(10)).min(RETRY.1);
            lane.retry_at = Some(now + delay.mul_f64(0.5 + fastrand::f64() / 2.0));
        }
        match purpose {
            Purpose::Acquire(ids) => {
                for request in ids {
                    self.on_acquire_failed(semaphore, &request, &error, now);
                }
            }
            Purpose::Release(items) => self.on_release_failed(semaphore, items, &error, now),
            Purpose::Renew(ids) => {
                let Some(lane) = self.touch(semaphore) else { return };
                lane.renew_due = true;
                for request in ids {
                    if let Some(Stage::Held(core)) = lane.entries.get(&request).map(|entry| &entry.stage) {
                        core.mark_unsure();
                    }
                }
            }
            Purpose::Confirm { ids, .. } => {
                for request in ids {
                    match self.touch(semaphore) {
                        Some(lane) if retry => lane.unconfirmed.push(request),
                        _ => self.fail(semaphore, &request, AcquireError::Store(error.clone()), now),
                    }
                }
            }
            Purpose::Errand(errand) if self.closing.is_some() => {
                if let Some(adopt) = errand.adoption().filter(|_| error.is_outcome_unknown()) {
                    // It may be ours, and nobody will renew it.
                    let leaving = Leaving {
                        holder: adopt.holder.clone(),
                        request: adopt.new_request.clone(),
                        lease: Duration::from_millis(adopt.lease_ms),
                        sent_before: true,
                        answer: None,
                    };
                    self.release(semaphore, leaving, now);
                }
                errand.fail_closed();
            }
            Purpose::Errand(errand) if retry && !matches!(errand.kind, Kind::Renew(_)) => {
                self.errands.again(*errand, error, now);
            }
            Purpose::Errand(errand) => errand.fail(error),
        }
    }

    fn on_acquire_failed(&mut self, semaphore: &Name, request: &RequestId, error: &StoreError, now: Moment) {
        let Some(lane) = self.touch(semaphore) else { return };
        let Some(entry) = lane.entries.get_mut(request) else { return };
        entry.maybe_known |= error.is_outcome_unknown();
        let known = entry.maybe_known;
        match entry.stage {
            Stage::Asked { cancelled: false } if error.is_temporary() => lane.queue(request),
            Stage::Asked { cancelled } => {
                let Some(entry) = self.remove(semaphore, request) else { return };
                if known {
                    self.release(semaphore, entry.leaving(), now);
                }
                if !cancelled {
                    answer(entry.ask, Err(AcquireError::Store(error.clone())));
                }
            }
            Stage::Pending | Stage::Waiting | Stage::Unconfirmed(_) | Stage::Held(_) => {}
        }
    }

    fn on_release_failed(
        &mut self,
        semaphore: &Name,
        items: Vec<(Moment, Leaving)>,
        error: &StoreError,
        now: Moment,
    ) {
        let Some(lane) = self.touch(semaphore) else { return };
        // Back to the front, in their order.
        for (until, mut leaving) in items.into_iter().rev() {
            leaving.sent_before |= error.is_outcome_unknown();
            if error.is_temporary() && now < until {
                lane.releases.push_front((until, leaving));
                continue;
            }
            lane.leaving.remove(&leaving.request);
            match leaving.answer {
                // Whoever waited may be gone.
                Some(answer) => drop(answer.send(Err(ReleaseError::Store(error.clone())))),
                None => {
                    emit!(
                        WARN,
                        [semaphore = semaphore.clone(), holder = leaving.holder, error = error.clone()],
                        %semaphore,
                        %holder,
                        %error,
                        "not released: it ends with its lease"
                    );
                }
            }
        }
    }
}
