//! The number of requests that a service has in work: requests that wait for a permit, and requests that hold
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The count that a service shares with its clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load(Arc<AtomicUsize>);

/// A request that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Load);

impl Load {
    pub(crate) fn count(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
