//! The moments at which grants become possible. Times are in microseconds, in ascending order.

/// The moments at which the grants became possible, except the first `limit`: a window after the grant whose
/// units each of them takes.
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
