//! The replies to the calls about a semaphore.

use std::time::Duration;

use super::{SemaphoreSession, Turn, mismatched_reply};
use crate::acquisition::{Failure, Input, ReplyTimes, Stage};
use crate::clock::Moment;
use crate::error::{AcquireError, Lost, ReleaseError};
use crate::keeping::Notice;
use crate::protocol::{
    AcquireOutcome, Answers, Refusal, ReleaseOutcome, RenewOutcome, RenewRequest, Reply, RequestId,
    RequestKey,
};
use crate::session::call::CallKind;
use crate::session::callers::PendingRelease;
use crate::session::outbox::Outbox;
use crate::session::timers::Outage;
use crate::store::{Executed, StoreError};
use crate::timing::BACKOFF;

/// The number of rechecks that may follow one another at once, and the pause before each that comes after
/// them.
const RECHECKS_AT_ONCE: u32 = 32;
const RECHECK_PAUSE: Duration = Duration::from_millis(100);

/// The rest of a reply, beside the outcomes of acquisitions.
#[derive(Clone, Copy)]
struct Circumstances {
    limit: u32,
    pinned: bool,
    recovering: Duration,
}

impl SemaphoreSession {
    /// A call about this semaphore has returned.
    pub(in crate::session) fn on_return(
        &mut self,
        kind: CallKind,
        sent_at: Moment,
        result: Result<Executed, StoreError>,
        turn: &mut Turn,
    ) {
        let now = turn.now;
        match &kind {
            CallKind::Acquire(requests) => {
                self.in_flight.acquiring -= 1;
                self.in_flight.acquisitions -= requests.len();
            }
            CallKind::Release(releases) => {
                self.in_flight.releasing -= 1;
                self.in_flight.releases -= releases.len();
            }
            CallKind::Renew(_) => self.in_flight.renewing -= 1,
            CallKind::Confirm(_) => self.in_flight.confirming -= 1,
            CallKind::Single(_) => {}
        }
        self.in_flight.note(true, now);
        let Executed { reply, confirmed } = match result {
            Ok(executed) => executed,
            Err(error) => return self.on_failure(kind, &error, turn),
        };
        let times = ReplyTimes { sent_at, server_us: reply.now_us };
        let circumstances = Circumstances {
            limit: reply.limit,
            pinned: reply.pinned,
            recovering: Duration::from_millis(reply.recovering_ms),
        };
        match (kind, reply.answers) {
            (CallKind::Acquire(requests), Answers::Acquire(outcomes)) => {
                for (request, outcome) in requests.into_iter().zip(outcomes) {
                    self.on_acquired(request, outcome, circumstances, times, turn);
                }
            }
            (CallKind::Release(releases), Answers::Release(outcomes)) => {
                for ((_, release), outcome) in releases.into_iter().zip(outcomes) {
                    let input = Input::ReleaseReturned { ended: outcome != ReleaseOutcome::Unknown };
                    self.step(&release.request.request, input, None, turn);
                    on_released(release, outcome, &mut turn.outbox);
                }
            }
            (CallKind::Renew(requests), Answers::Renew(outcomes)) => {
                for ((request, lease_version), outcome) in requests.into_iter().zip(outcomes) {
                    self.on_renewed(request, lease_version, outcome, times, turn);
                }
            }
            (CallKind::Confirm(requests), Answers::Renew(outcomes)) => {
                let wanted = turn.config.replicas;
                for (renewed, outcome) in requests.into_iter().zip(outcomes) {
                    let request = renewed.request.clone();
                    self.on_renewed(renewed, 0, outcome, times, turn);
                    let error = AcquireError::NotReplicated { confirmed, wanted };
                    let input = Input::Confirmed { enough: confirmed >= wanted };
                    self.step(&request, input, Some(error), turn);
                }
            }
            (kind, _) => self.on_failure(kind, &mismatched_reply(), turn),
        }
    }

    /// Notes what a reply to any call about this semaphore says of it. See [`Notice::Reply`].
    pub(in crate::session) fn note_reply(&mut self, reply: &Reply, in_order: bool, turn: &mut Turn) {
        let now = turn.now;
        self.failures = 0;
        self.outage = None;
        self.view.note(&self.name, reply);
        let Reply { keepable, limit, .. } = *reply;
        self.note(Notice::Reply { keepable, limit, in_order }, turn);
        match reply.recheck_ms {
            // The store has more to reap than fits into a call.
            Some(0) if self.schedule.rechecked_at_once < RECHECKS_AT_ONCE => {
                self.schedule.rechecked_at_once += 1;
                self.schedule.recheck_due = true;
            }
            // Or its state is damaged.
            Some(0) => self.schedule.recheck_by(now + RECHECK_PAUSE),
            Some(milliseconds) => {
                self.schedule.rechecked_at_once = 0;
                let position = reply.answers.foremost().unwrap_or(0);
                self.schedule.recheck_in_turn(now + Duration::from_millis(milliseconds), position);
            }
            None => self.schedule.rechecked_at_once = 0,
        }
    }

    /// Notes that a call about this semaphore has failed in a way that may pass.
    pub(in crate::session) fn note_outage(&mut self, error: &StoreError, now: Moment) {
        Outage::record(&mut self.outage, error.clone(), now);
    }

    fn on_acquired(
        &mut self,
        RequestKey { holder, request }: RequestKey,
        outcome: AcquireOutcome,
        circumstances: Circumstances,
        times: ReplyTimes,
        turn: &mut Turn,
    ) {
        let refusal = match &outcome {
            AcquireOutcome::Refused(refusal) => Some(refusal.clone()),
            AcquireOutcome::Granted(_) | AcquireOutcome::Waiting { .. } => None,
        };
        if refusal.is_none() || circumstances.pinned {
            self.warn_of_limit(&request, circumstances.limit);
        }
        let input = Input::Acquired(outcome, times);
        let Some(entry) = self.acquisitions.get(&request) else {
            return self.step_unknown(RequestKey { holder, request }, input, turn);
        };
        if refusal.is_none() {
            // A refused request changes nothing, so its declaration does not count.
            entry.spec.limit.note_reply(circumstances.pinned);
        }
        let error = refusal.map(|refusal| self.refusal(refusal, &request, circumstances, turn));
        self.step(&request, input, error.flatten(), turn);
    }

    fn refusal(
        &self,
        refusal: Refusal,
        request: &RequestId,
        circumstances: Circumstances,
        turn: &Turn,
    ) -> Option<AcquireError> {
        let Circumstances { limit, pinned, recovering } = circumstances;
        let spec = &self.acquisitions.get(request)?.spec;
        let semaphore = self.name.to_string();
        Some(match refusal {
            Refusal::NoPermits => AcquireError::NoPermits,
            Refusal::Recovering => AcquireError::Recovering { remaining: recovering },
            Refusal::Cooling { remaining_ms } => {
                AcquireError::Cooling { remaining: Duration::from_millis(remaining_ms) }
            }
            Refusal::Paused { remaining_ms } => {
                AcquireError::Paused { remaining: remaining_ms.map(Duration::from_millis) }
            }
            Refusal::LineClosed(reason) => AcquireError::LineClosed { reason },
            Refusal::ExceedsLimit => {
                let weight = spec.terms.weight;
                // The limit may be the declared one, which a refusal does not store.
                let declared = spec.limit.limit().filter(|declared| !pinned && weight > *declared);
                AcquireError::ExceedsLimit { weight, limit: declared.unwrap_or(limit) }
            }
            Refusal::AlreadyHeld => AcquireError::AlreadyHeld { holder: spec.holder.to_string() },
            Refusal::Superseded => spec.superseded(),
            Refusal::QueueFull => AcquireError::QueueFull { max: turn.config.queue_max },
            Refusal::NoLimit => AcquireError::NoLimit { semaphore },
            Refusal::LimitMismatch => {
                let required = spec.limit.limit().unwrap_or_default();
                AcquireError::LimitMismatch { semaphore, required, stored: limit }
            }
        })
    }

    /// Warns if the limit in force is not the one that this program declared.
    fn warn_of_limit(&mut self, request: &RequestId, limit: u32) {
        let declared = self.acquisitions.get(request).and_then(|entry| entry.spec.limit.limit());
        if let Some(declared) = declared {
            self.view.warn_of_limit(&self.name, declared, limit);
        }
    }

    fn on_renewed(
        &mut self,
        renewed: RequestKey,
        lease_version: u32,
        outcome: RenewOutcome,
        times: ReplyTimes,
        turn: &mut Turn,
    ) {
        let entry = self.acquisitions.get(&renewed.request);
        if entry.is_some_and(|entry| lease_version < entry.lease_version) && outcome == RenewOutcome::Held {
            // It extended another lease.
            return;
        }
        let limit = self.view.limit.unwrap_or_default();
        let error = entry.map(|entry| match &outcome {
            RenewOutcome::LineClosed(reason) => AcquireError::LineClosed { reason: reason.clone() },
            _ => AcquireError::ExceedsLimit { weight: entry.spec.terms.weight, limit },
        });
        self.step_or_release(renewed, Input::Renewed(outcome, times), error, turn);
    }

    /// The reply to a renewal that the caller asked for. Returns whether the permit is still held.
    pub(in crate::session) fn on_single_renewal(
        &mut self,
        renewal: &RenewRequest,
        outcome: RenewOutcome,
        times: ReplyTimes,
        turn: &mut Turn,
    ) -> bool {
        if self.acquisitions.contains_key(&renewal.request) {
            self.on_renewed(renewal.into(), renewal.lease_version, outcome, times, turn);
        }
        let entry = self.acquisitions.get(&renewal.request);
        entry.is_some_and(|entry| matches!(entry.acquisition.stage, Stage::Held(_)))
    }

    fn on_failure(&mut self, kind: CallKind, error: &StoreError, turn: &mut Turn) {
        let now = turn.now;
        if matches!(kind, CallKind::Single(_)) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.schedule.retry_at = Some(now + BACKOFF.pause(self.failures));
        let failure =
            Failure { temporary: error.is_temporary(), outcome_unknown: error.is_outcome_unknown() };
        let failed = || Some(AcquireError::Store(error.clone()));
        match kind {
            CallKind::Acquire(requests) => {
                let input = Input::AcquireFailed(failure);
                for asked in requests {
                    self.step_or_release(asked, input.clone(), failed(), turn);
                }
            }
            CallKind::Release(releases) => self.on_release_failed(releases, error, turn),
            CallKind::Renew(requests) => {
                self.schedule.renew_due = true;
                for (renewed, _) in requests {
                    self.step_or_release(renewed, Input::RenewFailed, failed(), turn);
                }
            }
            CallKind::Confirm(requests) => {
                for renewed in requests {
                    self.step_or_release(renewed, Input::ConfirmFailed(failure), failed(), turn);
                }
            }
            CallKind::Single(_) => {}
        }
    }

    fn on_release_failed(
        &mut self,
        releases: Vec<(Moment, PendingRelease)>,
        error: &StoreError,
        turn: &mut Turn,
    ) {
        let now = turn.now;
        // Back to the front, in their order.
        for (until, mut release) in releases.into_iter().rev() {
            release.sent_before |= error.is_outcome_unknown();
            if error.is_temporary() && now < until {
                self.releases.put_back(until, release);
            } else {
                self.give_up(release, error, turn);
            }
        }
    }
}

fn on_released(release: PendingRelease, outcome: ReleaseOutcome, outbox: &mut Outbox) {
    if let Some(answer) = release.answer {
        let gone = outcome == ReleaseOutcome::Unknown && !release.sent_before;
        outbox.reply(answer, if gone { Err(ReleaseError::Lost(Lost::Gone)) } else { Ok(()) });
    }
}
