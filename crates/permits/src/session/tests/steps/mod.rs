//! The engine, step by step: one session. The test itself answers its calls, at the times that it chooses.

mod adopting;
mod confirming;
mod counting;
mod crossings;
mod keeping;
mod late;
mod outages;
mod refusals;
mod superseding;
mod terms;
mod turns;
mod withdrawals;

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{config, queued_session, reply, spec};
use crate::clock::{Moment, millis};
use crate::error::{AcquireError, AdoptError, Ended, Lost};
use crate::handle::PermitHandle;
use crate::protocol::{
    AcquireOutcome, AdoptRequest, Answers, Declaration, Event, EventKind, Grant, Holder, MAX_BATCH, Name,
    Operation, PermitTerms, Refusal, ReleaseOutcome, RenewOutcome, Reply, RequestId, Setting,
};
use crate::session::Config;
use crate::session::call::Call;
use crate::session::callers::{Message, PermitGuard, Session};
use crate::session::engine::Engine;
use crate::session::gathering::Sending;
use crate::session::outbox::channel;
use crate::session::pending_acquire::PendingAcquire;
use crate::session::spec::AcquireSpec;
use permits_store::{Executed, StoreError};

const LEASE: Duration = Duration::from_secs(15);
const GRANT: Grant = Grant { token: 1000, slot: 0 };

struct Bench {
    engine: Engine,
    session: Session,
    messages: mpsc::UnboundedReceiver<Message>,
    now: Moment,
    /// Asked for in every reply.
    recheck_ms: Option<u64>,
}

impl Bench {
    /// A session that is connected, and has nothing yet.
    fn new() -> Self {
        Self::with(config("session", LEASE))
    }

    fn with(config: Config) -> Self {
        let (session, mut engine, messages) = queued_session(config);
        // Be far ahead of the real clock: a permit that is dropped reads that clock, and must find that it is
        // held.
        let now = Moment::from_micros(Moment::now().as_micros()) + Duration::from_secs(1_000_000);
        engine.on_up(now);
        Self { engine, session, messages, now, recheck_ms: None }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.engine.on_time(self.now);
        self.engine.take_outbox().deliver(None);
    }

    fn acquire(&mut self, name: &str, lease: Duration) -> PendingAcquire {
        self.acquire_under(name, lease, Some(1))
    }

    fn acquire_under(&mut self, name: &str, lease: Duration, limit: Option<u32>) -> PendingAcquire {
        let declaration = limit.map_or(Declaration::Stored, Declaration::Declare);
        let terms = PermitTerms::new(1, millis(lease));
        let spec = spec(&self.session, name, terms, declaration);
        let mut pending = PendingAcquire::new(&self.session, spec);
        pending.send();
        pending
    }

    /// Returns the calls that the engine makes now.
    fn calls(&mut self) -> Vec<Call> {
        while let Ok(message) = self.messages.try_recv() {
            self.engine.on_message(message, self.now);
        }
        let calls = self.engine.calls(Sending::AtOnce, self.now);
        self.engine.take_outbox().deliver(None);
        calls
    }

    #[track_caller]
    fn call(&mut self) -> Call {
        let mut calls = self.calls();
        assert_eq!(calls.len(), 1, "calls to make");
        calls.remove(0)
    }

    fn answer(&mut self, call: Call, answers: Answers) {
        self.answer_at(call, 1, answers);
    }

    /// Answers for a store whose clock shows `now_us`.
    fn answer_at(&mut self, call: Call, now_us: u64, answers: Answers) {
        let reply = Reply { recheck_ms: self.recheck_ms, ..reply(now_us, answers) };
        self.engine.on_return(call.sent, Ok(Executed { reply, confirmed: 0 }), self.now);
        self.engine.take_outbox().deliver(None);
    }

    fn answer_closed(&mut self) {
        self.engine.answer_closed();
        self.engine.take_outbox().deliver(None);
    }

    #[track_caller]
    fn no_answer(&mut self, call: Call) {
        self.engine.on_return(call.sent, Err(StoreError::NoAnswer { reason: "lost".into() }), self.now);
        assert!(self.calls().is_empty(), "nothing is tried again at once");
    }

    /// Pushes a message about a request of this call.
    fn push(&mut self, (name, holder, request): &(Name, Holder, RequestId), news: EventKind) {
        let (semaphore, holder, request) = (name.clone(), holder.clone(), request.clone());
        let session = self.engine.session_id().clone();
        self.engine.on_event(Event { session, semaphore, holder, request, kind: news }, self.now);
        self.engine.take_outbox().deliver(None);
    }

    /// Returns a permit that is held.
    #[track_caller]
    fn held(&mut self, name: &str, lease: Duration) -> PermitGuard {
        let mut pending = self.acquire(name, lease);
        let call = self.call();
        self.answer(call, granted());
        taken(&mut pending)
    }

    /// Returns a request that waits in line.
    #[track_caller]
    fn waiting(&mut self, name: &str) -> (PendingAcquire, (Name, Holder, RequestId)) {
        let pending = self.acquire(name, LEASE);
        let call = self.call();
        let asked = asked(&call);
        self.answer(call, waiting());
        assert!(self.calls().is_empty(), "it waits");
        (pending, asked)
    }
}

fn granted() -> Answers {
    Answers::Acquire(vec![AcquireOutcome::Granted(GRANT)])
}

fn waiting() -> Answers {
    Answers::Acquire(vec![AcquireOutcome::Waiting { position: 0 }])
}

fn renewed(renewed: RenewOutcome) -> Answers {
    Answers::Renew(vec![renewed])
}

#[track_caller]
fn taken(pending: &mut PendingAcquire) -> PermitGuard {
    pending.try_take().expect("it is answered").expect("it is granted")
}

#[track_caller]
fn asked(call: &Call) -> (Name, Holder, RequestId) {
    let Operation::Acquire { requests, .. } = &call.command.operation else { panic!("{:?}", call.command) };
    (call.command.semaphore.clone(), requests[0].holder.clone(), requests[0].request.clone())
}

#[track_caller]
fn assert_releases(call: &Call, (name, holder, request): &(Name, Holder, RequestId)) {
    let Operation::Release(releases) = &call.command.operation else { panic!("{:?}", call.command) };
    assert_eq!((&call.command.semaphore, releases.len()), (name, 1));
    assert_eq!((&releases[0].holder, &releases[0].request), (holder, request));
}

fn is_renewal(call: &Call) -> bool {
    matches!(call.command.operation, Operation::Renew(_))
}

/// The holder's deadline is a hundredth of the lease before its end, and the lease is counted from before the
/// request, however long the reply took.
#[test]
fn a_permit_is_held_until_1_percent_before_the_end_of_a_lease_that_began_with_the_request() {
    let day = Duration::from_secs(24 * 60 * 60);
    for lease in [Duration::from_millis(600), LEASE, Duration::from_secs(600), day] {
        let margin = (lease / 100).max(Duration::from_millis(5));
        let late = lease / 6;
        let mut bench = Bench::new();
        let mut pending = bench.acquire("a", lease);
        let (call, sent) = (bench.call(), bench.now);
        bench.pass(late);
        bench.answer(call, granted());
        let held = taken(&mut pending);
        assert_eq!(held.state.deadline(bench.now), Some(sent + (lease - margin)), "granted, {lease:?}");
        assert!(bench.calls().is_empty(), "it is renewed later");
        bench.pass(lease / 3);
        let (call, sent) = (bench.call(), bench.now);
        bench.pass(late);
        bench.answer(call, renewed(RenewOutcome::Held));
        assert_eq!(held.state.deadline(bench.now), Some(sent + (lease - margin)), "renewed, {lease:?}");
    }
}

#[test]
fn a_grant_that_no_caller_waits_for_is_given_back() {
    let mut bench = Bench::new();
    let (pending, asked) = bench.waiting("a");
    drop(pending);
    let release = bench.call();
    assert_releases(&release, &asked);
    bench.answer(release, Answers::Release(vec![ReleaseOutcome::Unknown]));
    // An acquisition that was delayed on its way may lead to this grant.
    bench.push(&asked, EventKind::Granted(GRANT));
    assert_releases(&bench.call(), &asked);
}

#[test]
fn a_message_counts_only_for_the_holder_and_the_session_that_asked() {
    let mut bench = Bench::new();
    let (mut pending, (name, holder, request)) = bench.waiting("a");
    let other = Holder::new("host:1/other.0").expect("valid");
    let foreign = RequestId::new("session-2.0").expect("valid");
    for news in [EventKind::Granted(GRANT), EventKind::Revoked("no".into()), EventKind::Refused] {
        bench.push(&(name.clone(), other.clone(), request.clone()), news.clone());
        bench.push(&(name.clone(), other.clone(), foreign.clone()), news);
    }
    assert!(pending.try_take().is_none(), "it is another holder's");
    assert!(bench.calls().is_empty(), "what is another session's is not given back");
    bench.push(&(name, holder, request), EventKind::Granted(GRANT));
    taken(&mut pending);
}

/// The store has granted the place, and then lost it with everything else. The message of that grant may come
/// last, as in a cluster, where messages have a connection of their own.
#[test]
fn a_grant_from_before_the_loss_of_a_place_does_not_count() {
    let mut bench = Bench::new();
    let (mut pending, asked) = bench.waiting("a");
    bench.pass(LEASE / 2);
    let renewal = bench.call();
    bench.answer_at(renewal, GRANT.token + 1, renewed(RenewOutcome::RetryLater));
    let again = bench.call();
    bench.push(&asked, EventKind::Granted(GRANT));
    assert!(pending.try_take().is_none(), "the store knows of no such grant any more");
    bench.answer_at(again, GRANT.token + 2, waiting());
    bench.push(&asked, EventKind::Granted(Grant { token: GRANT.token + 3, slot: 0 }));
    taken(&mut pending);
}

#[test]
fn a_revocation_of_a_plain_waiter_or_holder_costs_no_call() {
    let mut bench = Bench::new();
    let (mut pending, asked) = bench.waiting("a");
    bench.push(&asked, EventKind::Revoked("no".into()));
    assert!(matches!(pending.try_take(), Some(Err(AcquireError::Revoked { .. }))));
    let held = bench.held("b", LEASE);
    let holder = (held.state.semaphore.clone(), held.state.holder.clone(), held.state.request.clone());
    bench.push(&holder, EventKind::Revoked("no".into()));
    assert_eq!(held.state.reason(), Some(Lost::Revoked { reason: "no".into() }));
    assert!(bench.calls().is_empty());
}

/// A store asks for a recheck at once when more leases have expired than one call can remove. If its state is
/// damaged, it asks so without end.
#[test]
fn rechecks_at_once_are_bounded() {
    let mut bench = Bench::new();
    bench.recheck_ms = Some(0);
    let held = bench.held("a", LEASE);
    let mut calls = 0;
    let end = bench.now + Duration::from_secs(10);
    while bench.now < end {
        let made = bench.calls();
        calls += made.len();
        for call in made {
            let Operation::Renew(renewals) = &call.command.operation else { panic!("{:?}", call.command) };
            let answers = renewals.iter().map(|_| RenewOutcome::Held).collect();
            bench.answer(call, Answers::Renew(answers));
        }
        bench.pass(Duration::from_millis(1));
    }
    assert!((32..=150).contains(&calls), "{calls} calls in 10 s");
    assert!(held.state.deadline(bench.now).is_some());
}

#[test]
fn a_waiter_asks_again_when_the_store_said() {
    let mut bench = Bench::new();
    bench.recheck_ms = Some(700);
    let (_pending, _) = bench.waiting("a");
    bench.pass(Duration::from_millis(699));
    assert!(bench.calls().is_empty(), "not before");
    bench.pass(Duration::from_millis(22));
    assert!(is_renewal(&bench.call()));
}

/// The longest time between two renewals of `name`, watched for two minutes.
fn longest_gap(bench: &mut Bench, name: &str) -> Duration {
    let (mut last, mut longest) = (bench.now, Duration::ZERO);
    let end = bench.now + Duration::from_secs(120);
    while bench.now < end {
        for call in bench.calls() {
            let Operation::Renew(renewals) = &call.command.operation else { panic!("{:?}", call.command) };
            if call.command.semaphore.as_str() == name {
                longest = longest.max(bench.now.since(last));
                last = bench.now;
            }
            let answers = renewals.iter().map(|_| RenewOutcome::Held).collect();
            bench.answer(call, Answers::Renew(answers));
        }
        bench.pass(Duration::from_millis(100));
    }
    longest.max(bench.now.since(last))
}

#[test]
fn a_long_lease_is_renewed_every_10_s_while_anything_else_is_renewed() {
    for short in [Duration::from_millis(300), LEASE, Duration::from_secs(29)] {
        let mut bench = Bench::new();
        let long = bench.held("long", Duration::from_secs(24 * 60 * 60));
        let other = bench.held("short", short);
        let gap = longest_gap(&mut bench, "long");
        assert!(gap <= Duration::from_millis(10_100), "{gap:?} between two renewals, beside {short:?}");
        assert!(gap >= Duration::from_secs(4), "no more often than that, beside {short:?}: {gap:?}");
        drop(other);
        let release = bench.call();
        bench.answer(release, Answers::Release(vec![ReleaseOutcome::Held]));
        assert_eq!(
            longest_gap(&mut bench, "long"),
            Duration::from_secs(120),
            "alone, not within two minutes"
        );
        drop(long);
    }
}

#[test]
fn everything_is_renewed_at_once_after_a_reconnection() {
    let mut bench = Bench::new();
    let _held = [bench.held("a", LEASE), bench.held("b", Duration::from_secs(24 * 60 * 60))];
    let (_pending, _) = bench.waiting("c");
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    assert!(bench.calls().is_empty());
    bench.engine.on_up(bench.now);
    let calls = bench.calls();
    assert!(calls.iter().all(is_renewal));
    let mut names: Vec<_> = calls.iter().map(|call| call.command.semaphore.as_str().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
}

/// The renewal takes two calls. If the many waiters make the store slow, it has renewed the permits by then.
#[test]
fn permits_are_renewed_before_waiters() {
    let mut bench = Bench::new();
    let _waiters: Vec<_> = (0..MAX_BATCH).map(|_| bench.acquire("a", LEASE)).collect();
    let call = bench.call();
    bench.answer(call, Answers::Acquire(vec![AcquireOutcome::Waiting { position: 0 }; MAX_BATCH]));
    let _held = [(); 3].map(|()| bench.held("a", LEASE));
    bench.pass(LEASE / 3);
    let [first, _] = <[Call; 2]>::try_from(bench.calls()).ok().expect("two calls");
    let Operation::Renew(renewals) = &first.command.operation else { panic!("{:?}", first.command) };
    assert!(renewals[..3].iter().all(|renewal| renewal.grant.is_some()), "{:?}", &renewals[..3]);
}

/// The waiter has lost its place, and asks for it again. The store may have forgotten the limit, too.
#[test]
fn a_waiter_that_the_store_forgot_brings_the_limit_under_which_it_came_in() {
    let mut bench = Bench::new();
    let _pending = bench.acquire_under("exports", LEASE, None);
    let call = bench.call();
    assert_eq!(call.command.declaration, Declaration::Stored, "the stored limit counts");
    bench.answer(call, waiting());
    assert!(bench.calls().is_empty(), "it waits");
    bench.pass(LEASE / 3);
    let call = bench.call();
    assert!(is_renewal(&call));
    bench.answer(call, renewed(RenewOutcome::Lost));
    assert_eq!(bench.call().command.declaration, Declaration::Fallback(1), "there may be none any more");
}

/// The session's last view may have another limit, under which this request must not wait.
#[test]
fn a_waiter_that_the_store_forgot_requires_its_limit_again() {
    let mut bench = Bench::new();
    let spec = spec(&bench.session, "a", PermitTerms::new(1, millis(LEASE)), Declaration::Require(1));
    let mut pending = PendingAcquire::new(&bench.session, spec);
    pending.send();
    let call = bench.call();
    bench.answer(call, waiting());
    assert!(bench.calls().is_empty(), "it waits");
    bench.pass(LEASE / 3);
    let renewal = bench.call();
    bench.answer(renewal, renewed(RenewOutcome::Lost));
    assert_eq!(bench.call().command.declaration, Declaration::Require(1));
}

#[test]
fn a_late_message_of_an_earlier_grant_is_not_believed() {
    let mut bench = Bench::new();
    let (mut pending, asked) = bench.waiting("a");
    bench.pass(LEASE / 3);
    let renewal = bench.call();
    bench.answer_at(renewal, 2000, renewed(RenewOutcome::Lost));
    let again = bench.call();
    bench.answer_at(again, 2001, waiting());
    bench.push(&asked, EventKind::Granted(Grant { token: 1999, slot: 0 }));
    assert!(pending.try_take().is_none(), "the store has forgotten that grant");
    bench.push(&asked, EventKind::Granted(Grant { token: 2002, slot: 0 }));
    taken(&mut pending);
}

#[test]
fn a_release_sent_again_after_no_answer_is_no_loss() {
    let mut bench = Bench::new();
    let mut released = Box::pin(bench.held("a", LEASE).release());
    let mut context = Context::from_waker(Waker::noop());
    assert!(released.as_mut().poll(&mut context).is_pending());
    let call = bench.call();
    bench.no_answer(call);
    bench.pass(Duration::from_secs(1));
    let again = bench.call();
    bench.answer(again, Answers::Release(vec![ReleaseOutcome::Unknown]));
    assert_eq!(released.as_mut().poll(&mut context), Poll::Ready(Ok(())), "the first may have released it");
}

/// The store remembers a change for a minute. If it may have made the change, the change is not sent again
/// after that.
#[test]
fn a_change_without_an_answer_is_sent_again_for_as_long_as_the_store_remembers_it() {
    let mut bench = Bench::new();
    let (answer, mut changed) = channel();
    let operation = Operation::Set { origin: bench.session.new_change(), setting: Setting::Pause(None) };
    let (semaphore, declaration) = (Name::new("a").expect("valid"), Declaration::Stored);
    bench.session.send(Message::Admin { semaphore, declaration, operation, answer });
    let began = bench.now;
    let mut last_sent = began;
    while changed.try_recv().is_err() {
        for call in bench.calls() {
            last_sent = bench.now;
            bench.no_answer(call);
        }
        bench.pass(Duration::from_secs(1));
    }
    let sent_for = last_sent.since(began);
    assert!((Duration::from_secs(50)..Duration::from_secs(57)).contains(&sent_for), "{sent_for:?}");
}

/// A call that was given up on may still arrive, after another call in its place was answered. It may lead to
/// a grant. Before this was fixed, such a grant was dated from a third call, which was sent later and not
/// answered: later than the store dates it.
#[test]
fn a_grant_to_a_late_call_is_not_dated_from_one_without_an_answer() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire("a", LEASE);
    let late = bench.call();
    let asked = asked(&late);
    bench.no_answer(late);
    bench.pass(Duration::from_secs(1));
    let again = bench.call();
    bench.answer_at(again, 1, waiting());
    assert!(bench.calls().is_empty(), "it waits");
    bench.pass(LEASE / 3);
    let (renewal, renewed_at) = (bench.call(), bench.now);
    bench.answer_at(renewal, 2, renewed(RenewOutcome::Lost));

    // The late call arrives, and is granted. Then a third call is sent.
    bench.pass(Duration::from_secs(2));
    let _unanswered = bench.call();
    bench.push(&asked, EventKind::Granted(Grant { token: 3, slot: 0 }));
    let held = taken(&mut pending);
    let deadline = held.state.deadline(bench.now).expect("it is still good");
    assert!(deadline <= renewed_at + LEASE, "the store may have granted it as early as at the renewal");
}
