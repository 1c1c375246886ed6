//! The engine: all that a session knows and decides, without a clock, a thread or a connection of its own.
//!
//! It is told what happened and what time it is, and says which calls to make. So everything it does can be
//! tested step by step, and nothing it does can wait.
//!
//! What it keeps, for each semaphore, in a [`Lane`]:
//!
//! - **Natural batching.** Two calls to acquire and two to release are in flight at a time at most. What arrives
//!   meanwhile goes out together in the next; nothing is delayed to make a batch.
//! - **One fate.** An acquisition is in one [`Stage`]. While a call about it is in flight and its outcome is
//!   not known, it is not released; cancelled then, it is released as soon as the outcome is.
//! - **Deadlines from before the send.** A permit is held until the moment before the request was sent that
//!   last extended it, plus the lease, minus a margin. Never from a reply or a message.
//! - **No trust in messages.** Waiters are renewed as holders are, and a renewal tells how each stands.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::core::PermitState;
use super::errand::{Errand, Errands};
use super::held::Held;
use super::lane::{Entry, Lane, Stage};
use super::message::{Answer, Ask, Leaving, Message, Wait};
use super::timers::{self, Timers};
use super::{Config, Map, Session, Shared};
use crate::clock::Moment;
use crate::error::{AcquireError, AdminError, CloseError, Lost, ReleaseError};
use crate::events::emit;
use crate::protocol::{Command, Event, EventKind, Grant, Name, RequestId};
use crate::store::{StoreError, StoreEvent};

/// How long a closing session tries to give back what it has.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often, while the store cannot be reached, to look for what has run out of timeout.
pub(super) const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// How often everything that a session holds is renewed, at least, while some of it is. A server that restarts without
/// its data waits for its holders only as long as a connected one needs to come back.
const COMPANIONS_EVERY: Duration = Duration::from_secs(10);

/// How often to look for what is to be renewed together with something else.
const COMPANIONS_SOUGHT_EVERY: Duration = Duration::from_secs(1);

/// Renewals are spread over this part of their interval, so that sessions started together drift apart.
const RENEWAL_SPREAD: f64 = 0.05;

/// A call to make, and what it is about.
pub(crate) struct Call {
    pub(crate) command: Command,
    pub(crate) timeout: Duration,
    pub(crate) sent_at: Moment,
    pub(crate) purpose: Purpose,
}

/// What to do with a call's answer.
pub(crate) enum Purpose {
    Acquire(Vec<RequestId>),
    Release(Vec<(Moment, Leaving)>),
    Renew(Vec<RequestId>),
    /// Hand out what replicas have. How many it should be on; when the call has returned, how many it is on.
    Confirm {
        ids: Vec<RequestId>,
        replicas: u32,
    },
    Errand(Box<Errand>),
}

/// Alarms that the engine sets for itself.
pub(super) enum Alarm {
    Lane(Name),
    Entry(Name, RequestId),
    /// Look for what has run out of timeout.
    Sweep,
    /// An errand may be tried again: only to be awake then.
    Errand,
    Close,
}

/// See the module.
pub(crate) struct Engine {
    pub(super) config: Config,
    /// Weak: the session ends when nobody has a client or a permit of it.
    session: Weak<Shared>,
    pub(super) lanes: Map<Name, Lane>,
    /// Lanes that may have something to send.
    pub(super) dirty: Vec<Name>,
    pub(super) errands: Errands,
    pub(super) timers: Timers<Alarm>,
    asked: u64,
    /// Adoptions in flight: what they bring has to be given back before the session may end.
    pub(super) adopting: usize,
    pub(super) connected: bool,
    /// When companions of a renewal were last sought.
    companions_sought: Option<Moment>,
    /// The store has said that it cannot be reached, and no call has succeeded since.
    pub(super) down: Option<Trouble>,
    /// Something is in trouble: here, in a lane, or in an errand.
    pub(super) troubled: bool,
    pub(super) sweep_alarm: Option<timers::Key>,
    pub(super) errand_alarm: Option<timers::Key>,
    pub(super) closing: Option<Vec<oneshot::Sender<Result<(), CloseError>>>>,
    /// The result for those, once there is one.
    closed: Option<Result<(), CloseError>>,
    /// Who wants to know which semaphores there are. That needs no decision of the engine's.
    listings: Vec<Answer<Vec<Name>, AdminError>>,
    /// Permits handed over, of which the store is to be told.
    handed_over: Vec<(Name, RequestId)>,
    finished: bool,
}

impl Engine {
    pub(crate) fn new(config: Config, session: Weak<Shared>) -> Self {
        Self {
            config,
            session,
            lanes: Map::default(),
            dirty: Vec::new(),
            errands: Errands::default(),
            timers: Timers::default(),
            asked: 0,
            adopting: 0,
            connected: false,
            companions_sought: None,
            down: None,
            troubled: false,
            sweep_alarm: None,
            errand_alarm: None,
            closing: None,
            closed: None,
            listings: Vec::new(),
            handed_over: Vec::new(),
            finished: false,
        }
    }

    /// Whether all is done and the thread may end.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// How long the store may be out of reach before what waits for it fails.
    pub(crate) fn store_timeout(&self) -> Duration {
        self.config.store_timeout
    }

    /// Answers the callers that closed the session. To be called when its connections are closed too: a program that
    /// forks next leaves nothing of the session to the child.
    pub(crate) fn answer_closed(&mut self) {
        let Some(result) = &self.closed else { return };
        for answer in self.closing.iter_mut().flat_map(|answers| answers.drain(..)) {
            // A caller that is gone does not mind.
            let _ = answer.send(result.clone());
        }
    }

    /// Who asked for a list since the last time.
    pub(crate) fn take_listings(&mut self) -> Vec<Answer<Vec<Name>, AdminError>> {
        std::mem::take(&mut self.listings)
    }

    /// Permits handed over since the last call.
    pub(crate) fn take_handed_over(&mut self) -> Vec<(Name, RequestId)> {
        std::mem::take(&mut self.handed_over)
    }

    #[cfg(test)]
    pub(super) fn session_id(&self) -> &crate::protocol::SessionId {
        &self.config.session
    }

    /// Whether nothing is asked for, held, given back or planned.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.is_empty() && self.timers.next().is_none()
    }

    /// When to call [`Engine::on_time`] next.
    pub(crate) fn next_time(&self) -> Option<Moment> {
        self.timers.next()
    }

    pub(crate) fn on_message(&mut self, message: Message, now: Moment) {
        match message {
            Message::Acquire(ask) => self.acquire(*ask, now),
            Message::Cancel { semaphore, request } => self.withdraw(&semaphore, &request, now),
            Message::Release { semaphore, leaving } => self.release(&semaphore, leaving, now),
            Message::HandOver { semaphore, request } => {
                self.remove(&semaphore, &request);
                self.handed_over.push((semaphore, request));
            }
            Message::Renew { semaphore, request, answer } => {
                let lane = self.lanes.get(&semaphore);
                match lane.and_then(|lane| Some((lane.entries.get(&request)?.renewal(), lane.fallback()))) {
                    Some((renewal, fallback)) => {
                        self.run(Errand::renew(semaphore, renewal, fallback, answer), now)
                    }
                    // The engine forgets a permit only when it is lost, and the permit knows why.
                    None => drop(answer),
                }
            }
            Message::Adopt { handle, request, answer } => {
                self.run(Errand::adopt(*handle, request, answer), now)
            }
            Message::Admin { semaphore, operation, answer } => {
                self.run(Errand::admin(semaphore, operation, answer), now);
            }
            Message::List { answer } => self.listings.push(answer),
            Message::Close { answer } => self.close(Some(answer), now),
        }
    }

    pub(crate) fn on_signal(&mut self, signal: StoreEvent, now: Moment) {
        match signal {
            StoreEvent::Event(event) => self.on_event(event, now),
            StoreEvent::Down(reason) => {
                self.connected = false;
                self.troubled = true;
                note_trouble(&mut self.down, reason, now);
            }
            StoreEvent::Up => {
                self.connected = true;
                self.errands.retry_now();
                for (name, lane) in &mut self.lanes {
                    lane.renew_due = true;
                    lane.retry_at = None;
                    lane.failures = 0;
                    mark_dirty(&mut self.dirty, name, lane);
                }
            }
        }
    }

    fn on_event(&mut self, event: Event, now: Moment) {
        let Event { semaphore, holder, request, kind: news, .. } = event;
        let entry = self.lanes.get(&semaphore).and_then(|lane| lane.entries.get(&request));
        // A message of another session is none of this one's, whatever brought it here: to release what it grants
        // would take it from its holder.
        if !self.config.session.has_made(&request) || entry.is_some_and(|entry| entry.ask.holder != holder) {
            return;
        }
        match (news, entry.map(|entry| &entry.stage)) {
            (EventKind::Granted(grant), Some(_))
                if entry.is_some_and(|entry| grant.token <= entry.told_us) => {}
            (EventKind::Granted(grant), Some(Stage::Pending | Stage::Waiting))
            | (EventKind::Granted(grant), Some(Stage::Asked { cancelled: false })) => {
                self.grant(&semaphore, &request, grant, now);
            }
            // Known from a renewal already; or cancelled, and released when the call in flight returns.
            (EventKind::Granted(_), Some(_)) => {}
            (EventKind::Granted(_), None) => {
                // A grant for nobody. If its release is on its way, this changes nothing.
                let lease = self.config.lease;
                let leaving = Leaving { holder, request, lease, sent_before: true, answer: None };
                self.release(&semaphore, leaving, now);
            }
            (EventKind::Revoked(reason), Some(Stage::Held(core))) => {
                core.lose(Lost::Revoked { reason });
                self.remove(&semaphore, &request);
            }
            (EventKind::Revoked(reason), Some(Stage::Waiting))
                if entry.is_some_and(|entry| !entry.maybe_known) =>
            {
                if let Some(entry) = self.remove(&semaphore, &request) {
                    answer(entry.ask, Err(AcquireError::Revoked { reason }));
                }
            }
            // A call that is in flight, or was not answered, finds nothing in the store and is granted.
            (EventKind::Revoked(reason), Some(_)) => {
                self.fail(&semaphore, &request, AcquireError::Revoked { reason }, now);
            }
            (EventKind::Refused, Some(Stage::Waiting | Stage::Asked { cancelled: false })) => {
                // The message does not say what the limit has become. Asked again, the store does.
                if let Some(lane) = self.touch(&semaphore) {
                    lane.queue(&request);
                }
            }
            (EventKind::Refused, Some(_)) | (EventKind::Revoked(_) | EventKind::Refused, None) => {}
        }
    }

    fn acquire(&mut self, ask: Ask, now: Moment) {
        if self.closing.is_some() {
            return answer(ask, Err(AcquireError::Closed));
        }
        let (semaphore, request, wait) = (ask.semaphore.clone(), ask.request.clone(), ask.wait);
        self.insert_asked(ask, now);
        let alarm = match wait {
            Wait::AtMost(limit) => {
                Some(self.timers.set(now + limit, Alarm::Entry(semaphore.clone(), request.clone())))
            }
            Wait::No | Wait::Forever => None,
        };
        let Some(lane) = self.touch(&semaphore) else { return };
        if let Some(entry) = lane.entries.get_mut(&request) {
            entry.alarm = alarm;
        }
        lane.queue(&request);
    }

    /// Makes an entry, as if it had been asked for at `asked_at`.
    pub(super) fn insert_asked(&mut self, ask: Ask, asked_at: Moment) {
        self.asked += 1;
        let (semaphore, request) = (ask.semaphore.clone(), ask.request.clone());
        let entry = Entry {
            ask,
            order: self.asked,
            created: asked_at,
            stage: Stage::Asked { cancelled: false },
            maybe_known: false,
            extended: asked_at,
            told_us: 0,
            alarm: None,
        };
        let lane = self.lanes.entry(semaphore).or_default();
        let lease = entry.ask.lease;
        lane.shortest = Some(lane.shortest.map_or(lease, |shortest| shortest.min(lease)));
        lane.entries.insert(request, entry);
    }

    /// The caller does not wait any more: whatever stage it is in, nothing stays behind.
    fn withdraw(&mut self, semaphore: &Name, request: &RequestId, now: Moment) {
        let Some(lane) = self.lanes.get_mut(semaphore) else { return };
        let Some(entry) = lane.entries.get_mut(request) else { return };
        match &mut entry.stage {
            // Its outcome is not known yet.
            Stage::Asked { cancelled } => {
                *cancelled = true;
                let alarm = entry.alarm.take();
                self.timers.remove(alarm);
            }
            Stage::Pending | Stage::Waiting | Stage::Unconfirmed(_) => {
                let known = entry.maybe_known || !matches!(entry.stage, Stage::Pending);
                if let Some(entry) = self.remove(semaphore, request)
                    && known
                {
                    self.release(semaphore, entry.leaving(), now);
                }
            }
            // The permit is on its way to the caller: dropped there, it is released.
            Stage::Held(_) => {}
        }
    }

    /// Queues a release.
    pub(super) fn release(&mut self, semaphore: &Name, leaving: Leaving, now: Moment) {
        if let Some(entry) = self.remove(semaphore, &leaving.request)
            && let Stage::Held(core) = entry.stage
        {
            core.end();
        }
        let lane = self.lanes.entry(semaphore.clone()).or_default();
        lane.leave(now, leaving);
        mark_dirty(&mut self.dirty, semaphore, lane);
    }

    /// Takes an entry out, with its alarm.
    pub(super) fn remove(&mut self, semaphore: &Name, request: &RequestId) -> Option<Entry> {
        let lane = self.lanes.get_mut(semaphore)?;
        let entry = lane.take(request)?;
        self.timers.remove(entry.alarm);
        // An empty lane is removed when it is looked at.
        mark_dirty(&mut self.dirty, semaphore, lane);
        Some(entry)
    }

    /// The store has granted it. Where replicas have to confirm it, they are asked.
    pub(super) fn grant(&mut self, semaphore: &Name, request: &RequestId, grant: Grant, now: Moment) {
        if self.config.replicas == 0 {
            return self.hand_out(semaphore, request, grant, now);
        }
        let Some(lane) = self.touch(semaphore) else { return };
        let Some(entry) = lane.entries.get_mut(request) else { return };
        lane.pending.remove(&entry.order);
        entry.stage = Stage::Unconfirmed(grant);
        lane.unconfirmed.push(request.clone());
        self.plan_renewal(semaphore, request);
    }

    /// Hands it to the caller, if by our own clock it is still good.
    pub(super) fn hand_out(&mut self, semaphore: &Name, request: &RequestId, grant: Grant, now: Moment) {
        let Some(lane) = self.lanes.get_mut(semaphore) else { return };
        let Some(entry) = lane.entries.get_mut(request) else { return };
        lane.pending.remove(&entry.order);
        let lease = entry.ask.lease;
        let deadline = entry.extended + lease.saturating_sub(margin(lease));
        if deadline <= now {
            // The news took longer than the lease. A renewal tells whether it is still ours.
            entry.stage = Stage::Waiting;
            lane.renew_due = true;
            return mark_dirty(&mut self.dirty, semaphore, lane);
        }
        let ask = &entry.ask;
        let (holder, weight) = (ask.holder.clone(), ask.weight);
        let core =
            PermitState::new(semaphore.clone(), holder, request.clone(), weight, lease, grant, deadline);
        emit!(
            DEBUG,
            [semaphore = semaphore.clone(), holder = core.holder.clone(), token = grant.token, slot = grant.slot],
            %semaphore,
            %holder,
            token,
            slot,
            "granted"
        );
        let core = std::sync::Arc::new(core);
        entry.stage = Stage::Held(core.clone());
        self.timers.remove(entry.alarm.take());
        entry.alarm = Some(self.timers.set(deadline, Alarm::Entry(semaphore.clone(), request.clone())));
        let (unanswered, _) = oneshot::channel();
        let sender = std::mem::replace(&mut entry.ask.answer, unanswered);
        self.plan_renewal(semaphore, request);
        match self.session.upgrade() {
            // If the caller is gone, what comes back is dropped here, and that releases it.
            Some(shared) => drop(sender.send(Ok(Held::new(core, Session::from(shared))))),
            None => self.withdraw_held(semaphore, request, now),
        }
    }

    /// Takes out what the store has granted, and gives it back.
    pub(super) fn withdraw_held(&mut self, semaphore: &Name, request: &RequestId, now: Moment) {
        if let Some(entry) = self.remove(semaphore, request) {
            self.release(semaphore, entry.leaving(), now);
        }
    }

    /// Sees to it that the lane is renewed within a third of this entry's lease.
    pub(super) fn plan_renewal(&mut self, semaphore: &Name, request: &RequestId) {
        let Some(lane) = self.lanes.get_mut(semaphore) else { return };
        let Some(entry) = lane.entries.get(request) else { return };
        if entry.is_renewed() {
            lane.renewed_at.get_or_insert(entry.extended);
            let at = entry.extended + spread(entry.ask.lease / 3);
            lane.renew_at = Some(lane.renew_at.map_or(at, |planned| planned.min(at)));
            mark_dirty(&mut self.dirty, semaphore, lane);
        }
    }

    /// Before a lane is renewed: has those renewed with it whose last renewal would be too long ago the next time. A lane
    /// whose own turn comes before then is left alone, so that the lanes of a session are not all renewed at once.
    pub(super) fn seek_companions(&mut self, now: Moment) {
        let soon = |at: Moment| now < at + COMPANIONS_SOUGHT_EVERY;
        if !self.connected || self.companions_sought.is_some_and(soon) {
            return;
        }
        let due = |name: &Name| self.lanes.get(name).filter(|lane| lane.renew_due && lane.retry_at.is_none());
        let Some(interval) = self.dirty.iter().filter_map(due).filter_map(Lane::renewal_interval).min()
        else {
            return;
        };
        self.companions_sought = Some(now);
        let next_sought = now + interval + COMPANIONS_SOUGHT_EVERY;
        for (name, lane) in &mut self.lanes {
            let too_late = lane.renewed_at.is_some_and(|at| at + COMPANIONS_EVERY < next_sought);
            if too_late && lane.renew_at.is_some_and(|at| at > next_sought) {
                lane.renew_due = true;
                mark_dirty(&mut self.dirty, name, lane);
            }
        }
    }

    pub(super) fn refuse_heavy(&mut self, semaphore: &Name, request: &RequestId) {
        let limit = self.lanes.get(semaphore).and_then(|lane| lane.limit).unwrap_or_default();
        if let Some(entry) = self.remove(semaphore, request) {
            let weight = entry.ask.weight;
            answer(entry.ask, Err(AcquireError::ExceedsLimit { weight, limit }));
        }
    }

    pub(super) fn run(&mut self, errand: Errand, now: Moment) {
        if self.closing.is_some() {
            return errand.fail_closed();
        }
        self.errands.add(errand, now);
    }

    /// Gives everything back, answers everybody, and ends when the store has been told or timeout is over.
    pub(crate) fn close(&mut self, answer_to: Option<oneshot::Sender<Result<(), CloseError>>>, now: Moment) {
        let first = self.closing.is_none();
        self.closing.get_or_insert_default().extend(answer_to);
        if !first {
            return;
        }
        self.timers.set(now + CLOSE_TIMEOUT, Alarm::Close);
        self.errands.close();
        let all: Vec<(Name, RequestId)> = self
            .lanes
            .iter()
            .flat_map(|(name, lane)| lane.entries.keys().map(|request| (name.clone(), request.clone())))
            .collect();
        for (semaphore, request) in all {
            if let Some(Stage::Held(core)) = self.stage(&semaphore, &request) {
                core.lose(Lost::Closed);
                self.withdraw_held(&semaphore, &request, now);
            } else {
                self.fail(&semaphore, &request, AcquireError::Closed, now);
            }
        }
        self.finish_closing(false);
    }

    /// Ends every permit and answers every caller, because the session's thread has panicked. Nothing is given back:
    /// what the store has ends with its lease.
    pub(crate) fn abandon(&mut self) {
        if let Some(shared) = self.session.upgrade() {
            shared.note_failure();
        }
        for (_, lane) in std::mem::take(&mut self.lanes) {
            for (_, entry) in lane.entries {
                match entry.stage {
                    Stage::Held(core) => core.lose(Lost::SessionFailed),
                    _ => answer(entry.ask, Err(AcquireError::SessionFailed)),
                }
            }
        }
        // The rest is answered by the channels closing.
    }

    fn stage(&self, semaphore: &Name, request: &RequestId) -> Option<&Stage> {
        Some(&self.lanes.get(semaphore)?.entries.get(request)?.stage)
    }

    /// Answers a caller who still waits, and withdraws for it.
    pub(super) fn fail(&mut self, semaphore: &Name, request: &RequestId, error: AcquireError, now: Moment) {
        let entry = self.lanes.get_mut(semaphore).and_then(|lane| lane.entries.get_mut(request));
        if let Some(entry) = entry {
            let (unanswered, _) = oneshot::channel();
            let sender = std::mem::replace(&mut entry.ask.answer, unanswered);
            // A caller that is gone does not mind.
            let _ = sender.send(Err(error));
            self.withdraw(semaphore, request, now);
        }
    }

    pub(super) fn finish_closing(&mut self, out_of_timeout: bool) {
        if self.closing.is_none() || self.finished {
            return;
        }
        let in_lanes = self.lanes.values().map(|lane| lane.leaving.len() + lane.entries.len());
        let left = in_lanes.sum::<usize>() + self.adopting;
        if left > 0 && !out_of_timeout {
            return;
        }
        self.finished = true;
        let reason = || StoreError::NoAnswer { reason: format!("not within {CLOSE_TIMEOUT:?}") };
        let in_trouble = self.down.iter().chain(self.lanes.values().filter_map(|lane| lane.trouble.as_ref()));
        let source =
            in_trouble.min_by_key(|(since, _)| *since).map_or_else(reason, |(_, error)| error.clone());
        let result = if left == 0 { Ok(()) } else { Err(CloseError::NotGivenBack { permits: left, source }) };
        self.closed = Some(result);
    }

    pub(crate) fn on_time(&mut self, now: Moment) {
        while let Some(alarm) = self.timers.due(now) {
            match alarm {
                Alarm::Lane(name) => {
                    if let Some(lane) = self.lanes.get_mut(&name) {
                        lane.alarm = None;
                        let due = |at: &mut Option<Moment>| at.take_if(|at| *at <= now).is_some();
                        lane.renew_due |= due(&mut lane.renew_at);
                        lane.recheck_due |= due(&mut lane.recheck_at);
                        due(&mut lane.retry_at);
                        mark_dirty(&mut self.dirty, &name, lane);
                    }
                }
                Alarm::Entry(name, request) => self.on_entry_time(&name, &request, now),
                Alarm::Sweep => self.sweep(now),
                Alarm::Errand => self.errand_alarm = None,
                Alarm::Close => self.finish_closing(true),
            }
        }
    }

    fn on_entry_time(&mut self, semaphore: &Name, request: &RequestId, now: Moment) {
        let Some(lane) = self.lanes.get_mut(semaphore) else { return };
        let Some(entry) = lane.entries.get_mut(request) else { return };
        entry.alarm = None;
        match &entry.stage {
            Stage::Held(core) => match core.deadline(now) {
                // Extended since the alarm was set.
                Some(deadline) => {
                    let alarm = Alarm::Entry(semaphore.clone(), request.clone());
                    entry.alarm = Some(self.timers.set(deadline, alarm));
                }
                // Lost. The permit releases when it is dropped, for then the work has stopped.
                None => drop(self.remove(semaphore, request)),
            },
            _ => {
                if let Wait::AtMost(waited) = entry.ask.wait {
                    self.fail(semaphore, request, AcquireError::TimedOut { waited }, now);
                }
            }
        }
    }

    /// While the store, or the part of it that has a semaphore, cannot be reached: fails what has waited for it
    /// too long.
    fn sweep(&mut self, now: Moment) {
        self.sweep_alarm = None;
        self.troubled = self.down.is_some() || self.errands.in_trouble();
        let timeout = self.config.store_timeout;
        let mut timed_out_entries = Vec::new();
        for (name, lane) in &mut self.lanes {
            self.troubled |= lane.trouble.is_some();
            let Some((since, error)) = earlier(&self.down, &lane.trouble) else { continue };
            let timed_out = |entry: &Entry| {
                !matches!(entry.stage, Stage::Held(_) | Stage::Asked { cancelled: true })
                    && now >= since.max(entry.created) + timeout
            };
            for (request, _) in lane.entries.iter().filter(|(_, entry)| timed_out(entry)) {
                timed_out_entries.push((name.clone(), request.clone(), error.clone()));
            }
            let leaving = &mut lane.leaving;
            lane.releases.retain_mut(|(until, item)| {
                let stays = now < *until;
                if !stays {
                    leaving.remove(&item.request);
                    if let Some(answer) = item.answer.take() {
                        let _ = answer.send(Err(ReleaseError::Store(error.clone())));
                    }
                }
                stays
            });
            mark_dirty(&mut self.dirty, name, lane);
        }
        for (name, request, error) in timed_out_entries {
            self.fail(&name, &request, AcquireError::Store(error), now);
        }
        self.errands.sweep(now, &self.down, timeout);
    }

    /// Takes a lane for a while, knowing that it will be looked at afterwards.
    pub(super) fn touch(&mut self, semaphore: &Name) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(semaphore)?;
        mark_dirty(&mut self.dirty, semaphore, lane);
        Some(lane)
    }
}

/// Since when calls have failed in a way that may pass, with none in between that succeeded; and the last reason.
pub(super) type Trouble = (Moment, StoreError);

pub(super) fn note_trouble(trouble: &mut Option<Trouble>, error: StoreError, now: Moment) {
    let since = trouble.take().map_or(now, |(since, _)| since);
    *trouble = Some((since, error));
}

/// The trouble that has lasted longer, if there is any.
pub(super) fn earlier(one: &Option<Trouble>, other: &Option<Trouble>) -> Option<Trouble> {
    one.iter().chain(other).min_by_key(|(since, _)| *since).cloned()
}

/// Answers a caller. One that is gone does not mind.
pub(super) fn answer(ask: Ask, result: Result<Held, AcquireError>) {
    let _ = ask.answer.send(result);
}

/// How much before the end of its lease a permit counts as lost, because clocks differ in rate and timers are late:
/// 1 % of the lease, however long, and at least 5 ms.
pub(super) fn margin(lease: Duration) -> Duration {
    (lease / 100).max(Duration::from_millis(5))
}

pub(super) fn spread(interval: Duration) -> Duration {
    interval.mul_f64(1.0 - RENEWAL_SPREAD * fastrand::f64())
}

fn mark_dirty(dirty: &mut Vec<Name>, name: &Name, lane: &mut Lane) {
    if !std::mem::replace(&mut lane.dirty, true) {
        dirty.push(name.clone());
    }
}

/// Notes on the opening that the store has heard its limit.
pub(super) fn note_declared(entry: &Entry) {
    entry.ask.opening.declared.store(true, Ordering::Relaxed);
}
