//! The wait for the locks of other processes: until a deadline, in short random steps.
//!
//! SQLite's own steps grow to a tenth of a second, so that with many processes some sleep while the file is
//! free. A transaction of this library takes some tens of microseconds, so these steps stay short. The order
//! of the waiting processes does not matter: the queue of a semaphore decides which waiter is granted.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::Connection;

use crate::clock::Moment;

/// The first step, and the longest, in microseconds. Each is drawn from its upper half.
const STEP_US: (u64, u64) = (200, 10_000);

thread_local! {
    /// The deadline of this thread's waits. A thread-local, because SQLite passes only a count to the
    /// handler.
    static DEADLINE: Cell<Moment> = const { Cell::new(Moment::from_micros(0)) };
}

/// Makes statements on this connection wait until the deadline of [`set_deadline`].
pub(super) fn install(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait))
}

/// Sets the deadline of this thread's waits for other processes.
pub(crate) fn set_deadline(deadline: Moment) {
    DEADLINE.set(deadline);
}

/// Waits one step, after `waited` earlier ones. Returns false, without waiting, after the deadline.
pub(super) fn wait(waited: i32) -> bool {
    let left = DEADLINE.get().since(Moment::now());
    if left.is_zero() {
        return false;
    }
    let most_us = (STEP_US.0 << waited.clamp(0, 16)).min(STEP_US.1);
    std::thread::sleep(Duration::from_micros(fastrand::u64(most_us / 2..=most_us)).min(left));
    true
}
