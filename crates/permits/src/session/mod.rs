//! The session: one client's connection, its renewals and its wake-ups, on a thread of its own.
//!
//! The thread has its own small runtime, so that renewals go out while the program's runtime is blocked, a
//! permit can be dropped anywhere, and a thread may wait in place of a task.
//!
//! - [`callers`], [`pending_acquire`]: the callers' side; it sends messages, made of a [`spec`], and waits
//!   for the replies;
//! - [`driver`]: the engine behind a lock, stepped by callers, the store's tasks and the session's thread,
//!   which keeps time; [`outbox`]: what is delivered once the lock is free; [`gathering`]: what is sent
//!   together;
//! - [`engine`]: routes to the semaphores, and closes; [`semaphore`]: one semaphore's acquisitions, batches
//!   and renewals, each decided by [`crate::acquisition`]; [`single_call`]: calls that are not batched;
//! - [`sync`]: the primitives of the state that threads share without that lock;
//! - [`locked`]: the assertion that no code of the program runs under the lock;
//! - [`permit_state`]: a permit, as the engine and its holder share it, and the watchdog, which ends a permit
//!   when the session is stuck.
//!
//! Nothing here grows without bound: the engine has at most one entry for each call in progress, each permit
//! that is held and each that was just dropped; calls to acquire and batches are bounded by constants.

mod call;
pub(crate) mod callers;
pub(crate) mod driver;
mod engine;
mod gathering;
mod locked;
mod outbox;
pub(crate) mod pending_acquire;
pub(crate) mod permit_state;
mod semaphore;
pub(crate) mod shelf;
mod single_call;
pub(crate) mod spec;
mod sync;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{HashMap, HashSet};
#[cfg(test)]
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use crate::clock::Clock;
use crate::observe::meters::{SemaphoreMeters, SessionMeters};
use crate::protocol::{Holder, Label, Name, PermitTerms, Recovery, RequestId, SessionId};

/// The hasher of maps. It has a random seed, because names may come from the clients of the program. In the
/// tests of this crate it has no seed, so that a simulation can be repeated.
#[cfg(not(test))]
type Seeded = std::hash::RandomState;
#[cfg(test)]
type Seeded = BuildHasherDefault<DefaultHasher>;

type Map<K, V> = HashMap<K, V, Seeded>;
type Set<K> = HashSet<K, Seeded>;

/// The longest sleep while something is held. While the machine is suspended, the clocks of timers stand
/// still and the leases run on. So a loss is reported at most this long after the machine wakes up.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The settings of a session.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) session: SessionId,
    /// Host name and process id, with which the names of holders begin.
    pub(crate) process: String,
    /// The label of acquisitions without a label of their own.
    pub(crate) label: Label,
    /// The author of the changes that operators make through this client.
    pub(crate) author: Label,
    /// Measures leases, as the store does.
    pub(crate) clock: Clock,
    pub(crate) lease: Duration,
    /// The time for which semaphores keep unused permits; zero if they don't.
    pub(crate) keep: Duration,
    pub(crate) recovery: Recovery,
    pub(crate) queue_max: u32,
    /// The number of replicas that must have a grant before it is delivered.
    pub(crate) replicas: u32,
    pub(crate) store_timeout: Duration,
    pub(crate) meters: SessionMeters,
}

/// The part of a request that its permit keeps.
struct Requested {
    semaphore: Name,
    holder: Holder,
    request: RequestId,
    terms: PermitTerms,
    /// The longest time for which the permit is held.
    max_hold: Option<Duration>,
    clock: Clock,
    meters: SemaphoreMeters,
}
