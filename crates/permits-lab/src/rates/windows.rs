//! The arithmetic of grants in windows of time. Times are in microseconds, in ascending order.

/// The most grants in any window. A window begins with a grant and ends before the moment that lies its whole
/// length later: grants that are exactly the length apart are never in one window.
pub(super) fn most_in_a_window(times: &[f64], length: f64) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, time) in times.iter().enumerate() {
        while times[first] + length <= *time {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}

/// For each grant but the first `limit`: the moment at which it became possible, a window after the grant
/// whose units it takes.
pub(super) fn possible(times: &[f64], limit: usize, length: f64) -> impl Iterator<Item = f64> {
    times[..times.len().saturating_sub(limit)].iter().map(move |time| time + length)
}

/// The rate that the grants reached, without the first `limit`, which no earlier grant delays.
pub(super) fn rate(times: &[f64], limit: usize) -> f64 {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return 0.0 };
    times.len().saturating_sub(limit) as f64 / (last - first) * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_exactly_a_window_apart_are_allowed() {
        assert_eq!(most_in_a_window(&[0.0, 100.0, 200.0], 100.0), 1);
        assert_eq!(most_in_a_window(&[0.0, 99.0, 199.0], 100.0), 2);
        // Times as large as those of a clock in microseconds stay exact.
        let now = 1_800_000_000_000_000.0;
        assert_eq!(most_in_a_window(&[now, now + 100.0], 100.0), 1);
        assert_eq!(most_in_a_window(&[now, now + 99.0], 100.0), 2);
    }

    #[test]
    fn a_window_may_begin_with_any_grant() {
        // Two in a window that begins with the first, three in one that begins later.
        assert_eq!(most_in_a_window(&[0.0, 90.0, 110.0, 189.0], 100.0), 3);
        assert_eq!(most_in_a_window(&[5.0, 5.0, 5.0], 100.0), 3);
        assert_eq!(most_in_a_window(&[], 100.0), 0);
    }

    #[test]
    fn a_grant_is_possible_a_window_after_the_one_whose_units_it_takes() {
        let times = [0.0, 1.0, 103.0, 110.0];
        assert_eq!(possible(&times, 2, 100.0).collect::<Vec<_>>(), [100.0, 101.0]);
        assert_eq!(possible(&times, 9, 100.0).count(), 0);
    }

    #[test]
    fn the_first_grants_do_not_count_for_the_rate() {
        // Two at once, and two a second later: two in a second.
        assert!((rate(&[0.0, 0.0, 1e6, 1e6], 2) - 2.0).abs() < 1e-9);
    }
}
