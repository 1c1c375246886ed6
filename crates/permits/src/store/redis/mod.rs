//! The Redis and Valkey store: each command is one Lua script, executed on one connection.
//!
//! - `connection`: two supervised connections, one for commands and one for wake-ups; they are replaced when
//!   they break, for as long as the session lives.
//! - `scripts`: the Lua, and how commands and replies are written.
//! - `listing`: which semaphores there are.
//! - `keys`: what the keys are called.
//! - `errors`: what a failed call means.
//!
//! Redis 6.2 or newer, or Valkey. No type of the `redis` crate leaves this module.

mod address;
mod connection;
mod errors;
pub(crate) mod keys;
mod listing;
mod scripts;
#[cfg(feature = "testing")]
pub mod testing;

use std::time::Duration;

use ::redis::aio::ConnectionLike as _;
use ::redis::{RedisResult, Value};
use tokio::time::timeout;

pub(crate) use self::address::Address;
use self::connection::Supervisor;
use self::scripts::Scripts;
use super::{Executing, Listing, Opening, Store, StoreError};
use crate::protocol::{Command, Reply};

/// A connection to a Redis or Valkey server.
pub(crate) struct RedisStore {
    supervisor: Supervisor,
    scripts: Scripts,
    prefix: String,
}

impl RedisStore {
    /// Connects, checks the server, and listens for wake-ups. Must be called on the session's runtime.
    pub(crate) async fn connect(address: &Address, opening: Opening) -> Result<Self, StoreError> {
        Self::connect_with(address, opening, Scripts::new()).await
    }

    async fn connect_with(address: &Address, opening: Opening, scripts: Scripts) -> Result<Self, StoreError> {
        let prefix = opening.prefix.clone();
        let supervisor = Supervisor::connect(address, opening).await?;
        Ok(Self { supervisor, scripts, prefix })
    }

    async fn run(&self, command: &Command, patience: Duration) -> Result<Reply, StoreError> {
        let (epoch, mut connection) = self.supervisor.connection()?;
        let script = self.scripts.of(command);
        let calling = async {
            let cached = scripts::encode("EVALSHA", &script.hash, &self.prefix, command);
            match connection.req_packed_command(&cached).await.and_then(Value::extract_error) {
                // The server forgot the script, or never had it. EVAL leaves it there.
                Err(error) if errors::is_no_script(&error) => {
                    let whole = scripts::encode("EVAL", &script.code, &self.prefix, command);
                    connection.req_packed_command(&whole).await.and_then(Value::extract_error)
                }
                result => result,
            }
        };
        let result: RedisResult<Value> = match timeout(patience, calling).await {
            Ok(result) => result,
            Err(_) => {
                let reason = format!("no answer within {patience:?}");
                self.supervisor.broken(epoch, reason.clone());
                return Err(StoreError::NoAnswer { reason });
            }
        };
        match result {
            Ok(value) => {
                self.supervisor.served();
                scripts::decode(value, &command.operation)
                    .map_err(|malformed| StoreError::Malformed { reason: malformed.0 })
            }
            Err(error) => {
                if errors::needs_reconnect(&error) {
                    self.supervisor.broken(epoch, error.to_string());
                }
                Err(errors::of_command(&error, &command.semaphore))
            }
        }
    }
}

impl Store for RedisStore {
    fn execute<'a>(&'a self, command: &'a Command, patience: Duration) -> Executing<'a> {
        Box::pin(self.run(command, patience))
    }

    fn list(&self, patience: Duration) -> Listing<'_> {
        Box::pin(async move {
            let (_, mut connection) = self.supervisor.connection()?;
            let names = listing::list(&mut connection, &self.prefix, patience).await?;
            Ok(names.into_iter().collect())
        })
    }
}
