//! The identity of a process.
//!
//! A child of fork(2) has a copy of its parent's memory and shares the parent's descriptors. A library that
//! owns threads, locks or connections has to notice that it runs in such a child. The pid does not show it:
//! if the first process of a pid namespace forks the first process of another namespace, both have the pid 1.
//! Reading the pid also takes a system call.
//!
//! So the identity is a number in memory that a fork changes:
//!
//! - **Linux** and Android: a word in a page that the kernel clears in the child (`MADV_WIPEONFORK`, since
//!   Linux 4.14). A child that finds the word cleared takes the next number of a counter, of which it has a
//!   copy. This works for every way to fork, even for a system call that bypasses the C library.
//! - **Other Unix:** a counter, which a handler of `pthread_atfork` raises in the child. A fork that bypasses
//!   the C library is not noticed.
//! - **Elsewhere**, or if the kernel or the C library refuses: the pid.
//!
//! ```
//! use permits_process::Process;
//!
//! let connected_by = Process::current();
//! assert!(!connected_by.is_forked());
//! ```
//!
//! A child that shares its parent's memory counts as the same process. A child of vfork(2) or posix_spawn(3)
//! does so until it executes a program.

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

/// A process. Its parent and its forked children are different ones.
///
/// Two children of one process may have equal values. They never meet, because neither has a copy of the
/// other's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process(NonZeroU64);

impl Process {
    /// Returns the calling process.
    ///
    /// The call takes a nanosecond or two, no lock and no memory. Only the first call of a program makes
    /// system calls. You may call it in a signal handler, and in a child of a process whose other threads
    /// were anywhere.
    #[inline]
    pub fn current() -> Self {
        Self(number())
    }

    /// Returns true if the caller is a forked child of this process.
    #[inline]
    pub fn is_forked(self) -> bool {
        self != Self::current()
    }

    /// A number for the process, which you can keep in an atomic.
    #[inline]
    pub fn number(self) -> NonZeroU64 {
        self.0
    }
}

/// The pid.
fn pid() -> NonZeroU64 {
    // The pid of a process is never 0.
    NonZeroU64::new(std::process::id().into()).unwrap_or(NonZeroU64::MAX)
}

#[cfg(all(test, unix))]
mod tests;
