//! The primitives of the shelf and of the state of permits, which threads share without the lock of the
//! session. The test `threads` compiles both once more, with those of loom in their place.

pub(super) use std::sync::atomic;
pub(super) use std::sync::{Mutex, MutexGuard};
