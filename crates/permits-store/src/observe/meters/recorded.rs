//! Metrics by the facade crate `metrics`.
//!
//! **Handles.** A session and its semaphores register their metrics once, before the first use, and keep the
//! handles. To record a value later is an atomic operation of the recorder, or a branch if there is no
//! recorder. So a client does not use a recorder that is installed after the client has connected.
//!
//! **Labels.** A bounded number of semaphores of a process have metrics of their own, in the order of their
//! first use. All others share the metrics with the label `other`.
//!
//! **Gauges.** Each acquisition and each permit is added to its gauge once, and subtracted once, whichever
//! way it ends first: see [`Counted`].
//!
//! The recorder is code of the program. So no method that records or registers is called under a lock, and a
//! recorder that panics harms nothing.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};

use super::names;
use crate::sys::process::PerProcess;

/// The names of the semaphores that have metrics of their own in this process.
static LABELLED: PerProcess<Mutex<HashSet<String>>> = PerProcess::new();

/// The metrics of a session. The default records nothing.
#[derive(Clone, Default)]
pub struct SessionMeters(Option<Arc<Session>>);

struct Session {
    /// How many names [`LABELLED`] may have.
    max_labels: usize,
    /// The semaphores of this session that have metrics of their own.
    semaphores: Mutex<HashMap<String, SemaphoreMeters>>,
    /// The metrics that all other semaphores share.
    other: SemaphoreMeters,
    /// The duration of calls, by the number of the operation.
    calls: Vec<Histogram>,
    batches: Counter,
    batched_requests: Counter,
    retries: Counter,
    reconnects: Counter,
}

impl std::fmt::Debug for SessionMeters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionMeters").finish_non_exhaustive()
    }
}

impl SessionMeters {
    /// Describes and registers the metrics of a session. `operations` are the operations of its store, and
    /// `max_labels` bounds the semaphores of this process that have metrics of their own.
    pub fn new(operations: impl Iterator<Item = &'static str>, max_labels: usize) -> Self {
        let call = |operation| histogram!(names::STORE_CALL, names::OPERATION => operation);
        harmless(|| {
            names::describe();
            let other = if max_labels > 0 { Some(names::OTHER) } else { None };
            Self(Some(Arc::new(Session {
                max_labels,
                semaphores: Mutex::default(),
                other: SemaphoreMeters::register(other),
                calls: operations.map(call).collect(),
                batches: counter!(names::BATCHES),
                batched_requests: counter!(names::BATCHED_REQUESTS),
                retries: counter!(names::RETRIES),
                reconnects: counter!(names::RECONNECTS),
            })))
        })
    }

    /// The metrics of a semaphore, registered now if they are not yet.
    pub fn semaphore(&self, name: &str) -> SemaphoreMeters {
        let Some(session) = &self.0 else { return SemaphoreMeters::default() };
        if let Some(known) = locked(&session.semaphores).get(name) {
            return known.clone();
        }
        if !may_have_label(name, session.max_labels) {
            return session.other.clone();
        }
        let registered = harmless(|| SemaphoreMeters::register(Some(name)));
        locked(&session.semaphores).entry(name.to_owned()).or_insert(registered).clone()
    }

    /// The metrics of a semaphore if they are registered, or else the metrics with the label `other`. Calls
    /// no recorder.
    pub fn known_semaphore(&self, name: &str) -> SemaphoreMeters {
        let Some(session) = &self.0 else { return SemaphoreMeters::default() };
        locked(&session.semaphores).get(name).unwrap_or(&session.other).clone()
    }
}

/// Returns true if a semaphore has metrics of its own. From now on it keeps them. A client without labels has
/// none either for the names that another client of the process has labelled.
fn may_have_label(name: &str, max: usize) -> bool {
    let mut labelled = locked(LABELLED.get());
    max > 0 && (labelled.contains(name) || labelled.len() < max && labelled.insert(name.to_owned()))
}

/// The metrics of a semaphore. The default records nothing.
#[derive(Clone, Default)]
pub struct SemaphoreMeters(Option<Arc<Semaphore>>);

struct Semaphore {
    labels: Vec<Label>,
    wait: Histogram,
    hold: Histogram,
    held: Gauge,
    waiting: Gauge,
    grants: Counter,
    local_grants: Counter,
}

impl std::fmt::Debug for SemaphoreMeters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SemaphoreMeters").finish_non_exhaustive()
    }
}

impl SemaphoreMeters {
    fn register(label: Option<&str>) -> Self {
        let label = label.map(|label| Label::new(names::SEMAPHORE, label.to_owned()));
        let labels: Vec<Label> = label.into_iter().collect();
        Self(Some(Arc::new(Semaphore {
            wait: histogram!(names::WAIT, labels.clone()),
            hold: histogram!(names::HOLD, labels.clone()),
            held: gauge!(names::HELD, labels.clone()),
            waiting: gauge!(names::WAITING, labels.clone()),
            grants: counter!(names::GRANTS, labels.clone()),
            local_grants: counter!(names::LOCAL_GRANTS, labels.clone()),
            labels,
        })))
    }

    fn record(&self, record: impl FnOnce(&Semaphore)) {
        if let Some(semaphore) = &self.0 {
            harmless(|| record(semaphore));
        }
    }

    /// Records that an acquisition was granted.
    pub fn granted(&self, waited: Duration) {
        self.record(|semaphore| {
            semaphore.grants.increment(1);
            semaphore.wait.record(waited.as_secs_f64());
        });
    }

    /// Records that the session itself has granted an acquisition, with a permit that it kept.
    pub fn granted_locally(&self) {
        self.record(|semaphore| semaphore.local_grants.increment(1));
        self.granted(Duration::ZERO);
    }

    /// Records that an acquisition ended without a permit.
    pub fn refused(&self, reason: &'static str) {
        self.record(|semaphore| counter!(names::REFUSALS, semaphore.with_reason(reason)).increment(1));
    }

    /// Records that a permit was lost.
    pub fn lost(&self, reason: &'static str) {
        self.record(|semaphore| counter!(names::LOSSES, semaphore.with_reason(reason)).increment(1));
    }

    /// Counts a request that waits in the queue.
    fn waits(&self, waiting: &Counted) {
        if waiting.begin() {
            self.record(|semaphore| semaphore.waiting.increment(1.0));
        }
    }

    /// Stops counting a request that waited, if it did, and makes sure that it is not counted later.
    pub fn stops_waiting(&self, waiting: &Counted) {
        if waiting.end() {
            self.record(|semaphore| semaphore.waiting.decrement(1.0));
        }
    }

    /// Counts a permit that a caller has.
    pub fn holds(&self, held: &Counted) {
        if held.begin() {
            self.record(|semaphore| semaphore.held.increment(1.0));
        }
    }

    /// Stops counting a permit, which has ended. If no caller has had it, nothing happens.
    pub fn stops_holding(&self, held: &Counted, held_for: Duration) {
        if held.end() {
            self.record(|semaphore| {
                // Records the time before the gauge falls: whoever sees that the permit has ended finds its
                // time.
                semaphore.hold.record(held_for.as_secs_f64());
                semaphore.held.decrement(1.0);
            });
        }
    }
}

impl Semaphore {
    fn with_reason(&self, reason: &'static str) -> Vec<Label> {
        let reason = Label::from_static_parts(names::REASON, reason);
        self.labels.iter().cloned().chain([reason]).collect()
    }
}

/// The part of one acquisition or permit in a gauge. It begins once and ends once; once it has ended, it
/// cannot begin.
#[derive(Debug, Default)]
pub struct Counted(AtomicU8);

const FRESH: u8 = 0;
const BEGUN: u8 = 1;
const ENDED: u8 = 2;

impl Counted {
    /// Returns true if the gauge has to be raised.
    fn begin(&self) -> bool {
        self.0.compare_exchange(FRESH, BEGUN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Lets this count again: a permit that has ended belongs to the next holder from now on.
    pub fn renew(&self) {
        self.0.store(FRESH, Ordering::Release);
    }

    /// Returns true if the gauge has to be lowered.
    fn end(&self) -> bool {
        self.0.swap(ENDED, Ordering::AcqRel) == BEGUN
    }
}

/// Measurements that the engine makes under the session's lock. They are recorded when the lock is free.
#[derive(Default)]
pub struct Tally {
    calls: Vec<CallSample>,
    waiters: Vec<(SemaphoreMeters, Arc<Counted>)>,
    retries: u64,
    reconnects: u64,
}

struct CallSample {
    operation: usize,
    took: Duration,
    requests: usize,
}

impl Tally {
    /// Notes that a call has returned.
    pub fn call(&mut self, operation: usize, took: Duration, requests: usize) {
        self.calls.push(CallSample { operation, took, requests });
    }

    /// Notes that a call has failed, and is made again if it still matters.
    pub fn retry(&mut self) {
        self.retries += 1;
    }

    /// Notes that the store can be reached again.
    pub fn reconnect(&mut self) {
        self.reconnects += 1;
    }

    /// Notes that a request waits in the queue.
    pub fn waits(&mut self, meters: SemaphoreMeters, waiting: &Arc<Counted>) {
        self.waiters.push((meters, waiting.clone()));
    }

    /// Records everything. Call this under no lock.
    pub fn record(self, meters: &SessionMeters) {
        for (meters, waiting) in self.waiters {
            meters.waits(&waiting);
        }
        let Some(session) = &meters.0 else { return };
        harmless(|| {
            for sample in self.calls {
                session.record_call(&sample);
            }
            if self.retries > 0 {
                session.retries.increment(self.retries);
            }
            if self.reconnects > 0 {
                session.reconnects.increment(self.reconnects);
            }
        });
    }
}

impl Session {
    fn record_call(&self, CallSample { operation, took, requests }: &CallSample) {
        if let Some(histogram) = self.calls.get(*operation) {
            histogram.record(took.as_secs_f64());
        }
        if *requests > 1 {
            self.batches.increment(1);
            self.batched_requests.increment(u64::try_from(*requests).unwrap_or(u64::MAX));
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls the recorder. If the recorder panics, the result is the default.
fn harmless<T: Default>(call: impl FnOnce() -> T) -> T {
    // The panic hook has reported it.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_default()
}
