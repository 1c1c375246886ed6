//! The clock that measures leases in this process. It is monotonic and, on Linux, advances while the machine
//! sleeps, because a lease in the store ends then too.

use std::ops::Add;
use std::time::Duration;

/// A point in time on this machine's monotonic clock. Only the difference between two moments has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The current time, by CLOCK_BOOTTIME.
    #[cfg(target_os = "linux")]
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Self(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
    }

    /// The current time. On this system the clock stops while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Self {
        static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Self(BEGAN.get_or_init(std::time::Instant::now).elapsed())
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Microseconds since the start of the clock, for an atomic.
    pub fn as_micros(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }

    /// The moment `micros` after the start of the clock.
    pub const fn from_micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}
