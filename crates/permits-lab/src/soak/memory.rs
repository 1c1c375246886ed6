//! Is memory flat? Samples over time, and the verdict on them: what was used when the load had settled, against what
//! was used in the end, under the same load.

use std::fmt::Write as _;

use permits_testkit::Server;

/// How much more may be used in the end than after the warm-up: a quarter, and what an allocator keeps.
const SLACK: u64 = 8 << 20;

/// Samples of one process.
#[derive(Default)]
pub(crate) struct Samples {
    bytes: Vec<u64>,
}

impl Samples {
    pub(crate) fn push(&mut self, sample: Option<u64>) {
        self.bytes.extend(sample);
    }

    /// The medians of the second tenth and of the last tenth; `None` if there are too few samples.
    fn start_and_end(&self) -> Option<(u64, u64)> {
        let tenth = self.bytes.len() / 10;
        let median = |range: &[u64]| {
            let mut sorted = range.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied()
        };
        Some((median(&self.bytes[tenth..2 * tenth])?, median(&self.bytes[self.bytes.len() - tenth..])?))
    }

    /// A line on it; an error if it is not flat.
    pub(crate) fn judge(&self, what: &str) -> Result<String, String> {
        let Some((start, end)) = self.start_and_end() else {
            return Ok(format!("{what}: too few samples"));
        };
        let mut line = String::new();
        let highest = self.bytes.iter().max().copied().unwrap_or(0);
        let [start_mb, end_mb, highest_mb] =
            [start, end, highest].map(|bytes| bytes as f64 / f64::from(1 << 20));
        let _ = write!(
            line,
            "{what}: {start_mb:.1} MiB at the start, {end_mb:.1} MiB at the end, {highest_mb:.1} MiB at most"
        );
        if end <= start + start / 4 + SLACK { Ok(line + ": flat") } else { Err(line + ": not flat") }
    }
}

/// What the server's data takes, and its buffers.
pub(crate) fn of_server(server: &Server) -> Option<u64> {
    server.info("used_memory")?.parse().ok()
}

/// What a process has in memory. Where the system does not tell, nothing is shown.
pub(crate) fn of_process(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(samples: impl Iterator<Item = u64>) -> Result<String, String> {
        let mut all = Samples::default();
        samples.for_each(|sample| all.push(Some(sample << 20)));
        all.judge("it")
    }

    #[test]
    fn what_grows_is_not_flat() {
        assert!(judged((0..100).map(|_| 50)).is_ok());
        assert!(judged((0..100).map(|at| 50 + at % 30)).is_ok(), "it goes up and down");
        assert!(judged((0..100).map(|at| 50 + at)).is_err());
        assert!(
            judged((0..100).map(|at| if at < 10 { 10 } else { 70 })).is_ok(),
            "the warm-up does not count"
        );
    }
}
