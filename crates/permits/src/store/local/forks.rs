//! The count of open files, by which a forked child is refused if its parent had a file open at the fork.
//!
//! SQLite keeps the locks that it has in the memory of the process, because the system's file locks belong to
//! the process and not to the descriptor. A child has a copy of that memory and none of the locks, and would
//! take the parent's locks for its own.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::store::error::StoreError;
use crate::sys::process::Process;

/// The number of files that are open, and the process that has them open.
static FILES: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// The count of one file.
pub(super) struct FileCount(());

impl FileCount {
    /// Counts a file that this process is about to open.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] in a forked child whose parent had a file open.
    pub(super) fn increment() -> Result<Self, StoreError> {
        let process = Process::current().number().get();
        if PROCESS.swap(process, Ordering::AcqRel) != process && FILES.load(Ordering::Acquire) > 0 {
            // So that the next call is refused too.
            PROCESS.store(0, Ordering::Release);
            let reason = "a local store was open when this process was forked, and SQLite's locks do not survive that: \
                          fork before connecting, close every client first, or let the child exec a program"
                .into();
            return Err(StoreError::Unsupported { reason });
        }
        FILES.fetch_add(1, Ordering::AcqRel);
        Ok(Self(()))
    }
}

impl Drop for FileCount {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::AcqRel);
    }
}
