//! An era of a server that takes over from another, and has not received its last writes: releases, and
//! grants of the units that they freed.

use permits_core::protocol::{
    AcquireOutcome, Answers, Grant, LimitChange, Operation, Recovery, ReleaseOutcome, RenewOutcome,
};

use crate::fixture::{Both, acquire, change_limit, release, renew, renewal};

impl Both {
    /// A, B and C hold, D waits, and another server has taken over. Returns the grants of A and C; and one
    /// that the new server has not received, of B's slot.
    fn taken_over() -> (Self, [Grant; 2], Grant) {
        let mut both = Self::start();
        both.recovery = Recovery::Interval;
        let Answers::Acquire(outcomes) = both.same(&acquire(&["a", "b", "c", "d"])) else { unreachable!() };
        let [AcquireOutcome::Granted(a), AcquireOutcome::Granted(b), AcquireOutcome::Granted(c), _] =
            outcomes[..]
        else {
            panic!("{outcomes:?}")
        };
        let forgotten = Grant { token: both.now_us + 50_000, slot: b.slot };
        both.run_id = "replica";
        both.pass(100);
        both.same(&Operation::Renew(Vec::new()));
        (both, [a, c], forgotten)
    }

    fn pass(&mut self, ms: u64) {
        self.set_time(self.now_us + 1_000 * ms);
    }

    fn renewed(&mut self, name: &str, grant: Option<Grant>) -> RenewOutcome {
        let Answers::Renew(outcomes) = self.same(&renew(name, grant)) else { unreachable!() };
        outcomes[0].clone()
    }
}

/// B released, and its units were granted to another holder; the new server has received neither. What B had
/// is free when its lease ends, after the window of a second. Then it is not D's.
#[test]
fn a_forgotten_holder_that_does_not_fit_comes_before_the_waiters() {
    let (mut both, [a, c], forgotten) = Both::taken_over();
    for _ in 0..7 {
        assert_eq!(both.renewed("forgotten", Some(forgotten)), RenewOutcome::RetryLater);
        assert_eq!(both.renewed("a", Some(a)), RenewOutcome::Held);
        assert_eq!(both.renewed("c", Some(c)), RenewOutcome::Held);
        assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
        both.pass(400);
    }
    both.pass(150);
    assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
    assert_eq!(both.renewed("forgotten", Some(forgotten)), RenewOutcome::Held);
    assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
}

/// A has renewed with the new server, with a shorter lease, and ends within the window.
#[test]
fn the_units_of_a_holder_that_ends_in_the_window_go_to_no_waiter() {
    let (mut both, [a, c], forgotten) = Both::taken_over();
    let mut shorter = renewal("a", Some(a));
    (shorter.terms.lease_ms, shorter.lease_version) = (1_500, 1);
    assert_eq!(both.same(&Operation::Renew(vec![shorter])), Answers::Renew(vec![RenewOutcome::Held]));
    for _ in 0..7 {
        assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
        assert_eq!(both.renewed("c", Some(c)), RenewOutcome::Held);
        both.renewed("forgotten", Some(forgotten));
        both.pass(400);
    }
}

/// The window is open while a forgotten holder waits to be put back, and no longer.
#[test]
fn a_forgotten_holder_that_has_left_keeps_no_window_open() {
    let (mut both, [a, c], forgotten) = Both::taken_over();
    both.pass(900);
    assert_eq!(both.renewed("forgotten", Some(forgotten)), RenewOutcome::RetryLater);
    both.pass(950);
    assert_eq!(both.renewed("a", Some(a)), RenewOutcome::Held);
    assert_eq!(both.renewed("c", Some(c)), RenewOutcome::Held);
    assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
    // Now B's lease has ended.
    both.pass(1_100);
    assert!(matches!(both.renewed("d", None), RenewOutcome::Granted(_)));
}

/// A release whose reply was lost is sent again. The old server may have granted its units to a holder that
/// the new one does not know. Those of a holder that was renewed at the new one are handed on at once.
#[test]
fn a_release_of_a_holder_that_was_not_renewed_in_this_era_is_not_handed_on() {
    let (mut both, [a, _], forgotten) = Both::taken_over();
    assert_eq!(both.same(&release("b")), Answers::Release(vec![ReleaseOutcome::Held]));
    assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
    assert_eq!(both.renewed("forgotten", Some(forgotten)), RenewOutcome::Held);

    assert_eq!(both.renewed("a", Some(a)), RenewOutcome::Held);
    assert_eq!(both.same(&release("a")), Answers::Release(vec![ReleaseOutcome::Held]));
    assert!(matches!(both.renewed("d", None), RenewOutcome::Granted(Grant { slot: 0, .. })));
}

#[test]
fn what_was_not_handed_on_is_free_after_the_window() {
    let (mut both, ..) = Both::taken_over();
    both.same(&release("b"));
    both.pass(999);
    assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
    both.pass(1);
    assert!(matches!(both.renewed("d", None), RenewOutcome::Granted(Grant { slot: 1, .. })));
}

/// The limit is lowered in the window, below what is held. A was renewed in this era, so what it releases
/// would be D's otherwise.
#[test]
fn what_is_above_a_lowered_limit_is_not_handed_on_in_the_window() {
    for (limit, is_granted) in [(3, true), (2, false)] {
        let (mut both, [a, c], _) = Both::taken_over();
        assert_eq!(both.renewed("a", Some(a)), RenewOutcome::Held);
        both.same(&change_limit("lower", LimitChange::Set(limit)));
        both.same(&release("a"));
        let next = both.renewed("d", None);
        assert_eq!(matches!(next, RenewOutcome::Granted(_)), is_granted, "limit {limit}: {next:?}");
        assert_eq!(both.renewed("c", Some(c)), RenewOutcome::Held);
    }
}

/// A was renewed in this era for a shorter lease, which ends in the window.
#[test]
fn what_ends_in_the_window_is_free_after_it() {
    let (mut both, [a, c], forgotten) = Both::taken_over();
    let Operation::Renew(mut shorter) = renew("a", Some(a)) else { unreachable!() };
    (shorter[0].terms.lease_ms, shorter[0].lease_version) = (500, 1);
    assert_eq!(both.same(&Operation::Renew(shorter)), Answers::Renew(vec![RenewOutcome::Held]));
    for _ in 0..4 {
        assert_eq!(both.renewed("forgotten", Some(forgotten)), RenewOutcome::RetryLater);
        assert_eq!(both.renewed("c", Some(c)), RenewOutcome::Held);
        assert_eq!(both.renewed("d", None), RenewOutcome::Waiting { position: 0 });
        both.pass(300);
    }
    both.pass(1_000);
    assert!(matches!(both.renewed("d", None), RenewOutcome::Granted(Grant { slot: 0, .. })));
}
