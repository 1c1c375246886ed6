//! The lock of a session, and the assertion that this thread has none: code of the program runs when it is free.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(debug_assertions)]
thread_local! {
    /// This thread has a session locked.
    static LOCKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Asserts, in a build with debug assertions, that this thread has no session locked: what follows runs code of the program.
pub(super) fn assert_unlocked() {
    #[cfg(debug_assertions)]
    assert!(!LOCKED.get(), "code of the program runs under the lock of a session");
}

/// The locked state of a session.
pub(super) struct Locked<'a, T>(MutexGuard<'a, T>);

impl<'a, T> Locked<'a, T> {
    /// Locks, whether or not the lock is poisoned: the driver handles a panic under it.
    pub(super) fn new(state: &'a Mutex<T>) -> Self {
        let state = Self(state.lock().unwrap_or_else(PoisonError::into_inner));
        #[cfg(debug_assertions)]
        LOCKED.set(true);
        state
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(debug_assertions)]
impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        LOCKED.set(false);
    }
}
