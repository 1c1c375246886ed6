//! The clocks that measure leases in this process. They are monotonic. The leases of a server continue while
//! this machine sleeps. The users of a store of this machine sleep together, and its leases with them.

use std::ops::Add;
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub enum Clock {
    /// Advances while the machine sleeps, on Linux: CLOCK_BOOTTIME.
    #[default]
    Sleepless,
    /// Stands still while the machine sleeps: CLOCK_MONOTONIC.
    Sleeping,
    /// Stands where a test has set it.
    #[cfg(feature = "testing")]
    Set(SetClock),
}

/// A clock that a test sets. Each reading advances it by a nanosecond, so that what waits for it to advance
/// does not wait forever.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy)]
pub struct SetClock(&'static AtomicU64);

#[cfg(feature = "testing")]
impl SetClock {
    /// A clock that shows `moment`. Its memory is never freed.
    pub fn new(moment: Moment) -> Self {
        let clock = Self(Box::leak(Box::default()));
        clock.set(moment);
        clock
    }

    /// Sets it. It never goes back.
    pub fn set(self, moment: Moment) {
        self.0.fetch_max(u64::try_from(moment.0.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn now(self) -> Moment {
        Moment(Duration::from_nanos(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Clock {
    /// The current time.
    #[cfg(target_os = "linux")]
    pub fn now(self) -> Moment {
        let id = match self {
            Self::Sleepless => rustix::time::ClockId::Boottime,
            Self::Sleeping => rustix::time::ClockId::Monotonic,
            #[cfg(feature = "testing")]
            Self::Set(clock) => return clock.now(),
        };
        let time = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Moment(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
    }

    /// The current time. On this system the clock stands still while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    pub fn now(self) -> Moment {
        #[cfg(feature = "testing")]
        if let Self::Set(clock) = self {
            return clock.now();
        }
        static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Moment(BEGAN.get_or_init(std::time::Instant::now).elapsed())
    }
}

/// A point in time on one of the clocks. Only the difference between two moments of one clock has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The current time, by the clock that advances while the machine sleeps.
    pub fn now() -> Self {
        Clock::Sleepless.now()
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
