//! Making a connection: to whom, how long to try, and what is checked before it is used.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep, timeout};

use super::address::Server;
use super::place::Place;
use super::wakeups::{Messages, Wakeups};
use super::{errors, keys, scripts};
use crate::protocol::Id;
use crate::store::{Opening, Signals, StoreError};

/// The first and the last delay between two attempts to connect. The last one is shorter for short leases:
/// a recovery window lasts a renewal interval, and a holder must be back well within it.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// How long making a connection may take.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The oldest version of the server that will do, alone and in a cluster: sharded channels came with 7.0.
const OLDEST: (u32, u32) = (6, 2);
const OLDEST_IN_CLUSTER: (u32, u32) = (7, 0);

/// Whose connections to make, and how.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) place: Place,
    /// Whether it is a node of a cluster.
    pub(super) in_cluster: bool,
    pub(super) prefix: String,
    pub(super) session: Id,
    pub(super) signals: Signals,
    pub(super) backoff_max: Duration,
    pub(super) ping_every: Duration,
    pub(super) ping_patience: Duration,
}

impl Plan {
    pub(super) fn new(place: Place, in_cluster: bool, opening: &Opening, signals: Signals) -> Self {
        let lease = opening.lease;
        Self {
            place,
            in_cluster,
            prefix: opening.prefix.clone(),
            session: opening.session.clone(),
            signals,
            backoff_max: (lease / 30).clamp(2 * BACKOFF.0, BACKOFF.1),
            ping_every: (lease / 3).clamp(Duration::from_millis(250), Duration::from_secs(5)),
            ping_patience: (lease / 6).clamp(Duration::from_millis(250), Duration::from_secs(2)),
        }
    }

    /// A checked connection for commands.
    pub(super) async fn commands(&self) -> Result<MultiplexedConnection, StoreError> {
        let server = self.patiently(self.place.server(CONNECT_PATIENCE)).await?;
        let connecting = async {
            let mut connection = connect(&server).await?;
            let (mut again, mut third) = (connection.clone(), connection.clone());
            let check = self.check();
            // Sent together.
            let (version, memory, denied) = tokio::join!(
                info("server", &mut connection),
                info("memory", &mut again),
                denied(&check, &mut third)
            );
            let version = version?;
            if let Err(error) = check_version(&version, self.in_cluster) {
                return Ok(Err(error));
            }
            let (memory, denied) = (memory?, denied?);
            let role = match self.place {
                Place::Server(_) => None,
                Place::Sentinels(_) => Some(info("replication", &mut connection).await?),
            };
            Ok(Ok((connection, version, memory, denied, role)))
        };
        let connecting = async { connecting.await.map_err(|error| errors::of_connecting(&error))? };
        let (connection, version, memory, denied, role) = self.patiently(connecting).await?;
        if !denied.is_empty() {
            let reason = format!("this user may not run {}: allow it with ACL SETUSER", denied.join(", "));
            return Err(StoreError::Denied { reason });
        }
        if role.is_some_and(|info| field(&info, "role") != Some("master")) {
            // The sentinels are about to change their minds, or it has not heard of its promotion yet.
            return Err(StoreError::Unreachable { reason: format!("{server} is a replica") });
        }
        if !self.in_cluster && field(&version, "redis_mode") == Some("cluster") {
            let reason = format!("{server} is a node of a cluster: connect with redis+cluster://");
            return Err(StoreError::Unsupported { reason });
        }
        if let Some(policy) = evicting_policy(&memory) {
            tracing::warn!(
                %server,
                policy,
                "this server may evict live semaphores when its memory is full: set maxmemory-policy noeviction"
            );
        }
        Ok(connection)
    }

    /// Another connection, unchecked.
    pub(super) async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let server = self.place.server(CONNECT_PATIENCE).await;
        let unreachable = |error: StoreError| std::io::Error::new(std::io::ErrorKind::NotConnected, error);
        connect(&server.map_err(unreachable)?).await
    }

    fn check(&self) -> redis::Cmd {
        let mut check = redis::cmd("EVAL");
        check
            .arg(scripts::CHECK)
            .arg(0)
            .arg(keys::some_key(&self.prefix))
            .arg(keys::some_channel(&self.prefix, self.in_cluster, &self.session))
            .arg(if self.in_cluster { "S" } else { "" });
        check
    }

    /// The first connection. A server that is still loading its data is waited for.
    pub(super) async fn commands_when_loaded(&self) -> Result<MultiplexedConnection, StoreError> {
        let mut backoff = Backoff::new(self);
        let deadline = Instant::now() + CONNECT_PATIENCE;
        loop {
            match self.commands().await {
                Err(StoreError::Unreachable { reason })
                    if (reason.contains("LOADING") || matches!(self.place, Place::Sentinels(_)))
                        && Instant::now() < deadline =>
                {
                    backoff.wait().await;
                }
                result => return result,
            }
        }
    }

    /// A connection that listens to `channels`.
    pub(super) async fn wakeups(
        &self,
        channels: &BTreeSet<String>,
    ) -> Result<(Wakeups, Messages), StoreError> {
        let server = self.patiently(self.place.server(CONNECT_PATIENCE)).await?;
        let connecting = async {
            let connecting = Wakeups::connect(&server, self.in_cluster).await;
            connecting.map_err(|error| errors::of_connecting(&error))
        };
        let (mut wakeups, messages) = self.patiently(connecting).await?;
        self.listen(&mut wakeups, channels).await?;
        Ok((wakeups, messages))
    }

    /// Listens to more channels. One that belongs to another node by now is left out: whoever knows the nodes
    /// will listen to it there.
    pub(super) async fn listen(
        &self,
        wakeups: &mut Wakeups,
        channels: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        for channel in channels {
            let listening = async {
                match wakeups.listen(channel).await {
                    Err(error) if error.redirect_node().is_some() => Ok(()),
                    result => result.map_err(|error| errors::of_connecting(&error)),
                }
            };
            self.patiently(listening).await.map_err(|error| match error {
                StoreError::Denied { reason } => {
                    StoreError::Denied { reason: format!("SUBSCRIBE to {channel}: {reason}") }
                }
                other => other,
            })?;
        }
        Ok(())
    }

    async fn patiently<T>(
        &self,
        connecting: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match timeout(CONNECT_PATIENCE, connecting).await {
            Ok(Err(StoreError::Unreachable { reason })) => {
                Err(StoreError::Unreachable { reason: format!("{}: {reason}", self.place) })
            }
            Ok(result) => result,
            Err(_) => Err(StoreError::Unreachable {
                reason: format!("{}: no connection within {CONNECT_PATIENCE:?}", self.place),
            }),
        }
    }
}

/// A connection without a timeout of its own: patience is the caller's business.
pub(super) async fn connect(server: &Server) -> Result<MultiplexedConnection, redis::RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    server.client().get_multiplexed_async_connection_with_config(&config).await
}

async fn info(section: &str, connection: &mut MultiplexedConnection) -> redis::RedisResult<String> {
    redis::cmd("INFO").arg(section).query_async(connection).await
}

async fn denied(
    check: &redis::Cmd,
    connection: &mut MultiplexedConnection,
) -> redis::RedisResult<Vec<String>> {
    check.query_async(connection).await
}

/// Delays between attempts: doubling up to a bound, each drawn from the upper half.
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { next: BACKOFF.0, max: plan.backoff_max }
    }

    pub(super) async fn wait(&mut self) {
        sleep(self.next.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.next = (self.next * 2).min(self.max);
    }
}

pub(super) fn check_version(info: &str, in_cluster: bool) -> Result<(), StoreError> {
    let oldest = if in_cluster { OLDEST_IN_CLUSTER } else { OLDEST };
    let version = field(info, "redis_version").unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= oldest {
        return Ok(());
    }
    let reason =
        format!("version {version:?} is too old: Redis {}.{} or newer is needed", oldest.0, oldest.1);
    Err(StoreError::Unsupported { reason })
}

/// The eviction policy, if keys may be evicted.
fn evicting_policy(info: &str) -> Option<&str> {
    let policy = field(info, "maxmemory_policy")?;
    (policy != "noeviction" && field(info, "maxmemory")? != "0").then_some(policy)
}

pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_6_2_are_refused() {
        for old in ["5.0.14", "6.0.16", "", "nonsense"] {
            let error = check_version(&format!("# Server\r\nredis_version:{old}\r\n"), false);
            assert!(matches!(error, Err(StoreError::Unsupported { .. })), "{old}");
        }
        for new in ["6.2.0", "7.0.15", "10.1.0"] {
            assert_eq!(check_version(&format!("redis_version:{new}\r\n"), false), Ok(()), "{new}");
        }
        assert!(check_version("redis_version:6.2.14\r\n", true).is_err());
    }

    #[test]
    fn eviction_is_a_danger_only_with_a_memory_limit() {
        assert_eq!(evicting_policy("maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n"), Some("allkeys-lru"));
        assert_eq!(evicting_policy("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), None);
        assert_eq!(evicting_policy("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n"), None);
    }
}
