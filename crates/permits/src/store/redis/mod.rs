//! The Redis and Valkey store: each command is one Lua script, executed on one connection to the server that has
//! the semaphore.
//!
//! - `address`: what a URL names; `place`: which server that is now, if sentinels decide.
//! - `connection`: one connection, opened and logged in.
//! - `supervisor`: two connections to a server, one for commands and one for wake-ups, replaced when they break;
//!   `connecting` makes and checks them, `wakeups` is the one that listens.
//! - `cluster`: a supervisor for each node, and `slots`, the map that says which.
//! - `scripts`: the Lua, and how commands and replies are written.
//! - `keys`: what the keys and channels are called. `listing`: which semaphores there are.
//! - `rights`: which commands, keys and channels a user needs.
//! - `errors`: what a failed call means.
//!
//! Redis 6.2 or newer, in a cluster 7.0, or Valkey. No type of the `redis` crate leaves this module.

pub(crate) mod address;
mod backend;
pub(crate) mod cluster;
pub(crate) mod connecting;
pub(crate) mod connection;
pub(crate) mod errors;
pub(crate) mod keys;
mod listing;
pub(crate) mod place;
pub(crate) mod rights;
mod scripts;
pub(crate) mod slots;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;
pub(crate) mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{ConnectionLike as _, MultiplexedConnection};
use ::redis::{Cmd, RedisResult, Value};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use self::address::Address;
pub(crate) use self::backend::Redis;
use self::cluster::Cluster;
use self::connecting::Plan;
use self::errors::Failure;
use self::place::{Place, Watched};
pub use self::rights::{Rights, rights};
use self::scripts::{Malformed, Script, Scripts};
use self::supervisor::Supervisor;
use super::{Store, StoreError, StoreOptions};
use crate::protocol::{Command, Name, Reply};

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
    /// Connects, checks the server, and listens for wake-ups: one attempt. Must be called on the session's runtime.
    pub(crate) async fn connect(address: &Address, opening: StoreOptions) -> Result<Self, StoreError> {
        let scripts = Scripts::new(matches!(address, Address::Cluster(_)));
        Self::connect_with(address, opening, scripts).await
    }

    async fn connect_with(
        address: &Address,
        opening: StoreOptions,
        scripts: Scripts,
    ) -> Result<Self, StoreError> {
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
        let plan = Plan::new(place, false, &opening, opening.events.clone());
        let route = Route::One(Supervisor::connect(plan, channel).await?);
        Ok(Self { route, scripts, prefix })
    }

    async fn run(
        &self,
        command: &Command,
        replicas: u32,
        timeout: Duration,
    ) -> Result<(Reply, u32), StoreError> {
        let calling = Calling {
            command,
            script: self.scripts.of(command),
            prefix: &self.prefix,
            sharded: matches!(self.route, Route::Cluster(_)),
            replicas,
            timeout,
            deadline: Instant::now() + timeout,
        };
        match &self.route {
            Route::One(supervisor) => {
                supervisor.connection()?;
                Ok(calling.call(supervisor, false).await?)
            }
            Route::Cluster(cluster) => cluster.run(&calling).await,
        }
    }
}

impl Store for RedisStore {
    fn execute<'a>(
        &'a self,
        command: &'a Command,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, StoreError>> {
        Box::pin(async move { Ok(self.run(command, 0, timeout).await?.0) })
    }

    fn confirm<'a>(
        &'a self,
        command: &'a Command,
        replicas: u32,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(Reply, u32), StoreError>> {
        Box::pin(self.run(command, replicas, timeout))
    }

    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        Box::pin(async move {
            let names = match &self.route {
                Route::One(supervisor) => {
                    let (_, mut connection) = supervisor.connection()?;
                    listing::list(&mut connection, &self.prefix, timeout).await?
                }
                Route::Cluster(cluster) => cluster.list(timeout).await?,
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
    /// On how many replicas it should be before it counts as done.
    replicas: u32,
    timeout: Duration,
    deadline: Instant,
}

impl Calling<'_> {
    /// How much timeout is left.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Calls the script on one server; `asking` if the server has said to, because the slot is moving to it. Tells on
    /// how many replicas it is, if it was to be on any.
    async fn call(&self, supervisor: &Supervisor, asking: bool) -> Result<(Reply, u32), Failure> {
        let (epoch, mut connection) = supervisor.connection().map_err(Failure::Store)?;
        if self.replicas > 0 {
            connection = self.confirming(supervisor, epoch).await?;
        }
        let sending = async {
            let value = match send(&mut connection, self.encode("EVALSHA", &self.script.hash), asking).await {
                // The server forgot the script, or never had it. EVAL leaves it there.
                Err(error) if errors::is_no_script(&error) => {
                    send(&mut connection, self.encode("EVAL", &self.script.code), asking).await?
                }
                result => result?,
            };
            let confirmed = match self.replicas {
                0 => 0,
                replicas => self.wait(&mut connection, replicas).await?,
            };
            Ok((value, confirmed))
        };
        let result: RedisResult<(Value, u32)> = match timeout_at(self.deadline, sending).await {
            Ok(result) => result,
            Err(_) => {
                let reason = format!("no answer within {:?}", self.timeout);
                supervisor.broken(epoch, reason.clone());
                return Err(Failure::Store(StoreError::NoAnswer { reason }));
            }
        };
        match result {
            Ok((value, confirmed)) => {
                let malformed = |Malformed(reason)| {
                    // It may be the reply to another call, and so may all that follow.
                    supervisor.confused(epoch, reason.clone());
                    Failure::Store(StoreError::Malformed { reason })
                };
                let reply = scripts::decode(value, &self.command.operation).map_err(malformed)?;
                supervisor.served();
                Ok((reply, confirmed))
            }
            Err(error) => {
                if errors::needs_reconnect(&error) {
                    supervisor.broken(epoch, errors::text(&error));
                }
                Err(Failure::of(&error, &self.command.semaphore))
            }
        }
    }

    /// The connection for what replicas confirm. That it cannot be made is no reason to give up the other one.
    async fn confirming(
        &self,
        supervisor: &Supervisor,
        epoch: u64,
    ) -> Result<MultiplexedConnection, Failure> {
        match timeout_at(self.deadline, supervisor.confirming(epoch)).await {
            Ok(connected) => connected.map_err(Failure::Store),
            Err(_) => {
                let reason = format!("no connection within {:?}", self.timeout);
                Err(Failure::Store(StoreError::Unreachable { reason }))
            }
        }
    }

    /// On how many replicas everything is that this connection has written, asked with timeout enough to answer.
    async fn wait(&self, connection: &mut MultiplexedConnection, replicas: u32) -> RedisResult<u32> {
        let milliseconds = (self.left() * 3 / 4).as_millis().max(1);
        let milliseconds = u64::try_from(milliseconds).unwrap_or(u64::MAX);
        ::redis::cmd("WAIT").arg(replicas).arg(milliseconds).query_async(connection).await
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
