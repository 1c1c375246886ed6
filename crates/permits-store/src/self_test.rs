//! The self-test runs every operation once on a scratch semaphore, by the same store that a session uses.
//! Then it times round trips.
//!
//! A store that passes every inspection can still fail, so the self-test acquires a permit, queues a waiter,
//! releases the permit so that the waiter is granted, and so on. It never pins the limit, pauses or closes
//! the line, so that everything it writes expires if the process is killed before the caller has deleted it.
//! (It sets the limit with a version that cannot match, resumes instead of pausing, and opens the line
//! instead of closing it, which runs the same scripts.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::backend::{Location, Report, Store, StoreOptions};
use crate::clock::millis;
use crate::direct::Direct;
use crate::error::StoreError;
use crate::finding::Finding;
use crate::open::open;
use crate::protocol::{
    AcquireOutcome, AcquireRequest, AdoptRequest, Alert, Answers, Command, Declaration, DeleteOutcome, Event,
    EventKind, Grant, Holder, LaneName, LimitChange, Name, Operation, PermitTerms, Recovery, ReleaseOutcome,
    ReleaseRequest, RenewOutcome, RenewRequest, RequestId, RequestKey, SessionId, SetOutcome, Setting,
};
use crate::sys::entropy;
use crate::timing::renew_every;

/// The lease of the self-test's permits. The semaphore's state expires after four leases.
const LEASE: Duration = Duration::from_secs(10);

/// The timeout of one operation or event.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How many round trips are timed, and how long they may take together.
const ROUNDS: usize = 50;
const TIMING: Duration = Duration::from_secs(2);

/// A median round trip up to this is fine, unless the lease is short.
const SLOW: Duration = Duration::from_millis(20);

/// A random name for the scratch semaphore.
pub fn scratch_name() -> Name {
    Name::new(&format!("permits-doctor-{}", new_session_id())).expect("letters and digits make a name")
}

/// A new session id.
pub fn new_session_id() -> SessionId {
    let bytes = entropy::unique_bytes().expect("the client has checked that the system has entropy");
    SessionId::from_entropy(bytes)
}

/// Runs each operation on `semaphore`, which the caller deletes afterwards. Call this on a runtime.
pub async fn run_each_operation(
    location: &dyn Location,
    prefix: &str,
    semaphore: &Name,
    lease: Duration,
) -> Vec<Finding> {
    let (direct, reports) = Direct::new();
    let session = new_session_id();
    let (prefix, sink) = (prefix.to_owned(), direct.clone());
    let options = StoreOptions { session: session.clone(), prefix, lease: LEASE, sink };
    let failed = |step: &str, error: StoreError| {
        let advice = match error {
            StoreError::OutOfMemory { .. } => {
                "Nothing can be acquired until the server has memory again: give it more (CONFIG SET \
                 maxmemory), or find the keys that fill it. Permits that are held can be renewed and released."
            }
            _ => "Programs get the same error from the store: look at its configuration and its log.",
        };
        vec![Finding::problem("semaphore", format!("{step}: {error}"), advice)]
    };
    let store = match open(location, options, Duration::ZERO).await {
        Ok(store) => store,
        Err(error) => return failed("opening a session", error),
    };
    let mut test = SelfTest { store, direct, reports, session, semaphore: semaphore.clone() };
    let woken_after = match test.operations().await {
        Ok(woken_after) => woken_after,
        Err((step, error)) => return failed(step, error),
    };
    let done = format!(
        "acquired, waited, renewed, released, adopted, revoked; a waiter received its grant within {}",
        human(woken_after)
    );
    let mut findings = vec![Finding::fine("semaphore", done)];
    match test.round_trips().await {
        Ok(durations) => findings.push(latency("acquire and release", &durations, lease)),
        Err(error) => findings.extend(failed("acquiring and releasing repeatedly", error)),
    }
    findings
}

struct SelfTest {
    store: Arc<dyn Store>,
    direct: Arc<Direct>,
    reports: mpsc::Receiver<Report>,
    session: SessionId,
    semaphore: Name,
}

/// The step that failed, and the error.
type Failed = (&'static str, StoreError);

impl SelfTest {
    /// Runs each operation once. Returns the time from the release of the first permit to the event that
    /// grants the second.
    async fn operations(&mut self) -> Result<Duration, Failed> {
        let first = self.acquire("first", "a").await.map_err(|error| ("acquiring a permit", error))?;
        let AcquireOutcome::Granted(first) = first else {
            return Err(("acquiring a permit", unexpected(&first)));
        };
        let second = self.acquire("second", "b").await.map_err(|error| ("waiting in line", error))?;
        if second != (AcquireOutcome::Waiting { position: 0 }) {
            return Err(("waiting in line", unexpected(&second)));
        }
        let both = vec![renew("first", "a", Some(first)), renew("second", "b", None)];
        let renewed = vec![RenewOutcome::Held, RenewOutcome::Waiting { position: 0 }];
        self.expect("renewing", Operation::Renew(both), Answers::Renew(renewed)).await?;
        let listed =
            self.execute(Operation::Inspect { max: 10 }).await.map_err(|error| ("inspecting", error))?;
        match &listed {
            Answers::Inspect(seen) if (seen.holders.len(), seen.waiters.len()) == (1, 1) => {}
            other => return Err(("inspecting", unexpected(other))),
        }
        let began = Instant::now();
        let released = Answers::Release(vec![ReleaseOutcome::Held]);
        self.expect("releasing", Operation::Release(vec![release("first", "a")]), released).await?;
        let receiving = "receiving a grant";
        let EventKind::Granted(second) = self.event(receiving).await?.kind else {
            return Err((receiving, StoreError::Malformed { reason: "an event of another kind".into() }));
        };
        let woken_after = began.elapsed();
        let adopt = AdoptRequest {
            holder: holder("second"),
            request: id("b"),
            terms: terms(),
            grant: second,
            new_request: id("c"),
            last_token: None,
        };
        self.expect("adopting", Operation::Adopt(adopt), Answers::Adopt(true)).await?;
        let revoke = Operation::Revoke {
            origin: id("d").into(),
            holder: holder("second"),
            cooling: None,
            reason: "".into(),
        };
        self.expect("revoking", revoke, Answers::Revoke(ReleaseOutcome::Held)).await?;
        self.event("receiving a revocation").await?;
        let done = SetOutcome::Done { limit: 1, version: 1 };
        let lane = LaneName::new("lane").expect("it is valid");
        let limit = Setting::Limit { change: LimitChange::Set(2), expected_version: Some(0) };
        for (number, (doing, setting, outcome)) in [
            ("setting the limit", limit, SetOutcome::OtherVersion),
            ("resuming", Setting::Pause(None), done),
            ("opening the line", Setting::Line(None), done),
            ("removing the alert", Setting::Alert(Alert::default()), done),
            ("unpinning a lane", Setting::Lane { lane, pin: None }, done),
        ]
        .into_iter()
        .enumerate()
        {
            let set = Operation::Set { origin: id(&format!("set{number}")).into(), setting };
            self.expect(doing, set, Answers::Set(outcome)).await?;
        }
        self.expect(
            "deleting",
            Operation::Delete { unreadable: false },
            Answers::Delete(DeleteOutcome::Deleted),
        )
        .await?;
        Ok(woken_after)
    }

    /// Times pairs of an acquisition and a release, one after the other.
    async fn round_trips(&mut self) -> Result<Vec<Duration>, StoreError> {
        let began = Instant::now();
        let mut durations = Vec::with_capacity(ROUNDS);
        while durations.len() < ROUNDS && began.elapsed() < TIMING {
            let start = Instant::now();
            self.acquire("first", "a").await?;
            self.execute(Operation::Release(vec![release("first", "a")])).await?;
            durations.push(start.elapsed());
        }
        Ok(durations)
    }

    async fn acquire(&mut self, name: &str, request: &str) -> Result<AcquireOutcome, StoreError> {
        let acquire = AcquireRequest::new(holder(name), id(request), terms());
        match self.execute(Operation::Acquire { queue_max: 10, requests: vec![acquire] }).await? {
            Answers::Acquire(acquired) if acquired.len() == 1 => Ok(acquired[0].clone()),
            other => Err(unexpected(&other)),
        }
    }

    async fn expect(
        &mut self,
        step: &'static str,
        operation: Operation,
        expected: Answers,
    ) -> Result<(), Failed> {
        match self.execute(operation).await {
            Ok(answers) if answers == expected => Ok(()),
            Ok(other) => Err((step, unexpected(&other))),
            Err(error) => Err((step, error)),
        }
    }

    async fn execute(&self, operation: Operation) -> Result<Answers, StoreError> {
        let command = Command {
            semaphore: self.semaphore.clone(),
            session: self.session.clone(),
            lease_ms: millis(LEASE),
            // A new semaphore cannot have holders that the store has lost.
            recovery: Recovery::Off,
            declaration: Declaration::Fallback(1),
            operation,
        };
        Ok(self.direct.execute(&*self.store, &command, TIMEOUT).await?.answers)
    }

    async fn event(&mut self, step: &'static str) -> Result<Event, Failed> {
        let next = async {
            loop {
                match self.reports.recv().await {
                    Some(Report::Event(event)) => return Ok(event),
                    Some(Report::Up | Report::Writable | Report::Recall(_) | Report::Outcome { .. }) => {}
                    Some(Report::Down(error)) => return Err(error),
                    None => return Err(StoreError::NoAnswer { reason: "the session has ended".into() }),
                }
            }
        };
        let timed_out = || StoreError::NoAnswer { reason: format!("no event within {TIMEOUT:?}") };
        let received = timeout(TIMEOUT, next).await.unwrap_or_else(|_| Err(timed_out()));
        received.map_err(|error| (step, error))
    }
}

/// The finding about the round trips of `operation`. `lease` is the caller's usual lease.
pub fn latency(operation: &str, round_trips: &[Duration], lease: Duration) -> Finding {
    let mut sorted = round_trips.to_vec();
    sorted.sort_unstable();
    let (median, longest) = (
        sorted.get(sorted.len() / 2).copied().unwrap_or_default(),
        sorted.last().copied().unwrap_or_default(),
    );
    let observed =
        format!("{operation}: median {}, longest {} of {}", human(median), human(longest), sorted.len());
    if median <= SLOW.min(lease / 50) && longest <= lease / 6 {
        return Finding::fine("latency", observed);
    }
    let advice = format!(
        "Everything works, but each hand-over takes at least this time, and a session renews its permits every {}: \
         if replies take a large share of that, permits are lost. Put programs and store closer together, find out \
         what keeps the store busy (on Redis: SLOWLOG GET, redis-cli --latency), or use longer leases.",
        human(renew_every(lease))
    );
    Finding::note("latency", observed, advice)
}

/// Writes a duration for people, with one decimal.
fn human(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

fn unexpected(reply: &impl std::fmt::Debug) -> StoreError {
    StoreError::Malformed { reason: format!("{reply:?}") }
}

fn renew(name: &str, request: &str, grant: Option<Grant>) -> RenewRequest {
    RenewRequest::new(holder(name), id(request), terms(), grant)
}

fn terms() -> PermitTerms {
    PermitTerms::new(1, millis(LEASE))
}

fn release(name: &str, request: &str) -> ReleaseRequest {
    RequestKey { holder: holder(name), request: id(request) }.into()
}

fn holder(name: &str) -> Holder {
    Holder::new(name).expect("letters make a holder")
}

fn id(request: &str) -> RequestId {
    RequestId::new(request).expect("letters make an id")
}
