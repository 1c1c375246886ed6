//! Ends that no caller asked for: because of time, an outage of the store, or the end of the session.

use std::time::Duration;

use super::entry::{Entry, InFlight};
use super::late::{Found, LateCaller, patience};
use super::outages::Outages;
use super::{SemaphoreSession, Step};
use crate::acquisition::{Input, Stage};
use crate::clock::{Moment, millis};
use crate::error::{AcquireError, Ended, Lost, ReleaseError};
use crate::inspection::Inspection;
use crate::keeping::Notice;
use crate::observe::events;
use crate::protocol::{Reply, RequestId};
use crate::session::callers::PendingRelease;
use crate::session::outbox::Outbox;
use crate::session::permit_state::Check;
use crate::session::spec::Wait;
use crate::session::timers::{Outage, Timer};
use crate::timing::SILENT_AFTER;
use permits_store::StoreError;

impl SemaphoreSession {
    /// The longest of the outages.
    pub(in crate::session) fn outage(&self) -> Option<&Outage> {
        self.outages.longest()
    }

    /// Ends the outages of calls that no request needs any more. Call this when the calls have been made:
    /// whatever has to be repeated is in flight then, or waits for the end of a pause.
    pub(super) fn end_unneeded_outages(&mut self) {
        let Outages { acquiring, releasing, renewing, confirming, unheard } = &mut self.outages;
        let InFlight { acquiring: acquires, releasing: releases, renewing: renewals, .. } = self.in_flight;
        for ended in [
            acquiring.take_if(|_| acquires == 0 && self.unsent.is_empty()),
            releasing.take_if(|_| releases == 0 && self.releases.is_empty()),
            renewing.take_if(|_| renewals == 0 && !self.schedule.renewal.is_due),
        ] {
            // An error that lasts is an answer.
            Outages::end_unheard(unheard, ended.filter(|outage| outage.error.is_temporary()));
        }
        unheard.take_if(|_| self.acquisitions.values().all(|entry| entry.permit.is_some()));
        confirming.take_if(|_| self.in_flight.confirming == 0 && self.unconfirmed.is_empty());
    }

    /// Handles the timer of an acquisition: the end of its wait, the deadline of its permit, or, after a
    /// timeout, the time at which its caller is answered even if the store has said nothing.
    pub(in crate::session) fn on_acquisition_time(
        &mut self,
        request: &RequestId,
        down: &Option<Outage>,
        step: &mut Step,
    ) {
        let now = step.now;
        // The store may have fallen silent since the wait ended. Then the caller learns that.
        let silence = self.late.has(request).then(|| self.silence(Stage::Ended, down, now)).flatten();
        let error = |late: &LateCaller| silence.map_or_else(|| late.timed_out(None), AcquireError::Store);
        if self.answer_late(request, error, step) {
            return;
        }
        let Some(entry) = self.acquisitions.get_mut(request) else { return };
        entry.timer = None;
        match &entry.permit {
            Some(permit) => {
                match permit.check(now) {
                    // The permit was extended after the timer was set.
                    Check::Held(deadline) => {
                        let timer = Timer::Acquisition(self.name.clone(), request.clone());
                        entry.timer = Some(step.timers.set(deadline, timer));
                        return;
                    }
                    Check::Expired => {
                        let permit = permit.clone();
                        if self.was_kept(&permit) {
                            // The permit was on the shelf, so no caller works with it.
                            return self.step(request, Input::Released, step);
                        }
                        step.outbox.signal_loss(&permit);
                    }
                    Check::Ended => {}
                }
                self.step(request, Input::Expired, step);
            }
            None => {
                let (wait, stage) = (entry.spec.client.wait, entry.acquisition.stage);
                let (arrived_at, recalls) = (entry.arrived_at, entry.recalls);
                match (self.silence(stage, down, now), wait) {
                    (_, Wait::Forever) => {}
                    (Some(error), _) => self.fail(request, AcquireError::Store(error), step),
                    // It was granted, and is released.
                    (None, _) if matches!(stage, Stage::Unconfirmed(_)) => {
                        let wanted = step.config.replicas;
                        self.fail(request, AcquireError::NotReplicated { confirmed: 0, wanted }, step);
                    }
                    // The store has queued it, so others hold the units, or held them a moment ago.
                    (None, Wait::No) if stage == Stage::Waiting || recalls => {
                        self.fail(request, AcquireError::NoPermits, step);
                    }
                    (None, Wait::No) => {
                        let reason = format!("nothing for {:?}", now.since(arrived_at));
                        self.fail(request, AcquireError::Store(StoreError::NoAnswer { reason }), step);
                    }
                    (None, Wait::AtMost(waited)) => self.time_out(request, waited, step),
                }
            }
        }
    }

    /// Ends the wait of a request. It leaves the line now, and its caller is answered soon.
    fn time_out(&mut self, request: &RequestId, waited: Duration, step: &mut Step) {
        let Some(entry) = self.acquisitions.get_mut(request) else { return };
        if let Some(answer) = entry.answer.take() {
            let timer = Timer::Acquisition(self.name.clone(), request.clone());
            let timer = step.timers.set(step.now + patience(waited), timer);
            let caller = LateCaller::new(answer, &entry.spec, waited, timer);
            self.late.0.insert(request.clone(), caller);
        }
        self.cancel(request, step);
    }

    /// Handles the return of an inspection. A failed one is not repeated: its callers are answered when their
    /// patience ends.
    pub(super) fn on_inspected(&mut self, reply: Reply, step: &mut Step) {
        let Some(whole) = Inspection::new(self.name.clone(), reply) else { return };
        let found = Found::new(whole);
        for request in self.late.asked() {
            self.answer_late(&request, |caller| caller.timed_out(Some(&found)), step);
        }
    }

    /// Answers a caller that has timed out. Returns false if no such caller waits under this request.
    pub(super) fn answer_late(
        &mut self,
        request: &RequestId,
        error: impl FnOnce(&LateCaller) -> AcquireError,
        step: &mut Step,
    ) -> bool {
        let Some(caller) = self.late.0.remove(request) else { return false };
        let error = error(&caller);
        step.timers.remove(Some(caller.timer));
        step.outbox.reply(caller.answer, Err(error));
        true
    }

    /// The error of a store that does not answer a request of this stage: the error of an outage (also of the
    /// whole store), or, if nothing has returned for some time, that the store is silent. A caller whose time
    /// is up in such a state has not learned that others hold the units.
    fn silence(&self, stage: Stage, down: &Option<Outage>, now: Moment) -> Option<StoreError> {
        if let Some(Outage { error, .. }) = Outage::older(down, self.outages.to_blame(stage)) {
            return Some(error.clone());
        }
        let silent = now.since(self.in_flight.unanswered_since?);
        let reason = format!("nothing for {:?}", Duration::from_millis(millis(silent)));
        (silent >= SILENT_AFTER).then_some(StoreError::NoAnswer { reason })
    }

    /// Fails the requests that have waited too long, in an outage of the calls that they need or of the whole
    /// store. A success of calls that only other stages need does not help them.
    pub(in crate::session) fn fail_timed_out(&mut self, down: &Option<Outage>, step: &mut Step) {
        let now = step.now;
        let timeout = step.config.store_timeout;
        let fault = |entry: &Entry| {
            let stage = entry.acquisition.stage;
            if matches!(stage, Stage::Held(_) | Stage::Withdrawn { .. }) {
                return None;
            }
            let Outage { since, error } = Outage::older(down, self.outages.at(stage))?;
            (now >= (*since).max(entry.arrived_at) + timeout).then(|| error.clone())
        };
        let timed_out =
            self.acquisitions.iter().filter_map(|(request, entry)| Some((request, fault(entry)?)));
        let timed_out: Vec<_> = timed_out.map(|(request, error)| (request.clone(), error)).collect();
        for (request, error) in timed_out {
            self.fail(&request, AcquireError::Store(error), step);
        }
        let releasing = Outage::older(down, &self.outages.releasing);
        if let Some(error) = releasing.map(|outage| outage.error.clone()) {
            for release in self.releases.take_late(now) {
                self.give_up(release, &error, step);
            }
        }
    }

    /// Gives a release up: what the store still has of the request ends with its lease.
    pub(super) fn give_up(&mut self, release: PendingRelease, error: &StoreError, step: &mut Step) {
        let given_up = Input::ReleaseReturned { ended: false };
        self.step(&release.request.request, given_up, step);
        match release.answer {
            Some(answer) => step.outbox.reply(answer, Err(ReleaseError::Store(error.clone()))),
            None => events::not_released(&self.name, &release.request.holder, error),
        }
    }

    /// Takes the releases that are not sent, because they never will be.
    pub(in crate::session) fn take_releases(&mut self) -> Vec<PendingRelease> {
        let mut taken = Vec::new();
        while !self.releases.is_empty() {
            taken.extend(self.releases.take_batch().into_iter().map(|(_, release)| release));
        }
        taken
    }

    /// Closes this part of the session: permits are lost, callers are answered, and everything is released.
    pub(in crate::session) fn close(&mut self, step: &mut Step) {
        self.note(Notice::Unsure, step);
        let requests: Vec<RequestId> =
            self.acquisitions.keys().chain(self.late.requests()).cloned().collect();
        for request in requests {
            match self.acquisitions.get(&request).and_then(|entry| entry.permit.clone()) {
                Some(permit) => {
                    step.outbox.lose(&permit, Lost::Closed);
                    self.step(&request, Input::Released, step);
                }
                None => self.fail(&request, AcquireError::Ended(Ended::Closed), step),
            }
        }
    }

    /// Ends this part of the session after the engine has panicked: permits are lost and callers are
    /// answered. Nothing is released; what the store has ends with its lease.
    pub(in crate::session) fn abandon(self, outbox: &mut Outbox) {
        self.shelf.iter().for_each(|shelf| drop(shelf.note(Notice::Unsure)));
        for (_, mut entry) in self.acquisitions {
            match &entry.permit {
                Some(permit) => outbox.lose(permit, Lost::SessionFailed),
                None => entry.answer(Err(AcquireError::Ended(Ended::SessionFailed)), outbox),
            }
        }
        // The callers learn of the end because their channels close.
        outbox.discard((self.releases, self.late));
    }
}
