//! The replies to the calls about a semaphore.

use std::time::Duration;

use super::{SemaphoreSession, Step, mismatched_reply};
use crate::acquisition::{Failure, Input, ReplyTimes, Stage};
use crate::clock::Moment;
use crate::error::{Lost, ReleaseError};
use crate::keeping::Notice;
use crate::protocol::{
    AcquireOutcome, Answers, ReleaseOutcome, RenewOutcome, RenewRequest, Reply, RequestId, RequestKey,
};
use crate::session::call::CallKind;
use crate::session::callers::PendingRelease;
use crate::session::outbox::Outbox;
use permits_store::{Executed, StoreError};

impl SemaphoreSession {
    /// Handles the return of a call about this semaphore.
    pub(in crate::session) fn on_return(
        &mut self,
        kind: CallKind,
        sent_at: Moment,
        result: Result<Executed, StoreError>,
        step: &mut Step,
    ) {
        let now = step.now;
        if let CallKind::Inspect = kind {
            // A failure is no outage, because no request depends on an inspection.
            self.in_flight.inspecting -= 1;
            return result.map_or((), |executed| self.on_inspected(executed.reply, step));
        }
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
            CallKind::Single(_) | CallKind::Inspect => {}
        }
        self.in_flight.note(true, now);
        self.outages.note(&kind, result.as_ref().err(), now);
        let Executed { reply, confirmed } = match result {
            Ok(executed) => executed,
            Err(error) => return self.on_failure(kind, &error, step),
        };
        let times = ReplyTimes { sent_at, server_us: reply.now_us };
        match (kind, reply.answers) {
            (CallKind::Acquire(requests), Answers::Acquire(outcomes)) => {
                for (request, outcome) in requests.into_iter().zip(outcomes) {
                    self.on_acquired(request, outcome, times, step);
                }
            }
            (CallKind::Release(releases), Answers::Release(outcomes)) => {
                for ((_, release), outcome) in releases.into_iter().zip(outcomes) {
                    let input = Input::ReleaseReturned { ended: outcome != ReleaseOutcome::Unknown };
                    self.step(&release.request.request, input, step);
                    on_released(release, outcome, &mut step.outbox);
                }
            }
            (CallKind::Renew(requests), Answers::Renew(outcomes)) => {
                for ((request, lease_version), outcome) in requests.into_iter().zip(outcomes) {
                    self.on_renewed(request, lease_version, outcome, times, step);
                }
            }
            (CallKind::Confirm(requests), Answers::Renew(outcomes)) => {
                let wanted = step.config.replicas;
                for (renewed, outcome) in requests.into_iter().zip(outcomes) {
                    let request = renewed.request.clone();
                    self.on_renewed(renewed, 0, outcome, times, step);
                    self.step(&request, Input::Confirmed { confirmed, wanted }, step);
                }
            }
            (kind, _) => self.on_failure(kind, &mismatched_reply(), step),
        }
    }

    /// Notes what a reply to any call about this semaphore says of it, and whether it came by the connection
    /// on which replicas are asked. For `in_order` see [`Notice::Reply`].
    pub(in crate::session) fn note_reply(
        &mut self,
        reply: &Reply,
        sent_at: Moment,
        (by_replicas, in_order): (bool, bool),
        step: &mut Step,
    ) {
        let now = step.now;
        self.replied = Some(ReplyTimes { sent_at, server_us: reply.now_us });
        if by_replicas {
            self.schedule.confirm_retry.on_success();
        } else {
            self.schedule.retry.on_success();
        }
        self.failure = None;
        self.view.note(&self.name, reply);
        let Reply { keepable, limit, .. } = *reply;
        self.note(Notice::Reply { keepable, limit, in_order }, step);
        let after = reply.recheck_ms.map(Duration::from_millis);
        self.schedule.recheck.on_reply(after, reply.answers.foremost().unwrap_or(0), now);
    }

    fn on_acquired(
        &mut self,
        asked: RequestKey,
        outcome: AcquireOutcome,
        times: ReplyTimes,
        step: &mut Step,
    ) {
        let refused = matches!(outcome, AcquireOutcome::Refused(_));
        let pinned = self.view.is_pinned();
        if !refused || pinned {
            self.warn_of_limit(&asked.request);
        }
        // A refused request changes nothing, so its declaration does not count.
        if let Some(entry) = self.acquisitions.get(&asked.request).filter(|_| !refused) {
            entry.spec.limit.note_reply(pinned);
        }
        self.step_or_release(asked, Input::Acquired(outcome, times), step);
    }

    /// Warns if the limit in force is not the one that this program declared.
    fn warn_of_limit(&mut self, request: &RequestId) {
        let declared = self.acquisitions.get(request).and_then(|entry| entry.spec.limit.limit());
        if let Some(declared) = declared {
            self.view.warn_of_limit(&self.name, declared);
        }
    }

    fn on_renewed(
        &mut self,
        renewed: RequestKey,
        lease_version: u32,
        outcome: RenewOutcome,
        times: ReplyTimes,
        step: &mut Step,
    ) {
        if let RenewOutcome::Held | RenewOutcome::Granted(_) = outcome
            && let Some(entry) = self.acquisitions.get_mut(&renewed.request)
        {
            entry.is_claimed &= outcome != RenewOutcome::Held;
            if lease_version < entry.lease_version {
                // The renewal was sent before the lease changed, or for a waiter, and a message with the
                // grant overtook its reply. It moves no deadline, since `extend` takes the later one: this
                // only ends `unsure`.
                entry.permit.iter().for_each(|permit| permit.extend(times.sent_at));
                return;
            }
        }
        self.step_or_release(renewed, Input::Renewed(outcome, times), step);
    }

    /// The reply to a renewal that the caller asked for. Returns whether the permit is still held.
    pub(in crate::session) fn on_single_renewal(
        &mut self,
        renewal: &RenewRequest,
        outcome: RenewOutcome,
        times: ReplyTimes,
        step: &mut Step,
    ) -> bool {
        if self.acquisitions.contains_key(&renewal.request) {
            self.on_renewed(renewal.into(), renewal.lease_version, outcome, times, step);
        }
        let entry = self.acquisitions.get(&renewal.request);
        entry.is_some_and(|entry| matches!(entry.acquisition.stage, Stage::Held(_)))
    }

    fn on_failure(&mut self, kind: CallKind, error: &StoreError, step: &mut Step) {
        let now = step.now;
        if matches!(kind, CallKind::Single(_) | CallKind::Inspect) {
            return;
        }
        match kind {
            CallKind::Confirm(_) => self.schedule.confirm_retry.on_failure(now),
            _ => self.schedule.retry.on_failure(now),
        }
        self.failure = Some(error.clone());
        let failure =
            Failure { temporary: error.is_temporary(), outcome_unknown: error.is_outcome_unknown() };
        match kind {
            CallKind::Acquire(requests) => {
                let input = Input::AcquireFailed(failure);
                for asked in requests {
                    self.step_or_release(asked, input.clone(), step);
                }
            }
            CallKind::Release(releases) => self.on_release_failed(releases, error, step),
            CallKind::Renew(requests) => {
                self.schedule.renewal.is_due = true;
                for (renewed, _) in requests {
                    self.step_or_release(renewed, Input::RenewFailed, step);
                }
            }
            CallKind::Confirm(requests) => {
                for renewed in requests {
                    self.step_or_release(renewed, Input::ConfirmFailed(failure), step);
                }
            }
            CallKind::Single(_) | CallKind::Inspect => {}
        }
    }

    fn on_release_failed(
        &mut self,
        releases: Vec<(Moment, PendingRelease)>,
        error: &StoreError,
        step: &mut Step,
    ) {
        let now = step.now;
        // Put the releases back to the front, in their order.
        for (until, mut release) in releases.into_iter().rev() {
            release.sent_before |= error.is_outcome_unknown();
            if error.is_temporary() && now < until {
                self.releases.put_back(until, release);
            } else {
                self.give_up(release, error, step);
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
