//! The last hour of each semaphore, and of the store as a whole, for graphs.
//!
//! A point is added when a number changes or a permit was granted, so an idle semaphore costs one point.
//! Before a point with grants is one at the time of the read before, so the time between two points is that
//! of their grants. After [`FINE`] the points of each [`COARSE`] are merged into one, with the most units and
//! waiters among them. The memory is bounded: points for each semaphore, and the number of semaphores. Beyond
//! this number those are kept that need a look more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

use permits::Waits;
use serde::Serialize;

use crate::clock::milliseconds;
use crate::inspected::ListRow;

/// The time that is kept.
pub(super) const WINDOW: Duration = Duration::from_secs(3_600);

/// The time for which each point is kept as it was read.
const FINE: Duration = Duration::from_secs(300);

/// The time of which older points are merged.
const COARSE: Duration = Duration::from_secs(20);

/// The most points of a semaphore: the points of [`FINE`] with one read a second, and the merged ones before.
const MAX_POINTS: usize = 470;

/// The most semaphores with points. With [`MAX_POINTS`] of 88 bytes each, 83 MB if all of them change in each
/// second.
const MAX_SEMAPHORES: usize = 2_000;

/// The numbers of a semaphore, from a time on until the next point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Point {
    /// Milliseconds since 1970, by this machine's clock.
    pub(super) at_ms: u64,
    pub(super) limit: Option<u32>,
    pub(super) held: u64,
    /// Cooling units, included in `held`: their holders have left, and they stay taken until `at_least` has
    /// passed.
    pub(super) cooling: u64,
    pub(super) waiting: u64,
    #[serde(flatten)]
    pub(super) passed: Passed,
}

/// The grants since the point before, and the waits that they ended. None in the first point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Passed {
    pub(super) grants: u64,
    pub(super) waits: Option<Waits>,
}

/// The points of a semaphore, or of the store, oldest first.
type Points = VecDeque<Point>;

/// The points of all semaphores.
#[derive(Debug, Default)]
pub(super) struct History {
    series: BTreeMap<String, Points>,
    /// The sums of all semaphores, without a limit.
    store: Points,
    /// The time of the last read; 0 before the first.
    read_ms: u64,
}

/// The points of a window.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// The time of the last read, in milliseconds since 1970.
    pub(super) at_ms: u64,
    /// True if no points of this semaphore are kept, because there is no room for them.
    pub(super) omitted: bool,
    pub(super) points: Vec<Point>,
}

impl Point {
    /// A point of a semaphore that the store does not have.
    fn absent(at_ms: u64) -> Self {
        Self { at_ms, limit: None, held: 0, cooling: 0, waiting: 0, passed: Passed::default() }
    }

    /// The sum of the numbers of two semaphores, without a limit.
    fn and(self, other: Self) -> Self {
        Self {
            held: self.held + other.held,
            cooling: self.cooling + other.cooling,
            waiting: self.waiting + other.waiting,
            passed: self.passed.and(other.passed),
            at_ms: self.at_ms,
            limit: None,
        }
    }

    /// The point with the numbers of an earlier one: the most units that were held, and the most at work.
    fn merged(self, earlier: Self) -> Self {
        let at_work = |point: &Self| point.held - point.cooling;
        let held = self.held.max(earlier.held);
        Self {
            held,
            cooling: held - at_work(&self).max(at_work(&earlier)),
            waiting: self.waiting.max(earlier.waiting),
            passed: self.passed.and(earlier.passed),
            at_ms: self.at_ms,
            limit: self.limit,
        }
    }
}

impl Passed {
    fn and(self, other: Self) -> Self {
        let waits = match (self.waits, other.waits) {
            (Some(mut waits), Some(other)) => {
                waits.total_us += other.total_us;
                for (number, other) in waits.numbers.iter_mut().zip(other.numbers) {
                    *number = number.saturating_add(other);
                }
                Some(waits)
            }
            (waits, other) => waits.or(other),
        };
        Self { grants: self.grants + other.grants, waits }
    }
}

impl History {
    /// Adds the numbers read at `at_ms`: each semaphore, those first that need a place most, and what has
    /// passed since the read before. A semaphore that is no longer listed gets a point with zeros, and is
    /// forgotten when that point has left the window, or when there is no place. One that cannot be read
    /// keeps its last numbers.
    pub(super) fn record<'a>(
        &mut self,
        at_ms: u64,
        rows: impl Iterator<Item = (&'a ListRow, Passed)> + Clone,
    ) {
        // A clock that was set back would put the new points behind later ones.
        for points in self.series.values_mut().chain([&mut self.store]) {
            let is_later = |point: &&Point| point.at_ms > at_ms;
            points.truncate(points.len() - points.iter().rev().take_while(is_later).count());
        }
        let read_before_ms = mem::replace(&mut self.read_ms, at_ms).min(at_ms);
        let listed: BTreeSet<&str> = rows.clone().map(|(row, _)| row.name.as_str()).collect();
        self.series.retain(|name, points| {
            if !listed.contains(name.as_str()) {
                add(points, Point::absent(at_ms), read_before_ms);
            }
            grow_older(points, at_ms, read_before_ms);
            let has_ended = points.front().is_none_or(|point| point.at_ms <= window_began(at_ms));
            listed.contains(name.as_str()) || !has_ended
        });
        self.make_room(rows.clone().take(MAX_SEMAPHORES).map(|(row, _)| row.name.as_str()).collect());
        let mut sum = Point::absent(at_ms);
        for (row, passed) in rows.filter(|(row, _)| row.unreadable.is_none()) {
            let ListRow { limit, held, waiting, .. } = *row;
            let cooling = held - row.in_use();
            let point = Point { at_ms, limit, held, cooling, waiting, passed };
            sum = sum.and(point);
            if let Some(points) = self.series.get_mut(&row.name) {
                add(points, point, read_before_ms);
            }
        }
        add(&mut self.store, sum, read_before_ms);
        grow_older(&mut self.store, at_ms, read_before_ms);
    }

    /// Makes an empty series of each of `needed` that has none, in the place of another one if there is no
    /// other place.
    fn make_room(&mut self, needed: BTreeSet<&str>) {
        let new: Vec<&str> = needed.iter().copied().filter(|name| !self.series.contains_key(*name)).collect();
        let mut excess = (self.series.len() + new.len()).saturating_sub(MAX_SEMAPHORES);
        if excess > 0 {
            self.series.retain(|name, _| {
                let goes = excess > 0 && !needed.contains(name.as_str());
                excess -= usize::from(goes);
                !goes
            });
        }
        self.series.extend(new.into_iter().map(|name| (name.to_owned(), Points::new())));
    }

    /// The points of a semaphore in the last `window`, or without a name the points of the store. The first
    /// is valid at its start.
    pub(super) fn recorded(&self, name: Option<&str>, window: Duration) -> Recorded {
        let at_ms = self.read_ms;
        let series = name.map_or(Some(&self.store), |name| self.series.get(name));
        let Some(series) = series else {
            return Recorded { at_ms, omitted: self.series.len() == MAX_SEMAPHORES, points: Vec::new() };
        };
        let began_ms = at_ms.saturating_sub(milliseconds(window));
        let first = series.partition_point(|point| point.at_ms <= began_ms).saturating_sub(1);
        let mut points: Vec<Point> = series.iter().skip(first).copied().collect();
        if let Some(first) = points.first_mut() {
            first.passed = Passed::default();
        }
        Recorded { at_ms, omitted: false, points }
    }
}

/// The start of [`WINDOW`].
fn window_began(at_ms: u64) -> u64 {
    at_ms.saturating_sub(milliseconds(WINDOW))
}

/// Removes the points that have left the window, and merges those that are no longer fine.
fn grow_older(points: &mut Points, at_ms: u64, read_before_ms: u64) {
    // The newest point before the window is valid at its start.
    while points.get(1).is_some_and(|next| next.at_ms <= window_began(at_ms)) {
        points.pop_front();
    }
    merge(points, at_ms, read_before_ms);
}

/// Adds a point, unless nothing has passed and the last point has the same numbers. Before grants it adds a
/// point at the time of the read before, unless there is one.
fn add(points: &mut Points, point: Point, read_before_ms: u64) {
    let numbers = |point: &Point| Point { at_ms: 0, passed: Passed::default(), ..*point };
    let last = points.back().copied().unwrap_or(Point::absent(0));
    let has_passed = point.passed != Passed::default();
    if has_passed && last.at_ms < read_before_ms {
        push(points, Point { at_ms: read_before_ms, passed: Passed::default(), ..last });
    }
    if points.is_empty() || has_passed || numbers(&last) != numbers(&point) {
        push(points, point);
    }
}

/// Adds a point. If there are too many, because the store is read more than once a second, the one whose
/// neighbours are the closest is merged into the next, so that the whole window stays.
fn push(points: &mut Points, point: Point) {
    if points.len() == MAX_POINTS {
        let span = |index: &usize| points[index + 1].at_ms.saturating_sub(points[index - 1].at_ms);
        let closest = (1..MAX_POINTS - 1).min_by_key(span).expect("there are some");
        points[closest + 1] = points[closest + 1].merged(points[closest]);
        points.remove(closest);
    }
    points.push_back(point);
}

/// Merges the points that were as old as [`FINE`] at the read before with those that have become as old
/// since, each [`COARSE`] into its last point.
fn merge(points: &mut Points, at_ms: u64, read_before_ms: u64) {
    let fine_ms = |now_ms: u64| now_ms.saturating_sub(milliseconds(FINE));
    let part = |point: &Point| point.at_ms / milliseconds(COARSE);
    // The first point has none before it.
    let mut index = points.partition_point(|point| point.at_ms <= fine_ms(read_before_ms)).max(1);
    while let (Some(before), Some(point)) = (index.checked_sub(1), points.get(index).copied()) {
        if point.at_ms > fine_ms(at_ms) {
            return;
        }
        if part(&points[before]) == part(&point) {
            points[index] = point.merged(points[before]);
            points.remove(before);
        } else {
            index += 1;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A semaphore as it is listed, without grants.
    pub(in crate::serve) fn row(name: &str, held: u64) -> ListRow {
        ListRow { name: name.to_owned(), limit: Some(4), held, ..ListRow::default() }
    }

    fn points(history: &History, name: &str, window: Duration) -> Vec<Point> {
        history.recorded(Some(name), window).points
    }

    fn held(history: &History, name: &str) -> Vec<(u64, u64)> {
        points(history, name, WINDOW).iter().map(|point| (point.at_ms, point.held)).collect()
    }

    fn granted(grants: u64) -> Passed {
        Passed { grants, waits: None }
    }

    /// Records semaphores without grants.
    fn record(history: &mut History, at_ms: u64, rows: &[ListRow]) {
        history.record(at_ms, rows.iter().map(|row| (row, Passed::default())));
    }

    #[test]
    fn only_changes_are_kept() {
        let mut history = History::default();
        for (at_ms, number) in [(1_000, 1), (2_000, 1), (3_000, 2), (4_000, 2)] {
            record(&mut history, at_ms, &[row("a", number)]);
        }
        assert_eq!(held(&history, "a"), [(1_000, 1), (3_000, 2)]);
        assert_eq!(
            history.recorded(Some("b"), WINDOW),
            Recorded { at_ms: 4_000, omitted: false, points: Vec::new() }
        );
    }

    #[test]
    fn a_semaphore_that_cannot_be_read_keeps_its_numbers() {
        let mut history = History::default();
        let unreadable = ListRow { unreadable: Some("damaged".to_owned()), ..row("a", 0) };
        for (at_ms, row) in [(1_000, row("a", 1)), (2_000, unreadable), (3_000, row("a", 2))] {
            record(&mut history, at_ms, &[row]);
        }
        assert_eq!(held(&history, "a"), [(1_000, 1), (3_000, 2)]);
    }

    #[test]
    fn grants_lie_between_the_points_of_two_reads() {
        let mut history = History::default();
        for (at_ms, grants) in [(1_000, 0), (2_000, 0), (3_000, 0), (4_000, 5), (5_000, 5), (6_000, 0)] {
            history.record(at_ms, [(&row("a", 1), granted(grants))].into_iter());
        }
        let grants = |name| {
            let points = points(&history, name, WINDOW).into_iter();
            points.map(|point| (point.at_ms, point.held, point.passed.grants)).collect::<Vec<_>>()
        };
        assert_eq!(grants("a"), [(1_000, 1, 0), (3_000, 1, 0), (4_000, 1, 5), (5_000, 1, 5)]);
    }

    #[test]
    fn a_new_semaphore_has_a_point_before_its_first_grants() {
        let mut history = History::default();
        record(&mut history, 1_000, &[]);
        history.record(2_000, [(&row("a", 3), granted(3))].into_iter());
        let first = Point::absent(1_000);
        let second =
            Point { at_ms: 2_000, limit: Some(4), held: 3, cooling: 0, waiting: 0, passed: granted(3) };
        assert_eq!(points(&history, "a", WINDOW), [first, second]);
    }

    #[test]
    fn the_window_moves_and_keeps_the_point_that_is_valid_at_its_start() {
        let mut history = History::default();
        for (at_ms, number) in [(1_000, 1), (2_000, 2), (3_700_000, 2), (3_700_001, 3)] {
            record(&mut history, at_ms, &[row("a", number)]);
        }
        assert_eq!(held(&history, "a"), [(2_000, 2), (3_700_001, 3)]);
        assert_eq!(points(&history, "a", FINE).len(), 2);
        record(&mut history, 4_100_000, &[row("a", 3)]);
        assert_eq!(points(&history, "a", FINE).len(), 1, "the others are older");
    }

    #[test]
    fn the_first_point_has_no_grants() {
        let mut history = History::default();
        for at_ms in [1_000, 2_000, 3_000, 302_500] {
            history.record(at_ms, [(&row("a", 1), granted(1))].into_iter());
        }
        let points = points(&history, "a", Duration::from_secs(300));
        let grants: Vec<_> = points.iter().map(|point| (point.at_ms, point.passed.grants)).collect();
        assert_eq!(grants, [(2_000, 0), (3_000, 1), (302_500, 1)]);
    }

    #[test]
    fn older_points_are_merged_and_lose_no_grant_wait_or_peak() {
        let mut waits = Waits::default();
        (waits.total_us, waits.numbers[2]) = (500_000, 1);
        let passed = Passed { grants: 2, waits: Some(waits) };
        let mut history = History::default();
        for second in 1..=1_000 {
            let held = if second == 47 { 4 } else { second % 2 };
            history.record(second * 1_000, [(&row("a", held), passed)].into_iter());
        }
        let points = points(&history, "a", WINDOW);
        assert!(points.len() <= 300 + 700 / 20 + 1, "{}", points.len());
        let merged = points.iter().find(|point| point.at_ms == 59_000).expect("the last of 40 s to 60 s");
        let sum = merged.passed.waits.expect("they waited");
        assert_eq!((merged.held, merged.passed.grants), (4, 40));
        assert_eq!((sum.total_us, sum.number()), (10_000_000, 20));
        // The grants of the very first point are unknown.
        let grants: u64 = points.iter().map(|point| point.passed.grants).sum();
        assert_eq!(grants, 2_000 - 2 * 19);
    }

    #[test]
    fn older_points_lose_no_peak_of_the_units_at_work() {
        let mut history = History::default();
        // Three units are held, then cool, and a fourth joins them.
        for (second, held, cooling) in
            [(41, 3, 0), (50, 3, 3), (55, 4, 4), (345, 4, 4), (346, 4, 4), (400, 0, 0)]
        {
            let mut row = row("a", held);
            row.units.cooling = cooling;
            record(&mut history, second * 1_000, &[row]);
        }
        let points = points(&history, "a", WINDOW);
        assert_eq!((points[0].at_ms, points[0].held, points[0].cooling), (55_000, 4, 1));
    }

    #[test]
    fn a_semaphore_that_has_ended_is_forgotten_after_the_window() {
        let mut history = History::default();
        record(&mut history, 1_000, &[row("a", 1)]);
        record(&mut history, 2_000, &[]);
        assert_eq!(held(&history, "a"), [(1_000, 1), (2_000, 0)]);
        record(&mut history, 3_602_000, &[]);
        assert!(points(&history, "a", WINDOW).is_empty());
        assert!(history.series.is_empty());
    }

    #[test]
    fn the_sums_of_all_semaphores_are_those_of_the_store() {
        let mut history = History::default();
        for (at_ms, grants) in [(1_000, 0), (2_000, 3)] {
            let rows = [row("a", 1), ListRow { waiting: 2, ..row("b", 4) }];
            history.record(at_ms, rows.iter().map(|row| (row, granted(grants))));
        }
        let last = history.recorded(None, WINDOW).points.pop();
        let expected = Point { at_ms: 2_000, held: 5, waiting: 2, passed: granted(6), ..Point::absent(0) };
        assert_eq!(last, Some(expected));
    }

    #[test]
    fn a_clock_that_was_set_back_leaves_no_later_points() {
        let mut history = History::default();
        for (at_ms, number) in [(3_000, 1), (900_000, 2), (901_000, 3), (4_000, 2), (5_000, 4)] {
            record(&mut history, at_ms, &[row("a", number)]);
        }
        assert_eq!(held(&history, "a"), [(3_000, 1), (4_000, 2), (5_000, 4)]);
        let store = history.recorded(None, WINDOW).points;
        assert_eq!(store.iter().map(|point| point.at_ms).collect::<Vec<_>>(), [3_000, 4_000, 5_000]);
    }

    #[test]
    fn those_that_come_first_have_the_places() {
        let mut history = History::default();
        let mut rows: Vec<ListRow> = (0..MAX_SEMAPHORES + 5).map(|n| row(&n.to_string(), 1)).collect();
        record(&mut history, 1, &rows);
        let last = MAX_SEMAPHORES.to_string();
        assert!(history.recorded(Some(&last), WINDOW).omitted);
        rows.rotate_right(5);
        record(&mut history, 2, &rows);
        assert_eq!(held(&history, &last), [(2, 1)]);
        assert_eq!(history.series.len(), MAX_SEMAPHORES);
        let omitted =
            (0..MAX_SEMAPHORES + 5).filter(|n| history.recorded(Some(&n.to_string()), WINDOW).omitted);
        assert_eq!(omitted.collect::<Vec<_>>(), (MAX_SEMAPHORES - 5..MAX_SEMAPHORES).collect::<Vec<_>>());
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut history = History::default();
        for at_ms in 2..2 + 2 * MAX_POINTS as u64 {
            history.record(at_ms, [(&row("0", at_ms), granted(at_ms))].into_iter());
        }
        let points = held(&history, "0");
        assert_eq!(points.len(), MAX_POINTS);
        assert_eq!(points.last(), Some(&(941, 941)));
    }

    #[test]
    fn a_short_interval_does_not_shorten_the_window() {
        let mut history = History::default();
        // 200 s with ten reads a second.
        for at_ms in (1_000..201_000).step_by(100) {
            history.record(at_ms, [(&row("0", at_ms), granted(1))].into_iter());
        }
        let points = points(&history, "0", WINDOW);
        assert_eq!(points.len(), MAX_POINTS);
        assert!(points[0].at_ms < 3_000, "{}", points[0].at_ms);
        let grants: u64 = points.iter().map(|point| point.passed.grants).sum();
        assert_eq!(grants, 1_999, "all but that of the first read");
    }

    #[test]
    fn the_first_points_are_merged_after_a_gap() {
        let mut history = History::default();
        for at_s in (1..=100).chain([1_000, 1_001]) {
            history.record(at_s * 1_000, [(&row("0", at_s), granted(at_s))].into_iter());
        }
        let old = points(&history, "0", WINDOW).into_iter().filter(|point| point.at_ms < 700_000);
        assert_eq!(old.count(), 6, "20 s each");
    }
}
