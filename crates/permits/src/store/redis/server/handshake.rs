//! A connection as a session needs it: to which server, with which timeouts, checked, and subscribed to channels.
//!
//! The checks and the subscriptions are sent along with the login: all takes one round trip.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisResult, Value};
use tokio::time::timeout;

use super::connection::Connection;
use super::info::{check_mode, check_version, evicting_policy, field};
use super::login::{connect, connect_with};
use super::state::{Receiver, Times};
use crate::events::emit;
use crate::protocol::SessionId;
use crate::store::redis::acl::missing_rights;
use crate::store::redis::sentinel::Endpoint;
use crate::store::redis::{error, keys, script};
use crate::store::{StoreError, StoreOptions};
use crate::timing;

/// The timeout for making a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server to connect to, and the timeouts of its connections.
#[derive(Clone)]
pub(crate) struct ConnectConfig {
    pub(super) endpoint: Endpoint,
    /// True if the server is a node of a cluster.
    pub(super) in_cluster: bool,
    pub(super) session: SessionId,
    pub(super) backoff_max: Duration,
    prefix: String,
    times: Times,
}

impl ConnectConfig {
    pub(crate) fn new(endpoint: Endpoint, in_cluster: bool, options: &StoreOptions) -> Self {
        let lease = options.lease;
        let ping = Some((timing::ping_every(lease), timing::ping_timeout(lease)));
        Self {
            endpoint,
            in_cluster,
            session: options.session.clone(),
            backoff_max: timing::reconnect_pause_max(lease),
            prefix: options.prefix.clone(),
            times: Times { ping, query: None },
        }
    }

    /// A checked connection that is subscribed to `channels`. Also returns those of them that have moved to another node of the
    /// cluster, to which this connection is not subscribed.
    pub(crate) async fn connect(
        &self,
        channels: &BTreeSet<String>,
        receiver: Arc<dyn Receiver>,
    ) -> Result<(Connection, Vec<String>), StoreError> {
        let server = self.with_timeout(self.endpoint.server(CONNECT_TIMEOUT)).await?;
        let mut commands = vec![info("server"), info("memory"), info("replication"), self.acl_probe()];
        commands.extend(channels.iter().map(|channel| self.subscription(channel)));
        let connecting = async {
            let (connection, replies) = connect_with(&server, self.times, receiver, commands).await?;
            let mut replies = replies.into_iter();
            let (version, memory) = (replies.next(), replies.next());
            let (replication, denied) = (replies.next(), replies.next());
            // Checked first, because a server of another kind has other commands.
            let version: String = read(version)?;
            check_mode(&version, self.in_cluster)?;
            check_version(&version, self.in_cluster)?;
            let (memory, denied): (String, Vec<String>) = (read(memory)?, read(denied)?);
            let role = match self.endpoint {
                Endpoint::Server(_) => None,
                Endpoint::Sentinels(_) => Some(read::<String>(replication)?),
            };
            let moved = subscribed(channels, replies);
            Ok((connection, memory, denied, role, moved))
        };
        let (connection, memory, denied, role, moved) = self.with_timeout(connecting).await?;
        if !denied.is_empty() {
            let reason = missing_rights(&denied, &self.prefix);
            return Err(StoreError::Denied { reason });
        }
        if role.is_some_and(|info| field(&info, "role") != Some("master")) {
            // The sentinels are about to name another server, or this one has not been promoted yet.
            return Err(StoreError::Unreachable { reason: format!("{server} is a replica") });
        }
        let moved = moved?;
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
        Ok((connection, moved))
    }

    /// Another connection, unchecked and without subscriptions.
    pub(super) async fn connect_unchecked(&self) -> Result<Connection, StoreError> {
        connect(&self.endpoint.server(CONNECT_TIMEOUT).await?, self.times).await
    }

    /// The commands that subscribe to a channel, and end a subscription.
    pub(super) fn verbs(&self) -> (&'static str, &'static str) {
        if self.in_cluster { ("SSUBSCRIBE", "SUNSUBSCRIBE") } else { ("SUBSCRIBE", "UNSUBSCRIBE") }
    }

    fn subscription(&self, channel: &str) -> Cmd {
        let mut subscribe = redis::cmd(self.verbs().0);
        subscribe.arg(channel);
        subscribe
    }

    fn acl_probe(&self) -> Cmd {
        let mut probe = redis::cmd("EVAL");
        probe
            .arg(script::ACL_PROBE)
            .arg(0)
            .arg(keys::some_key(&self.prefix))
            .arg(keys::some_channel(&self.prefix, self.in_cluster, &self.session))
            .arg(if self.in_cluster { "S" } else { "" });
        probe
    }

    async fn with_timeout<T>(
        &self,
        connecting: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(result) => result.map_err(|error| error.at(&self.endpoint)),
            Err(_) => Err(StoreError::Unreachable {
                reason: format!("{}: no connection within {CONNECT_TIMEOUT:?}", self.endpoint),
            }),
        }
    }
}

fn info(section: &str) -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg(section);
    info
}

/// The value of a reply.
fn read<T: FromRedisValue>(reply: Option<RedisResult<Value>>) -> Result<T, StoreError> {
    let value = reply.unwrap_or(Ok(Value::Nil));
    let value = value.and_then(|value| Ok(redis::from_redis_value(value)?));
    value.map_err(|failed| error::of_connecting(&failed))
}

/// Checks the replies to subscriptions. Returns the channels that have moved to another node.
fn subscribed(
    channels: &BTreeSet<String>,
    replies: impl Iterator<Item = RedisResult<Value>>,
) -> Result<Vec<String>, StoreError> {
    let mut moved = Vec::new();
    for (channel, reply) in channels.iter().zip(replies) {
        match reply {
            Ok(_) => {}
            Err(error) if error.redirect_node().is_some() => moved.push(channel.clone()),
            Err(failed) => {
                return Err(match error::of_connecting(&failed) {
                    StoreError::Denied { reason } => {
                        StoreError::Denied { reason: format!("SUBSCRIBE to {channel}: {reason}") }
                    }
                    other => other,
                });
            }
        }
    }
    Ok(moved)
}
