//! Requests that supersede the waiter with their key, in one command with a promotion.

use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Declaration, Operation, Refusal, RenewOutcome, RenewRequest,
    SupersedeKey,
};

use crate::fixture::{Both, in_lane, release, renewal, request};

fn with_key(request: AcquireRequest) -> AcquireRequest {
    let mut keyed = AcquireRequest { supersedes: true, ..request };
    keyed.terms.supersede = SupersedeKey::new("main").expect("it is valid");
    keyed
}

fn waiting(position: u64) -> AcquireOutcome {
    AcquireOutcome::Waiting { position }
}

/// The lighter request and the waiter behind it are granted, so no lane waits any more. Those that begin then
/// are behind one another.
#[test]
fn lanes_that_begin_after_a_promotion_in_the_same_command_are_in_order() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("a", "", 1), with_key(in_lane("w", "first", 3))]);
    let outcomes = both.acquired(vec![
        in_lane("n", "second", 1),
        with_key(in_lane("newer", "first", 1)),
        in_lane("x", "", 1),
        in_lane("y", "third", 1),
    ]);
    assert!(matches!(outcomes[1], AcquireOutcome::Granted(_)), "{outcomes:?}");
    assert_eq!(outcomes[2..], [waiting(0), waiting(1)]);
}

/// The first promotion refuses a waiter that is too heavy for the new limit, and has reached its bound. The
/// second one finds nothing to continue.
#[test]
fn a_promotion_that_ends_is_not_cut_off_by_the_one_before() {
    let mut both = Both::start();
    both.declaration = Declaration::Declare(5);
    let (heavy, last) = (in_lane("h", "", 4), with_key(in_lane("k", "", 2)));
    both.acquired(vec![in_lane("a", "", 1), in_lane("b", "", 1), heavy, last]);
    both.declaration = Declaration::Declare(3);
    assert_eq!(both.acquired(vec![with_key(in_lane("newer", "", 2))]), [waiting(0)]);
}

/// Only the newer request has to fit under the limit that it declares.
#[test]
fn a_lighter_request_declares_a_limit_below_the_weight_of_the_waiter() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("a", "", 1), in_lane("b", "", 2), with_key(in_lane("w", "", 2))]);
    both.declaration = Declaration::Declare(1);
    assert_eq!(both.acquired(vec![with_key(in_lane("newer", "", 1))]), [waiting(0)]);
    assert_eq!(both.state.as_ref().map(|state| state.limit), Some(1));
}

/// The waiter moves between lanes. The last of them ends with it.
#[test]
fn a_key_is_of_all_lanes() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("a", "", 3), with_key(in_lane("b", "first", 1)), in_lane("c", "", 1)]);
    for (name, lane, position) in [("d", "second", 1), ("e", "", 1), ("f", "third", 1), ("g", "third", 1)] {
        assert_eq!(both.acquired(vec![with_key(in_lane(name, lane, 1))]), [waiting(position)], "{name}");
    }
    both.same(&release("a"));
}

/// The newer request may name the same lane, or another lane, where it is queued again.
#[test]
fn a_request_has_waited_since_the_one_that_it_supersedes_was_queued() {
    for (lane, waited_ms) in [("first", 100), ("second", 0)] {
        let mut both = Both::start();
        both.acquired(vec![in_lane("a", "", 3), with_key(in_lane("b", "first", 1))]);
        both.set_time(both.now_us + 100_000);
        assert_eq!(both.acquired(vec![with_key(in_lane("c", lane, 1))]), [waiting(0)]);
        let Answers::Inspect(seen) = both.same(&Operation::Inspect { max: 1 }) else { panic!("no list") };
        assert_eq!(both.now_us - seen.waiters[0].queued_us, 1000 * waited_ms, "{lane}");
    }
}

/// A request that supersedes another needs no place of its own.
#[test]
fn a_request_that_supersedes_joins_a_full_queue() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("a", "", 3), with_key(request("b"))]);
    let refused = AcquireOutcome::Refused(Refusal::QueueFull);
    for (request, outcome) in [(request("c"), refused), (with_key(request("d")), waiting(0))] {
        let operation = Operation::Acquire { queue_max: 1, requests: vec![request] };
        assert_eq!(both.same(&operation), Answers::Acquire(vec![outcome]));
    }
}

/// A request that may be older does not supersede another.
#[test]
fn a_request_that_may_be_older_is_refused_while_another_waits() {
    let mut both = Both::start();
    let older = |name| AcquireRequest { supersedes: false, ..with_key(request(name)) };
    both.acquired(vec![in_lane("a", "", 3), older("b")]);
    assert_eq!(both.acquired(vec![older("c")]), [AcquireOutcome::Refused(Refusal::Superseded)]);
    both.same(&release("b"));
    assert_eq!(both.acquired(vec![older("c")]), [waiting(0)]);
}

/// A waiter's key is free again when its lease ends, and when it is granted; a permit has no key.
#[test]
fn a_key_is_that_of_a_waiter() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("a", "", 3), with_key(request("b"))]);
    both.set_time(both.now_us + 3_001_000);
    let granted = both.acquired(vec![with_key(request("c")), in_lane("d", "", 2), with_key(request("e"))]);
    assert!(matches!(granted[0], AcquireOutcome::Granted(_)), "{granted:?}");
    assert_eq!(granted[2], waiting(0));
    both.same(&release("d"));
    assert_eq!(both.state.as_ref().map(|state| state.by_key.len()), Some(0));
    both.acquired(vec![in_lane("f", "", 2), with_key(request("g"))]);
    both.same(&release("c"));
    both.same(&release("e"));
}

/// A permit has no key, so a permit that is put back does not take the key from the waiter that has it.
#[test]
fn a_waiter_keeps_its_key_when_a_permit_is_put_back() {
    let mut both = Both::start();
    let keyed = with_key(request("a"));
    let granted = both.acquired(vec![request("x"), keyed.clone()]);
    let AcquireOutcome::Granted(grant) = granted[1] else { panic!("it is free: {granted:?}") };
    both.call(&["FLUSHALL"]);
    both.state = None;
    both.set_time(both.now_us + 1_000);
    assert_eq!(both.acquired(vec![request("b"), with_key(in_lane("c", "", 3))])[1], waiting(0));
    let renew = RenewRequest { terms: keyed.terms, ..renewal("a", Some(grant)) };
    assert_eq!(both.same(&Operation::Renew(vec![renew])), Answers::Renew(vec![RenewOutcome::Held]));
    assert_eq!(both.acquired(vec![with_key(in_lane("d", "", 2))]), [waiting(0)]);
}
