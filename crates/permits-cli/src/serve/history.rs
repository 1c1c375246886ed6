//! The last minutes of each semaphore, for graphs.
//!
//! A point is added when a number changes or a permit was granted, so an idle semaphore costs one point.
//! Before a point with grants is one at the time of the read before, so the time between two points is that
//! of their grants. The memory is bounded: points for each semaphore, and the number of semaphores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

use serde::Serialize;

use crate::clock::milliseconds;
use crate::inspected::ListRow;

/// The time that is kept.
pub(super) const WINDOW: Duration = Duration::from_secs(300);

/// The most points of a semaphore. With one read a second, as many as the window has.
const MAX_POINTS: usize = 300;

/// The most semaphores with points. With [`MAX_POINTS`] of 40 bytes each, about 24 MB.
const MAX_SEMAPHORES: usize = 2_000;

/// The numbers of a semaphore, from a time on until the next point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Point {
    /// Milliseconds since 1970, by this machine's clock.
    pub(super) at_ms: u64,
    pub(super) limit: Option<u32>,
    pub(super) held: u64,
    pub(super) waiting: u64,
    /// Permits granted since the point before. 0 in the first point.
    pub(super) grants: u64,
}

/// The points of all semaphores.
#[derive(Debug, Default)]
pub(super) struct History {
    series: BTreeMap<String, VecDeque<Point>>,
    /// The time of the last read; 0 before the first.
    read_ms: u64,
}

impl Point {
    /// A point of a semaphore that the store does not have.
    fn absent(at_ms: u64) -> Self {
        Self { at_ms, limit: None, held: 0, waiting: 0, grants: 0 }
    }
}

impl History {
    /// Adds the numbers read at `at_ms`: each semaphore, and its grants since the read before. A semaphore
    /// that is no longer listed gets a point with zeros, and is forgotten when that point has left the
    /// window. One that cannot be read keeps its last numbers.
    pub(super) fn record<'a>(&mut self, at_ms: u64, rows: impl Iterator<Item = (&'a ListRow, u64)> + Clone) {
        let began_ms = at_ms.saturating_sub(milliseconds(WINDOW));
        let read_before_ms = mem::replace(&mut self.read_ms, at_ms);
        let listed: BTreeSet<&str> = rows.clone().map(|(row, _)| row.name.as_str()).collect();
        self.series.retain(|name, points| {
            if !listed.contains(name.as_str()) {
                add(points, Point::absent(at_ms), read_before_ms);
            }
            // The newest point before the window is valid at its start.
            while points.get(1).is_some_and(|next| next.at_ms <= began_ms) {
                points.pop_front();
            }
            listed.contains(name.as_str()) || points.front().is_some_and(|point| point.at_ms > began_ms)
        });
        for (row, grants) in rows.filter(|(row, _)| row.unreadable.is_none()) {
            let ListRow { limit, held, waiting, .. } = *row;
            let point = Point { at_ms, limit, held, waiting, grants };
            if let Some(points) = self.series.get_mut(&row.name) {
                add(points, point, read_before_ms);
            } else if self.series.len() < MAX_SEMAPHORES {
                let mut points = VecDeque::new();
                add(&mut points, point, read_before_ms);
                self.series.insert(row.name.clone(), points);
            }
        }
    }

    /// The time of the last read, and the points of a semaphore, oldest first.
    pub(super) fn points(&self, name: &str) -> (u64, Vec<Point>) {
        let mut points: Vec<Point> = self.series.get(name).into_iter().flatten().copied().collect();
        if let Some(first) = points.first_mut() {
            first.grants = 0;
        }
        (self.read_ms, points)
    }
}

/// Adds a point, unless nothing was granted and its numbers are those of the last point. Before grants it
/// adds a point at the time of the read before, unless there is one.
fn add(points: &mut VecDeque<Point>, point: Point, read_before_ms: u64) {
    let numbers = |point: &Point| (point.limit, point.held, point.waiting);
    let last = points.back().copied().unwrap_or(Point::absent(0));
    if point.grants > 0 && last.at_ms < read_before_ms {
        push(points, Point { at_ms: read_before_ms, grants: 0, ..last });
    }
    if points.is_empty() || point.grants > 0 || numbers(&last) != numbers(&point) {
        push(points, point);
    }
}

fn push(points: &mut VecDeque<Point>, point: Point) {
    if points.len() == MAX_POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A semaphore as it is listed, without grants.
    pub(in crate::serve) fn row(name: &str, held: u64) -> ListRow {
        ListRow { name: name.to_owned(), limit: Some(4), held, ..ListRow::default() }
    }

    fn held(history: &History, name: &str) -> Vec<(u64, u64)> {
        history.points(name).1.iter().map(|point| (point.at_ms, point.held)).collect()
    }

    /// Records semaphores without grants.
    fn record(history: &mut History, at_ms: u64, rows: &[ListRow]) {
        history.record(at_ms, rows.iter().map(|row| (row, 0)));
    }

    #[test]
    fn only_changes_are_kept() {
        let mut history = History::default();
        for (at_ms, number) in [(1_000, 1), (2_000, 1), (3_000, 2), (4_000, 2)] {
            record(&mut history, at_ms, &[row("a", number)]);
        }
        assert_eq!(held(&history, "a"), [(1_000, 1), (3_000, 2)]);
        assert_eq!(history.points("b"), (4_000, Vec::new()));
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
            history.record(at_ms, [(&row("a", 1), grants)].into_iter());
        }
        let grants = |name| {
            let points = history.points(name).1.into_iter();
            points.map(|point| (point.at_ms, point.held, point.grants)).collect::<Vec<_>>()
        };
        assert_eq!(grants("a"), [(1_000, 1, 0), (3_000, 1, 0), (4_000, 1, 5), (5_000, 1, 5)]);
    }

    #[test]
    fn a_new_semaphore_has_a_point_before_its_first_grants() {
        let mut history = History::default();
        record(&mut history, 1_000, &[]);
        history.record(2_000, [(&row("a", 3), 3)].into_iter());
        let first = Point::absent(1_000);
        let second = Point { at_ms: 2_000, limit: Some(4), held: 3, waiting: 0, grants: 3 };
        assert_eq!(history.points("a").1, [first, second]);
    }

    #[test]
    fn the_window_moves_and_keeps_the_point_that_is_valid_at_its_start() {
        let mut history = History::default();
        for (at_ms, number) in [(1_000, 1), (2_000, 2), (400_000, 2), (400_001, 3)] {
            record(&mut history, at_ms, &[row("a", number)]);
        }
        assert_eq!(held(&history, "a"), [(2_000, 2), (400_001, 3)]);
    }

    #[test]
    fn the_first_point_has_no_grants() {
        let mut history = History::default();
        for at_ms in [1_000, 2_000, 3_000, 302_500] {
            history.record(at_ms, [(&row("a", 1), 1)].into_iter());
        }
        let points = history.points("a").1;
        let grants: Vec<_> = points.iter().map(|point| (point.at_ms, point.grants)).collect();
        assert_eq!(grants, [(2_000, 0), (3_000, 1), (302_500, 1)]);
    }

    #[test]
    fn a_semaphore_that_has_ended_is_forgotten_after_the_window() {
        let mut history = History::default();
        record(&mut history, 1_000, &[row("a", 1)]);
        record(&mut history, 2_000, &[]);
        assert_eq!(held(&history, "a"), [(1_000, 1), (2_000, 0)]);
        record(&mut history, 302_000, &[]);
        assert!(history.points("a").1.is_empty());
        assert!(history.series.is_empty());
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut history = History::default();
        let rows: Vec<ListRow> = (0..MAX_SEMAPHORES + 5).map(|n| row(&n.to_string(), 1)).collect();
        record(&mut history, 1, &rows);
        assert_eq!(history.series.len(), MAX_SEMAPHORES);
        for at_ms in 2..2 + 2 * MAX_POINTS as u64 {
            history.record(at_ms, [(&row("0", at_ms), at_ms)].into_iter());
        }
        let points = held(&history, "0");
        assert_eq!(points.len(), MAX_POINTS);
        assert_eq!(points.last(), Some(&(601, 601)));
    }
}
