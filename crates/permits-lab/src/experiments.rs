//! Experiments that are made on each recipe and on `permits` alike: one file a question.
//!
//! What can be forced is forced: clocks are set by hand, interleavings are made request by request, connections are
//! cut by a proxy. Then the outcome is a fact about the recipe and the same each time, and the tests assert it. The
//! files `herd` and `cost` measure instead, and are for comparing within one run.

pub mod clocks;
pub mod cost;
pub mod crash;
pub mod herd;
pub mod initialise;
pub mod lost;
pub mod order;
pub mod race;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use permits_testkit::{Proxy, Server};

use crate::Failure;
use crate::recipes::{Client, Kind, Process, Role, Semaphore, Time};

/// How many at once, where nothing else is said: the recipes' own default.
pub const LIMIT: u32 = 5;

/// The lease in experiments that wait for its end.
pub const SHORT_LEASE: Duration = Duration::from_secs(1);

/// After so long without a change, there will be none.
pub const NEVER: Duration = Duration::from_secs(3);

/// A server, and semaphores on it that don't meet.
#[derive(Debug)]
pub struct Stage {
    /// The server.
    pub server: Server,
    semaphores: AtomicU64,
}

impl Default for Stage {
    fn default() -> Self {
        Self::start()
    }
}

impl Stage {
    /// Starts a server.
    pub fn start() -> Self {
        Self { server: Server::start(), semaphores: AtomicU64::new(0) }
    }

    /// A semaphore that nobody has used, with the published lease.
    pub fn semaphore(&self, kind: Kind) -> Semaphore {
        let number = self.semaphores.fetch_add(1, SeqCst);
        Semaphore {
            kind,
            name: format!("{kind}-{number}"),
            limit: LIMIT,
            lease: kind.published_lease(),
            time: Time::System,
            poll: Duration::from_millis(10),
            lock_attempts: 10,
            requests: Arc::new(AtomicU64::new(0)),
        }
    }

    /// A user in a process of its own.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn user(&self, semaphore: &Semaphore, role: Role) -> Result<Box<dyn Client>, Failure> {
        Process::start(semaphore, &self.server.url(), role).await?.client().await
    }

    /// A user in a process of its own, who reaches the server through a proxy.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn user_behind(
        &self,
        proxy: &Proxy,
        semaphore: &Semaphore,
    ) -> Result<Box<dyn Client>, Failure> {
        Process::start(semaphore, &proxy.url(), Role::default()).await?.client().await
    }

    /// So many users, in a process each.
    ///
    /// # Errors
    /// If one cannot connect.
    pub async fn users(&self, semaphore: &Semaphore, count: u32) -> Result<Vec<Box<dyn Client>>, Failure> {
        let mut users = Vec::new();
        for _ in 0..count {
            users.push(self.user(semaphore, Role::default()).await?);
        }
        Ok(users)
    }

    /// How many of so many strangers get in now, and how many different numbers they have.
    ///
    /// # Errors
    /// If one of them fails.
    pub async fn capacity(&self, semaphore: &Semaphore) -> Result<Capacity, Failure> {
        // One process each: some recipes know users by their process.
        let mut users = self.users(semaphore, 3 * LIMIT).await?;
        let (mut admitted, mut slots) = (0, BTreeSet::new());
        for user in &mut users {
            if user.try_acquire().await? {
                admitted += 1;
                slots.extend(user.slot());
            }
        }
        for user in &mut users {
            user.release().await?;
        }
        Ok(Capacity { admitted, slots: slots.len() as u32 })
    }

    /// Removes all keys of a semaphore.
    pub fn clear(&self, semaphore: &Semaphore) {
        let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
        self.server.command(&["EVAL", script, "0", &format!("*{}*", semaphore.name)]);
    }

    /// Lets the interval pass after which a recipe cleans up, where it has one.
    pub fn let_cleaning_come_due(&self, semaphore: &Semaphore) {
        self.server.command(&["DEL", &format!("{}:clear", semaphore.name)]);
    }
}

/// Makes an experiment on every recipe, side by side, each with a server of its own; the outcomes in the order of
/// [`Kind::ALL`].
///
/// # Errors
/// That of the first that fails.
pub async fn on_each<T, F>(experiment: impl Fn(Stage, Kind) -> F) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let running = Kind::ALL.map(|kind| tokio::spawn(experiment(Stage::start(), kind)));
    let mut outcomes = Vec::new();
    for (kind, outcome) in Kind::ALL.into_iter().zip(running) {
        outcomes.push(outcome.await?.map_err(|error| format!("{kind}: {error}"))?);
    }
    Ok(outcomes)
}

/// What a semaphore has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// How many got in.
    pub admitted: u32,
    /// How many different numbers they had, where they have numbers.
    pub slots: u32,
}

/// Lets all of them try, one after the other; how many got in.
async fn admitted(users: &mut [Box<dyn Client>]) -> Result<u32, Failure> {
    let mut admitted = 0;
    for user in users {
        admitted += u32::from(user.try_acquire().await?);
    }
    Ok(admitted)
}
