//! Calls of one kind fail while others succeed: confirmations have a connection of their own, and a renewal
//! that a program asked for is not repeated.

use super::outages::assert_unreachable;
use super::*;
use crate::error::RenewError;
use crate::session::call::CallKind;
use crate::session::spec::Wait;
use crate::timing::{call_timeout, held_until};

const STORE_TIMEOUT: Duration = LEASE.saturating_mul(2);
const STEP: Duration = Duration::from_millis(100);

fn unreachable() -> StoreError {
    StoreError::Unreachable { reason: "max number of clients reached".into() }
}

/// A session whose grants one replica has to confirm.
pub(super) fn replicated() -> Bench {
    Bench::with(Config { replicas: 1, store_timeout: STORE_TIMEOUT, ..config("session", LEASE) })
}

impl Bench {
    pub(super) fn fail(&mut self, call: Call) {
        self.engine.on_return(call.sent, Err(unreachable()), self.now);
        self.engine.take_outbox().deliver(None);
    }

    /// Answers the calls that are due. The store does what they ask for, but refuses the connection on which
    /// replicas are asked. Returns how often that was tried.
    fn serve_and_refuse_confirmations(&mut self) -> usize {
        let mut attempts = 0;
        for call in self.calls() {
            let answers = match &call.command.operation {
                Operation::Renew(_) if matches!(call.sent.kind, CallKind::Confirm(_)) => {
                    attempts += 1;
                    self.fail(call);
                    continue;
                }
                Operation::Renew(renewals) => {
                    let outcome = |granted: bool| match granted {
                        true => RenewOutcome::Held,
                        false => RenewOutcome::Waiting { position: 0 },
                    };
                    Answers::Renew(renewals.iter().map(|renew| outcome(renew.grant.is_some())).collect())
                }
                Operation::Acquire { .. } => granted(),
                Operation::Release(_) => Answers::Release(vec![ReleaseOutcome::Held]),
                other => panic!("{other:?}"),
            };
            self.answer(call, answers);
        }
        attempts
    }

    fn serve_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.serve_and_refuse_confirmations();
            self.pass(STEP);
        }
    }

    #[track_caller]
    fn confirmation(&mut self) -> Call {
        let call = self.call();
        assert!(matches!(call.sent.kind, CallKind::Confirm(_)), "{:?}", call.command);
        call
    }
}

/// A regression: each renewal that succeeded ended the outage of the confirmations, so the request waited for
/// ever, and its unit was renewed for ever.
#[test]
fn a_grant_that_no_replica_can_be_asked_about_ends_with_the_store_timeout() {
    let mut bench = replicated();
    let mut pending = bench.acquire_within(Wait::Forever);
    let call = bench.call();
    let asked = asked(&call);
    bench.answer(call, granted());
    let (began, mut attempts) = (bench.now, 0);
    while bench.now < began + STORE_TIMEOUT {
        assert!(pending.try_take().is_none(), "after {:?}", bench.now.since(began));
        attempts += bench.serve_and_refuse_confirmations();
        bench.pass(STEP);
    }
    bench.pass(2 * STEP);
    assert_unreachable(&mut pending);
    assert!((30..=150).contains(&attempts), "{attempts} attempts to confirm it, with growing pauses");
    let calls = bench.calls();
    let release = calls.iter().find(|call| matches!(call.command.operation, Operation::Release(_)));
    assert_releases(release.expect("its unit is given back"), &asked);
}

#[test]
fn a_caller_whose_time_is_up_before_a_replica_can_be_asked_gets_the_error_of_the_store() {
    let long = Duration::from_secs(12);
    for (wait, limit) in [(Wait::AtMost(long), long), (Wait::No, call_timeout(LEASE))] {
        let mut bench = replicated();
        let mut pending = bench.acquire_within(wait);
        bench.serve_for(limit - STEP);
        assert!(pending.try_take().is_none(), "{wait:?}: its time is not up");
        bench.serve_for(STEP);
        assert_unreachable(&mut pending);
    }
}

/// The pauses between attempts to confirm a grant delay no other calls.
#[test]
fn a_confirmation_that_fails_delays_no_other_call() {
    let mut bench = replicated();
    let _unconfirmed = bench.acquire_within(Wait::Forever);
    bench.serve_and_refuse_confirmations();
    assert_eq!(bench.serve_and_refuse_confirmations(), 1, "replicas are asked for it");
    let _next = bench.acquire("a", LEASE);
    let call = bench.call();
    assert!(matches!(call.sent.kind, CallKind::Acquire(_)), "{:?}", call.command);
}

#[test]
fn a_connection_that_comes_up_ends_the_pause_before_the_next_confirmation() {
    let mut bench = replicated();
    let _unconfirmed = bench.acquire_within(Wait::Forever);
    bench.serve_and_refuse_confirmations();
    assert_eq!(bench.serve_and_refuse_confirmations(), 1, "replicas are asked for it");
    assert!(bench.calls().is_empty(), "they are asked again later");
    bench.engine.on_up(bench.now);
    assert_eq!(bench.serve_and_refuse_confirmations(), 1, "they are asked at once");
}

/// Otherwise the grant would end with its lease, and the caller would get a permit that is about to end.
#[test]
fn a_grant_is_renewed_while_no_replica_has_confirmed_it() {
    let mut bench = replicated();
    let mut pending = bench.acquire_within(Wait::Forever);
    bench.serve_and_refuse_confirmations();
    assert_eq!(bench.serve_and_refuse_confirmations(), 1, "replicas are asked for it");
    assert!(bench.calls().is_empty(), "they are asked again later");
    bench.pass(LEASE / 3);
    let calls = <[Call; 2]>::try_from(bench.calls()).ok();
    let [renewal, confirmation] = calls.expect("a renewal, and a confirmation");
    assert!(matches!(renewal.sent.kind, CallKind::Renew(_)), "{:?}", renewal.command);
    bench.answer(renewal, renewed(RenewOutcome::Held));
    bench.confirm(confirmation, 1);
    let held = taken(&mut pending);
    assert_eq!(held.state.deadline(bench.now), Some(held_until(bench.now, LEASE)));
}

/// The failed confirmation was not repeated, because its caller had left. It says nothing about the store a
/// minute later.
#[test]
fn a_confirmation_that_failed_for_another_request_fails_no_grant() {
    let mut bench = replicated();
    let (mut waiter, asked) = bench.waiting("a");
    let other = bench.acquire_within(Wait::Forever);
    bench.serve_and_refuse_confirmations();
    assert_eq!(bench.serve_and_refuse_confirmations(), 1, "replicas are asked for it");
    drop(other);
    bench.serve_for(2 * STORE_TIMEOUT);

    bench.push(&asked, EventKind::Granted(GRANT));
    let confirmation = bench.confirmation();
    bench.pass(2 * STEP);
    assert!(waiter.try_take().is_none(), "its confirmation is on its way");
    bench.confirm(confirmation, 1);
    taken(&mut waiter);
}

/// The store is well a moment later, and the session asks it nothing before the next renewal. Before this was
/// fixed, the waiter failed with the error of that one renewal.
#[test]
fn a_renewal_by_the_program_that_failed_fails_no_waiter() {
    let (lease, limit) = (Duration::from_secs(120), STORE_TIMEOUT);
    let mut bench = Bench::with(Config { store_timeout: STORE_TIMEOUT / 6, ..config("session", lease) });
    let held = bench.held("a", lease);
    let mut wait = |wait| {
        let pending = bench.acquire_with_lease(lease, wait);
        let call = bench.call();
        bench.answer(call, waiting());
        pending
    };
    let (mut patient, mut hasty) = (wait(Wait::Forever), wait(Wait::AtMost(limit)));

    let (semaphore, request) = (held.state.semaphore.clone(), held.state.request.clone());
    let (answer, mut renewal) = channel();
    bench.session.send(Message::Renew { semaphore, request, answer });
    let call = bench.call();
    bench.no_answer(call);
    bench.engine.take_outbox().deliver(None);
    assert!(matches!(renewal.try_recv(), Ok(Err(RenewError::Store(StoreError::NoAnswer { .. })))));
    bench.serve_for(limit);
    assert!(patient.try_take().is_none(), "it waits");
    // The store answers.
    bench.assert_timed_out(&mut hasty, limit);
}
