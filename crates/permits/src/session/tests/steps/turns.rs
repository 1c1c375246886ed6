//! Rechecks: a session with waiters asks when time alone frees units.

use super::*;

#[test]
fn the_foremost_waiter_has_the_turn_and_others_do_not_delay_it() {
    let mut bench = Bench::new();
    bench.recheck_ms = Some(500);
    let (_first, _) = bench.waiting("a");
    // The turn of the waiter behind it comes later.
    bench.recheck_ms = Some(2_000);
    let _second = bench.acquire("a", LEASE);
    let call = bench.call();
    bench.answer(call, Answers::Acquire(vec![AcquireOutcome::Waiting { position: 1 }]));
    bench.pass(Duration::from_millis(499));
    assert!(bench.calls().is_empty(), "not before");
    bench.pass(Duration::from_millis(6));
    assert!(is_renewal(&bench.call()));
}

#[test]
fn a_waiter_that_has_become_the_head_asks_when_its_turn_is_announced() {
    let mut bench = Bench::new();
    bench.recheck_ms = Some(5_000);
    let (_pending, asked) = bench.waiting("a");
    bench.push(&asked, EventKind::Turn(20_000));
    assert!(bench.calls().is_empty(), "not before");
    bench.pass(Duration::from_millis(20));
    assert!(is_renewal(&bench.call()));
}

#[test]
fn a_session_whose_waiter_was_granted_has_no_turn() {
    let mut bench = Bench::new();
    bench.recheck_ms = Some(500);
    let (mut pending, asked) = bench.waiting("a");
    bench.push(&asked, EventKind::Granted(GRANT));
    let _held = taken(&mut pending);
    bench.pass(Duration::from_millis(600));
    assert!(bench.calls().is_empty(), "no waiter asks");
}

/// A store that once had many expired leases to remove may have as many again an hour later.
#[test]
fn rechecks_at_once_are_counted_from_the_last_reply_that_asked_for_none() {
    let (mut bench, mut held) = (Bench::new(), Vec::new());
    let nothing = || Answers::Renew(Vec::new());
    for _ in 0..2 {
        bench.recheck_ms = Some(0);
        held.push(bench.held("a", LEASE));
        let mut at_once = 0;
        while at_once < 100
            && let Some(recheck) = bench.calls().pop()
        {
            at_once += 1;
            bench.answer(recheck, nothing());
        }
        assert_eq!(at_once, 32);
        bench.pass(Duration::from_millis(100));
        let last = bench.call();
        bench.recheck_ms = None;
        bench.answer(last, nothing());
        assert!(bench.calls().is_empty(), "the store has finished");
    }
}

#[test]
fn a_session_that_has_released_all_finishes_the_work_that_is_left() {
    let mut bench = Bench::new();
    drop(bench.held("a", LEASE));
    let release = bench.call();
    bench.recheck_ms = Some(0);
    bench.answer(release, Answers::Release(vec![ReleaseOutcome::Held]));
    let recheck = bench.call();
    assert_eq!(recheck.command.operation, Operation::Renew(Vec::new()));
    bench.recheck_ms = None;
    bench.answer(recheck, Answers::Renew(Vec::new()));
    assert!(bench.calls().is_empty());
    assert!(bench.engine.is_idle());
}
