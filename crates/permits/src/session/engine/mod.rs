//! The engine of a session: it passes messages, events, replies and times to the semaphores that they are
//! about.
//!
//! The engine has no clock, no thread and no connection of its own: what happened and the time are arguments,
//! and it returns the calls to make. So everything it does can be tested step by step, and nothing it does
//! can wait.

mod closing;
mod singles;

use std::sync::Weak;
use std::time::Duration;

use super::Config;
use super::Map;
use super::call::{Call, CallKind, SentCall};
use super::callers::{Message, Shared};
use super::gathering::Sending;
use super::outbox::Answer;
use super::outbox::Outbox;
use super::semaphore::{SemaphoreSession, Step, View};
use super::single_call::{SingleCall, SingleCalls};
use super::timers::Outage;
use super::timers::{self, Timer, Timers};
use crate::clock::Moment;
use crate::error::{AcquireError, AdminError, CloseError, Ended};
use crate::keeping::Notice;
use crate::protocol::{Event, Name};
use crate::timing::call_timeout;
use permits_store::{Executed, StoreError};

/// The interval between two checks for timeouts, while the store cannot be reached.
pub(super) const TIMEOUTS_EVERY: Duration = Duration::from_millis(100);

/// How often the engine looks for semaphores that can be renewed together with others.
const COMPANIONS_SOUGHT_EVERY: Duration = Duration::from_secs(1);

/// How many unused semaphores the engine remembers a view of, at most.
const MAX_VIEWS: usize = 256;

/// See the module.
pub(super) struct Engine {
    step: Step,
    semaphores: Map<Name, SemaphoreSession>,
    /// Views worth remembering, of semaphores that are no longer used: at most [`MAX_VIEWS`].
    views: Map<Name, View>,
    /// Semaphores that may have something to send.
    dirty: Vec<Name>,
    single_calls: SingleCalls,
    /// The number of adoptions in flight. The permits that they bring have to be released before the session
    /// may end.
    adopting: usize,
    connected: bool,
    companions_sought_at: Option<Moment>,
    /// The store as a whole cannot be reached.
    down: Option<Outage>,
    /// Set after a failed call, and while there is an outage: of the store, a semaphore or a single call.
    has_outage: bool,
    timeouts_timer: Option<timers::Key>,
    single_calls_timer: Option<timers::Key>,
    /// The callers that close the session; `Some` once it is closing.
    closing: Option<Vec<Answer<(), CloseError>>>,
    /// The result for those callers; `Some` once all is done and the thread may end.
    closed: Option<Result<(), CloseError>>,
}

impl Engine {
    pub(super) fn new(config: Config, session: Weak<Shared>) -> Self {
        Self {
            step: Step {
                now: Moment::from_micros(0),
                config,
                session,
                timers: Timers::default(),
                outbox: Outbox::default(),
                arrivals: 0,
            },
            semaphores: Map::default(),
            views: Map::default(),
            dirty: Vec::new(),
            single_calls: SingleCalls::default(),
            adopting: 0,
            connected: false,
            companions_sought_at: None,
            down: None,
            has_outage: false,
            timeouts_timer: None,
            single_calls_timer: None,
            closing: None,
            closed: None,
        }
    }

    /// Returns true if all is done and the thread may end.
    pub(super) fn is_finished(&self) -> bool {
        self.closed.is_some()
    }

    /// The time for which the store may be unreachable before the calls that wait for it fail.
    pub(in crate::session) fn store_timeout(&self) -> Duration {
        self.step.config.store_timeout
    }

    /// Replies to the callers that closed the session. Call this after its connections are closed: a program
    /// that forks next then leaves nothing of the session to the child.
    pub(super) fn answer_closed(&mut self) {
        let Some(result) = &self.closed else { return };
        for answer in self.closing.iter_mut().flat_map(|answers| answers.drain(..)) {
            self.step.outbox.reply(answer, result.clone());
        }
    }

    /// The number of deliveries since the outbox was taken.
    pub(super) fn answers(&self) -> usize {
        self.step.outbox.len()
    }

    /// The deliveries since the last call.
    pub(super) fn take_outbox(&mut self) -> Outbox {
        std::mem::take(&mut self.step.outbox)
    }

    /// Returns true if calls were left to a later step.
    pub(super) fn has_gathered(&self) -> bool {
        !self.dirty.is_empty()
    }

    #[cfg(test)]
    pub(super) fn session_id(&self) -> &crate::protocol::SessionId {
        &self.step.config.session
    }

    /// Returns true if nothing is asked for, held, released or planned.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.semaphores.is_empty() && self.step.timers.next().is_none()
    }

    /// How many permits of a semaphore the session remembers that it handed over.
    #[cfg(test)]
    pub(super) fn handed_over(&self, name: &Name) -> usize {
        self.semaphores.get(name).map_or(0, SemaphoreSession::handed_over)
    }

    /// The next time at which [`Engine::on_time`] has to be called.
    pub(super) fn next_time(&self) -> Option<Moment> {
        self.step.timers.next()
    }

    /// Returns a semaphore that the session knows, and marks it as dirty.
    fn known(&mut self, name: &Name) -> Option<(&mut SemaphoreSession, &mut Step)> {
        let semaphore = self.semaphores.get_mut(name)?;
        mark_dirty(&mut self.dirty, name, semaphore);
        Some((semaphore, &mut self.step))
    }

    /// Returns a semaphore, which the session knows from now on, and marks it as dirty.
    fn semaphore(&mut self, name: &Name) -> (&mut SemaphoreSession, &mut Step) {
        let semaphore = self.semaphores.entry(name.clone()).or_insert_with(|| {
            SemaphoreSession::new(name.clone(), self.views.remove(name).unwrap_or_default())
        });
        mark_dirty(&mut self.dirty, name, semaphore);
        (semaphore, &mut self.step)
    }

    /// Takes a message of a caller. [`Message::List`] never comes here: the driver handles it.
    pub(super) fn on_message(&mut self, message: Message, now: Moment) {
        self.step.now = now;
        match message {
            Message::Acquire(_, answer) if self.closing.is_some() => {
                self.step.outbox.reply(answer, Err(AcquireError::Ended(Ended::Closed)));
            }
            Message::Acquire(spec, answer) => {
                let (semaphore, step) = self.semaphore(&spec.semaphore);
                semaphore.acquire(*spec, answer, step);
            }
            Message::Cancel { semaphore, request } => {
                if let Some((semaphore, step)) = self.known(&semaphore) {
                    semaphore.fail(&request, AcquireError::Cancelled, step);
                }
            }
            Message::Release { semaphore, release } => {
                let (semaphore, step) = self.semaphore(&semaphore);
                semaphore.release(release, step);
            }
            Message::HandOver { semaphore, request } => {
                if let Some((semaphore, step)) = self.known(&semaphore) {
                    semaphore.hand_over(&request, step);
                }
            }
            Message::ChangeTerms { semaphore, request, change } => {
                if let Some((semaphore, step)) = self.known(&semaphore) {
                    semaphore.change_terms(&request, change, step);
                }
            }
            Message::Renew { semaphore, request, answer } => {
                let known = self.semaphores.get(&semaphore);
                match known.and_then(|semaphore| semaphore.renewal_of(&request)) {
                    Some((renewal, fallback)) => {
                        self.run(SingleCall::renew(semaphore, renewal, fallback, answer, now));
                    }
                    // The engine forgets a permit only when it is lost, and then the permit knows why.
                    None => self.step.outbox.discard(answer),
                }
            }
            Message::CountAnew { semaphore, request, within, answer } => {
                let known = self.semaphores.get_mut(&semaphore);
                match known.and_then(|semaphore| semaphore.count_anew(&request, now)) {
                    Some((renewal, fallback)) => {
                        let caller = (within, answer);
                        self.run(SingleCall::count_anew(semaphore, renewal, fallback, caller, now));
                    }
                    None => self.step.outbox.discard(answer),
                }
            }
            Message::Adopt { semaphore, adopt, answer } => {
                self.run(SingleCall::adopt(semaphore, adopt, answer, now));
            }
            Message::Admin { semaphore, declaration, operation, answer } => {
                self.run(SingleCall::admin(semaphore, declaration, operation, answer, now));
            }
            Message::List { answer } => self.step.outbox.reply(answer, Err(AdminError::Ended(Ended::Closed))),
            Message::Close { answer } => self.close(answer, now),
        }
    }

    /// Notes that the store cannot be reached.
    pub(super) fn on_down(&mut self, error: StoreError, now: Moment) {
        self.step.now = now;
        self.connected = false;
        self.has_outage = true;
        Outage::record(&mut self.down, error, now);
        for (name, semaphore) in &mut self.semaphores {
            semaphore.note(Notice::Unsure, &mut self.step);
            mark_dirty(&mut self.dirty, name, semaphore);
        }
    }

    /// Handles a recall: others need what this session keeps of a semaphore.
    pub(super) fn on_recall(&mut self, name: &Name, now: Moment) {
        self.step.now = now;
        if let Some((semaphore, step)) = self.known(name) {
            semaphore.note(Notice::Recall, step);
        }
    }

    /// Notes that the store can be reached (again), or that events which it sent may not have arrived.
    pub(super) fn on_up(&mut self, now: Moment) {
        self.step.now = now;
        if !std::mem::replace(&mut self.connected, true) && self.down.take().is_some() {
            self.step.outbox.tally.reconnect();
        }
        self.single_calls.retry_now();
        for (name, semaphore) in &mut self.semaphores {
            semaphore.on_reconnected(&mut self.step);
            mark_dirty(&mut self.dirty, name, semaphore);
        }
    }

    /// Takes an event that the store has pushed.
    pub(super) fn on_event(&mut self, event: Event, now: Moment) {
        self.step.now = now;
        // Ignore pushes for other sessions. Releasing such a grant would take it from its holder.
        if !self.step.config.session.has_made(&event.request) {
            return;
        }
        let name = event.semaphore.clone();
        let (semaphore, step) = self.semaphore(&name);
        semaphore.on_event(event, step);
    }

    fn run(&mut self, call: SingleCall) {
        if self.closing.is_some() {
            return call.fail_closed(&mut self.step.outbox);
        }
        self.single_calls.add(call);
    }

    /// The calls to make now.
    pub(super) fn calls(&mut self, sending: Sending, now: Moment) -> Vec<Call> {
        self.step.now = now;
        let mut calls = Vec::new();
        self.seek_companions();
        for name in std::mem::take(&mut self.dirty) {
            let Some(semaphore) = self.semaphores.get_mut(&name) else { continue };
            if sending == Sending::Gathering && semaphore.has_call_in_flight() {
                self.dirty.push(name);
            } else if semaphore.is_empty() {
                semaphore.remove_timer(&mut self.step);
                self.forget(name);
            } else {
                calls.extend(semaphore.calls(self.connected, &self.down, &mut self.step));
            }
        }
        if self.connected {
            for call in self.single_calls.take_ready(now, &mut self.step.outbox) {
                self.adopting += usize::from(call.is_adoption());
                let (semaphore, operation) = (call.semaphore.clone(), call.operation.clone());
                let timeout = call_timeout(self.step.config.lease);
                if let Some(known) = self.semaphores.get_mut(&semaphore) {
                    calls.extend(known.releases_first(&self.step));
                }
                calls.push(Call {
                    command: self.step.command(&semaphore, call.declaration, operation),
                    timeout,
                    replicas: if call.counts_anew() { self.step.config.replicas } else { 0 },
                    sent: SentCall {
                        semaphore,
                        sent_at: now,
                        until: now + timeout,
                        kind: CallKind::Single(Box::new(call)),
                    },
                });
            }
            let timers = &mut self.step.timers;
            timers.remove(self.single_calls_timer.take());
            self.single_calls_timer =
                self.single_calls.next_time().map(|at| timers.set(at, Timer::SingleCalls));
        }
        let has_any = !self.semaphores.is_empty() || !self.single_calls.is_empty();
        if self.has_outage && has_any && self.timeouts_timer.is_none() {
            self.timeouts_timer = Some(self.step.timers.set(now + TIMEOUTS_EVERY, Timer::Timeouts));
        }
        self.finish_closing(false);
        calls
    }

    /// Forgets a semaphore that is no longer used, except the view of it that is worth remembering.
    fn forget(&mut self, name: Name) {
        let view = self.semaphores.remove(&name).and_then(|semaphore| semaphore.into_view().remembered());
        if let Some(view) = view
            && self.views.len() < MAX_VIEWS
        {
            self.views.insert(name, view);
        }
    }

    /// Renews other semaphores along with one whose renewal is due, if their last renewal would be too long
    /// ago when companions are next sought. A semaphore whose own renewal is planned before then is left
    /// alone, so that not all semaphores of a session are renewed at once.
    fn seek_companions(&mut self) {
        let now = self.step.now;
        let soon = |at: Moment| now < at + COMPANIONS_SOUGHT_EVERY;
        if !self.connected || self.companions_sought_at.is_some_and(soon) {
            return;
        }
        let due = self.dirty.iter().filter_map(|name| self.semaphores.get(name)?.due_interval());
        let Some(interval) = due.min() else { return };
        self.companions_sought_at = Some(now);
        let next_sought = now + interval + COMPANIONS_SOUGHT_EVERY;
        for (name, semaphore) in &mut self.semaphores {
            if semaphore.renew_unless_before(next_sought) {
                mark_dirty(&mut self.dirty, name, semaphore);
            }
        }
    }

    /// Handles the return of a call.
    pub(super) fn on_return(&mut self, call: SentCall, result: Result<Executed, StoreError>, now: Moment) {
        self.step.now = now;
        let SentCall { semaphore: name, sent_at, kind, .. } = call;
        let tally = &mut self.step.outbox.tally;
        tally.call(kind.operation() as usize, now.since(sent_at), kind.requests());
        match &result {
            Ok(executed) => {
                self.down = None;
                let (by_replicas, looks) = match &kind {
                    CallKind::Confirm(_) => (true, false),
                    CallKind::Single(call) => (call.counts_anew(), call.inspects()),
                    CallKind::Inspect => (false, true),
                    CallKind::Acquire(_) | CallKind::Release(_) | CallKind::Renew(_) => (false, false),
                };
                // Replies about replicas arrive by another connection than recalls, and an inspection of a
                // local store reads without its lock. So a recall may have overtaken them.
                let in_order = !by_replicas && !looks;
                if let Some((semaphore, step)) = self.known(&name) {
                    semaphore.note_reply(&executed.reply, sent_at, (by_replicas, in_order), step);
                }
            }
            Err(error) => {
                self.has_outage = true;
                if error.is_temporary() {
                    self.step.outbox.tally.retry();
                }
                if let Some((semaphore, step)) = self.known(&name) {
                    semaphore.note(Notice::Unsure, step);
                }
            }
        }
        match kind {
            CallKind::Single(single) => {
                self.adopting -= usize::from(single.is_adoption());
                match result {
                    Ok(executed) => self.on_single_reply(*single, executed, sent_at),
                    Err(error) => self.on_single_failure(*single, error),
                }
            }
            kind => {
                if let Some((semaphore, step)) = self.known(&name) {
                    semaphore.on_return(kind, sent_at, result, step);
                }
            }
        }
    }

    pub(super) fn on_time(&mut self, now: Moment) {
        self.step.now = now;
        while let Some(timer) = self.step.timers.due(now) {
            match timer {
                Timer::Semaphore(name) => {
                    if let Some((semaphore, step)) = self.known(&name) {
                        semaphore.on_time(step);
                    }
                }
                Timer::Acquisition(name, request) => {
                    let down = self.down.clone();
                    if let Some((semaphore, step)) = self.known(&name) {
                        semaphore.on_acquisition_time(&request, &down, step);
                    }
                }
                Timer::Timeouts => self.fail_timed_out(),
                Timer::SingleCalls => self.single_calls_timer = None,
                Timer::Close => self.finish_closing(true),
            }
        }
    }

    /// Fails the requests that have waited too long for the store, or for the part of it that has their
    /// semaphore, because it cannot be reached.
    fn fail_timed_out(&mut self) {
        let now = self.step.now;
        self.timeouts_timer = None;
        self.has_outage = self.down.is_some() || self.single_calls.has_outage();
        for (name, semaphore) in &mut self.semaphores {
            self.has_outage |= semaphore.outage().is_some();
            semaphore.fail_timed_out(&self.down, &mut self.step);
            mark_dirty(&mut self.dirty, name, semaphore);
        }
        for (call, error) in self.single_calls.take_timed_out(&self.down, self.store_timeout(), now) {
            self.fail_single(call, Some(error));
        }
    }
}

fn mark_dirty(dirty: &mut Vec<Name>, name: &Name, semaphore: &mut SemaphoreSession) {
    if !std::mem::replace(&mut semaphore.dirty, true) {
        dirty.push(name.clone());
    }
}
