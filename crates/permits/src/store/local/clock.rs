//! The local store's clock: microseconds on the scale of the wall clock, but driven by the time since the
//! machine started, which goes on while it sleeps and which nobody can set.
//!
//! A file remembers in which boot of the machine it was last used. In another boot nobody of the earlier one is
//! alive, so all leases end; and the clock goes on from no earlier than where it stopped, so tokens rise even
//! if the wall clock was wrong when the machine started.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time since the machine started, and which start that was.
pub(super) struct Boot {
    pub(super) id: String,
}

impl Boot {
    #[cfg(target_os = "linux")]
    pub(super) fn current() -> std::io::Result<Self> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self { id: id.trim().to_owned() })
    }

    /// Where a boot has no name, the wall clock has to do, and a restart ends leases only by the time it takes.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn current() -> std::io::Result<Self> {
        Ok(Self { id: "unknown".to_owned() })
    }

    /// Microseconds since the machine started.
    #[cfg(target_os = "linux")]
    pub(super) fn elapsed_us(&self) -> i64 {
        i64::try_from(crate::clock::Moment::now().as_micros()).unwrap_or(i64::MAX)
    }

    /// Microseconds since 1970.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn elapsed_us(&self) -> i64 {
        wall_us()
    }
}

/// Microseconds since 1970, as the system believes.
pub(super) fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
