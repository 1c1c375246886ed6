//! The session: one client's connection, its renewals and its wake-ups, on a thread of its own.
//!
//! The thread has its own small runtime, so that renewals go out while the program's runtime is blocked, a
//! permit can be dropped anywhere, and a thread may wait in place of a task.
//!
//! - [`callers`], [`pending_acquire`]: the callers' side; it sends messages, made of a [`spec`], and waits
//!   for the [`reply`];
//! - [`driver`]: the engine behind a lock, stepped by callers, the store's tasks and the thread; [`outbox`]:
//!   what is delivered once the lock is free; [`thread`]: the session's thread, which keeps time;
//! - [`engine`]: routes to the semaphores, and closes; [`semaphore`]: one semaphore's acquisitions, batches
//!   and renewals, each decided by [`crate::acquisition`]; [`single_call`]: calls that are not batched;
//! - [`locked`]: the assertion that no code of the program runs under the lock; [`keywords`]: the outcomes,
//!   as events and metrics name them;
//! - [`permit_state`]: a permit, as the engine and its holder share it; [`watchdog`] ends one whose session
//!   is stuck.
//!
//! Nothing here grows without bound: the engine has at most one entry for each call in progress, each permit
//! that is held and each that was just dropped; calls in flight and batches are bounded by constants.

mod call;
pub(crate) mod callers;
pub(crate) mod config;
mod declarations;
mod driver;
mod engine;
mod keywords;
mod locked;
mod outage;
mod outbox;
pub(crate) mod pending_acquire;
pub(crate) mod permit_state;
#[cfg(test)]
mod queue;
pub(crate) mod reply;
mod semaphore;
#[cfg(test)]
mod simulation;
mod single_call;
pub(crate) mod spec;
#[cfg(test)]
mod steps;
pub(crate) mod thread;
mod timers;
mod watchdog;

use std::collections::{HashMap, HashSet};
#[cfg(test)]
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

/// The hasher of maps. With a random seed, because names may come from the clients of the program. Without
/// one in the tests of this crate, so that a simulation can be repeated.
#[cfg(not(test))]
type Seeded = std::hash::RandomState;
#[cfg(test)]
type Seeded = BuildHasherDefault<DefaultHasher>;

type Map<K, V> = HashMap<K, V, Seeded>;
type Set<K> = HashSet<K, Seeded>;

/// The longest sleep while something is held. The clocks of timers stand still while the machine is
/// suspended, the leases don't: this long after it wakes up, losses are reported.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
