//! Unix without memory that a fork clears: a counter, which a handler of the C library raises in a forked
//! child.
//!
//! Linux compiles this only for the tests.

#![expect(unsafe_code, reason = "handlers of a fork are an interface of the C library")]

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the process; 0 before the first call, [`BY_PID`] if the handler could not be registered.
static NUMBER: AtomicU64 = AtomicU64::new(0);

const BY_PID: u64 = u64::MAX;

/// The number of the calling process.
#[inline]
pub(crate) fn number() -> NonZeroU64 {
    match NonZeroU64::new(NUMBER.load(Ordering::Relaxed)) {
        Some(number) if number.get() < BY_PID => number,
        _ => begin(),
    }
}

/// Registers the handler, unless that has failed.
#[cold]
fn begin() -> NonZeroU64 {
    if NUMBER.load(Ordering::Relaxed) == 0 {
        // SAFETY: the handler is a function of the program and lives as long as the program. It changes an
        // atomic, which a child may do at any time, even if its parent had other threads, and it does not
        // unwind.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(raise)) } == 0;
        let first = if registered { 1 } else { BY_PID };
        // If several threads come here at once, the first one decides. Then a fork raises the number several
        // times.
        let _ = NUMBER.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
    }
    let number = NonZeroU64::new(NUMBER.load(Ordering::Relaxed));
    number.filter(|number| number.get() < BY_PID).unwrap_or_else(super::pid)
}

/// Runs in a forked child.
extern "C" fn raise() {
    let next = |number| (number < BY_PID).then_some(number + 1);
    let _ = NUMBER.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
}
