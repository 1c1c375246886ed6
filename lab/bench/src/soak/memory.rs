//! The verdict on memory: samples over time, compared between the settled load at the start and the same load
//! at the end.

use std::fmt::Write as _;

use permits_testkit::Server;

/// The growth that is allowed beyond a quarter: an allocator keeps some memory.
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

    /// The verdict in a line; an error if memory is not flat.
    pub(crate) fn verdict(&self, what: &str) -> Result<String, String> {
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

/// The memory of the server's data and buffers.
pub(crate) fn of_server(server: &Server) -> Option<u64> {
    server.info("used_memory")?.parse().ok()
}

/// The resident memory of a process; `None` where the system does not report it.
pub(crate) fn of_process(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(samples: impl Iterator<Item = u64>) -> Result<String, String> {
        let mut all = Samples::default();
        samples.for_each(|sample| all.push(Some(sample << 20)));
        all.verdict("it")
    }

    #[test]
    fn growing_memory_is_not_flat() {
        assert!(verdict((0..100).map(|_| 50)).is_ok());
        assert!(verdict((0..100).map(|at| 50 + at % 30)).is_ok(), "memory that goes up and down");
        assert!(verdict((0..100).map(|at| 50 + at)).is_err());
        assert!(
            verdict((0..100).map(|at| if at < 10 { 10 } else { 70 })).is_ok(),
            "the warm-up does not count"
        );
    }
}
