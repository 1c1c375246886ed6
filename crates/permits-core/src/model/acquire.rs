//! Acquisitions: granted, queued or refused, in order.

use super::execution::Execution;
use super::lanes::LaneBounds;
use super::state::{COOLING_MAX, Entry, EntryState, RECALL_US};
use crate::protocol::{
    AcquireOutcome, AcquireRequest, Answers, EventKind, Holder, LanePin, PermitTerms, Refusal,
};

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
        // Of each request, whether the bounds that it names for its lane were put in force.
        let mut declared = vec![false; requests.len()];
        let mut terms = self.declare(queue_max, requests, &mut declared);
        self.promote();
        if let Terms::RefusedUnder(_) = terms {
            // The promotion may have emptied the queue.
            terms = self.declare(queue_max, requests, &mut declared);
            self.promote();
        }
        let outcomes = requests.iter().zip(declared).map(|(request, is_declared)| {
            let outcome = self.acquire_one(queue_max, &terms, request, is_declared);
            self.state.counts.refused += u64::from(matches!(outcome, AcquireOutcome::Refused(_)));
            outcome
        });
        Answers::Acquire(outcomes.collect())
    }

    /// Applies the declared limit if it lets one of the requests in, since a refused request changes nothing.
    /// Then applies the lane bounds of each new request that is let in.
    fn declare(&mut self, queue_max: u32, requests: &[AcquireRequest], declared: &mut [bool]) -> Terms {
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
        for (request, is_declared) in requests.iter().zip(declared) {
            let is_new = !self.state.entries.contains_key(&request.holder);
            if request.terms.names_bounds()
                && is_new
                && self.refusal(self.state.limit, queue_max, request).is_none()
            {
                self.declare_lane(&request.terms);
                *is_declared = true;
            }
        }
        Terms::Open
    }

    /// Puts the bounds in force that a request names for its lane, and notes those that they replace.
    fn declare_lane(&mut self, terms: &PermitTerms) {
        let before = self.state.lanes.bounded().get(&terms.lane).copied().unwrap_or_default();
        self.state.declare_lane(terms);
        let after = self.state.lanes.bounded().get(&terms.lane).copied().unwrap_or_default();
        let differs = |before: u32, after: u32| before > 0 && before != after;
        if differs(before.limit, after.limit) || differs(before.floor, after.floor) {
            let LaneBounds { limit, floor, .. } = before;
            self.replaced_bounds = Some((terms.lane.clone(), LanePin { limit, floor }));
        }
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
        if request.terms.weight > limit {
            Some(Refusal::ExceedsLimit)
        } else if let Some(bounded) = self.state.lane_bounds(&request.terms)
            && bounded.limit > 0
            && request.terms.weight > bounded.limit
        {
            Some(Refusal::ExceedsLaneLimit(bounded.limit))
        } else if self.is_next(limit, &request.terms) {
            None
        } else if !request.wait
            && (self.no_place(queue_max, request, None).is_some() || !self.waits_for_recall())
        {
            Some(self.not_now(limit, &request.terms))
        } else {
            match self.waiter_of_key(request) {
                Some(_) if !request.supersedes => Some(Refusal::Superseded),
                superseded => self.no_place(queue_max, request, superseded),
            }
        }
    }

    /// The reason why the queue has no place for one more waiter, if the one that it supersedes leaves.
    fn no_place(&self, queue_max: u32, request: &AcquireRequest, leaves: Option<&Holder>) -> Option<Refusal> {
        let stay = self.state.queue.len() as u64 - u64::from(leaves.is_some());
        if stay >= u64::from(queue_max) {
            return Some(Refusal::QueueFull);
        }
        let most = request.lane_waiters as usize;
        let lane = &request.terms.lane;
        let leaves_lane = leaves.is_some_and(|holder| self.state.entries[holder].terms.lane == *lane);
        let full = most + usize::from(leaves_lane);
        (most > 0 && self.state.waiting_in(lane, full) >= full).then_some(Refusal::LaneQueueFull)
    }

    /// Returns true if a newcomer on these terms is granted under `limit`: it fits, and overtakes nobody who
    /// is in line.
    fn is_next(&self, limit: u32, terms: &PermitTerms) -> bool {
        !self.is_behind(terms) && self.fits(limit, terms.weight) && self.fits_lane(terms)
    }

    /// The refusal of a request that cannot wait: with its end, if time alone would let it in. If units cool,
    /// a pause has an end and the store recovers, the reason is the one that lasts longest.
    fn not_now(&self, limit: u32, terms: &PermitTerms) -> Refusal {
        let state = &self.state;
        let weight = u64::from(terms.weight);
        let fits_ms = self.fits_at_ms(state.held + weight, limit, |_| true);
        let fits_ms = fits_ms.filter(|_| !self.is_behind(terms));
        let lane_ms = match state.lane_bounds(terms) {
            None => Some(self.now_ms),
            Some(LaneBounds { limit: 0, .. }) => Some(self.now_ms),
            Some(_) if state.waits_in(&terms.lane) => None,
            Some(LaneBounds { limit, held, .. }) => self
                .fits_at_ms(held + weight, limit, |other| other.names_bounds() && other.lane == terms.lane),
        };
        let is_lane_full = lane_ms != Some(self.now_ms);
        let ends = fits_ms.zip(lane_ms).filter(|_| !state.is_paused() || state.pause_ends_ms().is_some());
        let Some((fits_ms, lane_ms)) = ends else {
            return if state.is_paused() {
                Refusal::Paused { remaining_ms: None }
            } else if is_lane_full {
                Refusal::LaneFull { remaining_ms: None }
            } else {
                Refusal::NoPermits
            };
        };
        let pause_ms = state.pause_ends_ms().unwrap_or(0);
        let ends_ms = fits_ms.max(lane_ms).max(pause_ms).max(state.recovering_until_ms);
        let remaining_ms = ends_ms - self.now_ms;
        if remaining_ms == 0 {
            Refusal::NoPermits
        } else if ends_ms == pause_ms {
            Refusal::Paused { remaining_ms: Some(remaining_ms) }
        } else if is_lane_full && ends_ms == lane_ms {
            Refusal::LaneFull { remaining_ms: Some(remaining_ms) }
        } else if ends_ms == fits_ms {
            Refusal::Cooling { remaining_ms }
        } else {
            Refusal::Recovering
        }
    }

    /// The time from which `units` fit under `limit`, in milliseconds, if no holder has to leave for that:
    /// now, or when enough of those `that_count` have cooled.
    fn fits_at_ms(&self, units: u64, limit: u32, that_count: impl Fn(&PermitTerms) -> bool) -> Option<u64> {
        let mut missing = units.saturating_sub(limit.into());
        if missing == 0 {
            return Some(self.now_ms);
        }
        self.first_grants().filter(|(_, holder)| holder.is_cooling()).find_map(|(deadline, holder)| {
            let terms = &self.state.entries[holder].terms;
            missing = missing.saturating_sub(if that_count(terms) { terms.weight.into() } else { 0 });
            (missing == 0).then(|| deadline.cast_unsigned())
        })
    }

    /// The grants that end first, with their ends.
    fn first_grants(&self) -> impl Iterator<Item = &(i64, Holder)> {
        let now_ms = self.now_ms.cast_signed();
        self.state.leases.iter().filter(move |(deadline, _)| *deadline > now_ms).take(COOLING_MAX)
    }

    /// Returns true if all grants are those of holders that have left: no session keeps any of them.
    fn all_cool(&self) -> bool {
        let cooling = self.first_grants().filter(|(_, holder)| holder.is_cooling()).count();
        cooling == self.state.leases.len() - self.state.queue.len()
    }

    /// Returns true if a recall may free units that sessions keep. A request that may not wait is queued for
    /// that time, and its session withdraws it then. The head of the queue has waited at least since the
    /// recall. Once true, it stays true until the command ends: a promotion may leave a head that has waited
    /// longer.
    fn waits_for_recall(&self) -> bool {
        if !self.state.may_be_kept(self.now_ms) || self.state.is_paused() || self.is_recovering() {
            return false;
        }
        if !self.recalls.get() {
            let recalled_us = self.state.first_queued_us().unwrap_or(self.now_us);
            self.recalls.set(self.now_us < recalled_us + RECALL_US && !self.all_cool());
        }
        self.recalls.get()
    }

    /// The waiter that the request supersedes or, if it may be older, is refused for.
    fn waiter_of_key(&self, request: &AcquireRequest) -> Option<&Holder> {
        self.state.by_key.get(&request.terms.supersede)
    }

    /// Removes a waiter that is superseded. The waiter that supersedes it is the last one of its lane, and
    /// gets the place of the other if that is in the same lane.
    fn supersede(&mut self, superseded: &Holder, holder: &Holder) {
        let [old, new] = [superseded, holder].map(|holder| self.state.entries[holder].clone());
        let queued_us = self.state.queued_us(superseded);
        self.emit(superseded, EventKind::Superseded);
        self.state.counts.refused += 1;
        self.forget(superseded);
        if let (EntryState::Waiting(place), EntryState::Waiting(last)) = (old.place, new.place)
            && old.terms.lane == new.terms.lane
        {
            let queued_us = if new.terms.is_laned() { queued_us } else { 0 };
            self.state.queue.remove(&last);
            self.state.queue.insert(place, holder.clone());
            self.state.entries.insert(holder.clone(), Entry { place: old.place, queued_us, ..new });
        }
    }

    /// The answer to a request that has an entry.
    fn answer(&self, holder: &Holder) -> AcquireOutcome {
        match self.state.entries[holder].place {
            EntryState::Holding(grant) | EntryState::Cooling(grant) => AcquireOutcome::Granted(grant),
            EntryState::Waiting(ticket) => {
                AcquireOutcome::Waiting { position: self.state.position(holder, ticket) }
            }
        }
    }

    fn acquire_one(
        &mut self,
        queue_max: u32,
        terms: &Terms,
        request: &AcquireRequest,
        is_declared: bool,
    ) -> AcquireOutcome {
        self.state.settle();
        if let Some(entry) = self.state.entries.get(&request.holder) {
            if entry.request != request.request {
                return AcquireOutcome::Refused(Refusal::AlreadyHeld);
            }
            self.extend(&request.holder);
            return self.answer(&request.holder);
        }
        // A later request of the batch may have given its lane other bounds.
        let in_force = is_declared.then(|| {
            let terms = PermitTerms { lane_limit: 0, lane_floor: 0, ..request.terms.clone() };
            AcquireRequest { terms, ..request.clone() }
        });
        let refusal = match terms {
            Terms::Open => self
                .refusal(self.state.limit, queue_max, request)
                .or_else(|| self.refusal(self.state.limit, queue_max, in_force.as_ref()?)),
            Terms::RefusedUnder(limit) => {
                self.refusal(*limit, queue_max, request).or(Some(Refusal::NoPermits))
            }
            Terms::Refused(refusal) => Some(refusal.clone()),
        };
        if let Some(refusal) = refusal {
            return AcquireOutcome::Refused(refusal);
        }
        let fits = self.is_next(self.state.limit, &in_force.as_ref().unwrap_or(request).terms);
        let ticket = if fits { Some(0) } else { self.state.join(&request.terms.lane, self.now_us) };
        let Some(ticket) = ticket else { return AcquireOutcome::Refused(Refusal::QueueFull) };
        // The request may not have been let in before the promotion.
        let is_late = request.terms.names_bounds() && !is_declared;
        if is_late {
            self.declare_lane(&request.terms);
        }
        let queued_us = if fits || !request.terms.is_laned() { 0 } else { self.now_us };
        let (key, superseded) = (request.terms.supersede.clone(), self.waiter_of_key(request).cloned());
        let AcquireRequest { holder, request, terms, wait: _, lane_waiters: _, supersedes: _ } =
            request.clone();
        let (session, place) = (self.command.session.clone(), EntryState::Waiting(ticket));
        let entry = Entry { request, session, terms, lease_version: 0, deadline: 0, place, queued_us };
        self.state.entries.insert(holder.clone(), entry);
        if fits {
            AcquireOutcome::Granted(self.grant(&holder))
        } else {
            self.state.queue.insert(ticket, holder.clone());
            self.extend(&holder);
            if let Some(superseded) = &superseded {
                self.supersede(superseded, &holder);
            }
            if !key.as_str().is_empty() {
                self.state.by_key.insert(key, holder.clone());
            }
            if superseded.is_some() || is_late {
                self.promote();
            }
            self.state.settle();
            self.answer(&holder)
        }
    }
}
