//! A Redis store whose scripts read the time and the server's identity from a key.

use std::time::Duration;

use tokio::sync::mpsc::{Receiver, channel};

use crate::protocol::{Command, Reply, SessionId};
use crate::store::redis::RedisStore;
use crate::store::redis::address::Address;
use crate::store::redis::script::Scripts;
use crate::store::{EVENT_BUFFER, Store as _, StoreError, StoreEvent, StoreOptions};

/// The hash from which the scripts read `now_us`, `run_id` and `uptime_ms`.
pub const SERVER_KEY: &str = "permits-test:server";

const CLOCK: &str = "
local fixed = redis.call('HMGET', 'permits-test:server', 'now_us', 'run_id', 'uptime_ms')
local now_us = tonumber(fixed[1])
local function server_identity() return fixed[2], tonumber(fixed[3]) end
";

/// A Redis store with a fixed clock.
pub struct FixedClockStore {
    store: RedisStore,
    events: Receiver<StoreEvent>,
}

impl FixedClockStore {
    /// Connects to `url`, and subscribes to the events of `session`.
    ///
    /// # Errors
    /// [`StoreError`] if there is no such server.
    pub async fn connect(url: &str, prefix: &str, session: SessionId) -> Result<Self, StoreError> {
        let (address, _) = Address::parse(url).map_err(|reason| StoreError::Unsupported { reason })?;
        let (sender, events) = channel(EVENT_BUFFER);
        let lease = Duration::from_secs(15);
        let options = StoreOptions { session, prefix: prefix.to_owned(), lease, events: sender };
        let scripts = Scripts::build(CLOCK, false, |_, code| code);
        let store = RedisStore::connect_with(&address, options, scripts).await?;
        Ok(Self { store, events })
    }

    /// Executes a command at the time stored in [`SERVER_KEY`].
    ///
    /// # Errors
    /// As any store.
    pub async fn execute(&self, command: &Command) -> Result<Reply, StoreError> {
        self.store.execute(command, Duration::from_secs(10)).await
    }

    /// Waits for the next event of the store.
    pub async fn event(&mut self) -> Option<StoreEvent> {
        self.events.recv().await
    }
}
