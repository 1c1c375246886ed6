//! Ends that no caller asked for: by time, in an outage of the store, with the session.

use std::time::Duration;

use super::entry::Entry;
use super::{SemaphoreSession, Turn};
use crate::acquisition::{Input, Stage};
use crate::clock::{Moment, millis};
use crate::error::{AcquireError, Ended, Lost, ReleaseError};
use crate::keeping::Notice;
use crate::observe::events;
use crate::protocol::RequestId;
use crate::session::callers::PendingRelease;
use crate::session::outbox::Outbox;
use crate::session::permit_state::Check;
use crate::session::spec::Wait;
use crate::session::timers::{Outage, Timer};
use crate::store::StoreError;
use crate::timing::SILENT_AFTER;

impl SemaphoreSession {
    /// The wait limit, or the deadline, of an acquisition has come.
    pub(in crate::session) fn on_acquisition_time(
        &mut self,
        request: &RequestId,
        down: &Option<Outage>,
        turn: &mut Turn,
    ) {
        let now = turn.now;
        let Some(entry) = self.acquisitions.get_mut(request) else { return };
        entry.timer = None;
        match &entry.permit {
            Some(permit) => {
                match permit.check(now) {
                    // Extended since the timer was set.
                    Check::Held(deadline) => {
                        let timer = Timer::Acquisition(self.name.clone(), request.clone());
                        entry.timer = Some(turn.timers.set(deadline, timer));
                        return;
                    }
                    Check::Expired => {
                        let permit = permit.clone();
                        if self.was_kept(&permit) {
                            // No caller works with it any more.
                            return self.step(request, Input::Released, turn);
                        }
                        turn.outbox.signal_loss(&permit);
                    }
                    Check::Ended => {}
                }
                self.step(request, Input::Expired, turn);
            }
            None => {
                let late = match entry.spec.client.wait {
                    Wait::AtMost(waited) => AcquireError::TimedOut { waited },
                    Wait::No => AcquireError::NoPermits,
                    Wait::Forever => return,
                };
                let error = self.silence(down, now).map_or(late, AcquireError::Store);
                self.fail(request, error, turn);
            }
        }
    }

    /// The fault of a store that does not answer: that of the outage, also of the whole store, or that
    /// nothing has returned for some time. A caller whose time is up then has not learned that others hold
    /// the units.
    fn silence(&self, down: &Option<Outage>, now: Moment) -> Option<StoreError> {
        if let Some(Outage { error, .. }) = Outage::older(down, &self.outage) {
            return Some(error.clone());
        }
        let silent = now.since(self.in_flight.unanswered_since?);
        let reason = format!("nothing for {:?}", Duration::from_millis(millis(silent)));
        (silent >= SILENT_AFTER).then_some(StoreError::NoAnswer { reason })
    }

    /// Fails what has waited for the store for too long, in this outage or in that of the whole store.
    pub(in crate::session) fn fail_timed_out(&mut self, down: &Option<Outage>, turn: &mut Turn) {
        let now = turn.now;
        let timeout = turn.config.store_timeout;
        let Some(Outage { since, error }) = Outage::older(down, &self.outage).cloned() else { return };
        let timed_out = |entry: &Entry| {
            !matches!(entry.acquisition.stage, Stage::Held(_) | Stage::Withdrawn { .. })
                && now >= since.max(entry.arrived_at) + timeout
        };
        let timed_out = self.acquisitions.iter().filter(|(_, entry)| timed_out(entry));
        let requests: Vec<RequestId> = timed_out.map(|(request, _)| request.clone()).collect();
        for request in requests {
            self.fail(&request, AcquireError::Store(error.clone()), turn);
        }
        for release in self.releases.take_late(now) {
            self.give_up(release, &error, turn);
        }
    }

    /// A release that is not sent any more: what the store still has ends with its lease.
    pub(super) fn give_up(&mut self, release: PendingRelease, error: &StoreError, turn: &mut Turn) {
        let given_up = Input::ReleaseReturned { ended: false };
        self.step(&release.request.request, given_up, turn);
        match release.answer {
            Some(answer) => turn.outbox.reply(answer, Err(ReleaseError::Store(error.clone()))),
            None => events::not_released(&self.name, &release.request.holder, error),
        }
    }

    /// The session closes: permits are lost, callers are answered, and everything is released.
    pub(in crate::session) fn close(&mut self, turn: &mut Turn) {
        self.note(Notice::Unsure, turn);
        let requests: Vec<RequestId> = self.acquisitions.keys().cloned().collect();
        for request in requests {
            match self.acquisitions.get(&request).and_then(|entry| entry.permit.clone()) {
                Some(permit) => {
                    turn.outbox.lose(&permit, Lost::Closed);
                    self.step(&request, Input::Released, turn);
                }
                None => self.fail(&request, AcquireError::Ended(Ended::Closed), turn),
            }
        }
    }

    /// The engine has panicked: permits are lost and callers are answered. Nothing is released; what the
    /// store has ends with its lease.
    pub(in crate::session) fn abandon(self, outbox: &mut Outbox) {
        self.shelf.iter().for_each(|shelf| drop(shelf.note(Notice::Unsure)));
        for (_, mut entry) in self.acquisitions {
            match &entry.permit {
                Some(permit) => outbox.lose(permit, Lost::SessionFailed),
                None => entry.answer(Err(AcquireError::Ended(Ended::SessionFailed)), outbox),
            }
        }
        // Their callers are answered by their channels closing.
        outbox.discard(self.releases);
    }
}
