//! Two ideas at once: what one of them promises holds beside the other.

use super::confirming::replicated;
use super::keeping::{answer_keepable, keepable};
use super::outages::refused;
use super::terms::renewal;
use super::*;
use crate::model::RECALL_US;
use crate::session::callers::TermsChange;
use crate::session::spec::Wait;
use crate::timing::call_timeout;

const SHORT: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);

fn denied() -> StoreError {
    StoreError::Denied { reason: "no permissions".into() }
}

impl Bench {
    /// Answers the renewals that are due with a lasting error, for so long.
    fn deny_renewals(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for call in self.calls().into_iter().filter(is_renewal) {
                self.engine.on_return(call.sent, Err(denied()), self.now);
                self.engine.take_outbox().deliver(None);
            }
            self.pass(Duration::from_millis(100));
        }
    }
}

/// The new lease counts from its change on, and the last renewal was long before. If the claim were for what
/// is left of the new lease since that renewal, the store would grant the next while this holder works.
#[test]
fn a_claim_lasts_as_long_as_a_permit_whose_lease_was_made_shorter() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    bench.session.change_terms(&held.state, TermsChange::AutoRenew(false));
    assert!(bench.calls().is_empty());
    bench.pass(LEASE / 3);
    bench.session.change_terms(&held.state, TermsChange::Lease(SHORT));
    assert!(bench.calls().is_empty());
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    bench.pass(SHORT / 4);
    bench.engine.on_up(bench.now);
    let claim = bench.call();
    let until = held.state.deadline(bench.now).expect("it is held").since(bench.now);
    let claimed = renewal(&claim).terms.lease();
    assert!(claimed > until && claimed <= SHORT, "{claimed:?}, and it is held for {until:?}");
}

/// The store answers, and so this is no outage of the connection: but nothing renews its place.
#[test]
fn a_waiter_whose_renewals_are_denied_learns_why() {
    let timeout = LEASE * 2;
    let mut bench = Bench::with(Config { store_timeout: timeout, ..config("session", LEASE) });
    let (mut pending, _) = bench.waiting("a");
    bench.deny_renewals(timeout);
    assert!(pending.try_take().is_none(), "a renewal may still succeed");
    bench.deny_renewals(LEASE);
    let error = refused(&mut pending);
    assert!(matches!(error, AcquireError::Store(StoreError::Denied { .. })), "{error:?}");
}

#[test]
fn a_waiter_whose_time_is_up_while_its_renewals_are_denied_learns_why() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_within(Wait::AtMost(LEASE));
    let call = bench.call();
    bench.answer(call, waiting());
    bench.deny_renewals(LEASE);
    let error = refused(&mut pending);
    assert!(matches!(error, AcquireError::Store(StoreError::Denied { .. })), "{error:?}");
    assert!(!error.is_not_now(), "it is no reason to come later");
}

/// It goes to the back of the line, and others hold the units.
#[test]
fn a_try_that_is_asked_again_while_it_waits_for_a_recall_learns_that_others_hold() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_within(Wait::No);
    let call = bench.call();
    let asked = asked(&call);
    bench.answer(call, waiting());
    bench.push(&asked, EventKind::Refused);
    let _again = bench.call();
    bench.pass(Duration::from_micros(RECALL_US));
    assert!(matches!(refused(&mut pending), AcquireError::NoPermits));
}

/// The store has granted it, so that others hold the units is not the reason.
#[test]
fn a_request_whose_time_is_up_before_replicas_have_confirmed_it_learns_that() {
    for wait in [Wait::No, Wait::AtMost(SECOND)] {
        let mut bench = replicated();
        let mut pending = bench.acquire_within(wait);
        let call = bench.call();
        let asked = asked(&call);
        bench.answer(call, granted());
        let _unanswered = bench.call();
        bench.pass(call_timeout(LEASE));
        let error = refused(&mut pending);
        let is_it = matches!(error, AcquireError::NotReplicated { confirmed: 0, wanted: 1 });
        assert!(is_it, "{wait:?}: {error:?}");
        assert_releases(&bench.call(), &asked);
    }
}

/// Other calls of the session are answered, so the store is not silent.
#[test]
fn a_try_that_is_not_answered_learns_that_the_store_has_not_answered() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_within(Wait::No);
    let _unanswered = bench.call();
    bench.pass(call_timeout(LEASE) - Duration::from_millis(100));
    let _waits = bench.acquire("a", LEASE);
    let other = bench.call();
    bench.answer(other, waiting());
    bench.pass(Duration::from_millis(100));
    let error = refused(&mut pending);
    assert!(matches!(error, AcquireError::Store(StoreError::NoAnswer { .. })), "{error:?}");
}

/// Its token is below the time of the last answer, as that of an old grant is.
#[test]
fn a_grant_after_the_clock_of_the_server_was_set_back_is_asked_about_at_once() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire("a", LEASE);
    let call = bench.call();
    let asked = asked(&call);
    bench.answer_at(call, 1_000_000, waiting());
    assert!(bench.calls().is_empty(), "it waits");
    bench.push(&asked, EventKind::Granted(Grant { token: 500_000, slot: 0 }));
    assert!(pending.try_take().is_none(), "the message may be old");
    let call = bench.call();
    bench.answer_at(call, 500_001, renewed(RenewOutcome::Granted(Grant { token: 500_000, slot: 0 })));
    taken(&mut pending);
}

/// The message of the grant was faster than the reply to a renewal from before it.
#[test]
fn a_reply_from_before_an_unconfirmed_grant_changes_nothing() {
    let mut bench = replicated();
    let (mut pending, asked) = bench.waiting("a");
    bench.pass(LEASE / 2);
    let older = bench.call();
    bench.push(&asked, EventKind::Granted(GRANT));
    bench.answer(older, renewed(RenewOutcome::Waiting { position: 0 }));
    let made = bench.calls();
    let is_confirmed = !made.is_empty() && made.iter().all(is_renewal);
    assert!(is_confirmed, "it is not asked for again: {} calls", made.len());
    drop(pending.try_take());
    drop(pending);
    assert_releases(&bench.call(), &asked);
}

/// The session cannot know that it would be renewed, so others may soon need it.
#[test]
fn a_denied_renewal_ends_keeping() {
    let mut bench = Bench::new();
    let (mut held, shelf) = keepable(&mut bench);
    assert!(bench.calls().is_empty());
    bench.pass(LEASE / 2);
    let call = bench.call();
    bench.engine.on_return(call.sent, Err(denied()), bench.now);
    bench.engine.take_outbox().deliver(None);
    assert!(!held.put_back(bench.now) && shelf.is_empty(), "it is released");
}

/// An inspection of a local store takes no lock, so it may have read the state from before the recall.
#[test]
fn an_inspection_does_not_begin_keeping_again() {
    let mut bench = Bench::new();
    let (mut held, shelf) = keepable(&mut bench);
    bench.engine.on_recall(&Name::new("a").expect("valid"), bench.now);
    let (answer, _result) = channel();
    let (semaphore, operation) = (Name::new("a").expect("valid"), Operation::Inspect { max: 0 });
    bench.session.send(Message::Admin { semaphore, declaration: Declaration::Stored, operation, answer });
    let call = bench.call();
    answer_keepable(&mut bench, call, Answers::Release(vec![]));
    assert!(!held.put_back(bench.now) && shelf.is_empty(), "it is released");
}
