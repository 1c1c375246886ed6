//! Requests that take the place of another of their holder, in one command with a promotion.

use permits_core::protocol::{AcquireOutcome, AcquireRequest, Declaration};

use crate::fixture::{Both, id, in_lane};

fn superseding(request: AcquireRequest) -> AcquireRequest {
    AcquireRequest { request: id("newer"), supersedes: true, ..request }
}

/// The lighter request and the waiter behind it are granted, so no lane waits any more. Those that begin then
/// are behind one another.
#[test]
fn lanes_that_begin_after_a_promotion_in_the_same_command_are_in_order() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("a", "", 1), in_lane("w", "first", 3)]);
    let outcomes = both.acquired(vec![
        in_lane("n", "second", 1),
        superseding(in_lane("w", "first", 1)),
        in_lane("x", "", 1),
        in_lane("y", "third", 1),
    ]);
    assert!(matches!(outcomes[1], AcquireOutcome::Granted(_)), "{outcomes:?}");
    let waiting = |position| AcquireOutcome::Waiting { position };
    assert_eq!(outcomes[2..], [waiting(0), waiting(1)]);
}

/// The first promotion refuses a waiter that is too heavy for the new limit, and has reached its bound. The
/// second one finds nothing to continue.
#[test]
fn a_promotion_that_ends_is_not_cut_off_by_the_one_before() {
    let mut both = Both::start();
    both.declaration = Declaration::Declare(5);
    both.acquired(vec![in_lane("a", "", 1), in_lane("b", "", 1), in_lane("h", "", 4), in_lane("k", "", 2)]);
    both.declaration = Declaration::Declare(3);
    let outcomes = both.acquired(vec![superseding(in_lane("k", "", 2))]);
    assert_eq!(outcomes, [AcquireOutcome::Waiting { position: 0 }]);
}

/// Only the newer request has to fit under the limit that it declares.
#[test]
fn a_lighter_request_declares_a_limit_below_the_weight_of_the_waiter() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("a", "", 1), in_lane("b", "", 2), in_lane("w", "", 2)]);
    both.declaration = Declaration::Declare(1);
    let outcomes = both.acquired(vec![superseding(in_lane("w", "", 1))]);
    assert_eq!(outcomes, [AcquireOutcome::Waiting { position: 0 }]);
    assert_eq!(both.state.as_ref().map(|state| state.limit), Some(1));
}
