//! The synchronization primitives of the shelf and of the state of permits, which threads share without the
//! lock of the session. The test `threads` compiles both a second time, with loom's primitives instead.

pub(super) use std::sync::atomic;
pub(super) use std::sync::{Mutex, MutexGuard};
