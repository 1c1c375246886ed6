//! A connection as a session needs it: to which server, with which timeouts, checked, and subscribed to
//! channels.
//!
//! The checks and the subscriptions are sent along with the login: all takes one round trip, and on a server
//! that lacks the scripts another one.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::connection::Connection;
use super::info::{check_mode, check_version, evicting_policy, field};
use super::login::connect_with;
use super::state::{NoReceiver, Receiver, Times};
use crate::acl::missing_rights;
use crate::call::Wire;
use crate::cluster::members::{self, Members};
use crate::protocol::SessionId;
use crate::resp::{Cmd, FromValue, RespResult, Value, cmd};
use crate::sentinel::Endpoint;
use crate::timing;
use crate::{error, keys, script};
use permits_store::observe::events;
use permits_store::{StoreError, StoreOptions};

/// The timeout for making a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server to connect to, and the timeouts of its connections.
#[derive(Clone)]
pub(crate) struct ConnectConfig {
    pub(super) endpoint: Endpoint,
    /// The nodes of the cluster, if the server is one of them.
    members: Option<Arc<Members>>,
    pub(super) session: SessionId,
    pub(super) backoff_max: Duration,
    prefix: String,
    times: Times,
}

impl ConnectConfig {
    /// `members` are the nodes of the cluster, if the server is one of them.
    pub(crate) fn new(endpoint: Endpoint, members: Option<Arc<Members>>, options: &StoreOptions) -> Self {
        let lease = options.lease;
        let ping = Some((timing::ping_every(lease), timing::ping_timeout(lease)));
        Self {
            endpoint,
            members,
            session: options.session.clone(),
            backoff_max: timing::reconnect_pause_max(lease),
            prefix: options.prefix.clone(),
            times: Times { ping, query: None },
        }
    }

    /// True if the server is a node of a cluster.
    pub(super) fn in_cluster(&self) -> bool {
        self.members.is_some()
    }

    /// A checked connection that is subscribed to `channels`, to a server that has the scripts of `wire`.
    /// Also returns the name of the server's process, which is new after each restart, and the names of
    /// channels that have moved to another node of the cluster, to which this connection is not subscribed.
    pub(crate) async fn connect(
        &self,
        channels: &BTreeSet<String>,
        wire: &Wire,
        receiver: impl Receiver,
    ) -> Result<(Connection, String, Vec<String>), StoreError> {
        let (server, place) = within(&self.endpoint, self.endpoint.server(CONNECT_TIMEOUT)).await?;
        let login = server.login().await.map_err(|error| error.at(&place))?;
        let has_sentinels = matches!(self.endpoint, Endpoint::Sentinels(_));
        let mut commands = vec![info("server"), info("memory"), self.acl_probe()];
        commands.extend(has_sentinels.then(|| info("replication")));
        commands.extend(self.in_cluster().then(|| {
            let mut slots = cmd("CLUSTER");
            slots.arg("SLOTS");
            slots
        }));
        commands.extend(wire.checks(false));
        commands.extend(channels.iter().map(|channel| self.subscription(channel)));
        let connecting = async {
            let (connection, replies) = connect_with(&server, login, self.times, receiver, commands).await?;
            let mut replies = replies.into_iter();
            let (version, memory, denied) = (replies.next(), replies.next(), replies.next());
            let replication = if has_sentinels { replies.next() } else { None };
            let slots = if self.in_cluster() { replies.next() } else { None };
            let checks: Vec<_> = replies.by_ref().take(wire.checks(false).len()).collect();
            // Checked first, because a server of another kind has other commands.
            let version: String = read(version)?;
            check_mode(&version, self.in_cluster())?;
            check_version(&version, self.in_cluster())?;
            let (memory, denied): (String, Vec<String>) = (read(memory)?, read(denied)?);
            let role = replication.map(|info| read::<String>(Some(info))).transpose()?;
            if !denied.is_empty() {
                let reason = missing_rights(&denied, &self.prefix);
                return Err(StoreError::Denied { reason });
            }
            if let (Some(members), Some(slots)) = (&self.members, slots)
                && !members.include(&members::ids(&read(Some(slots))?))
            {
                return Err(error::other_cluster());
            }
            let moved = subscribed(channels, replies)?;
            load(&connection, wire, checks).await?;
            let run_id = field(&version, "run_id").unwrap_or_default().to_owned();
            Ok((connection, run_id, memory, role, moved))
        };
        let (connection, run_id, memory, role, moved) = within(&place, connecting).await?;
        if role.is_some_and(|info| field(&info, "role") != Some("master")) {
            // The sentinels are about to name another server, or this one has not been promoted yet.
            return Err(StoreError::Unreachable { reason: format!("{server} is a replica") });
        }
        if let Some(policy) = evicting_policy(&memory) {
            events::may_evict(&server, &policy);
        }
        Ok((connection, run_id, moved))
    }

    /// Opens another connection, without checks and subscriptions. Also returns the name of the server's
    /// process. The connection sends no pings: WAIT would delay their replies, and its callers have time
    /// limits of their own.
    pub(super) async fn connect_again(&self) -> Result<(Connection, String), StoreError> {
        let times = Times { ping: None, ..self.times };
        let connecting = async {
            let (server, _) = self.endpoint.server(CONNECT_TIMEOUT).await?;
            let login = server.login().await?;
            let commands = vec![info("server")];
            let (connection, replies) = connect_with(&server, login, times, NoReceiver, commands).await?;
            let about: String = read(replies.into_iter().next())?;
            Ok((connection, field(&about, "run_id").unwrap_or_default().to_owned()))
        };
        connecting.await.map_err(|error| self.for_now(error))
    }

    /// The error of a session that was connected before. If its login or its certificates can be replaced, a
    /// refusal may pass: they are replaced here and on the server, and not at the same moment.
    pub(super) fn for_now(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Denied { reason } | StoreError::Tls { reason }
                if self.endpoint.may_be_let_in_later() =>
            {
                StoreError::Unreachable { reason }
            }
            error => error,
        }
    }

    /// The command that ends the subscription to a channel.
    pub(super) fn end_of_subscription(&self, channel: &str) -> Cmd {
        let mut end = cmd(if self.in_cluster() { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" });
        end.arg(channel);
        end
    }

    /// The command that subscribes to a channel.
    pub(super) fn subscription(&self, channel: &str) -> Cmd {
        let mut subscribe = cmd(if self.in_cluster() { "SSUBSCRIBE" } else { "SUBSCRIBE" });
        subscribe.arg(channel);
        subscribe
    }

    fn acl_probe(&self) -> Cmd {
        let mut probe = cmd("EVAL");
        probe
            .arg(script::ACL_PROBE)
            .arg(0)
            .arg(keys::some_key(&self.prefix))
            .arg(keys::some_channel(&self.prefix, self.in_cluster(), &self.session))
            .arg(if self.in_cluster() { "S" } else { "" });
        probe
    }
}

/// Connects in time. `place` begins the errors.
async fn within<T>(
    place: &impl Display,
    connecting: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let silent = || StoreError::Unreachable { reason: format!("no connection within {CONNECT_TIMEOUT:?}") };
    let connected = timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(silent()));
    connected.map_err(|error| error.at(place))
}

fn info(section: &str) -> Cmd {
    let mut info = cmd("INFO");
    info.arg(section);
    info
}

/// The value of a reply.
fn read<T: FromValue>(reply: Option<RespResult<Value>>) -> Result<T, StoreError> {
    let value = reply.unwrap_or(Ok(Value::Nil));
    let value = value.and_then(T::from_value);
    value.map_err(|failed| error::of_connecting(&failed))
}

/// Loads the scripts that the server lacks, by the replies to their checks.
async fn load(
    connection: &Connection,
    wire: &Wire,
    checks: Vec<RespResult<Value>>,
) -> Result<(), StoreError> {
    let is_missing = |check: &RespResult<Value>| check.as_ref().is_err_and(error::is_no_script);
    if checks.iter().any(is_missing) {
        for loaded in connection.query_all(&wire.checks(true)).await {
            read::<Value>(Some(loaded))?;
        }
        return Ok(());
    }
    checks.into_iter().try_for_each(|check| read::<Value>(Some(check)).map(drop))
}

/// Checks the replies to subscriptions. Returns the channels that have moved to another node.
fn subscribed(
    channels: &BTreeSet<String>,
    replies: impl Iterator<Item = RespResult<Value>>,
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
