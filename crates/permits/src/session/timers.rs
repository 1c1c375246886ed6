//! Timers, in order of time; pauses after failures; and outages, which decide by their length what fails.

use std::collections::BTreeMap;

use crate::clock::Moment;
use crate::protocol::{Name, RequestId};
use crate::timing::BACKOFF;
use permits_store::StoreError;

/// The timers of the engine.
pub(super) enum Timer {
    /// A time in the schedule of a semaphore.
    Semaphore(Name),
    /// The end of the wait, or of the lease, of an acquisition.
    Acquisition(Name, RequestId),
    /// Check for calls that have timed out.
    Timeouts,
    /// A single call may be retried. This timer only makes sure that the engine is stepped then.
    SingleCalls,
    Close,
}

/// Identifies a timer, so that it can be removed.
pub(crate) type Key = (Moment, u64);

/// Timers, ordered by time. Remove a timer that you no longer need, or it stays until its time.
pub(crate) struct Timers<T> {
    set: BTreeMap<Key, T>,
    made: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { set: BTreeMap::new(), made: 0 }
    }
}

impl<T> Timers<T> {
    pub(crate) fn set(&mut self, at: Moment, timer: T) -> Key {
        self.made += 1;
        let key = (at, self.made);
        self.set.insert(key, timer);
        key
    }

    pub(crate) fn remove(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.set.remove(&key);
        }
    }

    /// Removes and returns the next timer whose time has come.
    pub(crate) fn due(&mut self, now: Moment) -> Option<T> {
        let entry = self.set.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// The time of the next timer.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.set.first_key_value().map(|((at, _), _)| *at)
    }
}

/// The pause before the next try, which grows with each failure in a row.
#[derive(Default)]
pub(super) struct Retry {
    /// Nothing is sent before this time.
    pub(super) at: Option<Moment>,
    failures: u32,
}

impl Retry {
    pub(super) fn on_failure(&mut self, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        self.at = Some(now + BACKOFF.pause(self.failures));
    }

    /// Notes that a call has succeeded. A pause that has begun still lasts until its time.
    pub(super) fn on_success(&mut self) {
        self.failures = 0;
    }

    pub(super) fn on_time(&mut self, now: Moment) {
        self.at.take_if(|at| *at <= now);
    }
}

/// Failures in a row: no call has succeeded in between.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    pub(super) since: Moment,
    /// The last error.
    pub(super) error: StoreError,
}

impl Outage {
    /// Records another failure.
    pub(super) fn record(outage: &mut Option<Self>, error: StoreError, now: Moment) {
        let since = outage.as_ref().map_or(now, |outage| outage.since);
        *outage = Some(Self { since, error });
    }

    /// Returns the outage that began earlier, if there is any.
    pub(super) fn older<'a>(
        one: impl Into<Option<&'a Self>>,
        other: impl Into<Option<&'a Self>>,
    ) -> Option<&'a Self> {
        one.into().into_iter().chain(other.into()).min_by_key(|outage| outage.since)
    }
}
