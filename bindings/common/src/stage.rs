//! [`Stage`]: whether a waker has to note its call, or the poll that is under way sees the call again.

use std::sync::atomic::{AtomicU8, Ordering};

/// The call is being polled.
const POLLING: u8 = 0;
/// The poll has ended, and the call waits.
const WAITING: u8 = 1;
/// The waker was called.
const WOKEN: u8 = 2;

/// The stage of one poll of a call.
#[derive(Debug, Default)]
pub struct Stage(AtomicU8);

impl Stage {
    /// Ends the poll. Returns false if the waker was called meanwhile: then the call is polled once more, and
    /// nothing is noted.
    pub fn polled(&self) -> bool {
        self.0.compare_exchange(POLLING, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Notes that the waker was called. Returns true if the call waits, so that it has to be noted, once.
    pub fn woken(&self) -> bool {
        self.0.swap(WOKEN, Ordering::AcqRel) == WAITING
    }
}
