//! Bounded polling, for conditions that cannot be awaited.
//!
//! The one interval of the kit is here. A server starts in some 20 ms, so 2 ms costs little and hides
//! nothing.

use std::thread;
use std::time::{Duration, Instant};

/// The time between two polls.
const INTERVAL: Duration = Duration::from_millis(2);

/// Polls `condition` until it holds or `limit` has passed; returns whether it held.
///
/// Polls at least once, and blocks the calling thread in between.
///
/// # Examples
///
/// ```
/// use permits_testkit::wait;
/// use std::time::Duration;
///
/// let mut looks = 0;
/// assert!(wait::until(Duration::from_secs(5), || {
///     looks += 1;
///     looks == 3
/// }));
/// ```
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(INTERVAL);
    }
}
