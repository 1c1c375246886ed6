//! The local store's clock: microseconds on the scale of the wall clock, driven by the time since the machine
//! started. That time stands still while the machine sleeps, and all users of the store with it, so no lease
//! ends then. No program can set it.
//!
//! A file stores the boot of the machine in which it was last written. In a later boot no process of that
//! boot is alive, so all leases end. The clock continues from the last value in the file or later, so that
//! tokens rise even if the wall clock was wrong when the machine started.
//!
//! A container may have a time namespace, in which the system adds an offset to the time since the start.
//! This module subtracts the offset, so that a lease ends at the same moment for all processes.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(target_os = "linux")]
use crate::clock::Clock;

/// A boot of the machine, with what is needed to tell the time since it began.
pub(crate) struct Boot {
    pub(crate) id: u128,
    /// The offset of this process's time namespace, in microseconds, for the clock that stops during sleep.
    offset_us: i64,
    /// The same for the clock that runs on during sleep.
    #[cfg(target_os = "linux")]
    asleep_offset_us: i64,
}

impl Boot {
    #[cfg(target_os = "linux")]
    pub(crate) fn current() -> io::Result<Self> {
        let path = "/proc/sys/kernel/random/boot_id";
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            // Use another kind of error, which does not look as if the store's directory were missing.
            io::ErrorKind::NotFound => io::Error::new(io::ErrorKind::Unsupported, format!("{path}: {error}")),
            _ => error,
        })?;
        let id = u128::from_str_radix(&text.trim().replace('-', ""), 16)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {text:?}")))?;
        let [offset_us, asleep_offset_us] = namespace::offsets_us()?;
        Ok(Self { id, offset_us, asleep_offset_us })
    }

    /// The boot, which systems other than Linux do not identify. So the store uses the wall clock there, and
    /// a restart ends no lease by itself.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn current() -> io::Result<Self> {
        Ok(Self { id: 0, offset_us: 0 })
    }

    /// Microseconds since the machine started.
    #[cfg(target_os = "linux")]
    pub(crate) fn elapsed_us(&self) -> i64 {
        let here_us = i64::try_from(Clock::Sleeping.now().as_micros()).unwrap_or(i64::MAX);
        here_us.saturating_sub(self.offset_us)
    }

    /// The moment at which the machine started, by the wall clock as it is set now: microseconds since 1970.
    #[cfg(target_os = "linux")]
    pub(crate) fn started_us(&self) -> i64 {
        let here_us = i64::try_from(Clock::Sleepless.now().as_micros()).unwrap_or(i64::MAX);
        wall_us() - here_us.saturating_sub(self.asleep_offset_us)
    }

    /// Makes this the beginning of a new boot.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn restart(&mut self) {
        self.id += 1;
        self.asleep_offset_us = i64::try_from(Clock::Sleepless.now().as_micros()).expect("it is a time");
    }

    /// Files never seem to be of another boot on this system.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn started_us(&self) -> i64 {
        wall_us()
    }

    /// Microseconds since 1970.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn elapsed_us(&self) -> i64 {
        wall_us() - self.offset_us
    }
}

/// The time namespace of this process.
#[cfg(target_os = "linux")]
mod namespace {
    use std::fs;
    use std::io::{self, ErrorKind};

    /// The offsets that the system adds to the time since the machine started, in microseconds: for the clock
    /// that stops during sleep, and for the clock that runs on.
    pub(super) fn offsets_us() -> io::Result<[i64; 2]> {
        let text = match fs::read_to_string("/proc/self/timens_offsets") {
            Ok(text) => text,
            // The kernel has no time namespaces.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok([0; 2]),
            Err(error) => return Err(error),
        };
        // The file shows the offsets of the namespace of future children. A process that has made a new
        // namespace with unshare(2) is not in it, and the file does not show the offsets of its own.
        let [own, children] =
            ["time", "time_for_children"].map(|of| fs::read_link(format!("/proc/self/ns/{of}")));
        if own? != children? {
            let reason =
                "this process has made a time namespace that it is not in: start a process in it instead";
            return Err(io::Error::new(ErrorKind::Unsupported, reason));
        }
        match ["monotonic", "boottime"].map(|clock| parse(&text, clock)) {
            [Some(awake_us), Some(asleep_us)] => Ok([awake_us, asleep_us]),
            _ => {
                let reason = format!("the offsets of the time namespace cannot be read: {text:?}");
                Err(io::Error::new(ErrorKind::InvalidData, reason))
            }
        }
    }

    /// Reads lines such as `monotonic 100000 0`: seconds and nanoseconds.
    pub(super) fn parse(text: &str, clock: &str) -> Option<i64> {
        let offset = text.lines().find_map(|line| line.strip_prefix(clock))?;
        let mut numbers = offset.split_whitespace().map(|number| number.parse::<i64>().ok());
        let (seconds, nanoseconds) = (numbers.next()??, numbers.next()??);
        seconds.checked_mul(1_000_000)?.checked_add(nanoseconds / 1000)
    }
}

/// Microseconds since 1970, by the wall clock.
pub(crate) fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::namespace::parse;

    #[test]
    fn the_offset_of_a_time_namespace_is_read_in_microseconds() {
        let text = "monotonic      100000         2000\nboottime           5         7\n";
        assert_eq!(parse(text, "monotonic"), Some(100_000_000_002));
        assert_eq!(parse(text, "boottime"), Some(5_000_000));
        assert_eq!(parse("monotonic -10 999999000\nboottime 0 0\n", "monotonic"), Some(-9_000_001));
        assert_eq!(["", "monotonic 1", "monotonic x 0"].map(|text| parse(text, "monotonic")), [None; 3]);
    }
}
