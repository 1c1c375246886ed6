//! The seven published recipes for semaphores on Redis, and `permits` beside them behind the same small
//! trait.
//!
//! - **Measures**: correctness under forced faults (wrong clocks, interleavings, crashes, lost replies),
//!   fairness, the requests of a herd of waiters, and the cost of a cycle ([`experiments`]).
//! - **Run**: `scripts/lab recipes`. `scripts/lab recipes --test` asserts the forced outcomes.
//! - **Result**: [`report`] writes the tables and plots of `lab/recipes/README.md`.
//!
//! A recipe is one file, whose header says where it is right and where it breaks. Its clock and connection
//! come through its `Session`, so that an experiment can control them. The commands are the recipes'. Where a
//! recipe leaves something open, it is filled in to the recipe's advantage, and the header says so.

mod counter;
pub mod experiments;
mod fair_zset;
mod host_slots;
mod list;
mod locked_fair_zset;
mod lua_fair_zset;
mod permits;
pub mod report;
mod session;
mod time_zset;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use permits_bench::Failure;

pub use self::session::{Gate, Time, Turns};

use self::session::{Clock, Session};

/// A step of a client, to be awaited.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A user of a semaphore, with at most one permit at a time. A user that is dropped with a permit has
/// crashed.
pub trait Client: Send {
    /// Tries once. Returns whether it has a permit.
    fn try_acquire(&mut self) -> Doing<'_, bool>;

    /// Waits for a permit. The users of a recipe without waiting retry.
    fn acquire(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            while !self.try_acquire().await? {
                tokio::time::sleep(self.poll()).await;
            }
            Ok(())
        })
    }

    /// Releases the permit.
    fn release(&mut self) -> Doing<'_, ()>;

    /// Extends the permit. Returns whether it was still there; `None` if the recipe has no renewal.
    fn refresh(&mut self) -> Doing<'_, Option<bool>> {
        Box::pin(async { Ok(None) })
    }

    /// The number of the permit, where permits are numbered.
    fn slot(&self) -> Option<u32> {
        None
    }

    /// The time before a retry.
    fn poll(&self) -> Duration {
        Duration::from_millis(10)
    }
}

/// The recipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A list of tokens.
    List,
    /// A sorted set by the clients' clocks.
    TimeZset,
    /// Two sorted sets and a counter.
    FairZset,
    /// [`FairZset`](Self::FairZset) under a lock.
    LockedFairZset,
    /// [`FairZset`](Self::FairZset) in a script, with a queue of waiters.
    LuaFairZset,
    /// A number.
    Counter,
    /// A hash of hosts and a list of numbers.
    HostSlots,
    /// The library of this project.
    Permits,
}

impl Kind {
    /// All, ours last.
    pub const ALL: [Self; 8] = [
        Self::List,
        Self::TimeZset,
        Self::FairZset,
        Self::LockedFairZset,
        Self::LuaFairZset,
        Self::Counter,
        Self::HostSlots,
        Self::Permits,
    ];

    /// The lease of a permit, as published; 10 s where the recipe gives none.
    pub fn published_lease(self) -> Duration {
        match self {
            Self::LuaFairZset => Duration::from_secs(120),
            Self::Permits => Duration::from_secs(15),
            _ => Duration::from_secs(10),
        }
    }

    /// Returns whether the recipe has waiters.
    pub fn waits(self) -> bool {
        matches!(self, Self::List | Self::LuaFairZset | Self::Permits)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::List => "list",
            Self::TimeZset => "time-zset",
            Self::FairZset => "fair-zset",
            Self::LockedFairZset => "locked-fair-zset",
            Self::LuaFairZset => "lua-fair-zset",
            Self::Counter => "counter",
            Self::HostSlots => "host-slots",
            Self::Permits => "permits",
        })
    }
}

/// A semaphore of a recipe: what all its users agree on.
#[derive(Clone, Debug)]
pub struct Semaphore {
    /// The recipe.
    pub kind: Kind,
    /// The first part of its keys.
    pub name: String,
    /// The limit.
    pub limit: u32,
    /// The lease of a permit. All other times of a recipe are in proportion to it.
    pub lease: Duration,
    /// The time of the clients' clocks, before they are set wrong.
    pub time: Time,
    /// The time before a retry, where the recipe has no waiting.
    pub poll: Duration,
    /// The attempts in a row to get a recipe's lock.
    pub lock_attempts: u32,
    /// The sessions of `permits` keep what their users release; recipes have nothing like it.
    pub keeps: bool,
    /// The requests that its users have sent: one command, one transaction or one script each.
    pub requests: Arc<AtomicU64>,
}

impl Semaphore {
    fn key(&self, part: &str) -> String {
        format!("{}:{part}", self.name)
    }
}

/// The differences of one process from others.
#[derive(Clone, Debug, Default)]
pub struct Role {
    /// The time by which the clock of the process is ahead, in milliseconds.
    pub ahead_ms: i64,
    /// The lease that the process asks for, if it is another.
    pub lease: Option<Duration>,
    /// The gate that stops its requests.
    pub gate: Option<Gate>,
}

/// A process with users of a semaphore, which share a connection. A user that blocks has another connection
/// for that.
pub struct Process {
    semaphore: Semaphore,
    place: Place,
}

enum Place {
    Recipe(Box<Session>),
    Permits(::permits::Client),
}

impl Process {
    /// Connects to the server at `url`.
    ///
    /// # Errors
    /// If that fails.
    pub async fn start(semaphore: &Semaphore, url: &str, role: Role) -> Result<Self, Failure> {
        let mut semaphore = semaphore.clone();
        semaphore.lease = role.lease.unwrap_or(semaphore.lease);
        let place = if semaphore.kind == Kind::Permits {
            Place::Permits(permits::connect(&semaphore, url).await?)
        } else {
            let clock = Clock::new(semaphore.time.clone(), role.ahead_ms);
            let session = Session::connect(url, clock, role.gate, semaphore.requests.clone()).await?;
            Place::Recipe(Box::new(session))
        };
        Ok(Self { semaphore, place })
    }

    /// Another user in this process.
    ///
    /// # Errors
    /// If the recipe has scripts and they cannot be loaded.
    pub async fn client(&self) -> Result<Box<dyn Client>, Failure> {
        static USERS: AtomicU64 = AtomicU64::new(0);
        let user = USERS.fetch_add(1, Relaxed);
        let semaphore = self.semaphore.clone();
        let session = match &self.place {
            Place::Permits(client) => return Ok(Box::new(permits::PermitsClient::new(client, &semaphore))),
            Place::Recipe(session) => Session::clone(session),
        };
        Ok(match semaphore.kind {
            Kind::List => Box::new(list::List::new(semaphore, session)),
            Kind::TimeZset => Box::new(time_zset::TimeZset::new(semaphore, session)),
            Kind::FairZset => Box::new(fair_zset::FairZset::new(semaphore, session)),
            Kind::LockedFairZset => {
                Box::new(locked_fair_zset::LockedFairZset::new(semaphore, session).await?)
            }
            Kind::LuaFairZset => Box::new(lua_fair_zset::LuaFairZset::new(semaphore, session, user).await?),
            Kind::Counter => Box::new(counter::Counter::new(semaphore, session)),
            Kind::HostSlots => Box::new(host_slots::HostSlots::new(semaphore, session, user).await?),
            Kind::Permits => unreachable!("it has no session"),
        })
    }
}
