//! Requests that the store refuses, and what their callers learn of the reason.

use super::outages::refused;
use super::*;
use crate::protocol::LaneName;

impl Bench {
    /// A request for 3 units, under the limit that the store has.
    fn acquire_three(&mut self) -> PendingAcquire {
        let spec = spec(&self.session, "a", PermitTerms::new(3, millis(LEASE)), Declaration::Stored);
        let mut pending = PendingAcquire::new(&self.session, spec);
        pending.send();
        pending
    }

    /// Answers for a store that has this limit.
    fn answer_under(&mut self, limit: u32, call: Call, answers: Answers) {
        let reply = Reply { limit, ..reply(1, answers) };
        self.engine.on_return(call.sent, Ok(Executed { reply, confirmed: 0 }), self.now);
        self.engine.take_outbox().deliver(None);
    }
}

/// The store sends the messages of a command before its reply. The message does not say what the limit has
/// become, so the request is sent again: the next reply says it.
#[test]
fn a_waiter_that_a_message_refuses_before_its_reply_has_come_is_told_the_limit() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_three();
    let call = bench.call();
    bench.push(&asked(&call), EventKind::Refused);
    bench.answer_under(3, call, waiting());
    let again = bench.call();
    let refusal = AcquireOutcome::Refused(Refusal::ExceedsLimit);
    bench.answer_under(2, again, Answers::Acquire(vec![refusal]));
    assert_eq!(refused(&mut pending), AcquireError::ExceedsLimit { weight: 3, limit: 2 });
}

/// The message that the limit was lowered has not arrived.
#[test]
fn a_waiter_that_its_renewal_refuses_is_told_the_limit() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_three();
    let call = bench.call();
    bench.answer_under(3, call, waiting());
    let renewal = bench.due_renewal();
    bench.answer_under(2, renewal, renewed(RenewOutcome::ExceedsLimit));
    assert_eq!(refused(&mut pending), AcquireError::ExceedsLimit { weight: 3, limit: 2 });
}

#[test]
fn a_request_that_finds_too_many_waiters_is_told_whose_bound_that_is() {
    let full = |refusal| {
        let mut bench = Bench::new();
        let lane = LaneName::new("tenant").expect("valid");
        let terms = PermitTerms { lane, ..PermitTerms::new(1, millis(LEASE)) };
        let mut spec = spec(&bench.session, "a", terms, Declaration::Stored);
        spec.client.lane_waiters = Some(7);
        let mut pending = PendingAcquire::new(&bench.session, spec);
        pending.send();
        let call = bench.call();
        bench.answer(call, Answers::Acquire(vec![AcquireOutcome::Refused(refusal)]));
        refused(&mut pending)
    };
    let of_lane = AcquireError::QueueFull { max: 7, lane: Some("tenant".to_owned()) };
    assert_eq!(full(Refusal::LaneQueueFull), of_lane);
    assert_eq!(full(Refusal::QueueFull), AcquireError::QueueFull { max: 1000, lane: None });
}
