//! Bounded waits, for conditions that cannot be awaited, and the one limit of them all.
//!
//! A limit of time in a test says that something hangs, never that it is slow: the machine that runs the
//! tests may have other work. So every wait for what must come has the same limit, [`HANGS`], of minutes.
//!
//! A server starts in some 20 ms, so to look every 2 ms costs little and hides nothing.

use std::future::Future;
use std::thread;
use std::time::{Duration, Instant};

/// The time after which what must come hangs.
pub const HANGS: Duration = Duration::from_secs(300);

/// A lease that ends in no test, and is renewed in none.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A time without what must not come. A test that listens for longer sees no more on a quiet machine, and
/// on a slow one it may miss a fault, but reports none.
pub const SILENCE: Duration = Duration::from_millis(50);

/// The time between two polls.
const INTERVAL: Duration = Duration::from_millis(2);

/// Polls `condition` until it holds or [`HANGS`] has passed; returns whether it held.
///
/// Polls at least once, and blocks the calling thread in between.
pub fn until(condition: impl FnMut() -> bool) -> bool {
    within(HANGS, condition)
}

/// Polls `condition` for `limit`, as [`until`] does: for what need not come, or must not.
pub fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
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

/// Awaits what must come.
#[track_caller]
pub fn in_time<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        let bounded = tokio::time::timeout(HANGS, future).await;
        bounded.unwrap_or_else(|_| panic!("it hangs: {caller}"))
    }
}
