//! For the project's own tests: scripts that are told the time and the server's identity, scripts that tell what they
//! do, and what the store makes of whatever a server says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use super::scripts::recorded::{CHANNEL, Record};

use super::errors::Failure;
use super::scripts::{self, Scripts};
use super::slots::Slots;
use super::{Address, RedisStore, keys};
use crate::protocol::{Command, Event, Name, Operation, Reply, SessionId};
use crate::store::{EVENT_BUFFER, Store as _, StoreError, StoreEvent, StoreOptions};

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
local now_us = tonumber(told[1])
local function server_identity() return told[2], tonumber(told[3]) end
";

/// A Redis store with an injected clock.
pub struct ToldStore {
    store: RedisStore,
    signals: tokio::sync::mpsc::Receiver<StoreEvent>,
}

impl ToldStore {
    /// Connects to `url`, listening as `session`.
    ///
    /// # Errors
    /// [`StoreError`] if there is no such server.
    pub async fn connect(url: &str, prefix: &str, session: SessionId) -> Result<Self, StoreError> {
        let (address, _) = Address::parse(url).map_err(|reason| StoreError::Unsupported { reason })?;
        let (sender, signals) = tokio::sync::mpsc::channel(EVENT_BUFFER);
        let lease = Duration::from_secs(15);
        let opening = StoreOptions { session, prefix: prefix.to_owned(), lease, events: sender };
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
    pub async fn signal(&mut self) -> Option<StoreEvent> {
        self.signals.recv().await
    }
}

/// The keys of a semaphore: state, entries, queue, leases, free.
pub fn keys_of(prefix: &str, name: &Name) -> [String; 5] {
    keys::keys(prefix, name)
}

/// The semaphore whose `state` key this is.
pub fn name_of_state(prefix: &str, key: &[u8]) -> Option<Name> {
    keys::name_of_state(prefix, key)
}

/// Reads what a server sent in reply to `operation`.
///
/// # Errors
/// What is wrong with it, or what the server says is.
pub fn decode_reply(bytes: &[u8], operation: &Operation, semaphore: &Name) -> Result<Reply, StoreError> {
    let value = redis::parse_redis_value(bytes).and_then(redis::Value::extract_error);
    let value = value.map_err(|error| StoreError::from(Failure::of(&error, semaphore)))?;
    let malformed = |malformed: scripts::Malformed| StoreError::Malformed { reason: malformed.0 };
    scripts::decode(value, operation).map_err(malformed)
}

/// Reads a message from a session's channel.
///
/// # Errors
/// What is wrong with it.
pub fn decode_message(session: &SessionId, payload: &[u8]) -> Result<Vec<Event>, String> {
    scripts::decode_message(session, payload).map_err(|malformed| malformed.0)
}

/// Reads what a server sent in reply to CLUSTER SLOTS. Of each slot asked for, the host and port of its node.
pub fn nodes_of_slots(bytes: &[u8], asked: &str, slots: &[u16]) -> Option<Vec<Option<(String, u16)>>> {
    let value = redis::parse_redis_value(bytes).ok()?;
    let mut map = Slots::read(&value, asked)?;
    if let (Some(first), Some(node)) = (slots.first(), map.nodes().first()) {
        map.set(*first, node.clone());
    }
    Some(slots.iter().map(|slot| map.node(*slot).map(|(host, port)| (host.to_string(), *port))).collect())
}
