//! The order of the queue: tickets, and with [lanes](super::lanes) their progress.

use super::lanes::{FORGIVES_EVERY, LANES_MAX, Lane, Lanes, Place, Progress, TICKETS, cost, tickets};
use super::state::{Entry, EntryState, State};
use crate::protocol::{Holder, LaneName, PermitTerms};

impl State {
    /// The ticket of the head of the queue.
    pub(super) fn head(&self) -> Option<u64> {
        match self.lanes.in_order().front() {
            Some((_, number, lane)) => self.queue.range(tickets(lane, *number)).next(),
            None => self.queue.first_key_value(),
        }
        .map(|(ticket, _)| *ticket)
    }

    /// The waiters that are granted next while each fits, at most `max`.
    pub fn heads(&self, max: usize) -> Vec<&Holder> {
        // No lane behind the first `max` can have one of them.
        let first = self.lanes.in_order().iter().take(max);
        let mut lanes: Vec<_> = first
            .map(|(progress, number, lane)| (*progress, *number, self.queue.range(tickets(lane, *number))))
            .collect();
        if lanes.is_empty() {
            return self.queue.values().take(max).collect();
        }
        let next = || {
            let of_lanes = lanes.iter_mut().filter(|(.., waiters)| waiters.clone().next().is_some());
            let (progress, _, waiters) = of_lanes.min_by_key(|(progress, number, _)| (*progress, *number))?;
            let (_, holder) = waiters.next()?;
            progress.0 += cost(&self.entries.get(holder)?.terms);
            Some(holder)
        };
        std::iter::from_fn(next).take(max).collect()
    }

    /// The time at which the head was queued, in microseconds.
    pub(super) fn head_queued_us(&self) -> Option<u64> {
        Some(self.queued_us(self.queue.get(&self.head()?)?))
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
            if !matches!(self.lanes.known().get(lane), Some(Lane::Waits { .. })) {
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
        let first = self.lanes.in_order().front().map(|(progress, number, _)| (*progress, *number));
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
            // Behind the first lane, also when the numbers begin again.
            Some((first, of_first)) => Progress(first.0 + if number > of_first { 0.0 } else { 1.0 }),
        };
        self.lanes.set(name, Some(Lane::Waits { number, progress, next: 0 }));
        if let Some((first, _)) = first
            && number % FORGIVES_EVERY == 0
        {
            self.lanes.forgive(first);
        }
        Some(())
    }

    /// Notes that a waiter on these terms has left the queue: none waits with its key, and the cost of its
    /// grant, 0 without one, is added to the progress of its lane.
    pub(super) fn leave(&mut self, terms: &PermitTerms, cost: f64) {
        self.by_key.remove(&terms.supersede);
        let lane = &terms.lane;
        if self.queue.is_empty() {
            self.lanes = Lanes::default();
        }
        let Some(&Lane::Waits { number, progress, next }) = self.lanes.known().get(lane) else { return };
        let after = Progress(progress.0 + cost);
        let still_waits = self.queue.range(tickets(lane, number)).next().is_some();
        let left = match after {
            progress if still_waits => Some(Lane::Waits { number, progress, next }),
            until if until > Progress::default() => Some(Lane::Owes { until }),
            _ => None,
        };
        self.lanes.set(lane, left);
    }

    /// The number of waiters that are to be granted before this one; with lanes, if each of them has as many
    /// and an equal share.
    pub fn position(&self, holder: &Holder, ticket: u64) -> u64 {
        let lane = self.entries.get(holder).map(|entry| &entry.terms.lane);
        let Some(rank) = lane.and_then(|lane| self.lanes.rank(lane)) else {
            return self.queue.range(..ticket).count() as u64;
        };
        let lanes = self.lanes.in_order();
        let (_, number, lane) = &lanes[rank];
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
        for (rank, (_, number, lane)) in lanes.iter().take(max).enumerate() {
            let waiters = self.queue.range(tickets(lane, *number)).take(of_each);
            listed.extend(
                waiters.enumerate().map(|(round, (ticket, holder))| ((round, rank), (*ticket, holder))),
            );
        }
        listed.sort_unstable_by_key(|(at, _)| *at);
        listed.into_iter().take(max).map(|(_, waiter)| waiter).collect()
    }

    /// The lanes with waiters and the number of those, of the first `max` lanes.
    pub(super) fn lanes_waiting(&self, max: usize) -> Vec<(LaneName, u64)> {
        let waiting = |(_, number, lane): &Place| {
            (lane.clone(), self.queue.range(tickets(lane, *number)).count() as u64)
        };
        self.lanes.in_order().iter().take(max).map(waiting).collect()
    }

    /// The disagreement between lanes and waiters, if there is one.
    pub(super) fn lane_fault(&self) -> Option<String> {
        let is_in_range = |number: u64| (1..=LANES_MAX).contains(&number);
        let is_sound = |lane: &Lane| match lane {
            Lane::Waits { number, progress, .. } => is_in_range(*number) && progress.0 >= 0.0,
            Lane::Owes { until } => until.0 > 0.0,
        };
        let counts = self.lanes.last > 0 || self.lanes == Lanes::default();
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
        is_faulty.then(|| format!("the lanes disagree with the queue: {:?}, {:?}", self.lanes, self.queue))
    }
}
