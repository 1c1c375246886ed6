//! If a caller's time is up while the store does not answer, the caller has not learned that others hold the
//! units. So its error is the store's.

use super::*;
use crate::error::{AdminError, RenewError};
use crate::model::RECALL_US;
use crate::session::engine::TIMEOUTS_EVERY;
use crate::session::spec::Wait;
use crate::timing::call_timeout;

const SECOND: Duration = Duration::from_secs(1);
const RECALL: Duration = Duration::from_micros(RECALL_US);

impl Bench {
    pub(super) fn acquire_within(&mut self, wait: Wait) -> PendingAcquire {
        self.acquire_with_lease(LEASE, wait)
    }

    pub(super) fn acquire_with_lease(&mut self, lease: Duration, wait: Wait) -> PendingAcquire {
        self.acquire_on(PermitTerms::new(1, millis(lease)), wait)
    }

    pub(super) fn acquire_on(&mut self, terms: PermitTerms, wait: Wait) -> PendingAcquire {
        let spec = spec(&self.session, "a", terms, Declaration::Declare(1));
        let mut pending = PendingAcquire::new(&self.session, spec);
        pending.set_wait(wait);
        pending.send();
        pending
    }

    /// A request that waits in line for at most a second.
    fn waiting_for_a_second(&mut self) -> PendingAcquire {
        let pending = self.acquire_within(Wait::AtMost(SECOND));
        let call = self.call();
        self.answer(call, waiting());
        assert!(self.calls().is_empty(), "it waits");
        pending
    }
}

#[track_caller]
pub(super) fn refused(pending: &mut PendingAcquire) -> AcquireError {
    pending.try_take().expect("its time is up").expect_err("nothing was granted")
}

#[track_caller]
fn assert_silent(pending: &mut PendingAcquire) {
    let error = refused(pending);
    assert!(matches!(error, AcquireError::Store(StoreError::NoAnswer { .. })), "{error:?}");
    assert!(!error.is_not_now(), "it is no reason to come later");
}

#[track_caller]
pub(super) fn assert_unreachable(pending: &mut PendingAcquire) {
    let error = refused(pending);
    assert!(matches!(error, AcquireError::Store(StoreError::Unreachable { .. })), "{error:?}");
}

#[test]
fn a_call_that_is_not_answered_is_a_silent_store() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_within(Wait::AtMost(SECOND));
    let _unanswered = bench.call();
    // The second request waits until the call before it has returned.
    let mut second = bench.acquire_within(Wait::AtMost(SECOND));
    bench.calls();
    bench.pass(SECOND);
    assert_silent(&mut pending);
    assert_silent(&mut second);
}

/// The answer may still be on its way.
#[test]
fn a_short_timeout_is_over_before_the_store_is_silent() {
    let mut bench = Bench::new();
    let short = Duration::from_millis(100);
    let mut pending = bench.acquire_within(Wait::AtMost(short));
    let _unanswered = bench.call();
    bench.pass(short);
    bench.assert_timed_out(&mut pending, short);
    // The same timeout, but nothing has returned for longer.
    bench.pass(short);
    let mut later = bench.acquire_within(Wait::AtMost(short));
    bench.calls();
    bench.pass(short);
    assert_silent(&mut later);
}

#[test]
fn a_waiter_of_a_store_that_answers_times_out() {
    let mut bench = Bench::new();
    let mut pending = bench.waiting_for_a_second();
    bench.pass(SECOND);
    bench.assert_timed_out(&mut pending, SECOND);
}

/// The silence is counted from the last answer.
#[test]
fn a_waiter_beside_a_call_that_is_not_answered_learns_of_it() {
    for (answered_after, silent) in [(700, true), (900, false)] {
        let mut bench = Bench::new();
        let mut pending = bench.waiting_for_a_second();
        let mut one = bench.acquire("a", LEASE);
        let first = bench.call();
        let mut other = bench.acquire("a", LEASE);
        let _unanswered = bench.call();
        bench.pass(Duration::from_millis(answered_after));
        bench.answer(first, waiting());
        bench.pass(SECOND - Duration::from_millis(answered_after));
        if silent {
            assert_silent(&mut pending);
        } else {
            bench.assert_timed_out(&mut pending, SECOND);
        }
        assert!(one.try_take().is_none() && other.try_take().is_none(), "they wait without limit");
    }
}

#[test]
fn a_waiter_in_an_outage_gets_its_error() {
    let mut bench = Bench::new();
    let mut pending = bench.waiting_for_a_second();
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    bench.pass(SECOND);
    assert_unreachable(&mut pending);

    // Only this semaphore has an outage, as in a cluster.
    let mut bench = Bench::new();
    let mut pending = bench.waiting_for_a_second();
    let _other = bench.acquire("a", LEASE);
    let call = bench.call();
    bench.no_answer(call);
    bench.pass(SECOND);
    assert_silent(&mut pending);
}

#[test]
fn an_outage_that_is_over_is_no_reason() {
    let mut bench = Bench::new();
    let mut pending = bench.waiting_for_a_second();
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    bench.engine.on_up(bench.now);
    let renewal = bench.call();
    bench.answer(renewal, renewed(RenewOutcome::Waiting { position: 0 }));
    bench.pass(SECOND);
    bench.assert_timed_out(&mut pending, SECOND);

    // The same for a session that has made no call since.
    let (mut bench, short) = (Bench::new(), Duration::from_millis(100));
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    bench.engine.on_up(bench.now);
    let mut pending = bench.acquire_within(Wait::AtMost(short));
    let _unanswered = bench.call();
    bench.pass(short);
    bench.assert_timed_out(&mut pending, short);
}

impl Bench {
    /// A request whose call fails, and whose caller then leaves, so that nothing makes the call again.
    fn give_up_a_call(&mut self) {
        let other = self.acquire("a", LEASE);
        let call = self.call();
        self.fail(call);
        drop(other);
        assert!(self.calls().is_empty(), "nothing is to be given back");
    }
}

/// Nothing makes the failed call again, so it has no outage. But the store has still not replied.
#[test]
fn a_waiter_beside_a_call_that_was_given_up_learns_of_the_silence() {
    let mut bench = Bench::new();
    let mut pending = bench.waiting_for_a_second();
    let mut without_limit = bench.acquire("a", LEASE);
    let call = bench.call();
    bench.answer(call, waiting());
    bench.give_up_a_call();
    bench.pass(SECOND);
    assert_unreachable(&mut pending);
    bench.pass(bench.engine.store_timeout());
    assert!(without_limit.try_take().is_none(), "only its own calls can fail it");
}

#[test]
fn a_reply_after_a_call_that_was_given_up_ends_the_silence() {
    let mut bench = Bench::new();
    let mut pending = bench.waiting_for_a_second();
    bench.give_up_a_call();
    bench.engine.on_up(bench.now);
    let renewal = bench.call();
    bench.answer(renewal, renewed(RenewOutcome::Waiting { position: 0 }));
    bench.pass(SECOND);
    bench.assert_timed_out(&mut pending, SECOND);
}

/// The permit has a deadline of its own, so its renewal does not wait.
#[test]
fn a_renewal_by_its_caller_fails_with_the_outage_and_other_calls_wait_for_its_end() {
    let mut bench = Bench::new();
    let held = bench.held("a", LEASE);
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    let (semaphore, request) = (held.state.semaphore.clone(), held.state.request.clone());
    let (answer, mut renewal) = channel();
    bench.session.send(Message::Renew { semaphore: semaphore.clone(), request, answer });
    let (declaration, operation) = (Declaration::Stored, Operation::Inspect { max: 0 });
    let (answer, mut inspection) = channel();
    bench.session.send(Message::Admin { semaphore, declaration, operation, answer });
    assert!(bench.calls().is_empty(), "there is no connection");
    bench.pass(TIMEOUTS_EVERY);
    assert!(matches!(renewal.try_recv(), Ok(Err(RenewError::Store(StoreError::Unreachable { .. })))));
    assert!(inspection.try_recv().is_err(), "its time is not up");
}

/// The store may come back any moment.
#[test]
fn what_is_asked_for_late_in_an_outage_waits_for_the_store_for_as_long_as_anything_else() {
    let mut bench = Bench::with(Config { store_timeout: SECOND, ..config("session", LEASE) });
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    bench.pass(2 * SECOND);
    let mut pending = bench.acquire_within(Wait::Forever);
    let (semaphore, declaration) = (Name::new("a").expect("valid"), Declaration::Stored);
    let (operation, (answer, mut inspection)) = (Operation::Inspect { max: 0 }, channel());
    bench.session.send(Message::Admin { semaphore, declaration, operation, answer });
    assert!(bench.calls().is_empty(), "there is no connection");
    bench.pass(SECOND - TIMEOUTS_EVERY);
    assert!(pending.try_take().is_none() && inspection.try_recv().is_err(), "their time is not up");
    assert!(bench.calls().is_empty(), "there is no connection");
    bench.pass(TIMEOUTS_EVERY);
    assert_unreachable(&mut pending);
    assert!(matches!(inspection.try_recv(), Ok(Err(AdminError::Store(StoreError::Unreachable { .. })))));
}

/// The store may have done what it did not answer, whatever the next try meets.
#[test]
fn a_call_whose_first_try_was_not_answered_fails_with_an_unknown_outcome() {
    let mut bench = Bench::with(Config { store_timeout: SECOND, ..config("session", LEASE) });
    let semaphore = Name::new("a").expect("valid");
    let (declaration, operation) = (Declaration::Stored, Operation::Delete { unreadable: false });
    let (answer, mut deleted) = channel();
    bench.session.send(Message::Admin { semaphore, declaration, operation, answer });
    let mut error = StoreError::NoAnswer { reason: "lost".into() };
    let deleted = loop {
        for call in bench.calls() {
            bench.engine.on_return(call.sent, Err(error.clone()), bench.now);
            error = StoreError::Unreachable { reason: "cut".into() };
        }
        bench.pass(SECOND / 10);
        if let Ok(deleted) = deleted.try_recv() {
            break deleted;
        }
    };
    let error = deleted.expect_err("the store is away");
    assert!(error.to_string().contains("an earlier try of this call; and then: "), "{error}");
    assert!(matches!(error, AdminError::Store(StoreError::NoAnswer { .. })), "{error:?}");
}

/// A request that does not wait in line waits no longer than one call may take.
#[test]
fn a_try_is_short() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_within(Wait::No);
    let _unanswered = bench.call();
    bench.pass(call_timeout(LEASE) - Duration::from_millis(1));
    assert!(pending.try_take().is_none(), "the answer may come");
    bench.pass(Duration::from_millis(1));
    assert_silent(&mut pending);

    let mut bench = Bench::new();
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    let mut pending = bench.acquire_within(Wait::No);
    assert!(bench.calls().is_empty());
    bench.pass(call_timeout(LEASE));
    assert_unreachable(&mut pending);
}

/// Others are asked only once for what they keep, even if the request is renewed meanwhile.
#[test]
fn a_try_that_waits_for_what_others_keep_is_refused_then() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_within(Wait::No);
    let call = bench.call();
    bench.pass(SECOND);
    bench.answer(call, waiting());
    bench.pass(RECALL / 2);
    bench.engine.on_up(bench.now);
    let renewal = bench.call();
    bench.answer(renewal, renewed(RenewOutcome::Waiting { position: 0 }));
    assert!(pending.try_take().is_none(), "they may give it");
    bench.pass(RECALL / 2);
    assert_eq!(refused(&mut pending), AcquireError::NoPermits);
}
