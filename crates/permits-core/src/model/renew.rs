//! Renewals, the reclaim of forgotten holders, and adoptions by another session.

use super::execution::Execution;
use super::state::{Entry, EntryState};
use crate::protocol::{AdoptRequest, Answers, Grant, RenewOutcome, RenewRequest};

impl Execution<'_> {
    /// Extends leases, and returns the state of each entry.
    pub(super) fn renew(&mut self, requests: &[RenewRequest]) -> Answers {
        // A forgotten limit must not keep forgotten holders out.
        if let Ok(Some(limit)) = self.declared() {
            self.replace_limit(limit);
        }
        let mut answers: Vec<RenewOutcome> = requests.iter().map(|renew| self.renew_one(renew)).collect();
        self.promote();
        // Waiters are answered with their state after the promotion.
        for (answer, renew) in answers.iter_mut().zip(requests) {
            if matches!(answer, RenewOutcome::Waiting { .. }) {
                *answer = match self.state.entries.get(&renew.holder).map(|entry| entry.place) {
                    Some(EntryState::Waiting(ticket)) => {
                        RenewOutcome::Waiting { position: self.state.position(&renew.holder, ticket) }
                    }
                    Some(EntryState::Holding(grant) | EntryState::Cooling(grant)) => {
                        RenewOutcome::Granted(grant)
                    }
                    None => match self.state.closed.clone() {
                        Some(reason) => RenewOutcome::LineClosed(reason),
                        None if renew.terms.weight > self.state.limit => RenewOutcome::ExceedsLimit,
                        // Heavier than the limit of its lane, which its next acquire tells it.
                        None => RenewOutcome::RetryLater,
                    },
                };
            }
        }
        Answers::Renew(answers)
    }

    fn renew_one(&mut self, renew: &RenewRequest) -> RenewOutcome {
        let Some(entry) = self.state.entries.get(&renew.holder) else {
            // A waiter that has been granted meanwhile names its grant in the next renewal.
            return renew.grant.map_or(RenewOutcome::RetryLater, |grant| self.reclaim(renew, grant));
        };
        if entry.request != renew.request {
            return RenewOutcome::Lost;
        }
        match (entry.place, renew.grant) {
            // A cooling grant has no request any more.
            (EntryState::Cooling(_), _) => RenewOutcome::Lost,
            (EntryState::Holding(grant), None) => {
                self.extend(&renew.holder);
                RenewOutcome::Granted(grant)
            }
            (EntryState::Holding(grant), Some(claimed)) if claimed == grant => {
                self.change_terms(renew);
                self.extend(&renew.holder);
                RenewOutcome::Held
            }
            (EntryState::Holding(_), Some(_)) => {
                // Another era granted the same request again. The slot of the older permit may be in use.
                self.state.spend_tokens(&renew.holder);
                self.forget(&renew.holder);
                RenewOutcome::Lost
            }
            (EntryState::Waiting(_), None) if entry.terms.weight > self.state.limit => {
                self.state.counts.refused += 1;
                self.forget(&renew.holder);
                RenewOutcome::ExceedsLimit
            }
            (EntryState::Waiting(_), None) => {
                self.extend(&renew.holder);
                RenewOutcome::Waiting { position: 0 }
            }
            (EntryState::Waiting(_), Some(claimed)) => {
                // The store remembers the waiter and forgot its grant.
                self.forget(&renew.holder);
                self.reclaim(renew, claimed)
            }
        }
    }

    /// A holder may give back a part of its units, change its lease, and let its grant count for longer.
    /// Units of a grant that still counts stay taken: a later renewal gives them back.
    fn change_terms(&mut self, renew: &RenewRequest) {
        let Some(entry) = self.state.entries.get_mut(&renew.holder) else { return };
        if renew.lease_version > entry.lease_version {
            (entry.terms.lease_ms, entry.lease_version) = (renew.terms.lease_ms, renew.lease_version);
            // A shorter lease may be the next to end.
            self.turn_is_new = true;
        }
        if entry.terms.at_least_ms > 0 {
            entry.terms.at_least_ms = entry.terms.at_least_ms.max(renew.terms.at_least_ms);
        }
        if renew.terms.weight < entry.terms.weight && entry.counts_until_ms(self.now_ms) <= self.now_ms {
            self.state.held -= u64::from(entry.terms.weight - renew.terms.weight);
            let before = std::mem::replace(&mut entry.terms.weight, renew.terms.weight);
            let terms = entry.terms.clone();
            self.state.count_in_lane(&terms, before, terms.weight);
        }
    }

    /// A holder without an entry was either reaped, and has lost its permit, or forgotten by the store. Its
    /// token shows which. A forgotten holder is put back if it fits.
    fn reclaim(&mut self, renew: &RenewRequest, grant: Grant) -> RenewOutcome {
        // The permit was put back before, and has ended since.
        let has_ended = self.state.entries.contains_key(&renew.holder.cooling(grant.token));
        if has_ended || !self.may_have_forgotten(grant, renew.terms.lease_ms) {
            return RenewOutcome::Lost;
        }
        let state = &self.state;
        // While the limit is not known either, nothing is granted, so nothing can exceed it.
        let fits = state.limit == 0 || state.held + u64::from(renew.terms.weight) <= state.limit.into();
        let bounded = state.lanes.bounded().get(&renew.terms.lane).copied();
        let fits_lane = bounded
            .or(state.lane_bounds(&renew.terms))
            .is_none_or(|bounded| !bounded.has_no_room_for(renew.terms.weight));
        if !fits || !fits_lane || !self.take_slot(grant.slot.into()) {
            self.extend_window(renew.terms.lease_ms);
            return RenewOutcome::RetryLater;
        }
        let state = &mut self.state;
        state.last_token = state.last_token.max(grant.token);
        let RenewRequest { holder, request, terms, lease_version, grant: _, by_handle: _ } = renew.clone();
        let (session, place) = (self.command.session.clone(), EntryState::Holding(grant));
        let entry = Entry { request, session, terms, lease_version, deadline: 0, place, queued_us: 0 };
        if !state.lanes.bounded().contains_key(&entry.terms.lane) {
            state.declare_lane(&entry.terms);
        }
        state.entries.insert(holder.clone(), entry);
        state.hold(&holder, grant);
        self.extend(&holder);
        self.begin_lease(renew.terms.lease_ms);
        RenewOutcome::Held
    }

    /// Gives a permit to another session. A permit that has the new request id already counts as adopted, and
    /// a permit that the store forgot is put back first.
    pub(super) fn adopt(&mut self, adopt: &AdoptRequest) -> Answers {
        if !self.state.entries.contains_key(&adopt.holder) {
            let AdoptRequest { holder, request, terms, grant, new_request: _, last_token: _ } = adopt.clone();
            let terms = terms.of_handle();
            let renewal = RenewRequest::new(holder, request, terms, Some(grant));
            let renew = RenewRequest { by_handle: true, ..renewal };
            self.reclaim(&renew, grant);
        }
        let adopted = match self.state.entries.get_mut(&adopt.holder) {
            Some(entry)
                if (entry.request == adopt.request || entry.request == adopt.new_request)
                    && adopt.terms.weight <= entry.terms.weight
                    && adopt.terms.lease_ms == entry.terms.lease_ms
                    && adopt.terms.at_least_ms == entry.terms.at_least_ms
                    && entry.place == EntryState::Holding(adopt.grant) =>
            {
                self.state.last_token = self.state.last_token.max(adopt.last_token.unwrap_or(0));
                entry.request = adopt.new_request.clone();
                entry.session = self.command.session.clone();
                entry.lease_version = 0;
                // The session that adopts it does not keep it.
                entry.terms.keep = false;
                self.extend(&adopt.holder);
                true
            }
            _ => false,
        };
        self.promote();
        Answers::Adopt(adopted)
    }
}
