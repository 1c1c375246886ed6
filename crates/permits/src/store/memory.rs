//! The memory store: the model, a mutex, and events handed over in the process.
//!
//! All clients of one process that connect to the same `memory:` URL share it. For tests, and for programs
//! that want the same code with and without a server. The clock is the process's monotonic one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Executing, Listing, Opening, Signal, Signals, Store};
use crate::clock::Moment;
use crate::model::{self, Server, State};
use crate::protocol::{Command, Event, Id, Name, Reply};

/// Semaphores that nobody has used for a while are looked for every so many commands.
const SWEEP_EVERY: u64 = 1024;

/// One session's view of a shared memory.
pub(crate) struct MemoryStore {
    shared: Arc<Shared>,
    session: Id,
    prefix: String,
}

struct Shared {
    /// The wall clock at `began`: tokens are on its scale.
    epoch_us: u64,
    began: Moment,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    states: HashMap<(String, Name), Option<State>>,
    sessions: HashMap<Id, Signals>,
    executed: u64,
}

impl MemoryStore {
    /// Opens the memory of this name, which lives as long as somebody has it open.
    pub(crate) fn open(name: &str, opening: &Opening) -> Self {
        static SHARED: LazyLock<Mutex<HashMap<String, Weak<Shared>>>> = LazyLock::new(Mutex::default);
        let mut named = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = named.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            named.retain(|_, shared| shared.strong_count() > 0);
            let shared = Arc::new(Shared::new());
            named.insert(name.to_owned(), Arc::downgrade(&shared));
            shared
        });
        drop(named);
        shared.lock().sessions.insert(opening.session.clone(), opening.signals.clone());
        // A new channel has room, and if the session is gone nobody minds.
        let _ = opening.signals.try_send(Signal::Up);
        Self { shared, session: opening.session.clone(), prefix: opening.prefix.clone() }
    }
}

impl Shared {
    fn new() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { epoch_us: micros(epoch), began: Moment::now(), inner: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        self.epoch_us + micros(Moment::now().since(self.began))
    }

    fn list(&self, prefix: &str) -> Vec<Name> {
        let now_ms = self.now_us() / 1000;
        let inner = self.lock();
        let lives = |state: &Option<State>| state.as_ref().is_some_and(|state| !state.is_expired(now_ms));
        let listed = inner.states.iter().filter(|((of, _), state)| of == prefix && lives(state));
        let mut names: Vec<Name> = listed.map(|((_, name), _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    fn execute(&self, prefix: &str, command: &Command) -> (Reply, Vec<(Signals, Event)>) {
        let now_us = self.now_us();
        // Nothing is ever forgotten while the process lives, so there is nothing to recover from.
        let server = Server { now_us, run_id: "memory", uptime_ms: u64::MAX };
        let mut inner = self.lock();
        inner.executed += 1;
        if inner.executed.is_multiple_of(SWEEP_EVERY) {
            inner
                .states
                .retain(|_, state| state.as_ref().is_some_and(|state| !state.is_expired(now_us / 1000)));
        }
        let key = (prefix.to_owned(), command.semaphore.clone());
        let state = inner.states.entry(key.clone()).or_default();
        let (reply, events) = model::apply(state, &server, command);
        if state.is_none() {
            inner.states.remove(&key);
        }
        let known = |event: Event| Some((inner.sessions.get(&event.session)?.clone(), event));
        (reply, events.into_iter().filter_map(known).collect())
    }
}

impl Store for MemoryStore {
    fn execute<'a>(&'a self, command: &'a Command, _patience: Duration) -> Executing<'a> {
        Box::pin(async move {
            let (reply, events) = self.shared.execute(&self.prefix, command);
            for (signals, event) in events {
                // A session that is gone, or so far behind that its channel is full, asks when it renews.
                let _ = signals.try_send(Signal::Event(event));
            }
            Ok(reply)
        })
    }

    fn list(&self, _patience: Duration) -> Listing<'_> {
        Box::pin(async { Ok(self.shared.list(&self.prefix)) })
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.shared.lock().sessions.remove(&self.session);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
