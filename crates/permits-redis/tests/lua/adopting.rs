//! The tokens of permits that are handed over.

use permits_core::protocol::{
    AcquireOutcome, AdoptRequest, Answers, Grant, Operation, PermitTerms, RequestKey,
};

use crate::fixture::{Both, holder, id, request};

const LEASE_MS: u64 = 3_000;

impl Both {
    /// A permit that may be kept, handed over after the session has used `used` tokens beyond the first one,
    /// adopted and released. Returns its token.
    fn handed_over(&mut self, used: Option<u64>) -> u64 {
        let mut request = request("a");
        request.terms = PermitTerms { keep: true, ..PermitTerms::new(1, LEASE_MS) };
        let acquired = self.same(&Operation::Acquire { queue_max: 1, requests: vec![request] });
        let Answers::Acquire(outcomes) = acquired else { unreachable!() };
        let [AcquireOutcome::Granted(grant @ Grant { token, .. })] = outcomes[..] else {
            panic!("{outcomes:?}")
        };
        let adopt = AdoptRequest {
            holder: holder("a"),
            request: id("a"),
            terms: PermitTerms::new(1, LEASE_MS),
            grant,
            new_request: id("b"),
            last_token: used.map(|used| token + used),
        };
        assert_eq!(self.same(&Operation::Adopt(adopt)), Answers::Adopt(true));
        let adopted = RequestKey { holder: holder("a"), request: id("b") };
        self.same(&Operation::Release(vec![adopted.into()]));
        token
    }
}

/// If the clock stands still, each grant gets the token after the last token that was used: so tokens do not
/// run ahead of a clock.
#[test]
fn an_adoption_passes_over_no_token_that_was_not_used() {
    let mut both = Both::start();
    let first = both.handed_over(None);
    let second = both.handed_over(Some(7));
    assert_eq!(second, first + 1);
    assert_eq!(both.handed_over(Some(0)), second + 8);
}
