//! The identity of a process.
//!
//! A child of fork(2) has a copy of its parent's memory and shares the parent's descriptors. A library that
//! owns threads, locks or connections has to notice that it runs in such a child. The pid does not show it:
//! the first process of a pid namespace and its child that is the first of another one have both the pid 1,
//! and reading the pid takes a system call.
//!
//! So the identity is a number in memory that a fork changes:
//!
//! - **Linux** and Android: a word in a page that the kernel clears in the child (`MADV_WIPEONFORK`, since
//!   Linux 4.14). A child that finds the word cleared takes the next number of a counter, of which it has a
//!   copy. This holds for every way to fork, also for a system call that passes by the C library.
//! - **Other Unix:** a counter, which a handler of `pthread_atfork` raises in the child. A fork that passes
//!   by the C library is not noticed.
//! - **Elsewhere**, or if the kernel or the C library refuses: the pid.
//!
//! ```
//! use permits_process::Process;
//!
//! let connected_by = Process::current();
//! assert!(!connected_by.is_forked());
//! ```
//!
//! A child that shares its parent's memory, as that of vfork(2) or posix_spawn(3) does until it executes a
//! program, is the same process here.

#![deny(unsafe_code)]

use std::num::NonZeroU64;

#[cfg(all(unix, any(test, not(any(target_os = "linux", target_os = "android")))))]
mod at_fork;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod wiped;

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
use at_fork::number;
#[cfg(not(unix))]
use pid as number;
#[cfg(any(target_os = "linux", target_os = "android"))]
use wiped::number;

/// A process, as distinct from those that it was forked from and those that are forked from it.
///
/// Two children of one process may have equal values. They never meet, because neither has a copy of the
/// other's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process(NonZeroU64);

impl Process {
    /// The calling process.
    ///
    /// Takes a nanosecond or two, no lock and no memory. Only the first call of a program makes system calls.
    /// May be called by a signal handler, and by a child of a process whose other threads were anywhere.
    #[inline]
    pub fn current() -> Self {
        Self(number())
    }

    /// Returns true if the caller is a forked child of this process.
    #[inline]
    pub fn is_forked(self) -> bool {
        self != Self::current()
    }

    /// A number for it, to be kept in an atomic.
    #[inline]
    pub fn number(self) -> NonZeroU64 {
        self.0
    }
}

/// The pid.
fn pid() -> NonZeroU64 {
    // No process of a program has the pid 0.
    NonZeroU64::new(std::process::id().into()).unwrap_or(NonZeroU64::MAX)
}

#[cfg(all(test, unix))]
mod tests;
