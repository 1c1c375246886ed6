//! Lanes: the order in which waiters of several lanes are granted.
//!
//! The order is start-time fair queueing (Goyal, Vin and Cheng, 1996). Each lane with waiters has a
//! *progress*, a number that begins at 1. The lane with the least progress is first, and its earliest waiter
//! is the head of the queue. A grant adds weight ÷ share to the progress of its lane, so lanes that wait get
//! units in proportion to their shares. A lane that gets a waiter begins with the progress of the first lane,
//! so it gets nothing for the time in which it did not ask. A lane whose last waiter leaves *owes* as long as
//! its progress is ahead of the first lane's: it gains nothing by asking again.
//!
//! For example, lane A has a share of 2 and B one of 1, all requests are for one unit, and both lanes have
//! many waiters. Both begin at 1. A is granted a unit, which makes its progress 1.5, then B one, which
//! makes it 2, then A another one, to 2. Both are equal again, and A has had two units for one of B. A lane
//! C that comes now begins at 2, too. At 1 it would get every unit until it has caught up with lanes that
//! waited all the time.
//!
//! A lane makes progress when a request is granted, not when it arrives: a waiter that gives up costs its
//! lane nothing. A head stays the head until it is granted or leaves, because a new lane is never before the
//! first one.
//!
//! A lane may have *bounds*: a limit, which is the most units that its requests hold, and a floor. The units
//! of a lane are counted from its first request that names a bound, for as long as the lane holds or waits. A
//! lane whose head would exceed the limit is *full*: it stands behind all other lanes, and their waiters are
//! granted. When a full lane has units left again, it does not return to a place before the first lane: a
//! lane saves nothing up while it is full. If every waiting lane is full or short, no lane owes anything: the
//! next lane in line begins with the furthest progress of all.
//!
//! The latest request that names bounds sets them, unless an operator has *pinned* the lane. A pinned lane
//! keeps its bounds while it neither holds nor waits. What a pinned lane holds counts, also what it was
//! granted before the pin (`count_held` has a bound).
//!
//! A lane that holds less than its floor is *short*: it stands before all other lanes, and gets the next
//! units. Units that a short lane is granted are not charged to its share. Otherwise a tenant that got only
//! its floor for an hour would get no more than its floor in the hours that follow. So a lane has two
//! progresses, one on each side of its floor, and each counts only against lanes on that side. When a lane
//! crosses its floor, it goes on with the progress that it has on the new side, but at least with the
//! progress of the first lane there.
//!
//! All waiters are in one sorted set, because the tickets of a lane are a range of numbers. The tickets of
//! lane number n begin at n × 2³², and the tickets of the lane without a name are times, from 2⁵⁰ on. While
//! no waiter has named a lane since the queue was empty, no lane is known, and the queue is in the order of
//! the tickets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use crate::protocol::{LaneName, PermitTerms};

/// The highest number of a lane, and the most lanes that wait. The numbers are used again.
pub const LANES_MAX: u64 = (1 << 18) - 1;

/// The number of tickets of a lane.
pub(super) const TICKETS: u64 = 1 << 32;

/// The first ticket of the lane without a name. A ticket there is a time, in microseconds.
const FIRST_TIME: u64 = 1 << 50;

/// A lane that begins with a multiple of this number removes lanes that owe nothing any more: at most
/// [`FORGIVEN_MAX`].
pub(super) const FORGIVES_EVERY: u64 = 16;

/// The most lanes that one request removes because they owe nothing any more.
pub const FORGIVEN_MAX: usize = 128;

/// The progress of a lane: units granted while it waited, divided by their shares, and 1.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Progress(pub f64);

/// The progress of the first lane of a line. Not 0, so that a store may scale it.
impl Default for Progress {
    fn default() -> Self {
        Self(1.0)
    }
}

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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(from = "StoredLanes"))]
pub struct Lanes {
    /// The number of lanes that have begun; 0 while no lane is known.
    pub last: u64,
    known: BTreeMap<LaneName, Lane>,
    /// The lanes with a limit or a floor.
    bounded: BTreeMap<LaneName, LaneBounds>,
    /// The number of pinned lanes among them.
    #[cfg_attr(feature = "serde", serde(skip))]
    pins: usize,
    /// The lanes that wait, in their order: each of thousands is looked up in it.
    #[cfg_attr(feature = "serde", serde(skip))]
    order: VecDeque<Place>,
    /// The lanes that owe, by what they owe.
    #[cfg_attr(feature = "serde", serde(skip))]
    owing: BTreeSet<(Progress, Reverse<LaneName>)>,
    /// The lanes with bounds that have changed since it was last checked which of them are short or full.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) changed: BTreeSet<LaneName>,
}

/// The limit and the floor of a lane, and the units that count for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LaneBounds {
    /// The most units that the requests of the lane may hold, as the last of them said; 0 without a limit.
    pub limit: u32,
    /// The units up to which the lane is before others, as the last of its requests said; 0 without a floor.
    pub floor: u32,
    /// The units that the requests of the lane hold.
    pub held: u64,
    /// True if an operator has set limit and floor, so that requests do not change them.
    pub pinned: bool,
}

impl LaneBounds {
    /// Returns true if a request of this weight has to wait until others of its lane have left. One that
    /// never fits is no reason to wait.
    pub(super) fn is_full_for(self, weight: u32) -> bool {
        weight <= self.limit && self.has_no_room_for(weight)
    }

    /// Returns true if a grant of this weight would exceed the limit.
    pub(super) fn has_no_room_for(self, weight: u32) -> bool {
        self.limit > 0 && self.held + u64::from(weight) > self.limit.into()
    }

    /// The side on which the lane stands if a request of this weight is its head. The limit wins over the
    /// floor.
    pub(super) fn side_for(self, weight: u32) -> Side {
        if self.is_full_for(weight) {
            Side::Full
        } else if self.held < self.floor.into() {
            Side::Short
        } else {
            Side::Fair
        }
    }
}

/// The side on which a waiting lane stands among the others, in the order in which they are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Side {
    /// The lane holds less than its floor.
    Short,
    /// The lane is neither short nor full, or it has no bounds.
    Fair,
    /// The head of the lane has to wait until other holders of the lane have left.
    Full,
}

/// A lane that waits: where it stands, its progress, its number and its name.
pub(super) type Place = (Side, Progress, u64, LaneName);

/// [`Lanes`] as a store keeps them.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLanes {
    last: u64,
    known: BTreeMap<LaneName, Lane>,
    bounded: BTreeMap<LaneName, LaneBounds>,
}

#[cfg(feature = "serde")]
impl From<StoredLanes> for Lanes {
    fn from(StoredLanes { last, known, bounded }: StoredLanes) -> Self {
        Self::new(last, known, bounded)
    }
}

/// A lane that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Lane {
    /// The lane has waiters.
    Waits {
        /// The lane's number: lanes with equal progress are served in this order.
        number: u64,
        /// The lane's progress.
        progress: Progress,
        /// The next ticket, counted from the lane's first; 0 for the lane without a name.
        next: u64,
        /// The side on which the lane stands.
        side: Side,
        /// The lane's progress on the other side of its floor.
        other: Progress,
    },
    /// The lane has no waiters, and has made more progress than the lanes that have.
    Owes {
        /// The lane's progress.
        until: Progress,
    },
}

impl Lane {
    /// The lane's place among the lanes that wait, if it waits.
    fn place(&self, name: LaneName) -> Option<Place> {
        match *self {
            Self::Waits { number, progress, side, .. } => Some((side, progress, number, name)),
            Self::Owes { .. } => None,
        }
    }

    /// The lane's place among the lanes that owe, if it is one of them.
    fn debt(&self, name: LaneName) -> Option<(Progress, Reverse<LaneName>)> {
        match *self {
            Self::Owes { until } => Some((until, Reverse(name))),
            Self::Waits { .. } => None,
        }
    }
}

/// The tickets of a lane.
pub(super) fn tickets(lane: &LaneName, number: u64) -> RangeInclusive<u64> {
    match lane.as_str() {
        "" => FIRST_TIME..=u64::MAX,
        _ => number * TICKETS..=number * TICKETS + TICKETS - 1,
    }
}

impl Lanes {
    /// The lanes with these records and bounds, of which `last` have begun.
    pub fn new(last: u64, known: BTreeMap<LaneName, Lane>, bounded: BTreeMap<LaneName, LaneBounds>) -> Self {
        let mut order: Vec<Place> =
            known.iter().filter_map(|(name, lane)| lane.place(name.clone())).collect();
        order.sort_unstable();
        let owing = known.iter().filter_map(|(name, lane)| lane.debt(name.clone())).collect();
        let pins = bounded.values().filter(|bounded| bounded.pinned).count();
        Self { last, known, bounded, pins, order: order.into(), owing, changed: BTreeSet::new() }
    }

    /// The lanes that wait or owe.
    pub fn known(&self) -> &BTreeMap<LaneName, Lane> {
        &self.known
    }

    /// The lanes with a limit or a floor that hold units for it, or wait, or are pinned.
    pub fn bounded(&self) -> &BTreeMap<LaneName, LaneBounds> {
        &self.bounded
    }

    /// The number of lanes that an operator has pinned.
    pub fn pins(&self) -> usize {
        self.pins
    }

    /// Sets what is known of the bounds of a lane.
    pub(super) fn set_bounded(&mut self, name: &LaneName, bounded: Option<LaneBounds>) {
        let is_pinned = bounded.is_some_and(|bounded| bounded.pinned);
        let before = match bounded {
            Some(bounded) => self.bounded.insert(name.clone(), bounded),
            None => self.bounded.remove(name),
        };
        let was_pinned = before.is_some_and(|before| before.pinned);
        self.pins = self.pins + usize::from(is_pinned) - usize::from(was_pinned);
    }

    /// Forgets all but the pins of operators.
    pub(super) fn clear(&mut self) {
        let pinned = std::mem::take(&mut self.bounded).into_iter().filter(|(_, bounded)| bounded.pinned);
        let pinned = pinned.map(|(name, bounded)| (name, LaneBounds { held: 0, ..bounded }));
        *self = Self::new(0, BTreeMap::new(), pinned.collect());
    }

    /// Notes that a lane has another head, holds more or less, or has other bounds.
    pub(super) fn note_change(&mut self, name: &LaneName) {
        if self.bounded.contains_key(name) {
            self.changed.insert(name.clone());
        }
    }

    /// Ends the line: no lane waits or owes.
    pub(super) fn end(&mut self) {
        self.last = 0;
        self.known.clear();
        self.order.clear();
        self.owing.clear();
    }

    /// The progress and the number of the first lane that is neither short nor full. Without such a lane: the
    /// furthest progress of the lanes that are full or owe, with which the next lane begins, and number 0.
    pub(super) fn first(&self) -> Option<(Progress, u64)> {
        match self.order.get(self.order.partition_point(|(side, ..)| *side < Side::Fair)) {
            Some((Side::Fair, progress, number, _)) => Some((*progress, *number)),
            _ => {
                let (side, progress, ..) = self.order.back()?;
                let full = (*side == Side::Full).then_some(*progress);
                let owed = self.owing.last().map(|(owed, _)| *owed);
                Some((full.max(owed).unwrap_or_default(), 0))
            }
        }
    }

    /// The progress and the number of the first lane that is short.
    pub(super) fn first_short(&self) -> Option<(Progress, u64)> {
        let (side, progress, number, _) = self.order.front()?;
        (*side == Side::Short).then_some((*progress, *number))
    }

    /// The lanes that wait: the short lanes, the lanes between their bounds, and the full lanes, each in the
    /// order of their progress.
    pub(super) fn in_order(&self) -> &VecDeque<Place> {
        &self.order
    }

    /// The number of lanes that are before this one; `None` if it does not wait.
    pub(super) fn rank(&self, name: &LaneName) -> Option<usize> {
        self.order.binary_search(&self.known.get(name)?.place(name.clone())?).ok()
    }

    /// Sets what is known of a lane; nothing, if it neither waits nor owes.
    pub(super) fn set(&mut self, name: &LaneName, lane: Option<Lane>) {
        if let Some(rank) = self.rank(name) {
            self.order.remove(rank);
        }
        if let Some(place) = lane.and_then(|lane| lane.place(name.clone())) {
            let rank = self.order.partition_point(|other| *other < place);
            self.order.insert(rank, place);
        }
        let before = match lane {
            Some(lane) => self.known.insert(name.clone(), lane),
            None => self.known.remove(name),
        };
        if let Some(paid) = before.and_then(|before| before.debt(name.clone())) {
            self.owing.remove(&paid);
        }
        self.owing.extend(lane.and_then(|lane| lane.debt(name.clone())));
    }

    /// The first ticket of a lane that waits, and the number of its tickets that were given before this one,
    /// which is given now.
    pub(super) fn give_ticket(&mut self, name: &LaneName) -> Option<(u64, u64)> {
        let Some(Lane::Waits { number, next, .. }) = self.known.get_mut(name) else { return None };
        let given = *next;
        *next += u64::from(given < TICKETS);
        Some((*number * TICKETS, given))
    }

    /// Removes lanes that do not owe beyond `first`, the lowest first: at most [`FORGIVEN_MAX`].
    pub(super) fn forgive(&mut self, first: Progress) {
        for _ in 0..FORGIVEN_MAX {
            let paid = self.owing.first().filter(|(owed, _)| *owed <= first).cloned();
            let Some((_, Reverse(name))) = paid else { return };
            self.set(&name, None);
        }
    }
}

/// The progress that a grant on these terms is for its lane.
pub(super) fn cost(terms: &PermitTerms) -> f64 {
    f64::from(terms.weight) / f64::from(terms.share)
}
