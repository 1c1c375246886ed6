//! The types of `recorded` without contents, for programs without the feature `metrics`.

use std::sync::Arc;
use std::time::Duration;

/// The metrics of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionMeters;

impl SessionMeters {
    pub(crate) fn new(_operations: impl Iterator<Item = &'static str>, _max_labels: usize) -> Self {
        Self
    }

    pub(crate) fn semaphore(&self, _name: &str) -> SemaphoreMeters {
        SemaphoreMeters
    }

    pub(crate) fn known_semaphore(&self, _name: &str) -> SemaphoreMeters {
        SemaphoreMeters
    }
}

/// The metrics of a semaphore.
#[derive(Debug, Clone, Default)]
pub(crate) struct SemaphoreMeters;

impl SemaphoreMeters {
    pub(crate) fn granted(&self, _waited: Duration) {}
    pub(crate) fn granted_locally(&self) {}
    pub(crate) fn refused(&self, _reason: &'static str) {}
    pub(crate) fn lost(&self, _reason: &'static str) {}
    pub(crate) fn stops_waiting(&self, _waiting: &Counted) {}
    pub(crate) fn holds(&self, _held: &Counted) {}
    pub(crate) fn stops_holding(&self, _held: &Counted, _held_for: Duration) {}
}

/// The part of one acquisition or permit in a gauge.
#[derive(Debug, Default)]
pub(crate) struct Counted;

impl Counted {
    pub(crate) fn renew(&self) {}
}

/// Findings of the engine.
#[derive(Debug, Default)]
pub(crate) struct Tally;

impl Tally {
    pub(crate) fn call(&mut self, _operation: usize, _took: Duration, _requests: usize) {}
    pub(crate) fn retry(&mut self) {}
    pub(crate) fn reconnect(&mut self) {}
    pub(crate) fn waits(&mut self, _meters: SemaphoreMeters, _waiting: &Arc<Counted>) {}
    pub(crate) fn record(self, _session: &SessionMeters) {}
}
