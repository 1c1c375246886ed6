//! The rule that no code of the program runs under the lock of a session, asserted in builds with debug
//! assertions.

#[cfg(debug_assertions)]
thread_local! {
    static LOCKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Marks this thread as holding the lock of a session, until it is dropped.
pub(super) struct Mark(());

impl Mark {
    pub(super) fn new() -> Self {
        #[cfg(debug_assertions)]
        LOCKED.set(true);
        Self(())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        LOCKED.set(false);
    }
}

/// Asserts that this thread holds no lock of a session, because code of the program runs next.
pub(super) fn assert_unlocked() {
    #[cfg(debug_assertions)]
    assert!(!LOCKED.get(), "code of the program runs under the lock of a session");
}
