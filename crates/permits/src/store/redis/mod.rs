//! The Redis and Valkey store: each command is one Lua script, executed on one connection to the server that has
//! the semaphore.
//!
//! - `address`: what a URL names; `place`: which server that is now, if sentinels decide.
//! - `supervisor`: two connections to a server, one for commands and one for wake-ups, replaced when they break;
//!   `connecting` makes and checks them, `wakeups` is the one that listens.
//! - `cluster`: a supervisor for each node, and `slots`, the map that says which.
//! - `scripts`: the Lua, and how commands and replies are written.
//! - `keys`: what the keys and channels are called. `listing`: which semaphores there are.
//! - `errors`: what a failed call means.
//!
//! Redis 6.2 or newer, in a cluster 7.0, or Valkey. No type of the `redis` crate leaves this module.

mod address;
mod cluster;
mod connecting;
mod errors;
pub(crate) mod keys;
mod listing;
mod place;
mod scripts;
mod slots;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;
mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{ConnectionLike as _, MultiplexedConnection};
use ::redis::{Cmd, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

pub(crate) use self::address::Address;
use self::cluster::Cluster;
use self::connecting::Plan;
use self::errors::Failure;
use self::place::{Place, Watched};
use self::scripts::{Script, Scripts};
use self::supervisor::Supervisor;
use super::{Executing, Listing, Opening, Store, StoreError};
use crate::protocol::{Command, Reply};

/// Connections to Redis or Valkey servers.
pub(crate) struct RedisStore {
    route: Route,
    scripts: Scripts,
    prefix: String,
}

/// Where commands go.
enum Route {
    /// All to one server.
    One(Supervisor),
    /// Each to the node that serves its slot.
    Cluster(Cluster),
}

impl RedisStore {
    /// Connects, checks the server, and listens for wake-ups. Must be called on the session's runtime.
    pub(crate) async fn connect(address: &Address, opening: Opening) -> Result<Self, StoreError> {
        let scripts = Scripts::new(matches!(address, Address::Cluster(_)));
        Self::connect_with(address, opening, scripts).await
    }

    async fn connect_with(address: &Address, opening: Opening, scripts: Scripts) -> Result<Self, StoreError> {
        let prefix = opening.prefix.clone();
        let place = match address {
            Address::Server(server) => Place::Server(Box::new(server.clone())),
            Address::Sentinels(sentinels) => Place::Sentinels(Arc::new(Watched::new(sentinels.clone()))),
            Address::Cluster(seeds) => {
                let route = Route::Cluster(Cluster::connect(seeds, opening).await?);
                return Ok(Self { route, scripts, prefix });
            }
        };
        let channel = keys::channel(&prefix, None, &opening.session);
        let plan = Plan::new(place, false, &opening, opening.signals.clone());
        let route = Route::One(Supervisor::connect(plan, channel).await?);
        Ok(Self { route, scripts, prefix })
    }

    async fn run(&self, command: &Command, patience: Duration) -> Result<Reply, StoreError> {
        let calling = Calling {
            command,
            script: self.scripts.of(command),
            prefix: &self.prefix,
            sharded: matches!(self.route, Route::Cluster(_)),
            patience,
            deadline: Instant::now() + patience,
        };
        match &self.route {
            Route::One(supervisor) => {
                let (epoch, connection) = supervisor.connection()?;
                Ok(calling.call(supervisor, epoch, connection, false).await?)
            }
            Route::Cluster(cluster) => cluster.run(&calling).await,
        }
    }
}

impl Store for RedisStore {
    fn execute<'a>(&'a self, command: &'a Command, patience: Duration) -> Executing<'a> {
        Box::pin(self.run(command, patience))
    }

    fn list(&self, patience: Duration) -> Listing<'_> {
        Box::pin(async move {
            let names = match &self.route {
                Route::One(supervisor) => {
                    let (_, mut connection) = supervisor.connection()?;
                    listing::list(&mut connection, &self.prefix, patience).await?
                }
                Route::Cluster(cluster) => cluster.list(patience).await?,
            };
            Ok(names.into_iter().collect())
        })
    }
}

/// A command on its way.
struct Calling<'a> {
    command: &'a Command,
    script: &'a Script,
    prefix: &'a str,
    sharded: bool,
    patience: Duration,
    deadline: Instant,
}

impl Calling<'_> {
    /// How much patience is left.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Calls the script on one server; `asking` if the server has said to, because the slot is moving to it.
    async fn call(
        &self,
        supervisor: &Supervisor,
        epoch: u64,
        mut connection: MultiplexedConnection,
        asking: bool,
    ) -> Result<Reply, Failure> {
        let sending = async {
            match send(&mut connection, self.encode("EVALSHA", &self.script.hash), asking).await {
                // The server forgot the script, or never had it. EVAL leaves it there.
                Err(error) if errors::is_no_script(&error) => {
                    send(&mut connection, self.encode("EVAL", &self.script.code), asking).await
                }
                result => result,
            }
        };
        let Ok(result) = timeout_at(self.deadline, sending).await else {
            let reason = format!("no answer within {:?}", self.patience);
            supervisor.broken(epoch, reason.clone());
            return Err(Failure::Store(StoreError::NoAnswer { reason }));
        };
        match result {
            Ok(value) => {
                supervisor.served();
                scripts::decode(value, &self.command.operation)
                    .map_err(|malformed| Failure::Store(StoreError::Malformed { reason: malformed.0 }))
            }
            Err(error) => {
                if errors::needs_reconnect(&error) {
                    supervisor.broken(epoch, error.to_string());
                }
                Err(Failure::of(&error, &self.command.semaphore))
            }
        }
    }

    fn encode(&self, verb: &str, script: &str) -> Cmd {
        scripts::encode(verb, script, self.prefix, self.sharded, self.command)
    }
}

async fn send(connection: &mut MultiplexedConnection, cmd: Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return connection.req_packed_command(&cmd).await.and_then(Value::extract_error);
    }
    let mut both = ::redis::pipe();
    both.cmd("ASKING").add_command(cmd);
    let mut values = connection.req_packed_commands(&both, 0, 2).await?;
    values.pop().unwrap_or(Value::Nil).extract_error()
}
