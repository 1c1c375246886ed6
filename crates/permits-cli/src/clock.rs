//! Times in milliseconds, as JSON has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The duration, rounded down.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    milliseconds(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}
