//! Experiments that are run on each recipe and on `permits` alike, one file a question.
//!
//! Clocks are set by hand, interleavings are made request by request, connections are cut by a proxy. So an
//! outcome is a fact about the recipe and the same each time, and the tests assert it. The files `herd` and
//! `cost` measure instead, and their figures are for comparing within one run.

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

use permits_bench::Failure;
use permits_testkit::{Proxy, Server};

use crate::{Client, Kind, Process, Role, Semaphore, Time};

/// The limit, where an experiment gives no other: the recipes' own default.
pub const LIMIT: u32 = 5;

/// The lease in experiments that wait for its end.
pub const SHORT_LEASE: Duration = Duration::from_secs(1);

/// A change that has not come after this time does not come.
pub const NEVER: Duration = Duration::from_secs(3);

/// A server, and semaphores on it that share no keys.
#[derive(Debug)]
pub struct Fixture {
    /// The server.
    pub server: Server,
    semaphores: AtomicU64,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::start()
    }
}

impl Fixture {
    /// Starts a server.
    pub fn start() -> Self {
        Self { server: Server::start(), semaphores: AtomicU64::new(0) }
    }

    /// An unused semaphore, with the published lease.
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
            keeps: false,
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

    /// A user in a process of its own, which reaches the server through a proxy.
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

    /// `count` users, in a process each.
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

    /// The number of new users, of three times the limit, that are admitted now, and the number of different
    /// numbers that they have.
    ///
    /// # Errors
    /// If one of them fails.
    pub async fn capacity(&self, semaphore: &Semaphore) -> Result<Capacity, Failure> {
        // Each user has a process, because some recipes know users by their process.
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

/// Runs an experiment on every recipe, side by side, each with a server of its own. Returns the outcomes in
/// the order of [`Kind::ALL`].
///
/// # Errors
/// The error of the first that fails.
pub async fn on_each<T, F>(experiment: impl Fn(Fixture, Kind) -> F) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let running = Kind::ALL.map(|kind| tokio::spawn(experiment(Fixture::start(), kind)));
    let mut outcomes = Vec::new();
    for (kind, outcome) in Kind::ALL.into_iter().zip(running) {
        outcomes.push(outcome.await?.map_err(|error| format!("{kind}: {error}"))?);
    }
    Ok(outcomes)
}

/// The room of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The users that were admitted.
    pub admitted: u32,
    /// The different numbers that they had, where the recipe has numbers.
    pub slots: u32,
}

/// Lets all of them try, one after the other. Returns the number that was admitted.
async fn admitted(users: &mut [Box<dyn Client>]) -> Result<u32, Failure> {
    let mut admitted = 0;
    for user in users {
        admitted += u32::from(user.try_acquire().await?);
    }
    Ok(admitted)
}
