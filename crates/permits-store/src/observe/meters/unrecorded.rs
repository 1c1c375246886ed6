//! The types of `recorded` without contents, for programs without the feature `metrics`.
#![allow(missing_docs)] // `recorded` describes the same methods.

use std::sync::Arc;
use std::time::Duration;

/// The metrics of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionMeters;

impl SessionMeters {
    pub fn new(_operations: impl Iterator<Item = &'static str>, _max_labels: usize) -> Self {
        Self
    }

    pub fn semaphore(&self, _name: &str) -> SemaphoreMeters {
        SemaphoreMeters
    }

    pub fn known_semaphore(&self, _name: &str) -> SemaphoreMeters {
        SemaphoreMeters
    }
}

/// The metrics of a semaphore.
#[derive(Debug, Clone, Default)]
pub struct SemaphoreMeters;

impl SemaphoreMeters {
    pub fn granted(&self, _waited: Duration) {}
    pub fn granted_locally(&self) {}
    pub fn refused(&self, _reason: &'static str) {}
    pub fn lost(&self, _reason: &'static str) {}
    pub fn stops_waiting(&self, _waiting: &Counted) {}
    pub fn holds(&self, _held: &Counted) {}
    pub fn stops_holding(&self, _held: &Counted, _held_for: Duration) {}
}

/// The part of one acquisition or permit in a gauge.
#[derive(Debug, Default)]
pub struct Counted;

impl Counted {
    pub fn renew(&self) {}
}

/// Measurements of the engine.
#[derive(Debug, Default)]
pub struct Tally;

impl Tally {
    pub fn call(&mut self, _operation: usize, _took: Duration, _requests: usize) {}
    pub fn retry(&mut self) {}
    pub fn reconnect(&mut self) {}
    pub fn waits(&mut self, _meters: SemaphoreMeters, _waiting: &Arc<Counted>) {}
    pub fn record(self, _session: &SessionMeters) {}
}
