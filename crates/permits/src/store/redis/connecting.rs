//! Making a connection: to whom, how long to try, and what is checked before it is used.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::connection::connect;
use super::place::Place;
use super::wakeups::{Messages, Wakeups};
use super::{errors, keys, scripts};
use crate::events::emit;
use crate::protocol::SessionId;
use crate::store::{StoreError, StoreEvents, StoreOptions};
use crate::timing;

/// The first and the last delay between two attempts to connect. The last one is shorter for short leases:
/// a recovery window lasts a renewal interval, and a holder must be back well within it.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// How long making a connection may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    pub(super) session: SessionId,
    pub(super) signals: StoreEvents,
    pub(super) backoff_max: Duration,
    pub(super) ping_every: Duration,
    pub(super) ping_timeout: Duration,
}

impl Plan {
    pub(super) fn new(place: Place, in_cluster: bool, opening: &StoreOptions, signals: StoreEvents) -> Self {
        let lease = opening.lease;
        Self {
            place,
            in_cluster,
            prefix: opening.prefix.clone(),
            session: opening.session.clone(),
            signals,
            backoff_max: timing::reconnect_pause_max(lease),
            ping_every: timing::ping_every(lease),
            ping_timeout: timing::ping_timeout(lease),
        }
    }

    /// A checked connection for commands.
    pub(super) async fn commands(&self) -> Result<MultiplexedConnection, StoreError> {
        let server = self.with_timeout(self.place.server(CONNECT_TIMEOUT)).await?;
        let connecting = async {
            let mut connection = connect(&server).await?;
            let failed = |error: redis::RedisError| errors::of_connecting(&error);
            let (mut again, mut third) = (connection.clone(), connection.clone());
            let check = self.check();
            // Sent together.
            let (version, memory, denied) = tokio::join!(
                info("server", &mut connection),
                info("memory", &mut again),
                denied(&check, &mut third)
            );
            // First, because a server of another kind has other commands.
            let version = version.map_err(failed)?;
            check_mode(&version, self.in_cluster)?;
            check_version(&version, self.in_cluster)?;
            let (memory, denied) = (memory.map_err(failed)?, denied.map_err(failed)?);
            let role = match self.place {
                Place::Server(_) => None,
                Place::Sentinels(_) => Some(info("replication", &mut connection).await.map_err(failed)?),
            };
            Ok((connection, memory, denied, role))
        };
        let (connection, memory, denied, role) = self.with_timeout(connecting).await?;
        if !denied.is_empty() {
            let reason = missing_rights(&denied, &self.prefix);
            return Err(StoreError::Denied { reason });
        }
        if role.is_some_and(|info| field(&info, "role") != Some("master")) {
            // The sentinels are about to change their minds, or it has not heard of its promotion yet.
            return Err(StoreError::Unreachable { reason: format!("{server} is a replica") });
        }
        if let Some(policy) = evicting_policy(&memory) {
            let (server, policy) = (server.to_string(), policy.to_owned());
            emit!(
                WARN,
                [server, policy],
                %server,
                policy,
                "this server may evict live semaphores when its memory is full: set maxmemory-policy noeviction"
            );
        }
        Ok(connection)
    }

    /// Another connection, unchecked.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        connect(&self.place.server(CONNECT_TIMEOUT).await?).await
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

    /// A connection that listens to `channels`.
    pub(super) async fn wakeups(
        &self,
        channels: &BTreeSet<String>,
    ) -> Result<(Wakeups, Messages), StoreError> {
        let server = self.with_timeout(self.place.server(CONNECT_TIMEOUT)).await?;
        let connecting = async {
            let connecting = Wakeups::connect(&server, self.in_cluster).await;
            connecting.map_err(|error| errors::of_connecting(&error))
        };
        let (mut wakeups, messages) = self.with_timeout(connecting).await?;
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
            self.with_timeout(listening).await.map_err(|error| match error {
                StoreError::Denied { reason } => {
                    StoreError::Denied { reason: format!("SUBSCRIBE to {channel}: {reason}") }
                }
                other => other,
            })?;
        }
        Ok(())
    }

    async fn with_timeout<T>(
        &self,
        connecting: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(result) => result.map_err(|error| error.at(&self.place)),
            Err(_) => Err(StoreError::Unreachable {
                reason: format!("{}: no connection within {CONNECT_TIMEOUT:?}", self.place),
            }),
        }
    }
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

/// The rights that are missing, each command once. `denied` are commands with their first arguments.
fn missing_rights(denied: &[String], prefix: &str) -> String {
    let mut missing: Vec<(String, Vec<&str>)> = Vec::new();
    let some_key = keys::some_key(prefix);
    for line in denied {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        let on = match command {
            "SUBSCRIBE" | "PUBLISH" => format!(" on channels {}", keys::channel_pattern(prefix, false)),
            "SSUBSCRIBE" | "SPUBLISH" => format!(" on channels {}", keys::channel_pattern(prefix, true)),
            _ if argument == some_key => format!(" on keys {}", keys::pattern(prefix)),
            _ => String::new(),
        };
        match missing.iter_mut().find(|(known, _)| *known == on) {
            Some((_, commands)) => commands.push(command),
            None => missing.push((on, vec![command])),
        }
    }
    let missing: Vec<String> =
        missing.iter().map(|(on, commands)| format!("{}{on}", commands.join(", "))).collect();
    format!(
        "this user may not run {}: allow it with ACL SETUSER (permits doctor --acl prints all that is needed)",
        missing.join("; nor ")
    )
}

/// Whether the server is what the URL says: alone, or in a cluster.
fn check_mode(info: &str, in_cluster: bool) -> Result<(), StoreError> {
    let reason = match mode(info) {
        Some("cluster") if !in_cluster => "it is a node of a cluster: connect with redis+cluster://HOST,HOST",
        Some("sentinel") => {
            "it is a sentinel, which watches servers: connect with redis+sentinel://HOST,HOST/SERVICE"
        }
        _ => return Ok(()),
    };
    Err(StoreError::Mismatch { reason: reason.into() })
}

pub(crate) fn check_version(info: &str, in_cluster: bool) -> Result<(), StoreError> {
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

/// Part of INFO that says what a server is: `standalone`, `cluster` or `sentinel`. Valkey has renamed it in 8.0.
pub(crate) fn mode(info: &str) -> Option<&str> {
    field(info, "redis_mode").or_else(|| field(info, "server_mode"))
}

pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
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
