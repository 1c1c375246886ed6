//! The driver: the engine behind a lock, and the store that its requests go to.
//!
//! Four parties step the engine: a caller, a permit that is dropped, a task of the store that has replies,
//! and the session's thread when a time has come. Under the lock the engine decides, and its requests are
//! handed to the store, which writes them without blocking: so they are written in the order in which they
//! were asked for. Callers are answered ([`outbox`](super::outbox)) when the lock is free again, so that no
//! code of the program runs under it.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::call::{Call, SentCall};
use super::callers::{Message, Port, Session};
use super::engine::Engine;
use super::gathering::{Answering, Sending};
use super::locked::Mark;
use super::outbox::{Answer, reply};
use super::{Config, LONGEST_SLEEP, Map};
use crate::clock::{Clock, Moment};
use crate::error::{AdminError, ConnectError, Ended};
use crate::observe;
use crate::observe::meters::SessionMeters;
use crate::protocol::Name;
use crate::store::Address;
use crate::sys::background::spawn_with_runtime;
use permits_store::{Report, Request, Sink, Store, StoreError, StoreOptions, open};

/// The timeout of one step when semaphores are listed, and the pause before a retry.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
const LIST_RETRY: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Driver {
    state: Mutex<State>,
    /// Wakes the session's thread: there is an earlier time than it knows, or the session ends.
    wake: Notify,
    meters: SessionMeters,
}

pub(super) struct State {
    clock: Clock,
    engine: Engine,
    /// `None` until the store is open, and once the session has ended.
    open: Option<Open>,
    /// The calls in flight, by the number of their request.
    calls: Map<u64, SentCall>,
    requests: u64,
    /// Calls in flight cannot time out before this moment.
    overdue_at: Option<Moment>,
    /// The time at which the session's thread checks again; `None` while it sleeps without a limit.
    wakes_at: Option<Moment>,
    answering: Answering,
    /// A caller has sent something since the session's thread last looked.
    active: bool,
    ended: Option<Ended>,
}

struct Open {
    store: Arc<dyn Store>,
    /// The runtime of the session's thread.
    runtime: Handle,
}

/// The locked state.
struct Locked<'a>(MutexGuard<'a, State>, Mark);

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Driver {
    /// A session, and its driver.
    pub(super) fn new(config: Config) -> (Session, Arc<Self>) {
        let mut made = None;
        let meters = config.meters.clone();
        let session = Session::new(config.clone(), |shared| {
            let state = State {
                clock: config.clock,
                engine: Engine::new(config, shared.clone()),
                open: None,
                calls: Map::default(),
                requests: 0,
                overdue_at: None,
                wakes_at: None,
                answering: Answering::default(),
                active: false,
                ended: None,
            };
            let driver = Arc::new(Self { state: Mutex::new(state), wake: Notify::new(), meters });
            made = Some(driver.clone());
            driver
        });
        (session, made.expect("it was just made"))
    }

    /// Begins to use the store, now that it is open. Call this on the session's runtime.
    pub(super) fn open(&self, store: Arc<dyn Store>) {
        self.lock().open = Some(Open { store, runtime: Handle::current() });
        self.step(Sending::AtOnce, no_input);
    }

    /// Checks the time until the engine has finished or failed, and closes the store. The session's thread
    /// runs this.
    pub(super) async fn keep_time(&self) {
        loop {
            let (now, sleep) = {
                let mut state = self.lock();
                if state.ended.is_some() || state.engine.is_finished() {
                    state.ended.get_or_insert(Ended::Closed);
                    let open = state.open.take();
                    let in_flight = std::mem::take(&mut state.calls);
                    state.engine.end_calls(in_flight);
                    let outbox = state.engine.take_outbox();
                    drop(state);
                    outbox.deliver(None).record(&self.meters);
                    return drop(open);
                }
                let now = state.clock.now();
                let next = state.next_time();
                // A session that is used wakes at least this often, so that callers seldom have to wake it.
                let awake = std::mem::take(&mut state.active) || next.is_some();
                let longest = awake.then(|| now + LONGEST_SLEEP);
                state.wakes_at = next.into_iter().chain(longest).min();
                (now, state.wakes_at.map(|at| at.since(now)))
            };
            match sleep {
                Some(sleep) => drop(tokio::time::timeout(sleep, self.wake.notified()).await),
                None => self.wake.notified().await,
            }
            // If the thread woke more than LONGEST_SLEEP late, the process was stopped or its machine
            // suspended, and the store's connections may have died. Tell the store, so that the next request
            // need not wait for its timeout to find that out.
            {
                let state = self.lock();
                let late = sleep.is_some_and(|sleep| now + sleep + LONGEST_SLEEP < state.clock.now());
                if let (true, Some(open)) = (late, &state.open) {
                    open.store.probe();
                }
            }
            self.step(Sending::AtOnce, no_input);
        }
    }

    /// Replies to the callers that closed the session.
    pub(super) fn answer_closed(&self) {
        let outbox = {
            let mut state = self.lock();
            state.engine.answer_closed();
            state.engine.take_outbox()
        };
        outbox.deliver(None).record(&self.meters);
    }

    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock().unwrap_or_else(PoisonError::into_inner), Mark::new())
    }

    /// Steps the engine, sends its requests, and delivers its answers. Returns true if requests are left for
    /// a later step.
    pub(super) fn step(&self, sending: Sending, input: impl FnOnce(&mut State, Moment)) -> bool {
        let mut state = self.lock();
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            let now = state.clock.now();
            state.engine.on_time(now);
            state.fail_overdue(now);
            input(&mut state, now);
            state.send(sending, now);
        }));
        if stepped.is_err() {
            // A bug of this crate. End what the session holds now, not when its leases end.
            let in_flight = std::mem::take(&mut state.calls);
            state.engine.abandon(in_flight);
            state.ended = Some(Ended::SessionFailed);
        }
        let gathered = sending == Sending::Gathering && state.engine.has_gathered();
        let outbox = state.engine.take_outbox();
        let sends_next = state.answering.begin(sending, outbox.len());
        let runtime = state.open.as_ref().filter(|_| outbox.len() > 1).map(|open| open.runtime.clone());
        let wake = state.ended.is_some() || state.engine.is_finished() || state.wakes_too_late();
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        outbox.deliver(runtime.as_ref()).record(&self.meters);
        if sends_next {
            self.lock().answering.end();
            self.step(Sending::AtOnce, no_input);
        }
        gathered
    }

    /// Takes a message of a caller. Returns true if requests are left for [`Port::flush`].
    fn take(&self, message: Message, sending: Sending) -> bool {
        if let Message::List { answer } = message {
            self.list(answer);
            return false;
        }
        let mut message = Some(message);
        let mut ended = None;
        let gathered = self.step(sending, |state, now| {
            state.active = true;
            ended = state.ended;
            if ended.is_none()
                && let Some(message) = message.take()
            {
                state.engine.on_message(message, now);
            }
        });
        if let (Some(ended), Some(message)) = (ended, message) {
            message.refuse(ended);
        }
        gathered
    }

    /// Lets a test look into the engine.
    #[cfg(test)]
    pub(super) fn engine<T>(&self, ask: impl FnOnce(&Engine) -> T) -> T {
        ask(&self.lock().engine)
    }

    /// The next time at which there is something to do.
    #[cfg(test)]
    pub(super) fn next_time(&self) -> Option<Moment> {
        self.lock().next_time()
    }

    fn list(&self, answer: Answer<Vec<Name>, AdminError>) {
        let state = self.lock();
        let (Some(open), None) = (&state.open, state.ended) else {
            let ended = state.ended.unwrap_or(Ended::Closed);
            drop(state);
            return Message::List { answer }.refuse(ended);
        };
        let listing = list(open.store.clone(), answer, state.engine.store_timeout());
        drop(open.runtime.spawn(listing));
    }
}

/// The input of a step that only sends what the engine has.
fn no_input(_: &mut State, _: Moment) {}

impl State {
    /// Sends the requests that the engine has now.
    fn send(&mut self, sending: Sending, now: Moment) {
        let Some(Open { store, .. }) = &self.open else { return };
        if self.answering.delays(sending, self.engine.answers()) {
            return;
        }
        while !store.is_full() {
            let calls = self.engine.calls(sending, now);
            if calls.is_empty() {
                return;
            }
            for Call { command, timeout, replicas, sent } in calls {
                self.requests += 1;
                let id = self.requests;
                match store.send(Request { id, command, timeout, replicas }) {
                    None => {
                        if !store.reports_all() {
                            self.overdue_at = self.overdue_at.into_iter().chain([sent.until]).min();
                        }
                        self.calls.insert(id, sent);
                    }
                    Some(result) => self.engine.on_return(sent, result, self.clock.now()),
                }
            }
        }
    }

    /// Fails the calls whose outcome the store has not reported in time, as when the disk of a file hangs.
    fn fail_overdue(&mut self, now: Moment) {
        if self.overdue_at.is_none_or(|at| now < at) {
            return;
        }
        let overdue: Vec<u64> =
            self.calls.iter().filter(|(_, call)| call.until <= now).map(|(id, _)| *id).collect();
        for call in overdue.iter().filter_map(|id| self.calls.remove(id)) {
            let reason = format!("no answer within {:?}", call.until.since(call.sent_at));
            self.engine.on_return(call, Err(StoreError::NoAnswer { reason }), now);
        }
        self.overdue_at = self.calls.values().map(|call| call.until).min();
    }

    /// The next time at which there is something to do.
    fn next_time(&self) -> Option<Moment> {
        self.engine.next_time().into_iter().chain(self.overdue_at).min()
    }

    /// Returns true if the session's thread sleeps beyond the next time at which there is something to do.
    fn wakes_too_late(&self) -> bool {
        self.next_time().is_some_and(|next| self.wakes_at.is_none_or(|at| next < at))
    }
}

impl Port for Driver {
    fn send(&self, message: Message) {
        self.take(message, Sending::AtOnce);
    }

    fn gather(&self, message: Message) -> bool {
        self.take(message, Sending::Gathering)
    }

    fn flush(&self) {
        self.step(Sending::AfterAnswers, no_input);
    }

    fn ended(&self) -> Ended {
        self.lock().ended.unwrap_or(Ended::Closed)
    }
}

impl Sink for Driver {
    fn report(&self, reports: &mut Vec<Report>) {
        self.step(Sending::AfterAnswers, |state, now| {
            for report in reports.drain(..) {
                match report {
                    Report::Outcome { id, result } => {
                        if let Some(call) = state.calls.remove(&id) {
                            state.engine.on_return(call, result, now);
                        }
                    }
                    Report::Event(event) => state.engine.on_event(event, now),
                    Report::Recall(semaphore) => state.engine.on_recall(&semaphore, now),
                    Report::Up => state.engine.on_up(now),
                    Report::Down(error) => state.engine.on_down(error, now),
                    // The requests that waited are sent now.
                    Report::Writable => {}
                }
            }
        });
    }
}

/// Lists the semaphores. While the store cannot be reached, the call is retried until `timeout` has passed.
async fn list(store: Arc<dyn Store>, answer: Answer<Vec<Name>, AdminError>, timeout: Duration) {
    let deadline = Moment::now() + timeout;
    let result = loop {
        match store.list(LIST_TIMEOUT).await {
            Err(error) if error.is_temporary() && Moment::now() < deadline && !answer.is_closed() => {
                tokio::time::sleep(LIST_RETRY).await;
            }
            result => break result,
        }
    };
    reply(answer, result.map_err(AdminError::Store));
}

/// Starts a session. The answer comes when the store is open, or cannot be opened.
pub(crate) fn start(
    config: Config,
    address: Address,
    prefix: String,
) -> Result<oneshot::Receiver<Result<Session, ConnectError>>, ConnectError> {
    let answer = spawn_with_runtime(address.uses_sockets(), move |opened| async {
        let driver = run(config, address, prefix, opened).await;
        // Answer after the runtime has shut down, so that a process forked next inherits no open connection.
        || {
            observe::flush();
            if let Some(driver) = driver {
                driver.answer_closed();
            }
        }
    })?;
    Ok(answer)
}

async fn run(
    config: Config,
    address: Address,
    prefix: String,
    mut opened: oneshot::Sender<Result<Session, ConnectError>>,
) -> Option<Arc<Driver>> {
    let within = config.store_timeout;
    let (id, lease) = (config.session.clone(), config.lease);
    let (session, driver) = Driver::new(config);
    let options = StoreOptions { session: id, prefix, lease, sink: driver.clone() };
    let opening = tokio::select! {
        opening = open(address.location(), options, within) => opening,
        // The caller has given up.
        () = opened.closed() => return None,
    };
    match opening {
        Ok(store) => driver.open(store),
        Err(error) => {
            // The caller may have given up: then nobody needs the error.
            let _ = opened.send(Err(ConnectError::Store(error)));
            return None;
        }
    }
    // If the caller has given up, the session is dropped, which closes it.
    drop(opened.send(Ok(session)));
    driver.keep_time().await;
    Some(driver)
}
