//! The last minutes of each semaphore, for graphs.
//!
//! A point is added when a number changes, so an idle semaphore costs one point. The memory is bounded: points for each
//! semaphore, and the number of semaphores.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use crate::list::ListJson;

/// The time that is kept.
pub(super) const WINDOW: Duration = Duration::from_secs(300);

/// The most points of a semaphore. With one read a second, as many as the window has.
const MAX_POINTS: usize = 300;

/// The most semaphores with points. With [`MAX_POINTS`] of 32 bytes each, about 19 MB.
const MAX_SEMAPHORES: usize = 2_000;

/// The numbers of a semaphore, from a time on until the next point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Point {
    /// Milliseconds since 1970, by this machine's clock.
    pub(super) at_ms: u64,
    pub(super) limit: Option<u32>,
    pub(super) held: u64,
    pub(super) waiting: u64,
}

/// The points of all semaphores.
#[derive(Debug, Default)]
pub(super) struct History {
    series: BTreeMap<String, VecDeque<Point>>,
}

impl History {
    /// Adds the numbers read at `at_ms`. A semaphore that is no longer listed gets a point with zeros, and is forgotten when
    /// that point has left the window.
    pub(super) fn record<'a>(&mut self, at_ms: u64, rows: impl Iterator<Item = &'a ListJson> + Clone) {
        let window_ms = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        let began_ms = at_ms.saturating_sub(window_ms);
        let listed: BTreeMap<&str, &ListJson> = rows.clone().map(|row| (row.name.as_str(), row)).collect();
        self.series.retain(|name, points| {
            if !listed.contains_key(name.as_str()) {
                add(points, Point { at_ms, limit: None, held: 0, waiting: 0 });
            }
            // The newest point before the window is valid at its start.
            while points.get(1).is_some_and(|next| next.at_ms <= began_ms) {
                points.pop_front();
            }
            listed.contains_key(name.as_str()) || points.front().is_some_and(|point| point.at_ms > began_ms)
        });
        for row in rows {
            let ListJson { limit, held, waiting, .. } = *row;
            let point = Point { at_ms, limit, held, waiting };
            if let Some(points) = self.series.get_mut(&row.name) {
                add(points, point);
            } else if self.series.len() < MAX_SEMAPHORES {
                self.series.insert(row.name.clone(), VecDeque::from([point]));
            }
        }
    }

    /// The points of a semaphore, oldest first.
    pub(super) fn points(&self, name: &str) -> Vec<Point> {
        self.series.get(name).map(|points| points.iter().copied().collect()).unwrap_or_default()
    }
}

/// Adds a point, unless its numbers are those of the last point.
fn add(points: &mut VecDeque<Point>, point: Point) {
    let numbers = |point: &Point| (point.limit, point.held, point.waiting);
    if points.back().map(numbers) == Some(numbers(&point)) {
        return;
    }
    if points.len() == MAX_POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::CountsJson;

    fn row(name: &str, held: u64) -> ListJson {
        ListJson {
            name: name.to_owned(),
            limit: Some(4),
            held,
            waiting: 0,
            paused: false,
            pinned: false,
            limit_version: 1,
            recovering_ms: 0,
            oldest_holder_age_ms: None,
            oldest_waiter_age_ms: None,
            closed: None,
            counts: CountsJson { grants: 0, refused: 0, expired: 0, revoked: 0 },
        }
    }

    fn held(history: &History, name: &str) -> Vec<(u64, u64)> {
        history.points(name).iter().map(|point| (point.at_ms, point.held)).collect()
    }

    #[test]
    fn only_changes_are_kept() {
        let mut history = History::default();
        for (at_ms, number) in [(1_000, 1), (2_000, 1), (3_000, 2), (4_000, 2)] {
            history.record(at_ms, [row("a", number)].iter());
        }
        assert_eq!(held(&history, "a"), [(1_000, 1), (3_000, 2)]);
        assert!(history.points("b").is_empty());
    }

    #[test]
    fn the_window_moves_and_keeps_the_point_that_is_valid_at_its_start() {
        let mut history = History::default();
        for (at_ms, number) in [(1_000, 1), (2_000, 2), (400_000, 2), (400_001, 3)] {
            history.record(at_ms, [row("a", number)].iter());
        }
        assert_eq!(held(&history, "a"), [(2_000, 2), (400_001, 3)]);
    }

    #[test]
    fn a_semaphore_that_has_ended_is_forgotten_after_the_window() {
        let mut history = History::default();
        history.record(1_000, [row("a", 1)].iter());
        history.record(2_000, [].iter());
        assert_eq!(held(&history, "a"), [(1_000, 1), (2_000, 0)]);
        history.record(302_000, [].iter());
        assert!(history.points("a").is_empty());
        assert!(history.series.is_empty());
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut history = History::default();
        let rows: Vec<ListJson> = (0..MAX_SEMAPHORES + 5).map(|n| row(&n.to_string(), 1)).collect();
        history.record(1, rows.iter());
        assert_eq!(history.series.len(), MAX_SEMAPHORES);
        for at_ms in 2..2 + 2 * MAX_POINTS as u64 {
            history.record(at_ms, [row("0", at_ms)].iter());
        }
        let points = held(&history, "0");
        assert_eq!(points.len(), MAX_POINTS);
        assert_eq!(points.last(), Some(&(601, 601)));
    }
}
