//! The memory store: the model behind a mutex, in one process.
//!
//! All clients of a process that connect to the same `memory:` URL share one memory. It serves tests, and
//! programs that use the same code with and without a server. Its clock is the process's monotonic clock.
//!
//! **A session learns what happened in the order in which it happened.** If the command of another session
//! causes a message, a task reports it, because that command must not take this session's lock. A reply is
//! known at once, and so it could come before messages of earlier commands. Assume that an operator revokes a
//! waiter, and that its renewal is executed next: the renewal finds no waiter, the session asks for a new
//! place, and the revocation is undone. So while there are messages to report, a reply is reported behind
//! them.
//!
//! Settings of operators stay for the life of the process; the rest is dropped when the last client of a
//! memory closes.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::backend::{
    Backend, DiagnoseOptions, Executed, Location, ParsedUrl, Report, Request, Sink, Store, StoreOptions,
};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::finding::Finding;
use crate::model::{self, ServerClock, State};
use crate::options::{Known, Options, RECOVERY};
use crate::protocol::{Event, Name, SessionId};
use crate::sys::process::PerProcess;

/// The number of commands between two sweeps, which drop idle semaphores.
const SWEEP_EVERY: u64 = 1024;

/// The number of reports of a session that may wait for their turn. Further reports are lost, and the session
/// renews all that it has, which tells it the same. Replies are never lost. Nor is a report that no renewal
/// would tell: that a request was revoked or superseded, or that the line was closed.
const REPORTS: usize = 1024;

/// How many reports the session takes at once.
const REPORTS_AT_ONCE: usize = 64;

/// The kind of store that is in the memory of this process.
pub struct Memory;

impl Backend for Memory {
    fn schemes(&self) -> Vec<String> {
        vec!["memory:".into()]
    }

    fn parse(&self, url: &str) -> Option<ParsedUrl> {
        let rest = url.strip_prefix("memory:")?;
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = Options::parse(query, &[Known { name: RECOVERY, refused: None }]);
        let recovery = options.and_then(|options| options.recovery());
        Some(recovery.map(|recovery| (Box::new(MemoryName(name.to_owned())) as Box<dyn Location>, recovery)))
    }
}

/// The name of a memory.
struct MemoryName(String);

impl Location for MemoryName {
    fn uses_sockets(&self) -> bool {
        false
    }

    fn open(&self, options: StoreOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::open(&self.0, &options));
            Ok(store)
        })
    }

    fn diagnose<'a>(&'a self, _: DiagnoseOptions<'a>) -> BoxFuture<'a, Vec<Finding>> {
        let observed = "the memory of this process, which no other process sees";
        Box::pin(async move { vec![Finding::fine("store", observed)] })
    }
}

impl fmt::Display for MemoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory:{}", self.0)
    }
}

/// A session's access to a memory.
pub(crate) struct MemoryStore {
    name: String,
    shared: Arc<Shared>,
    session: SessionId,
    prefix: String,
}

struct Shared {
    /// The wall clock at `began`. Tokens continue from it.
    epoch_us: u64,
    began: Moment,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    states: HashMap<(String, Name), Option<State>>,
    sessions: HashMap<SessionId, Outgoing>,
    executed: u64,
    /// The time of the last command. The next one has a later time.
    last_us: u64,
}

/// The way by which reports reach a session.
struct Outgoing {
    reports: mpsc::UnboundedSender<Report>,
    shared: Arc<Reporting>,
}

/// The state that a session and the task that reports to it share.
#[derive(Default)]
struct Reporting {
    /// The number of reports that the session has not taken yet.
    waiting: AtomicUsize,
    /// Some reports were lost.
    lost: AtomicBool,
}

impl Outgoing {
    /// Returns true if there are reports that the session has not taken yet.
    fn is_behind(&self) -> bool {
        self.shared.waiting.load(Ordering::Acquire) > 0
    }

    fn report(&self, report: Report) {
        let may_be_lost = match &report {
            Report::Event(Event { kind, .. }) => kind.is_told_by_renewal(),
            Report::Recall(_) => true,
            Report::Outcome { .. } | Report::Up | Report::Down(_) | Report::Writable => false,
        };
        if may_be_lost && self.shared.waiting.load(Ordering::Acquire) >= REPORTS {
            return self.shared.lost.store(true, Ordering::Relaxed);
        }
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        // If the session's task has ended, nobody takes the report.
        drop(self.reports.send(report));
    }
}

impl MemoryStore {
    /// Opens the memory of this name, or makes it if it does not exist. Call this on the session's runtime.
    fn open(name: &str, options: &StoreOptions) -> Self {
        let mut memories = memories();
        let shared = memories.entry(name.to_owned()).or_insert_with(|| Arc::new(Shared::new())).clone();
        // Register before the memories are unlocked: the memory's last session may be closing, and would drop
        // the memory.
        let ((sender, reports), reporting) = (mpsc::unbounded_channel(), Arc::default());
        let outgoing = Outgoing { reports: sender, shared: Arc::clone(&reporting) };
        shared.lock().sessions.insert(options.session.clone(), outgoing);
        drop(memories);
        options.sink.report(&mut vec![Report::Up]);
        drop(tokio::spawn(report(options.sink.clone(), reports, reporting)));
        Self {
            name: name.to_owned(),
            shared,
            session: options.session.clone(),
            prefix: options.prefix.clone(),
        }
    }
}

/// The memories of this process by name: each has a session, a pinned limit, a pause or a closed line. A
/// forked child begins with an empty map, because its copy of the parent's map may be locked.
fn memories() -> MutexGuard<'static, HashMap<String, Arc<Shared>>> {
    static MEMORIES: PerProcess<Mutex<HashMap<String, Arc<Shared>>>> = PerProcess::new();
    MEMORIES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { epoch_us: micros(epoch), began: Clock::Sleeping.now(), inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        self.epoch_us + micros(Clock::Sleeping.now().since(self.began))
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

    /// Executes a request. Returns `None` if the reply is reported later, behind what the session does not
    /// know yet.
    fn execute(&self, prefix: &str, request: &Request) -> Option<Executed> {
        let command = &request.command;
        let mut inner = self.lock();
        // Each command has a time of its own, by which a session knows whether a reply or a message is later.
        let now_us = self.now_us().max(inner.last_us + 1);
        inner.last_us = now_us;
        // The store loses no state while the process lives, so it never recovers.
        let server = ServerClock { now_us, run_id: "memory", uptime_ms: u64::MAX };
        inner.executed += 1;
        if inner.executed.is_multiple_of(SWEEP_EVERY) {
            inner
                .states
                .retain(|_, state| state.as_ref().is_some_and(|state| !state.is_expired(now_us / 1000)));
        }
        let key = (prefix.to_owned(), command.semaphore.clone());
        let state = inner.states.entry(key.clone()).or_default();
        let keepable = model::keepable_limit(state.as_ref(), now_us);
        let (reply, events) = model::apply(state, &server, command);
        let mut reports: Vec<(SessionId, Report)> =
            events.into_iter().map(|event| (event.session.clone(), Report::Event(event))).collect();
        if model::recalls(keepable, state.as_ref(), &reply, now_us) {
            let keepers = state.iter().flat_map(State::keepers);
            reports
                .extend(keepers.map(|session| (session.clone(), Report::Recall(command.semaphore.clone()))));
        }
        if state.is_none() {
            inner.states.remove(&key);
        }
        let executed = Executed { reply, confirmed: u32::MAX };
        let behind = inner.sessions.get(&command.session).filter(|session| session.is_behind());
        let executed = match behind {
            Some(session) => {
                session.report(Report::Outcome { id: request.id, result: Ok(executed) });
                None
            }
            None => Some(executed),
        };
        for (session, report) in reports {
            if let Some(session) = inner.sessions.get(&session) {
                // Only queue the report. Reporting it here would need the lock of its session, and the caller
                // already holds the lock of its own.
                session.report(report);
            }
        }
        executed
    }
}

/// Reports to a session, until its store is dropped.
async fn report(
    sink: Arc<dyn Sink>,
    mut to_report: mpsc::UnboundedReceiver<Report>,
    reporting: Arc<Reporting>,
) {
    let mut reports = Vec::new();
    loop {
        let count = to_report.recv_many(&mut reports, REPORTS_AT_ONCE).await;
        if count == 0 {
            return;
        }
        if reporting.lost.swap(false, Ordering::Relaxed) {
            reports.push(Report::Up);
        }
        sink.report(&mut reports);
        reporting.waiting.fetch_sub(count, Ordering::AcqRel);
    }
}

impl Store for MemoryStore {
    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>> {
        self.shared.execute(&self.prefix, &request).map(Ok)
    }

    fn list(&self, _timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        Box::pin(async { Ok(self.shared.list(&self.prefix)) })
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let mut memories = memories();
        let mut inner = self.shared.lock();
        inner.sessions.remove(&self.session);
        if !inner.sessions.is_empty() {
            return;
        }
        let stays = |state: &State| state.never_expires() || state.is_paused();
        inner.states.retain(|_, state| state.as_ref().is_some_and(stays));
        for state in inner.states.values_mut().flatten() {
            state.clear_entries();
        }
        if inner.states.is_empty() {
            memories.remove(&self.name);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
