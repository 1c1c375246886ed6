//! Changes of the terms of a held permit, and calls and replies from before them.

use super::*;
use crate::protocol::RenewRequest;
use crate::session::callers::TermsChange;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(3);

fn renewal(call: &Call) -> &RenewRequest {
    let Operation::Renew(renewals) = &call.command.operation else { panic!("{:?}", call.command) };
    let [renewal] = &renewals[..] else { panic!("{renewals:?}") };
    renewal
}

impl Bench {
    fn deadline(&self, held: &PermitGuard) -> Duration {
        held.state.deadline(self.now).expect("it is held").since(self.now)
    }

    /// The renewal that is due, sent and not answered.
    pub(super) fn due_renewal(&mut self) -> Call {
        assert!(self.calls().is_empty(), "the renewal is planned");
        self.pass(LEASE / 2);
        self.call()
    }
}

#[test]
fn a_reply_from_before_a_longer_lease_extends_nothing() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    let older = bench.due_renewal();
    bench.session.change_terms(&held.state, TermsChange::Lease(LONG));
    assert!(bench.calls().is_empty(), "a renewal is on its way");
    let before = bench.deadline(&held);
    bench.answer(older, renewed(RenewOutcome::Held));
    assert_eq!(bench.deadline(&held), before, "the store extended the former lease");
    bench.pass(Duration::from_secs(6));
    let newer = bench.call();
    assert_eq!((renewal(&newer).terms.lease_ms, renewal(&newer).lease_version), (60_000, 1));
    bench.answer(newer, renewed(RenewOutcome::Held));
    assert!(bench.deadline(&held) > LEASE);
}

#[test]
fn a_shorter_lease_counts_before_it_is_sent() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    let older = bench.due_renewal();
    bench.session.change_terms(&held.state, TermsChange::Lease(SHORT));
    assert!(bench.calls().is_empty(), "a renewal is on its way");
    assert!(bench.deadline(&held) <= SHORT);
    // The reply to a call with the former lease, which may have been executed before the change.
    bench.answer(older, renewed(RenewOutcome::Held));
    assert!(bench.deadline(&held) <= SHORT);
    let lost = held.state.cancellation_token();
    bench.pass(SHORT);
    assert!(lost.is_cancelled(), "it ends by the lease that the store may have, and no call finds that out");
    assert!(bench.calls().is_empty(), "what has ended is not renewed");
}

#[test]
fn a_lower_weight_stays_if_its_call_fails() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    for weight in [3, 4] {
        bench.session.change_terms(&held.state, TermsChange::Weight(weight));
    }
    let lighter = bench.due_renewal();
    assert_eq!(renewal(&lighter).terms.weight, 1, "it was granted 1 unit, and no message adds any");
    bench.no_answer(lighter);
    bench.pass(Duration::from_secs(1));
    assert_eq!(renewal(&bench.call()).terms.weight, 1);
}

#[test]
fn renewal_begins_and_ends_with_the_callers_wish() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    bench.session.change_terms(&held.state, TermsChange::AutoRenew(false));
    bench.pass(LEASE / 2);
    assert!(bench.calls().is_empty(), "the caller renews");
    bench.session.change_terms(&held.state, TermsChange::AutoRenew(true));
    assert!(bench.calls().is_empty(), "the time of the next renewal is planned");
    bench.pass(Duration::ZERO);
    assert!(is_renewal(&bench.call()), "the last renewal is half a lease ago");
}
