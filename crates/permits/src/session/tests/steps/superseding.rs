//! Requests with a supersede key that are sent again.

use super::*;
use crate::protocol::SupersedeKey;

impl Bench {
    fn acquire_keyed(&mut self) -> PendingAcquire {
        let supersede = SupersedeKey::new("main").expect("it is valid");
        let terms = PermitTerms { supersede, ..PermitTerms::new(1, millis(LEASE)) };
        let spec = spec(&self.session, "a", terms, Declaration::Stored);
        let mut pending = PendingAcquire::new(&self.session, spec);
        pending.send();
        pending
    }
}

fn supersedes(call: &Call) -> bool {
    let Operation::Acquire { requests, .. } = &call.command.operation else { panic!("{:?}", call.command) };
    requests[0].supersedes
}

/// A later request may have superseded this one and have its place.
#[test]
fn a_request_that_lost_its_place_supersedes_no_other() {
    let mut bench = Bench::new();
    let _pending = bench.acquire_keyed();
    let call = bench.call();
    assert!(supersedes(&call));
    bench.answer(call, waiting());
    assert!(bench.calls().is_empty(), "it waits");
    bench.pass(LEASE / 3);
    let renewal = bench.call();
    bench.answer(renewal, renewed(RenewOutcome::Lost));
    assert!(!supersedes(&bench.call()));
}

/// If the call has not arrived, the request that waits with the key may be an older one. The price: if it has
/// arrived, and a later request has superseded this one since, this one supersedes the later one.
#[test]
fn a_request_whose_call_was_not_answered_supersedes_when_it_is_sent_again() {
    let mut bench = Bench::new();
    let _pending = bench.acquire_keyed();
    let call = bench.call();
    bench.no_answer(call);
    bench.pass(Duration::from_secs(1));
    assert!(supersedes(&bench.call()));
}
