//! A trial: every operation, once, on a semaphore that nobody else knows, through the store as sessions use it.
//!
//! What is only checked from outside can still fail, so here it is done: a permit is acquired, a waiter stands
//! in line, a release wakes it, and so on; then the round trip is timed. The trial never pins the limit and
//! never pauses: what it writes expires by itself, should the process be killed before whoever called has
//! deleted it. (Setting the limit is tried with a version that it does not have, and resuming does what pausing
//! does.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Address, EVENT_BUFFER, Store, StoreError, StoreEvent, StoreOptions};
use crate::entropy;
use crate::examine::Finding;
use crate::protocol::{
    AcquireOutcome, AcquireRequest, AdoptRequest, Answers, Command, Declaration, Event, EventKind, Grant,
    Holder, Label, LimitChange, LimitOutcome, Name, Operation, Recovery, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, RequestId, SessionId,
};

/// The lease of the trial's permits. Its state expires four times later.
const LEASE: Duration = Duration::from_secs(10);

/// How long one operation, or a message, may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How many round trips are timed, and for how long at most.
const ROUNDS: usize = 50;
const TIMING: Duration = Duration::from_secs(2);

/// A median above this, or above a small share of the lease, is worth knowing.
const SLOW: Duration = Duration::from_millis(20);

/// A name that nobody has: the semaphore for a trial.
pub(super) fn scratch() -> Name {
    Name::new(&format!(
        "permits-doctor-{}",
        entropy::session_id().expect("the examination has begun with one")
    ))
    .expect("letters and digits make a name")
}

/// Tries everything on `semaphore`, which the caller deletes afterwards. Must be called on a runtime.
pub(super) async fn run(address: &Address, prefix: &str, semaphore: &Name, lease: Duration) -> Vec<Finding> {
    let (signals_in, signals) = mpsc::channel(EVENT_BUFFER);
    let session = entropy::session_id().expect("the examination has begun with one");
    let opening = StoreOptions {
        session: session.clone(),
        prefix: prefix.to_owned(),
        lease: LEASE,
        events: signals_in,
    };
    let failed = |step: &str, error: StoreError| {
        let meaning = match error {
            StoreError::OutOfMemory { .. } => {
                "Nothing can be acquired until the server has memory again: give it more (CONFIG SET \
                 maxmemory), or find out what fills it. What is held can be renewed and released."
            }
            _ => {
                "Programs get the same error. It comes from the store, so look at its configuration and log."
            }
        };
        vec![Finding::problem("semaphore", format!("{step}: {error}"), meaning)]
    };
    let store = match super::open(address, opening, Duration::ZERO).await {
        Ok(store) => store,
        Err(error) => return failed("opening a session", error),
    };
    let mut trial = Trial { store, signals, session, semaphore: semaphore.clone() };
    let woken = match trial.course().await {
        Ok(woken) => woken,
        Err((step, error)) => return failed(step, error),
    };
    let done = format!(
        "acquired, waited, renewed, released, adopted, revoked; a waiter heard of its grant within {}",
        shown(woken)
    );
    let mut findings = vec![Finding::fine("semaphore", done)];
    match trial.time().await {
        Ok(timed) => findings.push(latency("acquire and release", &timed, lease)),
        Err(error) => findings.extend(failed("acquiring and releasing again and again", error)),
    }
    findings
}

struct Trial {
    store: Arc<dyn Store>,
    signals: mpsc::Receiver<StoreEvent>,
    session: SessionId,
    semaphore: Name,
}

/// Which step failed, and how.
type Failed = (&'static str, StoreError);

impl Trial {
    /// Each operation once. Returns how long after a release the waiter had heard of it.
    async fn course(&mut self) -> Result<Duration, Failed> {
        let first = self.acquire("first", "a").await.map_err(|error| ("acquiring a permit", error))?;
        let AcquireOutcome::Granted(first) = first else {
            return Err(("acquiring a permit", unexpected(&first)));
        };
        let second = self.acquire("second", "b").await.map_err(|error| ("standing in line", error))?;
        if second != (AcquireOutcome::Waiting { position: 0 }) {
            return Err(("standing in line", unexpected(&second)));
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
        let hearing = "hearing of a grant";
        let EventKind::Granted(second) = self.hear(hearing).await?.kind else {
            return Err((hearing, StoreError::Malformed { reason: "another message came".into() }));
        };
        let woken = began.elapsed();
        let adopt = AdoptRequest {
            holder: holder("second"),
            request: id("b"),
            weight: 1,
            lease_ms: millis(LEASE),
            grant: second,
            new_request: id("c"),
        };
        self.expect("adopting", Operation::Adopt(adopt), Answers::Adopt(true)).await?;
        let revoke = Operation::Revoke { request: id("d"), holder: holder("second"), reason: "".into() };
        self.expect("revoking", revoke, Answers::Revoke(ReleaseOutcome::Held)).await?;
        self.hear("hearing of a revocation").await?;
        let limit =
            Operation::SetLimit { request: id("e"), change: LimitChange::Set(2), expected_version: Some(0) };
        self.expect("setting the limit", limit, Answers::SetLimit(LimitOutcome::OtherVersion)).await?;
        self.expect("resuming", Operation::Pause(false), Answers::Pause).await?;
        Ok(woken)
    }

    /// How long it takes to acquire and release, again and again.
    async fn time(&mut self) -> Result<Vec<Duration>, StoreError> {
        let began = Instant::now();
        let mut timed = Vec::with_capacity(ROUNDS);
        while timed.len() < ROUNDS && began.elapsed() < TIMING {
            let start = Instant::now();
            self.acquire("first", "a").await?;
            self.execute(Operation::Release(vec![release("first", "a")])).await?;
            timed.push(start.elapsed());
        }
        Ok(timed)
    }

    async fn acquire(&mut self, name: &str, request: &str) -> Result<AcquireOutcome, StoreError> {
        let acquire = AcquireRequest {
            holder: holder(name),
            request: id(request),
            weight: 1,
            lease_ms: millis(LEASE),
            wait: true,
            label: Label::default(),
        };
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
            // Nobody can hold what nobody knows.
            recovery: Recovery::Off,
            declaration: Declaration::Fallback(1),
            operation,
        };
        Ok(self.store.execute(&command, TIMEOUT).await?.answers)
    }

    async fn hear(&mut self, step: &'static str) -> Result<Event, Failed> {
        let next = async {
            loop {
                match self.signals.recv().await {
                    Some(StoreEvent::Event(event)) => return Ok(event),
                    Some(StoreEvent::Up) => {}
                    Some(StoreEvent::Down(error)) => return Err(error),
                    None => return Err(StoreError::NoAnswer { reason: "the session has ended".into() }),
                }
            }
        };
        let silence = || StoreError::NoAnswer { reason: format!("no message within {TIMEOUT:?}") };
        let heard = timeout(TIMEOUT, next).await.unwrap_or_else(|_| Err(silence()));
        heard.map_err(|error| (step, error))
    }
}

/// What the times of something tell, where `lease` is the usual one.
pub(super) fn latency(what: &str, timed: &[Duration], lease: Duration) -> Finding {
    let mut sorted = timed.to_vec();
    sorted.sort_unstable();
    let (median, longest) = (
        sorted.get(sorted.len() / 2).copied().unwrap_or_default(),
        sorted.last().copied().unwrap_or_default(),
    );
    let observed =
        format!("{what}: median {}, longest {} of {}", shown(median), shown(longest), sorted.len());
    if median <= SLOW.min(lease / 50) && longest <= lease / 6 {
        return Finding::fine("latency", observed);
    }
    let meaning = format!(
        "Everything works, but each hand-over takes at least this long, and a permit is renewed every {}: \
         with answers that take long against that, permits are lost. Put programs and store closer together, \
         find out what keeps the store busy (on Redis: SLOWLOG GET, redis-cli --latency), or use longer leases.",
        shown(lease / 3)
    );
    Finding::note("latency", observed, meaning)
}

/// A duration for people.
fn shown(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

fn unexpected(answer: &impl std::fmt::Debug) -> StoreError {
    StoreError::Malformed { reason: format!("{answer:?}") }
}

fn renew(name: &str, request: &str, grant: Option<Grant>) -> RenewRequest {
    RenewRequest {
        holder: holder(name),
        request: id(request),
        weight: 1,
        lease_ms: millis(LEASE),
        grant,
        label: Label::default(),
    }
}

fn release(name: &str, request: &str) -> ReleaseRequest {
    ReleaseRequest { holder: holder(name), request: id(request) }
}

fn holder(name: &str) -> Holder {
    Holder::new(name).expect("letters make a holder")
}

fn id(request: &str) -> RequestId {
    RequestId::new(request).expect("letters make an id")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
