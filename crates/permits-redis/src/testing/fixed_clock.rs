//! A Redis store whose scripts read the time and the server's identity from a key.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;

use crate::address::Address;
use crate::protocol::{Command, Reply, SessionId};
use crate::script::{Scripts, codec};
use crate::store::RedisStore;
use permits_store::direct::Direct;
use permits_store::{Report, StoreError, StoreOptions};

/// The hash from which the scripts read `now_us`, `run_id` and `uptime_ms`.
pub const SERVER_KEY: &str = "permits-test:server";

const CLOCK: &str = "
local fixed = redis.call('HMGET', 'permits-test:server', 'now_us', 'run_id', 'uptime_ms')
local now_us = tonumber(fixed[1])
local function server_identity() return fixed[2], tonumber(fixed[3]), now_us - 1000 * fixed[3] end
";

/// The words of `EVAL` with which a store with a fixed clock executes a command. They are the words of
/// `EVALSHA`, with the text of the script in the place of its hash.
pub fn call_with_fixed_clock(prefix: &str, command: &Command) -> Vec<Vec<u8>> {
    let scripts = Scripts::with(CLOCK, false);
    let code = &scripts.of(command.operation.kind()).code;
    let words = codec::encode("EVAL", code, prefix, false, command, None);
    words.words().map(<[u8]>::to_vec).collect()
}

/// A Redis store with a fixed clock.
pub struct FixedClockStore {
    store: RedisStore,
    direct: Arc<Direct>,
    reports: Receiver<Report>,
}

impl FixedClockStore {
    /// Connects to `url`, and subscribes to the events of `session`.
    ///
    /// # Errors
    /// [`StoreError`] if there is no such server.
    pub async fn connect(url: &str, prefix: &str, session: SessionId) -> Result<Self, StoreError> {
        let (address, _) = Address::parse(url).map_err(|reason| StoreError::Unsupported { reason })?;
        let (direct, reports) = Direct::new();
        let lease = Duration::from_secs(15);
        let options = StoreOptions { session, prefix: prefix.to_owned(), lease, sink: direct.clone() };
        let scripts = Scripts::with(CLOCK, false);
        let store = RedisStore::connect_with(&address, options, scripts).await?;
        Ok(Self { store, direct, reports })
    }

    /// Executes a command at the time stored in [`SERVER_KEY`].
    ///
    /// # Errors
    /// As any store.
    pub async fn execute(&self, command: &Command) -> Result<Reply, StoreError> {
        self.direct.execute(&self.store, command, Duration::from_secs(10)).await
    }

    /// Waits for the next report of the store, other than an outcome.
    pub async fn report(&mut self) -> Option<Report> {
        self.reports.recv().await
    }
}
