//! Bounded polling, for what can only be observed and not awaited.
//!
//! It owns the one interval at which the kit polls. A server starts in some 20 ms, so 2 ms costs little and
//! hides nothing.

use std::thread;
use std::time::{Duration, Instant};

/// How long to sleep between two looks.
const INTERVAL: Duration = Duration::from_millis(2);

/// Polls `condition` until it holds or `limit` has passed; says whether it held.
///
/// It is looked at once at least, and blocks the calling thread in between.
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
