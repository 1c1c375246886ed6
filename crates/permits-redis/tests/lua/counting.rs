//! Renewals by which a grant counts for longer, such as the renewal of a permit of a set that had to wait for
//! its other permits.

use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Grant, MAX_COUNTS_MS, Operation, PermitTerms, Refusal,
    RenewOutcome, RenewRequest,
};

use crate::fixture::{Both, release, renewal, request};

impl Both {
    fn pass_time(&mut self, ms: u64) {
        self.set_time(self.now_us + 1_000 * ms);
    }

    /// A grant of all three units to A, which counts for this time.
    fn counted(&mut self, at_least_ms: u64) -> Grant {
        let terms = PermitTerms { at_least_ms, ..PermitTerms::new(3, 3_000) };
        let outcomes = self.acquired(vec![AcquireRequest { terms, ..request("a") }]);
        let AcquireOutcome::Granted(grant) = outcomes[0] else { panic!("{outcomes:?}") };
        grant
    }

    /// Renews A, whose grant is to count for this time.
    fn counts_for(&mut self, at_least_ms: u64, grant: Grant) {
        let renew = renewal("a", Some(grant));
        let terms = PermitTerms { at_least_ms, ..PermitTerms::new(3, 3_000) };
        let renewed = self.same(&Operation::Renew(vec![RenewRequest { terms, ..renew }]));
        assert_eq!(renewed, Answers::Renew(vec![RenewOutcome::Held]));
    }

    /// The refusal of a request that does not wait; `None` if it is granted.
    fn refusal(&mut self) -> Option<Refusal> {
        match self.acquired(vec![AcquireRequest { wait: false, ..request("b") }]).remove(0) {
            AcquireOutcome::Granted(_) => None,
            AcquireOutcome::Refused(refusal) => Some(refusal),
            other @ AcquireOutcome::Waiting { .. } => panic!("{other:?}"),
        }
    }
}

/// The longest time counts, in whatever order the renewals arrive, and however often.
#[test]
fn a_grant_counts_for_the_longest_time_that_was_asked_for() {
    for renewals in [[2_500, 1_000], [1_000, 2_500], [2_500, 2_500], [2_500, 0]] {
        let mut both = Both::start();
        let grant = both.counted(1_000);
        both.pass_time(1_500);
        for at_least_ms in renewals {
            both.counts_for(at_least_ms, grant);
        }
        both.same(&release("a"));
        assert_eq!(both.refusal(), Some(Refusal::Cooling { remaining_ms: 1_000 }), "{renewals:?}");
        both.pass_time(999);
        assert_eq!(both.refusal(), Some(Refusal::Cooling { remaining_ms: 1 }), "{renewals:?}");
        both.pass_time(1);
        assert_eq!(both.refusal(), None, "{renewals:?}");
    }
}

/// The grant of a holder that crashes after the renewal counts as long as a released one.
#[test]
fn a_grant_whose_lease_ends_counts_for_the_longest_time_too() {
    let mut both = Both::start();
    let grant = both.counted(1_000);
    both.counts_for(5_000, grant);
    both.pass_time(4_999);
    assert_eq!(both.refusal(), Some(Refusal::Cooling { remaining_ms: 1 }));
    both.pass_time(1);
    assert_eq!(both.refusal(), None);
}

#[test]
fn a_grant_that_was_not_to_count_does_not_count() {
    let mut both = Both::start();
    let grant = both.counted(0);
    both.counts_for(5_000, grant);
    both.same(&release("a"));
    assert_eq!(both.refusal(), None);
}

/// The longest wait of a set that can be told to the store.
#[test]
fn a_grant_can_count_for_weeks() {
    let mut both = Both::start();
    let grant = both.counted(1);
    both.counts_for(MAX_COUNTS_MS, grant);
    both.same(&release("a"));
    assert_eq!(both.refusal(), Some(Refusal::Cooling { remaining_ms: MAX_COUNTS_MS }));
    both.pass_time(MAX_COUNTS_MS);
    assert_eq!(both.refusal(), None);
}
