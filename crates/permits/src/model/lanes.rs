//! Lanes: the order in which waiters of several lanes are granted.
//!
//! This is start-time fair queueing (Goyal, Vin and Cheng, 1996). Each lane with waiters has a *progress*,
//! a number that begins at 0. The lane with the least progress is first, and its earliest waiter is the head of
//! the queue. A grant adds weight ÷ share to the progress of its lane, so lanes that wait get units in
//! proportion to their shares. A lane that gets a waiter begins with the progress of the first lane: it is not
//! owed what it did not ask for. A lane whose last waiter leaves *owes* as long as its progress is ahead of the
//! first lane's: it gains nothing by asking again.
//!
//! A lane makes progress when a request is granted, not when it arrives: a waiter that gives up costs its lane
//! nothing.
//! A head stays the head until it is granted or leaves, because a new lane is never before the first one.
//!
//! One sorted set holds all waiters, since the tickets of a lane are a range of numbers: those of lane number
//! n begin at n × 2³², those of the lane without a name are times, from 2⁵⁰ on. While no waiter has named a
//! lane since the queue was empty, no lane is known, and the queue has one order: that of the tickets.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::state::State;
use crate::protocol::{Holder, LaneName, PermitTerms};

/// The highest number of a lane. The numbers are used again.
pub const LANES_MAX: u64 = (1 << 18) - 1;

/// The number of tickets of a lane.
const TICKETS: u64 = 1 << 32;

/// The first ticket of the lane without a name. A ticket there is a time, in microseconds.
const FIRST_TIME: u64 = 1 << 50;

/// The most lanes that owe nothing any more, and that one request removes.
const FORGIVEN_MAX: usize = 128;

/// The progress of a lane: units granted while it waited, divided by their shares.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Progress(pub f64);

impl PartialEq for Progress {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Progress {}

impl PartialOrd for Progress {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Progress {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The lanes of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Lanes {
    /// The number that a lane got last; 0 while no lane is known.
    pub last: u64,
    /// The lanes that wait or owe.
    pub known: BTreeMap<LaneName, Lane>,
}

/// A lane that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Lane {
    /// It has waiters.
    Waits {
        /// Its number: lanes with equal progress are served in this order.
        number: u64,
        /// Its progress.
        progress: Progress,
    },
    /// It has no waiters, and has made more progress than those that have.
    Owes {
        /// Its progress.
        until: Progress,
    },
}

/// The tickets of a lane.
fn tickets(lane: &LaneName, number: u64) -> RangeInclusive<u64> {
    match lane.as_str() {
        "" => FIRST_TIME..=u64::MAX,
        _ => number * TICKETS..=number * TICKETS + TICKETS - 1,
    }
}

impl Lanes {
    /// The lanes with waiters.
    fn waiting(&self) -> impl Iterator<Item = (Progress, u64, &LaneName)> {
        self.known.iter().filter_map(|(name, lane)| match lane {
            &Lane::Waits { number, progress } => Some((progress, number, name)),
            Lane::Owes { .. } => None,
        })
    }

    /// The lanes with waiters, in the order of their progress.
    fn in_order(&self) -> Vec<(Progress, u64, &LaneName)> {
        let mut lanes: Vec<_> = self.waiting().collect();
        lanes.sort_unstable();
        lanes
    }

    /// Removes lanes that do not owe beyond `first`, the lowest first: at most [`FORGIVEN_MAX`].
    fn forgive(&mut self, first: Progress) {
        let owes = |(name, lane): (&LaneName, &Lane)| match lane {
            Lane::Owes { until } if *until <= first => Some((*until, std::cmp::Reverse(name.clone()))),
            _ => None,
        };
        let mut forgiven: Vec<_> = self.known.iter().filter_map(owes).collect();
        forgiven.sort_unstable();
        for (_, std::cmp::Reverse(name)) in forgiven.into_iter().take(FORGIVEN_MAX) {
            self.known.remove(&name);
        }
    }
}

impl State {
    /// The ticket of the head of the queue.
    pub(super) fn head(&self) -> Option<u64> {
        match self.lanes.waiting().min() {
            Some((_, number, lane)) => self.queue.range(tickets(lane, number)).next(),
            None => self.queue.first_key_value(),
        }
        .map(|(ticket, _)| *ticket)
    }

    /// Assigns the ticket of a new waiter. `None` if its lane can have no more.
    pub(super) fn join(&mut self, lane: &LaneName, now_us: u64) -> Option<u64> {
        let is_named = !lane.as_str().is_empty();
        if is_named && self.lanes.last == 0 && !self.queue.is_empty() {
            self.begin_lane(&LaneName::default())?;
        }
        if is_named || self.lanes.last > 0 {
            let number = match self.lanes.known.get(lane) {
                Some(Lane::Waits { number, .. }) => *number,
                _ => self.begin_lane(lane)?,
            };
            if is_named {
                let all = tickets(lane, number);
                let last = self.queue.range(all.clone()).next_back();
                return Some(last.map_or(*all.start(), |(last, _)| last + 1))
                    .filter(|next| all.contains(next));
            }
        }
        // A ticket is the time at which it was assigned, as a token is.
        self.last_ticket = now_us.max(self.last_ticket + 1);
        Some(self.last_ticket)
    }

    /// Gives a lane its progress and a number that no other lane with waiters has.
    fn begin_lane(&mut self, name: &LaneName) -> Option<u64> {
        let first = self.lanes.waiting().min().map(|(progress, number, _)| (progress, number));
        let until = match self.lanes.known.get(name) {
            Some(Lane::Owes { until }) => *until,
            _ => Progress::default(),
        };
        if self.queue.len() as u64 >= LANES_MAX && self.lanes.waiting().count() as u64 >= LANES_MAX {
            return None;
        }
        let mut number = self.lanes.last;
        loop {
            number = number % LANES_MAX + 1;
            if self.queue.range(number * TICKETS..(number + 1) * TICKETS).next().is_none() {
                break;
            }
        }
        self.lanes.last = number;
        let progress = match first {
            None => Progress::default(),
            Some((first, _)) if until > first => until,
            // Behind the first lane, also when the numbers begin again.
            Some((first, of_first)) => Progress(first.0 + if number > of_first { 0.0 } else { 1.0 }),
        };
        self.lanes.known.insert(name.clone(), Lane::Waits { number, progress });
        if let Some((first, _)) = first {
            self.lanes.forgive(first);
        }
        Some(number)
    }

    /// Adds the cost of a grant, 0 without one, to the progress of a lane whose waiter has left the queue.
    pub(super) fn leave(&mut self, lane: &LaneName, cost: f64) {
        if self.queue.is_empty() {
            self.lanes = Lanes::default();
        }
        let Some(Lane::Waits { number, progress }) = self.lanes.known.get_mut(lane) else { return };
        let after = Progress(progress.0 + cost);
        if self.queue.range(tickets(lane, *number)).next().is_some() {
            *progress = after;
        } else if after > Progress::default() {
            self.lanes.known.insert(lane.clone(), Lane::Owes { until: after });
        } else {
            self.lanes.known.remove(lane);
        }
    }

    /// The number of waiters that are to be granted before this one; with lanes, if each of them has as many
    /// and an equal share.
    pub(super) fn position(&self, holder: &Holder, ticket: u64) -> u64 {
        let lane = self.entries.get(holder).map(|entry| &entry.terms.lane);
        let known = lane.and_then(|lane| Some((lane, self.lanes.known.get(lane)?)));
        let Some((lane, &Lane::Waits { number, progress })) = known else {
            return self.queue.range(..ticket).count() as u64;
        };
        let before = self.queue.range(*tickets(lane, number).start()..ticket).count();
        let lanes = self.lanes.in_order();
        let rank = lanes.iter().filter(|other| **other < (progress, number, lane)).count();
        (before * lanes.len() + rank).min(self.queue.len() - 1) as u64
    }

    /// Up to `max` waiters in the order in which they are to be granted; with lanes, one of each lane after the other.
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
        let waiting = |(_, number, lane): &(Progress, u64, &LaneName)| {
            ((*lane).clone(), self.queue.range(tickets(lane, *number)).count() as u64)
        };
        self.lanes.in_order().iter().take(max).map(waiting).collect()
    }

    /// The disagreement between lanes and waiters, if there is one.
    pub(super) fn lane_fault(&self) -> Option<String> {
        let is_in_range = |number: u64| (1..=LANES_MAX).contains(&number);
        let is_sound = |lane: &Lane| match lane {
            Lane::Waits { number, progress } => is_in_range(*number) && progress.0 >= 0.0,
            Lane::Owes { until } => until.0 > 0.0,
        };
        let counts = is_in_range(self.lanes.last) || self.lanes == Lanes::default();
        if !counts || !self.lanes.known.values().all(is_sound) {
            return Some(format!("lanes out of range: {:?}", self.lanes));
        }
        let waits = |lane: &LaneName, ticket: u64| match self.lanes.known.get(lane) {
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
        let is_faulty = self.queue.iter().any(is_stray) || self.lanes.known.iter().any(is_idle);
        is_faulty.then(|| format!("the lanes disagree with the queue: {:?}, {:?}", self.lanes, self.queue))
    }
}

/// The progress that a grant on these terms is for its lane.
pub(super) fn cost(terms: &PermitTerms) -> f64 {
    f64::from(terms.weight) / f64::from(terms.share)
}
