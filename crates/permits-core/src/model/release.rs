//! Releases by holders and waiters, and revocations by operators.

use std::sync::Arc;

use super::execution::Execution;
use crate::protocol::{
    Answers, ChangeEffect, ChangeOrigin, EventKind, Holder, ReleaseOutcome, ReleaseRequest,
};

impl Execution<'_> {
    /// Forgets entries, whether they wait or hold.
    pub(super) fn release(&mut self, requests: &[ReleaseRequest]) -> Answers {
        let answers =
            requests.iter().map(|ReleaseRequest { holder, request, last_token, counted }| {
                match self.state.entries.get(holder) {
                    Some(entry) if entry.request == *request => {
                        self.state.last_token = self.state.last_token.max(last_token.unwrap_or(0));
                        if let Some(units) = counted {
                            self.count(holder, *units);
                        }
                        self.forget(holder)
                    }
                    _ => ReleaseOutcome::Unknown,
                }
            });
        let answers = answers.collect();
        self.promote();
        Answers::Release(answers)
    }

    /// Corrects the units for which a grant counts, if it counts for longer. A permit counts for the limit at
    /// most. If it counts for 0 units, nothing cools.
    fn count(&mut self, holder: &Holder, units: u32) {
        let state = &mut self.state;
        let Some(entry) = state.entries.get_mut(holder) else { return };
        if entry.counts_until_ms(self.now_ms) > self.now_ms {
            let units = units.min(state.limit.max(entry.terms.weight));
            state.held = state.held - u64::from(entry.terms.weight) + u64::from(units);
            let before = std::mem::replace(&mut entry.terms.weight, units);
            if units == 0 {
                entry.terms.at_least_ms = 0;
            }
            let terms = entry.terms.clone();
            state.count_in_lane(&terms, before, units);
        }
    }

    /// Removes a holder or waiter, and sends its session the reason; or frees what cools under this token.
    pub(super) fn revoke(
        &mut self,
        origin: &ChangeOrigin,
        holder: &Holder,
        cooling: Option<u64>,
        reason: &Arc<str>,
    ) -> Answers {
        let cooling = cooling.map(|token| holder.cooling(token));
        let key = cooling.as_ref().unwrap_or(holder);
        let was = match self.state.change_made(&origin.request) {
            Some(ChangeEffect::Revoke { waited: true, .. }) => ReleaseOutcome::Waiting,
            Some(ChangeEffect::Revoke { waited: false, .. }) => ReleaseOutcome::Held,
            _ if self.state.entries.contains_key(key) => {
                if cooling.is_none() {
                    self.emit(key, EventKind::Revoked(reason.clone()));
                }
                self.state.counts.revoked += 1;
                self.state.spend_tokens(key);
                let was = self.forget(key);
                let waited = was == ReleaseOutcome::Waiting;
                let (holder, reason) = (holder.clone(), reason.clone());
                self.remember(origin, ChangeEffect::Revoke { holder, waited, reason });
                was
            }
            _ => ReleaseOutcome::Unknown,
        };
        self.promote();
        Answers::Revoke(was)
    }
}
