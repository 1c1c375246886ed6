//! The grants of a semaphore in the last seconds: a rate, and a sparkline.

use std::collections::VecDeque;
use std::time::Instant;

/// The columns of a sparkline, each of which is the time between two reads.
const COLUMNS: usize = 10;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last reads of the counter of grants.
#[derive(Debug, Default)]
pub(super) struct Rate {
    reads: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Adds a read. A counter that falls has begun again.
    pub(super) fn add(&mut self, now: Instant, grants: u64) {
        if self.reads.back().is_some_and(|(_, before)| *before > grants) {
            self.reads.clear();
        }
        if self.reads.len() > COLUMNS {
            self.reads.pop_front();
        }
        self.reads.push_back((now, grants));
    }

    /// The sparkline, as high as its highest column, and the grants a second; empty without grants.
    pub(super) fn text(&self) -> String {
        let steps: Vec<u64> = self
            .reads
            .iter()
            .zip(self.reads.iter().skip(1))
            .map(|(before, after)| after.1 - before.1)
            .collect();
        let (Some(first), Some(last)) = (self.reads.front(), self.reads.back()) else { return String::new() };
        let seconds = last.0.duration_since(first.0).as_secs_f64();
        let most = steps.iter().copied().max().unwrap_or(0);
        if most == 0 || seconds <= 0.0 {
            return String::new();
        }
        let highest = BARS.len() as u64 - 1;
        let bar = |grants: &u64| match grants {
            0 => ' ',
            grants => BARS[(grants * highest / most) as usize],
        };
        let bars: String = steps.iter().map(bar).collect();
        let rate = (last.1 - first.1) as f64 / seconds;
        match rate {
            10.0.. => format!("{bars} {rate:.0}/s"),
            _ => format!("{bars} {rate:.1}/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(grants: &[u64]) -> String {
        let (mut rate, now) = (Rate::default(), Instant::now());
        for (second, grants) in grants.iter().enumerate() {
            rate.add(now + Duration::from_secs(second as u64), *grants);
        }
        rate.text()
    }

    #[test]
    fn a_rate_is_that_of_the_last_reads() {
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[7]), "");
        assert_eq!(text(&[7, 7, 7]), "");
        assert_eq!(text(&[0, 7, 7, 8]), "█ ▂ 2.7/s");
        assert_eq!(text(&[100, 120, 3, 23]), "█ 20/s", "a counter that falls has begun again");
        let steady: Vec<u64> = (0..40).map(|second| 2 * second).collect();
        assert_eq!(text(&steady), "██████████ 2.0/s");
    }
}
