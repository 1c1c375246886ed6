//! The native half of the Python package `permits`: the public API of the library, as calls that a thread
//! blocks on or an event loop polls.
//!
//! An operation is a `Call`: a future of the library, which any thread can poll. Nothing here waits for a
//! runtime, and no thread of the library takes the interpreter's lock: a waker only notes the call in a
//! `Mailbox`, or unparks a thread. So a program that keeps the lock for long delays no renewal, and a process
//! can end at any moment.
//!
//! Names, defaults, types and documentation for users are in the Python half.
#![forbid(unsafe_code)]

mod failure;
mod mailbox;
mod objects;

use pyo3::prelude::*;

/// The module `permits._permits`. All its state is behind locks of its own, so it needs no lock of the
/// interpreter.
#[pymodule(gil_used = false)]
mod _permits {
    /// The version of the package, which maturin takes from the crate.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::mailbox::Mailbox;
    #[pymodule_export]
    use crate::objects::{Asked, Call, Client, Permit, Semaphore, connect, diagnose, events, exit_begins};
}
