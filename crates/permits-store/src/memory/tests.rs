//! The memory store, and the order in which its sessions hear what happened.

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::protocol::{
    AcquireRequest, Answers, ChangeOrigin, Command, Declaration, EventKind, Holder, LimitChange, Operation,
    PermitTerms, Recovery, RenewOutcome, RenewRequest, RequestId, Setting, SupersedeKey,
};

const LEASE_MS: u64 = 3_600_000;

fn request(session: &str, operation: Operation) -> Request {
    let command = Command {
        semaphore: Name::new("exports").expect("it is valid"),
        session: SessionId::new(session).expect("it is plain"),
        lease_ms: LEASE_MS,
        recovery: Recovery::Off,
        declaration: Declaration::Declare(1),
        operation,
    };
    Request { id: 1, command, timeout: Duration::from_secs(300), replicas: 0 }
}

fn acquire(holder: &str, key: &str) -> Operation {
    let supersede = SupersedeKey::new(key).expect("it is valid");
    let request = RequestId::new(holder).expect("it is plain");
    let holder = Holder::new(holder).expect("it is valid");
    let terms = PermitTerms { supersede, ..PermitTerms::new(1, LEASE_MS) };
    let asked = AcquireRequest::new(holder, request, terms);
    let requests = vec![AcquireRequest { supersedes: !key.is_empty(), ..asked }];
    Operation::Acquire { queue_max: 10_000, requests }
}

fn renew(holder: &str) -> Operation {
    let request = RequestId::new(holder).expect("it is plain");
    let holder = Holder::new(holder).expect("it is valid");
    Operation::Renew(vec![RenewRequest::new(holder, request, PermitTerms::new(1, LEASE_MS), None)])
}

fn revoke(holder: &str) -> Operation {
    let origin = ChangeOrigin::from(RequestId::new(&format!("op{holder}")).expect("it is plain"));
    let holder = Holder::new(holder).expect("it is valid");
    Operation::Revoke { origin, holder, cooling: None, reason: "no".into() }
}

/// A session that notes what it is told, in words.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test panics"))
    }
}

impl Sink for Told {
    fn report(&self, reports: &mut Vec<Report>) {
        let words = |report: Report| match report {
            Report::Outcome { result, .. } => match result.map(|executed| executed.reply.answers) {
                Ok(Answers::Renew(outcomes)) if outcomes == [RenewOutcome::RetryLater] => "unknown".into(),
                other => format!("{other:?}"),
            },
            Report::Event(Event { holder, kind, .. }) => match kind {
                EventKind::Revoked(reason) => format!("{holder} revoked: {reason}"),
                EventKind::Superseded => format!("{holder} superseded"),
                other => format!("{other:?}"),
            },
            other => format!("{other:?}"),
        };
        self.0.lock().expect("no test panics").extend(reports.drain(..).map(words));
    }
}

/// Opens a memory for a session. Must be called on a runtime.
fn open(memory: &str, session: &str, sink: &Arc<Told>) -> MemoryStore {
    let (session, sink) = (SessionId::new(session).expect("it is plain"), sink.clone());
    let lease = Duration::from_millis(LEASE_MS);
    MemoryStore::open(memory, &StoreOptions { session, prefix: "p".into(), lease, sink })
}

/// Two sessions of one memory. The task that reports to them runs when the test says so.
struct Story {
    runtime: Runtime,
    told: Arc<Told>,
    waiter: MemoryStore,
    operator: MemoryStore,
}

impl Story {
    /// The operator's session holds the only permit.
    fn begin(name: &str) -> Self {
        let runtime = Builder::new_current_thread().build().expect("there is memory");
        let within = runtime.enter();
        let told = Arc::default();
        let (waiter, operator) = (open(name, "waiter", &told), open(name, "operator", &Arc::default()));
        drop(within);
        let story = Self { runtime, told, waiter, operator };
        story.operate(acquire("operator", ""));
        assert_eq!(story.told.take(), ["Up"]);
        story
    }

    fn operate(&self, operation: Operation) {
        self.operator.send(request("operator", operation)).expect("it has no messages").expect("it is done");
    }

    /// Sends a request of the waiter's session. Returns true if the reply is known at once.
    fn send(&self, operation: Operation) -> bool {
        self.waiter.send(request("waiter", operation)).is_some()
    }

    /// Runs the task, and returns what the waiter's session is told.
    fn hear(&self) -> Vec<String> {
        let is_behind = || self.waiter.shared.lock().sessions[&self.waiter.session].is_behind();
        self.runtime.block_on(async {
            while is_behind() {
                tokio::task::yield_now().await;
            }
        });
        self.told.take()
    }
}

/// Otherwise the waiter would join the line again, and the revocation would be undone.
#[test]
fn a_waiter_hears_that_it_was_revoked_before_that_it_is_unknown() {
    let story = Story::begin("memory-of-a-revoked-waiter");
    assert!(story.send(acquire("waiter", "")), "nothing is to be reported");
    story.operate(revoke("waiter"));
    assert!(!story.send(renew("waiter")), "its message is not reported yet");
    assert_eq!(story.hear(), ["waiter revoked: no", "unknown"]);
    assert!(story.send(renew("waiter")), "everything is reported");
}

#[test]
fn a_superseded_waiter_hears_so_before_that_it_is_unknown() {
    let story = Story::begin("memory-of-a-superseded-waiter");
    assert!(story.send(acquire("waiter", "key")), "nothing is to be reported");
    story.operate(acquire("newer", "key"));
    assert!(!story.send(renew("waiter")), "its message is not reported yet");
    assert_eq!(story.hear(), ["waiter superseded", "unknown"]);
}

/// A session that is stopped for a moment while an operator revokes all of its waiters.
#[test]
fn more_revocations_than_reports_may_wait_are_all_told() {
    let story = Story::begin("memory-of-many-revoked-waiters");
    let waiters: Vec<String> = (0..REPORTS + 10).map(|number| format!("waiter{number}")).collect();
    waiters.iter().for_each(|waiter| assert!(story.send(acquire(waiter, "")), "nothing is to be reported"));
    waiters.iter().for_each(|waiter| story.operate(revoke(waiter)));
    assert!(!story.send(renew("waiter0")), "its message is not reported yet");
    let told = story.hear();
    let missing = waiters.iter().filter(|waiter| !told.contains(&format!("{waiter} revoked: no")));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0], "{} reports", told.len());
    assert!(told.contains(&"Up".into()), "the other messages about the line may be lost");
    assert_eq!(told.last().map(String::as_str), Some("unknown"));
}

#[test]
fn each_command_is_later_than_the_one_before() {
    let shared = Shared::new();
    let look = request("session", Operation::Inspect { max: 0 });
    let execute = || shared.execute("permits", &look).expect("nothing is to be reported").reply.now_us;
    let times: Vec<u64> = (0..1000).map(|_| execute()).collect();
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
}

#[tokio::test]
async fn a_memory_without_pinned_limits_is_dropped_with_its_last_session() {
    let name = "memory-that-goes";
    for (id, change, stays) in [("pin", LimitChange::Set(7), true), ("unpin", LimitChange::Unpin, false)] {
        let session = open(name, "operator", &Arc::default());
        let origin = RequestId::new(id).expect("it is plain").into();
        let set = Operation::Set { origin, setting: Setting::Limit { change, expected_version: None } };
        session.send(request("operator", set)).expect("it has no messages").expect("it is done");
        drop(session);
        assert_eq!(memories().contains_key(name), stays, "{change:?}");
    }
}
