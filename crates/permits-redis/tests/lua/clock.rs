//! A server's clock that is set back by an hour. Only a recovery window is no longer for that: what is
//! counted by the clock otherwise ends an hour later, or when it is ended.

use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Operation, Pause, PermitTerms, Recovery, Refusal, RenewOutcome,
    Setting,
};

use crate::fixture::{Both, acquire, pause, release, renew, request, set};

const HOUR_US: u64 = 3_600_000_000;

impl Both {
    /// Sets the clock back by an hour.
    fn set_back(&mut self) {
        self.set_time(self.now_us - HOUR_US);
    }

    fn pass_ms(&mut self, ms: u64) {
        self.set_time(self.now_us + 1_000 * ms);
    }

    /// The outcome of a request that may not wait.
    fn tried(&mut self, name: &str) -> AcquireOutcome {
        let requests = vec![AcquireRequest { wait: false, ..request(name) }];
        let Answers::Acquire(outcomes) = self.same(&Operation::Acquire { queue_max: 10, requests }) else {
            unreachable!()
        };
        outcomes[0].clone()
    }
}

fn is_granted(outcome: &AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Granted(_))
}

/// The window is of a second, since the longest lease is one of 3 s.
#[test]
fn a_recovery_window_is_no_longer_after_the_clock_was_set_back() {
    let mut both = Both::start();
    both.recovery = Recovery::Interval;
    both.same(&acquire(&["a"]));
    both.run_id = "again";
    both.pass_ms(100);
    assert_eq!(both.tried("b"), AcquireOutcome::Refused(Refusal::Recovering));
    both.set_back();
    assert_eq!(both.tried("b"), AcquireOutcome::Refused(Refusal::Recovering));
    both.pass_ms(999);
    assert_eq!(both.tried("b"), AcquireOutcome::Refused(Refusal::Recovering));
    both.pass_ms(1);
    assert!(is_granted(&both.tried("b")));
    // A window that has ended stays so, once the store has read its clock: every 10 ms.
    both.pass_ms(10);
    both.same(&Operation::Renew(Vec::new()));
    both.set_back();
    let outcome = both.tried("c");
    assert!(is_granted(&outcome), "{outcome:?}");
}

/// The era began an hour ahead of the clock.
#[test]
fn a_longer_lease_makes_a_window_no_longer_than_itself_after_the_clock_was_set_back() {
    let mut both = Both::start();
    both.recovery = Recovery::Interval;
    both.same(&acquire(&["a"]));
    both.run_id = "again";
    both.pass_ms(100);
    assert_eq!(both.tried("b"), AcquireOutcome::Refused(Refusal::Recovering));
    both.set_back();
    let long = AcquireRequest { terms: PermitTerms::new(1, 6_000), wait: false, ..request("b") };
    both.same(&Operation::Acquire { queue_max: 10, requests: vec![long] });
    both.pass_ms(1_999);
    assert_eq!(both.tried("c"), AcquireOutcome::Refused(Refusal::Recovering));
    both.pass_ms(1);
    assert!(is_granted(&both.tried("c")));
}

#[test]
fn a_pause_with_an_end_can_be_ended_after_the_clock_was_set_back() {
    let mut both = Both::start();
    both.same(&acquire(&["a"]));
    let ends = Pause { for_ms: Some(1_000), reason: "".into() };
    both.same(&set("p1", Setting::Pause(Some(ends))));
    both.set_back();
    both.pass_ms(1_001);
    assert!(matches!(both.tried("b"), AcquireOutcome::Refused(Refusal::Paused { .. })));
    both.same(&pause("p2", false));
    assert!(is_granted(&both.tried("b")));
}

#[test]
fn units_that_cool_count_an_hour_longer_after_the_clock_was_set_back_and_others_do_not() {
    let mut both = Both::start();
    let terms = PermitTerms { at_least_ms: 1_000, ..PermitTerms::new(1, 3_000) };
    let requests = vec![AcquireRequest { terms, ..request("a") }, request("b"), request("c")];
    both.same(&Operation::Acquire { queue_max: 10, requests });
    both.same(&release("a"));
    both.set_back();
    both.pass_ms(1_001);
    assert!(matches!(both.tried("d"), AcquireOutcome::Refused(Refusal::Cooling { .. })));
    both.same(&release("b"));
    assert!(is_granted(&both.tried("d")));
    both.pass_ms(3_600_000);
    assert!(is_granted(&both.tried("e")));
}

/// A token is not lower than those before, and so an hour ahead.
#[test]
fn a_grant_after_the_clock_was_set_back_counts_for_no_longer_than_it_was_asked_for() {
    let mut both = Both::start();
    both.same(&acquire(&["a"]));
    both.set_back();
    let terms = PermitTerms { at_least_ms: 1_000, ..PermitTerms::new(2, 3_000) };
    let requests = vec![AcquireRequest { terms, ..request("b") }];
    both.same(&Operation::Acquire { queue_max: 10, requests });
    both.same(&release("b"));
    both.pass_ms(1_000);
    assert!(matches!(both.tried("c"), AcquireOutcome::Refused(Refusal::Cooling { .. })));
    both.pass_ms(1);
    assert!(is_granted(&both.tried("c")));
}

/// The leases of holders and waiters that renew count from then on, and waiters are granted in their order.
#[test]
fn holders_and_waiters_renew_after_the_clock_was_set_back() {
    let mut both = Both::start();
    let Answers::Acquire(outcomes) = both.same(&acquire(&["a", "b", "c", "d", "e"])) else { unreachable!() };
    let AcquireOutcome::Granted(a) = outcomes[0] else { panic!("{outcomes:?}") };
    both.set_back();
    let renewed = |both: &mut Both, operation: &Operation| match both.same(operation) {
        Answers::Renew(outcomes) => outcomes[0].clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(renewed(&mut both, &renew("a", Some(a))), RenewOutcome::Held);
    assert_eq!(renewed(&mut both, &renew("e", None)), RenewOutcome::Waiting { position: 1 });
    // The lease of A ends, counted from its renewal, and the leases of B and C do not.
    both.pass_ms(3_001);
    assert!(matches!(renewed(&mut both, &renew("d", None)), RenewOutcome::Granted(_)));
    assert_eq!(renewed(&mut both, &renew("e", None)), RenewOutcome::RetryLater);
}
