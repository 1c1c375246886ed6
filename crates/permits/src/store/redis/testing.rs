//! What tests need of the inside: scripts that are told the time and the server's identity, and scripts that tell
//! what they do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use super::scripts::recorded::{CHANNEL, Record};

use super::scripts::Scripts;
use super::{Address, RedisStore, keys};
use crate::protocol::{Command, Id, Name, Reply};
use crate::store::{Opening, SIGNALS, Signal, Store as _, StoreError};

static RECORDING: AtomicBool = AtomicBool::new(false);

/// From now on every client that this process connects to a server uses scripts that tell of each command what it
/// was asked and what came of it: see [`Record`] and [`CHANNEL`].
pub fn record() {
    RECORDING.store(true, Ordering::Relaxed);
}

pub(super) fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// The hash from which the test build of the scripts reads `now_us`, `run_id` and `uptime_ms`.
pub const SERVER_KEY: &str = "permits-test:server";

const CLOCK: &str = "
local told = redis.call('HMGET', 'permits-test:server', 'now_us', 'run_id', 'uptime_ms')
local function server_clock() return tonumber(told[1]) end
local function server_identity() return told[2], tonumber(told[3]) end
";

/// A Redis store with an injected clock.
pub struct ToldStore {
    store: RedisStore,
    signals: tokio::sync::mpsc::Receiver<Signal>,
}

impl ToldStore {
    /// Connects to `url`, listening as `session`.
    ///
    /// # Errors
    /// [`StoreError`] if there is no such server.
    pub async fn connect(url: &str, prefix: &str, session: Id) -> Result<Self, StoreError> {
        let address = Address::parse(url).map_err(|reason| StoreError::Unsupported { reason })?;
        let (sender, signals) = tokio::sync::mpsc::channel(SIGNALS);
        let lease = Duration::from_secs(15);
        let opening = Opening { session, prefix: prefix.to_owned(), lease, signals: sender };
        let store = RedisStore::connect_with(&address, opening, Scripts::with_clock(CLOCK, false)).await?;
        Ok(Self { store, signals })
    }

    /// Executes a command at the time that stands in [`SERVER_KEY`].
    ///
    /// # Errors
    /// As any store.
    pub async fn execute(&self, command: &Command) -> Result<Reply, StoreError> {
        self.store.execute(command, Duration::from_secs(10)).await
    }

    /// The next signal.
    pub async fn signal(&mut self) -> Option<Signal> {
        self.signals.recv().await
    }
}

/// The keys of a semaphore: state, entries, queue, leases, free.
pub fn keys_of(prefix: &str, name: &Name) -> [String; 5] {
    keys::keys(prefix, name)
}
