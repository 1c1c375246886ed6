//! Requests that end while their call is in flight.

use futures_util::FutureExt as _;

use super::*;
use crate::session::spec::Wait;

/// A request whose call is in flight. It was dropped, so a release is behind the call.
fn withdrawn(bench: &mut Bench) -> (Call, Call, (Name, Holder, RequestId)) {
    let pending = bench.acquire("a", LEASE);
    let call = bench.call();
    let asked = asked(&call);
    drop(pending);
    let release = bench.call();
    assert_releases(&release, &asked);
    (call, release, asked)
}

fn released(outcome: ReleaseOutcome) -> Answers {
    Answers::Release(vec![outcome])
}

#[test]
fn a_request_is_released_once_behind_its_call() {
    let refused = Answers::Acquire(vec![AcquireOutcome::Refused(Refusal::NoPermits)]);
    let outcomes = [
        (granted(), ReleaseOutcome::Held),
        (waiting(), ReleaseOutcome::Waiting),
        (refused, ReleaseOutcome::Unknown),
    ];
    for (answers, outcome) in outcomes {
        let mut bench = Bench::new();
        let (call, release, _) = withdrawn(&mut bench);
        bench.answer(call, answers);
        bench.answer(release, released(outcome));
        assert!(bench.calls().is_empty());
        assert!(bench.engine.is_idle());
    }
}

/// Otherwise a request that was given up would use up the rate of others.
#[test]
fn a_grant_that_no_caller_gets_counts_for_nothing() {
    let counted = |end: &dyn Fn(&mut Bench, Call, PendingAcquire)| {
        let mut bench = Bench::new();
        let terms = PermitTerms { at_least_ms: 60_000, ..PermitTerms::new(1, millis(LEASE)) };
        let pending = bench.acquire_on(terms, Wait::Forever);
        let call = bench.call();
        end(&mut bench, call, pending);
        let Operation::Release(releases) = bench.call().command.operation else { panic!("no release") };
        releases[0].counted
    };
    assert_eq!(counted(&|_, _, pending| drop(pending)), Some(0), "the call is in flight");
    let on_its_way = |bench: &mut Bench, call, pending| {
        bench.answer(call, granted());
        drop(pending);
    };
    assert_eq!(counted(&on_its_way), Some(0));
    let gone = |bench: &mut Bench, call, pending| {
        drop(pending);
        bench.answer(call, granted());
    };
    assert_eq!(counted(&gone), Some(0));
    let taken = |bench: &mut Bench, call, mut pending| {
        bench.answer(call, granted());
        drop(taken(&mut pending));
    };
    assert_eq!(counted(&taken), None, "the caller had it");
}

#[test]
fn a_release_that_was_executed_before_the_call_is_repeated() {
    for call_returns_first in [true, false] {
        let mut bench = Bench::new();
        let (call, release, asked) = withdrawn(&mut bench);
        let unknown = released(ReleaseOutcome::Unknown);
        if call_returns_first {
            bench.answer(call, granted());
            bench.answer(release, unknown);
        } else {
            bench.answer(release, unknown);
            bench.answer(call, granted());
        }
        assert_releases(&bench.call(), &asked);
    }
}

#[test]
fn a_call_without_an_answer_is_released_again() {
    let mut bench = Bench::new();
    let (call, release, asked) = withdrawn(&mut bench);
    bench.answer(release, released(ReleaseOutcome::Unknown));
    bench.no_answer(call);
    bench.pass(Duration::from_secs(1));
    assert_releases(&bench.call(), &asked);
}

/// A call that is executed late begins a new lease, during which a release is worth sending.
#[test]
fn a_release_that_is_asked_for_twice_is_sent_for_as_long_as_the_later_one() {
    let mut bench = Bench::new();
    let pending = bench.acquire("a", LEASE);
    let call = bench.call();
    let asked = asked(&call);
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    drop(pending);
    assert!(bench.calls().is_empty(), "there is no connection");
    bench.pass(LEASE / 2);
    bench.no_answer(call);
    bench.engine.on_up(bench.now);
    let release = bench.call();
    bench.pass(LEASE * 3 / 4);
    bench.no_answer(release);
    bench.pass(LEASE / 8);
    assert_releases(&bench.call(), &asked);
}

/// A permit whose renewal is in flight.
fn held_and_renewed(bench: &mut Bench) -> (PermitGuard, (Name, Holder, RequestId), Call) {
    let mut pending = bench.acquire("a", LEASE);
    let call = bench.call();
    let asked = asked(&call);
    bench.answer(call, granted());
    let permit = taken(&mut pending);
    (permit, asked, bench.due_renewal())
}

/// If the renewal was executed late, it may have put back what the release had removed.
#[test]
fn a_permit_whose_renewal_returns_after_its_release_is_released_again() {
    for is_answered in [true, false] {
        let mut bench = Bench::new();
        let (permit, asked, renewal) = held_and_renewed(&mut bench);
        drop(permit);
        let release = bench.call();
        bench.answer(release, released(ReleaseOutcome::Held));
        if is_answered {
            bench.answer(renewal, renewed(RenewOutcome::Held));
        } else {
            bench.no_answer(renewal);
            bench.pass(Duration::from_secs(1));
        }
        assert_releases(&bench.call(), &asked);
    }
}

#[test]
fn a_permit_whose_renewal_returns_after_its_hand_over_stays_held() {
    let mut bench = Bench::new();
    let (permit, _, renewal) = held_and_renewed(&mut bench);
    permit.hand_over();
    assert!(bench.calls().is_empty());
    bench.answer(renewal, renewed(RenewOutcome::Held));
    assert!(bench.calls().is_empty());
    assert!(bench.engine.is_idle());
}

/// The session still knows the semaphore when the reply comes, because it holds another permit of it.
#[test]
fn a_permit_that_its_program_renews_while_it_is_handed_over_stays_held() {
    let mut bench = Bench::new();
    let _other = bench.held("a", LEASE);
    let permit = bench.held("a", LEASE);
    let (semaphore, request) = (permit.state.semaphore.clone(), permit.state.request.clone());
    let answer = channel().0;
    bench.session.send(Message::Renew { semaphore, request, answer });
    let renewal = bench.call();
    permit.hand_over();
    assert!(bench.calls().is_empty());
    bench.answer(renewal, renewed(RenewOutcome::Held));
    assert!(bench.calls().is_empty(), "it is another process's to release");
}

/// Otherwise a session that hands permits over for months would remember them all.
#[test]
fn a_hand_over_is_forgotten_with_the_next_renewal() {
    let mut bench = Bench::new();
    let _other = bench.held("a", LEASE);
    let (permit, (semaphore, ..), renewal) = held_and_renewed(&mut bench);
    permit.hand_over();
    assert!(bench.calls().is_empty());
    assert_eq!(bench.engine.handed_over(&semaphore), 1, "a renewal is on its way");
    bench.answer(renewal, Answers::Renew(vec![RenewOutcome::Held; 2]));
    let _next = bench.due_renewal();
    assert_eq!(bench.engine.handed_over(&semaphore), 0);
}

#[test]
fn a_release_that_is_gathered_is_sent_before_an_operation_on_the_semaphore() {
    let mut bench = Bench::new();
    let mut held: Vec<_> = (0..4).map(|_| bench.held("a", LEASE)).collect();
    let last = held.pop();
    let (_pending, _acquiring) = (bench.acquire("a", LEASE), bench.call());
    drop(held);
    let _releasing = bench.call();
    drop(last);
    assert!(bench.calls().is_empty(), "it travels with others");
    let (answer, _inspection) = channel();
    let (semaphore, operation) = (Name::new("a").expect("valid"), Operation::Inspect { max: 0 });
    let declaration = Declaration::Stored;
    bench.session.send(Message::Admin { semaphore, declaration, operation, answer });
    let kinds: Vec<_> = bench.calls().iter().map(|call| call.command.operation.kind().name()).collect();
    assert_eq!(kinds, ["release", "inspect"]);
}

#[test]
fn a_revocation_that_meets_a_repeated_acquisition_leaves_no_grant_behind() {
    for answered in [true, false] {
        let mut bench = Bench::new();
        let mut pending = bench.acquire("a", LEASE);
        let first = bench.call();
        let asked = asked(&first);
        bench.no_answer(first);
        bench.pass(Duration::from_secs(1));
        let second = bench.call();
        bench.push(&asked, EventKind::Revoked("by an operator".into()));
        let revoked = AcquireError::Revoked { reason: "by an operator".into() };
        assert_eq!(pending.try_take().expect("it is answered at once").map(drop), Err(revoked));
        let release = bench.call();
        assert_releases(&release, &asked);
        if answered {
            // The second call finds nothing of the request in the store, and is granted.
            bench.answer(second, granted());
            bench.answer(release, released(ReleaseOutcome::Held));
            // The grant that was released may be the first call's, and the second call may have been granted
            // after the release. So the session releases once more.
            assert_releases(&bench.call(), &asked);
        } else {
            bench.no_answer(second);
            bench.pass(Duration::from_secs(1));
            assert_releases(&bench.call(), &asked);
        }
    }
}

/// Closing has released the permit.
#[test]
fn a_release_that_comes_after_the_end_of_its_session_is_no_failure() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    drop(bench.messages);
    assert_eq!(held.release().now_or_never(), Some(Ok(())));
}
