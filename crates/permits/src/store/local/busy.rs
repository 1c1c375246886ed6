//! How long to wait while another process writes: until a deadline, in short steps.
//!
//! SQLite's own steps grow to a tenth of a second, so that among many processes the unlucky sleep while the file
//! is free. A transaction here takes some tens of microseconds; so the steps stay short, and are spread by
//! chance. No lock is inherited in order: that is the line's business, not the file's.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::Connection;

use crate::clock::Moment;

/// The first step, and the longest. What is taken is between half of it and all.
const STEP_US: (u64, u64) = (200, 10_000);

thread_local! {
    /// Until when this thread waits. SQLite passes nothing on but a count.
    static DEADLINE: Cell<Moment> = const { Cell::new(Moment::from_micros(0)) };
}

/// Has this connection wait as told by [`until`].
pub(super) fn install(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait))
}

/// Sets until when this thread waits for other processes.
pub(crate) fn until(deadline: Moment) {
    DEADLINE.set(deadline);
}

/// Waits for another process, after `waited` times. Says whether there was time left.
pub(super) fn wait(waited: i32) -> bool {
    let left = DEADLINE.get().since(Moment::now());
    if left.is_zero() {
        return false;
    }
    let most_us = (STEP_US.0 << waited.clamp(0, 16)).min(STEP_US.1);
    std::thread::sleep(Duration::from_micros(fastrand::u64(most_us / 2..=most_us)).min(left));
    true
}
