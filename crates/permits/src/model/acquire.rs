//! Acquisitions: granted, queued or refused, in order.

use super::execution::Execution;
use super::state::{COOLING_MAX, Entry, EntryState, RECALL_US};
use crate::protocol::{AcquireOutcome, AcquireRequest, Answers, Refusal};

/// The terms for new holders.
enum Terms {
    /// Decide under the limit in force.
    Open,
    /// Refuse: no request could be granted or queued under this declared limit, which therefore does not
    /// count.
    RefusedUnder(u32),
    /// Refuse under any limit.
    Refused(Refusal),
}

impl Execution<'_> {
    /// Grants, queues or refuses each request.
    pub(super) fn acquire(&mut self, queue_max: u32, requests: &[AcquireRequest]) -> Answers {
        let mut terms = self.declare(queue_max, requests);
        self.promote();
        if let Terms::RefusedUnder(_) = terms {
            // The promotion may have emptied the queue.
            terms = self.declare(queue_max, requests);
            self.promote();
        }
        let outcomes = requests.iter().map(|request| {
            let outcome = self.acquire_one(queue_max, &terms, request);
            self.state.counts.refused += u64::from(matches!(outcome, AcquireOutcome::Refused(_)));
            outcome
        });
        Answers::Acquire(outcomes.collect())
    }

    /// Applies the declared limit, if that lets one of the requests in, since a refused request changes
    /// nothing.
    fn declare(&mut self, queue_max: u32, requests: &[AcquireRequest]) -> Terms {
        if let Some(reason) = &self.state.closed {
            return Terms::Refused(Refusal::LineClosed(reason.clone()));
        }
        match self.declared() {
            Err(refusal) => return Terms::Refused(refusal),
            Ok(Some(limit)) if !self.lets_any_in(limit, queue_max, requests) => {
                return Terms::RefusedUnder(limit);
            }
            Ok(Some(limit)) => self.replace_limit(limit),
            Ok(None) => {}
        }
        Terms::Open
    }

    /// Returns true if one of the requests would be granted or queued under `limit`, or is known and stays.
    fn lets_any_in(&self, limit: u32, queue_max: u32, requests: &[AcquireRequest]) -> bool {
        requests.iter().any(|request| match self.state.entries.get(&request.holder) {
            Some(entry) => {
                // The promotion refuses a waiter that is too heavy.
                let stays = entry.place.taken().is_some() || entry.terms.weight <= limit;
                entry.request == request.request && stays
            }
            None => self.refusal(limit, queue_max, request).is_none(),
        })
    }

    /// The reason of a refusal, if a request of a new holder can be neither granted nor queued under `limit`.
    fn refusal(&self, limit: u32, queue_max: u32, request: &AcquireRequest) -> Option<Refusal> {
        let waiting = self.state.queue.len() as u64;
        if request.terms.weight > limit {
            Some(Refusal::ExceedsLimit)
        } else if waiting == 0 && self.fits(limit, request.terms.weight) {
            None
        } else if !request.wait && (!self.waits_for_recall() || waiting >= u64::from(queue_max)) {
            Some(self.not_now(limit, request.terms.weight))
        } else if waiting >= u64::from(queue_max) {
            Some(Refusal::QueueFull)
        } else {
            None
        }
    }

    /// The refusal of a request that cannot wait: with its end, if time alone would let it in.
    fn not_now(&self, limit: u32, weight: u32) -> Refusal {
        let state = &self.state;
        let mut missing = (state.held + u64::from(weight)).saturating_sub(limit.into());
        if state.paused || !state.queue.is_empty() {
            return Refusal::NoPermits;
        }
        if missing == 0 {
            return if self.is_recovering() { Refusal::Recovering } else { Refusal::NoPermits };
        }
        let now_ms = self.now_ms.cast_signed();
        let ends = state.leases.iter().filter(|(deadline, _)| *deadline > now_ms).take(COOLING_MAX);
        for (deadline, holder) in ends.filter(|(_, holder)| holder.is_cooling()) {
            missing = missing.saturating_sub(state.entries[holder].terms.weight.into());
            if missing == 0 {
                let ends_ms = deadline.cast_unsigned().max(state.recovering_until_ms);
                return Refusal::Cooling { remaining_ms: ends_ms - self.now_ms };
            }
        }
        Refusal::NoPermits
    }

    /// Returns true if a recall may free units that sessions keep. A request that may not wait is queued for
    /// that time, and its session withdraws it then. The head of the queue has waited at least since the
    /// recall.
    fn waits_for_recall(&self) -> bool {
        let recalled_us = self.state.head_queued_us().unwrap_or(self.now_us);
        self.state.may_be_kept(self.now_ms)
            && !self.state.paused
            && !self.is_recovering()
            && self.now_us < recalled_us + RECALL_US
    }

    fn acquire_one(&mut self, queue_max: u32, terms: &Terms, request: &AcquireRequest) -> AcquireOutcome {
        if let Some(entry) = self.state.entries.get(&request.holder) {
            if entry.request != request.request {
                return AcquireOutcome::Refused(Refusal::AlreadyHeld);
            }
            let place = entry.place;
            self.extend(&request.holder);
            return match place {
                EntryState::Holding(grant) | EntryState::Cooling(grant) => AcquireOutcome::Granted(grant),
                EntryState::Waiting(ticket) => {
                    AcquireOutcome::Waiting { position: self.state.position(&request.holder, ticket) }
                }
            };
        }
        let refusal = match terms {
            Terms::Open => self.refusal(self.state.limit, queue_max, request),
            Terms::RefusedUnder(limit) => {
                self.refusal(*limit, queue_max, request).or(Some(Refusal::NoPermits))
            }
            Terms::Refused(refusal) => Some(refusal.clone()),
        };
        if let Some(refusal) = refusal {
            return AcquireOutcome::Refused(refusal);
        }
        let fits = self.state.queue.is_empty() && self.fits(self.state.limit, request.terms.weight);
        let ticket = if fits { Some(0) } else { self.state.join(&request.terms.lane, self.now_us) };
        let Some(ticket) = ticket else { return AcquireOutcome::Refused(Refusal::QueueFull) };
        let queued_us = if fits || !request.terms.is_laned() { 0 } else { self.now_us };
        let AcquireRequest { holder, request, terms, .. } = request.clone();
        let (session, place) = (self.command.session.clone(), EntryState::Waiting(ticket));
        let entry = Entry { request, session, terms, lease_version: 0, deadline: 0, place, queued_us };
        self.state.entries.insert(holder.clone(), entry);
        if fits {
            AcquireOutcome::Granted(self.grant(&holder))
        } else {
            self.state.queue.insert(ticket, holder.clone());
            self.extend(&holder);
            AcquireOutcome::Waiting { position: self.state.position(&holder, ticket) }
        }
    }
}
