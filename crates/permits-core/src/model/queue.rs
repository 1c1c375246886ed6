//! The order of the queue: tickets, and with [lanes](super::lanes) their progress.

use std::collections::BTreeMap;

use super::lanes::{
    FORGIVES_EVERY, LANES_MAX, Lane, LaneBounds, Place, Progress, Side, TICKETS, cost, tickets,
};
use super::state::{Entry, EntryState, State};
use crate::protocol::{Holder, LaneName, LanePin, PermitTerms};

/// The most grants that a pin of a lane looks through, to find those that do not count for its bounds yet.
pub const COUNTED_MAX: usize = 10_000;

impl State {
    /// The ticket of the head of the queue: the first waiter whose lane is not full.
    pub(super) fn head(&self) -> Option<u64> {
        self.first().filter(|_| self.lanes.in_order().front().is_none_or(|(side, ..)| *side < Side::Full))
    }

    /// The ticket of the first waiter. Its lane is full only if the lanes of all waiters are.
    fn first(&self) -> Option<u64> {
        match self.lanes.in_order().front() {
            Some((_, _, number, lane)) => self.queue.range(tickets(lane, *number)).next(),
            None => self.queue.first_key_value(),
        }
        .map(|(ticket, _)| *ticket)
    }

    /// The first waiters, at most `max`, in the order in which they are granted as long as each one fits.
    /// Waiters of full lanes come last.
    pub fn heads(&self, max: usize) -> Vec<&Holder> {
        // A lane behind the first `max` lanes has no waiter among the first `max`.
        let first = self.lanes.in_order().iter().take(max);
        let mut lanes: Vec<_> = first
            .map(|(side, progress, number, lane)| {
                (*side, *progress, *number, self.queue.range(tickets(lane, *number)))
            })
            .collect();
        if lanes.is_empty() {
            return self.queue.values().take(max).collect();
        }
        let next = || {
            let of_lanes = lanes.iter_mut().filter(|(.., waiters)| waiters.clone().next().is_some());
            let (_, progress, _, waiters) =
                of_lanes.min_by_key(|(side, progress, number, _)| (*side, *progress, *number))?;
            let (_, holder) = waiters.next()?;
            progress.0 += cost(&self.entries.get(holder)?.terms);
            Some(holder)
        };
        std::iter::from_fn(next).take(max).collect()
    }

    /// The time at which the first waiter was queued, in microseconds.
    pub(super) fn first_queued_us(&self) -> Option<u64> {
        Some(self.queued_us(self.queue.get(&self.first()?)?))
    }

    /// The time at which a waiter was queued, in microseconds.
    pub(super) fn queued_us(&self, holder: &Holder) -> u64 {
        match self.entries.get(holder) {
            Some(entry) if entry.terms.is_laned() => entry.queued_us,
            Some(Entry { place: EntryState::Waiting(ticket), .. }) => *ticket,
            _ => 0,
        }
    }

    /// Assigns the ticket of a new waiter. `None` if its lane can have no more.
    pub(super) fn join(&mut self, lane: &LaneName, now_us: u64) -> Option<u64> {
        let is_named = !lane.as_str().is_empty();
        if is_named && self.lanes.last == 0 && !self.queue.is_empty() {
            self.begin_lane(&LaneName::default())?;
        }
        if is_named || self.lanes.last > 0 {
            self.lanes.note_change(lane);
            if !self.waits_in(lane) {
                self.begin_lane(lane)?;
            }
            if is_named {
                let (first, given) = self.lanes.give_ticket(lane)?;
                return (given < TICKETS).then_some(first + given);
            }
        }
        // A ticket is the time at which it was assigned, as a token is.
        self.last_ticket = now_us.max(self.last_ticket + 1);
        Some(self.last_ticket)
    }

    /// Gives a lane its progress and a number that no other lane with waiters has.
    fn begin_lane(&mut self, name: &LaneName) -> Option<()> {
        let first = self.lanes.first();
        let until = match self.lanes.known().get(name) {
            Some(Lane::Owes { until }) => *until,
            _ => Progress::default(),
        };
        if self.lanes.in_order().len() as u64 >= LANES_MAX {
            return None;
        }
        let number = loop {
            let number = self.lanes.last % LANES_MAX + 1;
            self.lanes.last += 1;
            if self.queue.range(number * TICKETS..(number + 1) * TICKETS).next().is_none() {
                break number;
            }
        };
        let progress = match first {
            None => Progress::default(),
            Some((first, _)) if until > first => until,
            Some(first) => behind(first, number),
        };
        let lane = Lane::Waits { number, progress, next: 0, side: Side::Fair, other: Progress::default() };
        self.lanes.set(name, Some(lane));
        if let Some((first, _)) = first
            && number % FORGIVES_EVERY == 0
        {
            self.lanes.forgive(first);
        }
        Some(())
    }

    /// Notes that a waiter on these terms has left the queue. Its supersede key is free, and `cost` (0 if it
    /// was not granted) is added to the progress of its lane.
    pub(super) fn leave(&mut self, terms: &PermitTerms, cost: f64) {
        self.by_key.remove(&terms.supersede);
        let lane = &terms.lane;
        self.lanes.note_change(lane);
        if self.queue.is_empty() {
            self.lanes.end();
        }
        let Some(&Lane::Waits { number, progress, next, side, other }) = self.lanes.known().get(lane) else {
            return;
        };
        let after = Progress(progress.0 + cost);
        let still_waits = self.queue.range(tickets(lane, number)).next().is_some();
        // Units that a short lane gets are not charged to its share.
        let left = match if side == Side::Short { other } else { after } {
            _ if still_waits => Some(Lane::Waits { number, progress: after, next, side, other }),
            until if until > Progress::default() => Some(Lane::Owes { until }),
            _ => None,
        };
        self.lanes.set(lane, left);
    }

    /// The number of waiters that are granted before this one. With lanes it is an estimate, as if each lane
    /// had as many waiters and an equal share.
    pub fn position(&self, holder: &Holder, ticket: u64) -> u64 {
        let lane = self.entries.get(holder).map(|entry| &entry.terms.lane);
        let Some(rank) = lane.and_then(|lane| self.lanes.rank(lane)) else {
            return self.queue.range(..ticket).count() as u64;
        };
        let lanes = self.lanes.in_order();
        let (_, _, number, lane) = &lanes[rank];
        let before = self.queue.range(*tickets(lane, *number).start()..ticket).count();
        (before * lanes.len() + rank).min(self.queue.len() - 1) as u64
    }

    /// Up to `max` waiters in the order in which they are to be granted; with lanes, one of each lane after
    /// the other.
    pub fn waiters(&self, max: usize) -> Vec<(u64, &Holder)> {
        let lanes = self.lanes.in_order();
        if lanes.is_empty() {
            return self.queue.iter().take(max).map(|(ticket, holder)| (*ticket, holder)).collect();
        }
        let of_each = max.div_ceil(lanes.len().min(max).max(1));
        let mut listed = Vec::new();
        for (rank, (_, _, number, lane)) in lanes.iter().take(max).enumerate() {
            let waiters = self.queue.range(tickets(lane, *number)).take(of_each);
            listed.extend(
                waiters.enumerate().map(|(round, (ticket, holder))| ((round, rank), (*ticket, holder))),
            );
        }
        listed.sort_unstable_by_key(|(at, _)| *at);
        listed.into_iter().take(max).map(|(_, waiter)| waiter).collect()
    }

    /// The first `max` lanes that have waiters, with their numbers of waiters. Where no waiter has named a
    /// lane, all are in the lane without a name.
    pub(super) fn lanes_waiting(&self, max: usize) -> Vec<(LaneName, u64)> {
        if self.lanes.in_order().is_empty() && !self.queue.is_empty() {
            return vec![(LaneName::default(), self.queue.len() as u64)];
        }
        let waiting = |(_, _, number, lane): &Place| {
            (lane.clone(), self.queue.range(tickets(lane, *number)).count() as u64)
        };
        self.lanes.in_order().iter().take(max).map(waiting).collect()
    }

    /// The bounds of a lane and what it holds, for a request on these terms: the bounds that the request
    /// names count, unless an operator has pinned others.
    pub(super) fn lane_bounds(&self, terms: &PermitTerms) -> Option<LaneBounds> {
        let bounded = self.lanes.bounded().get(&terms.lane).copied();
        if !terms.names_bounds() || bounded.is_some_and(|bounded| bounded.pinned) {
            return bounded;
        }
        let LaneBounds { limit, floor, held, pinned } = bounded.unwrap_or_default();
        let named = |units: u32, otherwise| if units > 0 { units } else { otherwise };
        Some(LaneBounds {
            limit: named(terms.lane_limit, limit),
            floor: named(terms.lane_floor, floor),
            held,
            pinned,
        })
    }

    /// Puts the bounds that these terms name in force.
    pub(super) fn declare_lane(&mut self, terms: &PermitTerms) {
        if terms.names_bounds() {
            self.lanes.set_bounded(&terms.lane, self.lane_bounds(terms));
            self.lanes.note_change(&terms.lane);
        }
    }

    /// Pins the bounds of a lane, and counts for them what it holds; or lifts the pin.
    pub(super) fn pin_lane(&mut self, lane: &LaneName, pin: Option<LanePin>) {
        let bounded = self.lanes.bounded().get(lane).copied().unwrap_or_default();
        let pinned = pin.is_some();
        let LanePin { limit, floor } = pin.unwrap_or(LanePin { limit: bounded.limit, floor: bounded.floor });
        let bounded = LaneBounds { limit, floor, pinned, ..bounded };
        self.lanes.set_bounded(lane, Some(bounded));
        self.lanes.note_change(lane);
        if pinned {
            self.count_held(lane);
        }
    }

    /// Counts the grants of a lane that did not count for its bounds, among the [`COUNTED_MAX`] of the
    /// semaphore whose leases end first. Such an entry gets the bounds, so that its end is counted, too.
    fn count_held(&mut self, lane: &LaneName) {
        let holders = self.leases.range((0, Holder::min())..).take(COUNTED_MAX);
        let is_uncounted = |holder: &&Holder| {
            let terms = &self.entries[*holder].terms;
            terms.lane == *lane && !terms.names_bounds()
        };
        let uncounted: Vec<Holder> =
            holders.map(|(_, holder)| holder).filter(is_uncounted).cloned().collect();
        uncounted.iter().for_each(|holder| self.count_grant(holder));
    }

    /// Counts a grant for the bounds of its lane, if it has any, even if the grant does not name them.
    pub(super) fn count_grant(&mut self, holder: &Holder) {
        let Some(entry) = self.entries.get_mut(holder) else { return };
        let Some(bounded) = self.lanes.bounded().get(&entry.terms.lane) else { return };
        if !entry.terms.names_bounds() {
            (entry.terms.lane_limit, entry.terms.lane_floor) = (bounded.limit, bounded.floor);
        }
        let terms = entry.terms.clone();
        self.count_in_lane(&terms, 0, terms.weight);
    }

    /// Counts that a grant on these terms, which counts for the bounds of its lane, has `after` units in
    /// place of `before`.
    pub(super) fn count_in_lane(&mut self, terms: &PermitTerms, before: u32, after: u32) {
        if let Some(bounded) = self.lanes.bounded().get(&terms.lane).filter(|_| terms.names_bounds()) {
            let held = bounded.held - u64::from(before) + u64::from(after);
            self.lanes.set_bounded(&terms.lane, Some(LaneBounds { held, ..*bounded }));
            self.lanes.note_change(&terms.lane);
        }
    }

    /// Returns true if a request waits in this lane.
    pub(super) fn waits_in(&self, lane: &LaneName) -> bool {
        matches!(self.lanes.known().get(lane), Some(Lane::Waits { .. }))
    }

    /// The number of requests that wait in a lane, up to `max`.
    pub(super) fn waiting_in(&self, lane: &LaneName, max: usize) -> usize {
        match self.lanes.known().get(lane) {
            Some(Lane::Waits { number, .. }) => self.queue.range(tickets(lane, *number)).take(max).count(),
            _ => 0,
        }
    }

    /// Puts the lanes with bounds that have changed into their places: short lanes before all others, full
    /// lanes behind all others, and lanes that are no longer full behind the first one.
    pub(super) fn settle(&mut self) {
        if self.lanes.changed.is_empty() {
            return;
        }
        let (first, first_short) = (self.lanes.first(), self.lanes.first_short());
        for name in std::mem::take(&mut self.lanes.changed) {
            let Some(bounded) = self.lanes.bounded().get(&name).copied() else { continue };
            match self.lanes.known().get(&name).copied() {
                Some(Lane::Waits { number, progress, next, side: before, other }) => {
                    let weight = self.heads_weight(&name, number);
                    let side = weight.map_or(Side::Fair, |weight| bounded.side_for(weight));
                    if side == before {
                        continue;
                    }
                    // The lane's progress among the lanes that are not short, and among the lanes that are.
                    let (fair, short) = match before {
                        Side::Short => (other.max(first.map_or(other, |(first, _)| first)), progress),
                        Side::Full => {
                            (progress.max(first.map_or(progress, |first| behind(first, number))), other)
                        }
                        Side::Fair => (progress, other),
                    };
                    let (progress, other) = match side {
                        Side::Short => {
                            (short.max(first_short.map_or(short, |first| behind(first, number))), fair)
                        }
                        Side::Fair | Side::Full => (fair, short),
                    };
                    self.lanes.set(&name, Some(Lane::Waits { number, progress, next, side, other }));
                }
                // A request that is let in by this command may need the limit.
                _ => drop(self.lanes.changed.insert(name)),
            }
        }
    }

    /// The same after the reaping, and at the end of a command. It also forgets the bounds of lanes that
    /// neither hold nor wait, and are not pinned.
    pub(super) fn settle_all(&mut self) {
        self.settle();
        for name in std::mem::take(&mut self.lanes.changed) {
            if self.lanes.bounded().get(&name).is_some_and(|bounded| bounded.held == 0 && !bounded.pinned) {
                self.lanes.set_bounded(&name, None);
            }
        }
    }

    /// The weight of the first waiter of a lane.
    fn heads_weight(&self, lane: &LaneName, number: u64) -> Option<u32> {
        let (_, holder) = self.queue.range(tickets(lane, number)).next()?;
        Some(self.entries[holder].terms.weight)
    }

    /// The disagreement between the bounds of lanes and what they hold, if there is one.
    fn lane_bounds_fault(&self) -> Option<String> {
        let mut held: BTreeMap<LaneName, u64> = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| entry.terms.names_bounds()) {
            let weight = entry.place.taken().map_or(0, |_| entry.terms.weight.into());
            *held.entry(entry.terms.lane.clone()).or_default() += weight;
        }
        let counted = held
            .iter()
            .all(|(lane, held)| self.lanes.bounded().get(lane).is_some_and(|bounded| bounded.held == *held));
        let is_sound = |(lane, bounded): (&LaneName, &LaneBounds)| {
            let is_used = bounded.held > 0 || bounded.pinned || self.waits_in(lane);
            let is_known = bounded.held == held.get(lane).copied().unwrap_or_default();
            is_used && is_known && (bounded.limit > 0 || bounded.floor > 0) && !lane.as_str().is_empty()
        };
        let is_placed = |(name, lane): (&LaneName, &Lane)| match *lane {
            Lane::Waits { number, side, .. } => {
                let weight = self.heads_weight(name, number).unwrap_or_default();
                let bounded = self.lanes.bounded().get(name);
                side == bounded.map_or(Side::Fair, |bounded| bounded.side_for(weight))
            }
            Lane::Owes { .. } => true,
        };
        let is_settled = self.lanes.changed.is_empty() && self.lanes.known().iter().all(is_placed);
        (!counted || !is_settled || !self.lanes.bounded().iter().all(is_sound))
            .then(|| format!("the lanes {:?}, which hold {held:?}", self.lanes))
    }

    /// The disagreement between lanes and waiters, if there is one.
    pub(super) fn lane_fault(&self) -> Option<String> {
        let is_in_range = |number: u64| (1..=LANES_MAX).contains(&number);
        let is_sound = |lane: &Lane| match lane {
            Lane::Waits { number, progress, other, .. } => {
                is_in_range(*number) && (*progress).min(*other) >= Progress::default()
            }
            Lane::Owes { until } => *until > Progress::default(),
        };
        let counts = self.lanes.last > 0 || self.lanes.known().is_empty();
        if !counts || !self.lanes.known().values().all(is_sound) {
            return Some(format!("lanes out of range: {:?}", self.lanes));
        }
        let waits = |lane: &LaneName, ticket: u64| match self.lanes.known().get(lane) {
            Some(Lane::Waits { number, .. }) => tickets(lane, *number).contains(&ticket),
            _ => self.lanes.last == 0 && lane.as_str().is_empty(),
        };
        let is_stray = |(ticket, holder): (&u64, &Holder)| {
            self.entries.get(holder).is_none_or(|entry| !waits(&entry.terms.lane, *ticket))
        };
        let is_idle = |(name, lane): (&LaneName, &Lane)| {
            let Lane::Waits { number, .. } = lane else { return false };
            self.queue.range(tickets(name, *number)).next().is_none()
        };
        let is_faulty = self.queue.iter().any(is_stray) || self.lanes.known().iter().any(is_idle);
        is_faulty
            .then(|| format!("the lanes disagree with the queue: {:?}, {:?}", self.lanes, self.queue))
            .or_else(|| self.lane_bounds_fault())
    }
}

/// The progress with which the lane of this number begins behind the first one, also when its number is
/// lower: then it is the next greater one.
fn behind((first, of_first): (Progress, u64), number: u64) -> Progress {
    Progress(first.0 * if number > of_first { 1.0 } else { 1.0 + f64::EPSILON })
}
