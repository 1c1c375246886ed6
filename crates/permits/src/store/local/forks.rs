//! A forked child may open a file only if its parent had none open at the fork.
//!
//! SQLite keeps what it has locked in the memory of the process, because the system's file locks belong to the process
//! and not to the descriptor. A child has a copy of that memory and none of the locks: it would believe that it holds
//! what the parent holds. So the number of open files is counted, and a child that has copied a number is refused.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::store::StoreError;

/// How many files are open, in the process of this id.
static FILES: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A file of this process that is open, or about to be.
pub(super) struct Open(());

impl Open {
    pub(super) fn here() -> Result<Self, StoreError> {
        let process = std::process::id();
        if PROCESS.swap(process, Ordering::AcqRel) != process && FILES.load(Ordering::Acquire) > 0 {
            // As the next one has to be refused.
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

impl Drop for Open {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::AcqRel);
    }
}
