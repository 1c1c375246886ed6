//! Changes of the terms of a held permit, and calls and replies from before such a change.

use super::*;
use crate::PermitStatus;
use crate::protocol::RenewRequest;
use crate::session::callers::TermsChange;
use crate::timing::{BACKOFF, call_timeout};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(3);

pub(super) fn renewal(call: &Call) -> &RenewRequest {
    let Operation::Renew(renewals) = &call.command.operation else { panic!("{:?}", call.command) };
    let [renewal] = &renewals[..] else { panic!("{renewals:?}") };
    renewal
}

impl Bench {
    fn deadline(&self, held: &PermitGuard) -> Duration {
        held.state.deadline(self.now).expect("it is held").since(self.now)
    }

    /// The renewal that is due: it is sent, but not answered.
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

/// The renewal was sent for the waiter. The store has answered it with the grant, and a message with the
/// grant has overtaken the answer. So the store has extended the lease with which the permit was granted. If
/// the holder took this for the longer lease and were cut off next, it would go on while the store gives its
/// unit to another.
#[test]
fn a_renewal_answered_with_the_grant_from_before_a_longer_lease_extends_nothing() {
    let mut bench = Bench::new();
    let (mut pending, asked) = bench.waiting("a");
    let older = bench.due_renewal();
    bench.push(&asked, EventKind::Granted(GRANT));
    let held = taken(&mut pending);
    bench.session.change_terms(&held.state, TermsChange::Lease(LONG));
    assert!(bench.calls().is_empty(), "a renewal is on its way");
    let before = bench.deadline(&held);
    bench.answer(older, renewed(RenewOutcome::Granted(GRANT)));
    assert_eq!(bench.deadline(&held), before, "the store extended the former lease");
}

#[test]
fn a_shorter_lease_counts_before_it_is_sent() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    let older = bench.due_renewal();
    bench.session.change_terms(&held.state, TermsChange::Lease(SHORT));
    assert!(bench.calls().is_empty(), "a renewal is on its way");
    assert!(bench.deadline(&held) <= SHORT);
    // A reply to a call with the former lease, which may have been executed before the change.
    bench.answer(older, renewed(RenewOutcome::Held));
    assert!(bench.deadline(&held) <= SHORT);
    let lost = held.state.cancellation_token();
    bench.pass(SHORT);
    assert!(lost.is_cancelled(), "it ends by the lease that the store may have, and no call finds that out");
    assert!(bench.calls().is_empty(), "what has ended is not renewed");
}

/// If a call took longer, a lost reply to the first renewal would cost the permit: no second renewal would
/// fit into the rest of the lease.
#[test]
fn a_call_is_given_up_in_time_for_another_within_a_shorter_lease() {
    const SHORTER: Duration = Duration::from_millis(900);
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    let older = bench.due_renewal();
    assert_eq!(older.timeout, call_timeout(LEASE));
    bench.answer(older, renewed(RenewOutcome::Held));
    bench.session.change_terms(&held.state, TermsChange::Lease(SHORTER));
    assert!(bench.calls().is_empty(), "its renewal is planned");
    bench.pass(SHORTER / 3);
    let first = bench.call();
    assert_eq!(renewal(&first).terms.lease_ms, millis(SHORTER));
    assert_eq!(first.timeout, call_timeout(SHORTER));
    bench.pass(first.timeout);
    bench.no_answer(first);
    bench.pass(2 * BACKOFF.first);
    let again = bench.call();
    bench.answer(again, renewed(RenewOutcome::Held));
    bench.pass(SHORTER / 2);
    assert!(held.state.deadline(bench.now).is_some(), "{:?}", held.state.loss());
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

/// A server that lost its state only knows of permits that are renewed. After a reconnection this permit is
/// named, and put back for the rest of its lease: so neither side holds it for longer than without the loss.
#[test]
fn a_permit_that_its_program_renews_is_claimed_once_after_a_reconnection() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    bench.session.change_terms(&held.state, TermsChange::AutoRenew(false));
    assert!(bench.calls().is_empty());
    bench.pass(LEASE / 3);
    let before = bench.deadline(&held);
    let again = |bench: &mut Bench| {
        bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
        bench.engine.on_up(bench.now);
        bench.call()
    };
    let claim = again(&mut bench);
    let rest = millis(LEASE) - millis(LEASE / 3);
    assert_eq!((renewal(&claim).grant, renewal(&claim).terms.lease_ms), (Some(GRANT), rest));
    bench.answer(claim, renewed(RenewOutcome::RetryLater));
    assert_eq!(held.state.status(bench.now), PermitStatus::Unsure);
    bench.pass(LEASE / 3);
    let claim = bench.call();
    assert!(renewal(&claim).terms.lease_ms < rest, "it is claimed for what is left then");
    bench.answer(claim, renewed(RenewOutcome::Held));
    assert_eq!(held.state.status(bench.now), PermitStatus::Held);
    assert_eq!(bench.deadline(&held), before - LEASE / 3, "nothing is extended");

    // The renewal by the program gives the permit its own lease again.
    let answer = channel().0;
    let (semaphore, request) = (held.state.semaphore.clone(), held.state.request.clone());
    bench.session.send(Message::Renew { semaphore, request, answer });
    let call = bench.call();
    assert_eq!(renewal(&call).terms.lease_ms, millis(LEASE));
    let claimed = again(&mut bench);
    assert!(renewal(&call).lease_version < renewal(&claimed).lease_version);
    bench.answer(claimed, renewed(RenewOutcome::Lost));
    assert_eq!(held.state.loss(), Some(Lost::Gone));
}

/// In a cluster, a new connection to another node claims permits, and ends no calls to this node.
#[test]
fn a_renewal_by_the_program_that_a_claim_overtakes_is_sent_again() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    bench.session.change_terms(&held.state, TermsChange::AutoRenew(false));
    assert!(bench.calls().is_empty());
    bench.pass(LEASE / 3);
    let (answer, mut result) = channel();
    let (semaphore, request) = (held.state.semaphore.clone(), held.state.request.clone());
    bench.session.send(Message::Renew { semaphore, request, answer });
    let overtaken = bench.call();
    bench.engine.on_up(bench.now);
    let claim = bench.call();
    assert!(renewal(&overtaken).lease_version < renewal(&claim).lease_version);
    bench.answer(overtaken, renewed(RenewOutcome::Held));
    let again = bench.call();
    assert_eq!(renewal(&again).terms.lease_ms, millis(LEASE));
    assert!(renewal(&claim).lease_version < renewal(&again).lease_version);
    assert!(result.try_recv().is_err(), "the permit still has its old deadline");
    bench.answer(again, renewed(RenewOutcome::Held));
    assert_eq!(result.try_recv(), Ok(Ok(())));
    assert!(bench.deadline(&held) > LEASE * 9 / 10, "{:?}", bench.deadline(&held));
}
