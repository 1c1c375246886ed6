//! Connections as a session needs them: to which server, with which timeouts, and the checks before the first use.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::info::{check_mode, check_version, evicting_policy, field};
use super::login::connect;
use super::subscriber::{Messages, Subscriber};
use crate::events::emit;
use crate::protocol::SessionId;
use crate::store::StoreError;
use crate::store::redis::acl::missing_rights;
use crate::store::redis::sentinel::Endpoint;
use crate::store::redis::{RedisOptions, StoreEvents};
use crate::store::redis::{error, keys, script};
use crate::timing;

/// The timeout for making a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server to connect to, and the timeouts of its connections.
#[derive(Clone)]
pub(crate) struct ConnectConfig {
    pub(super) endpoint: Endpoint,
    /// True if the server is a node of a cluster.
    pub(super) in_cluster: bool,
    pub(super) prefix: String,
    pub(super) session: SessionId,
    pub(super) events: StoreEvents,
    pub(super) backoff_max: Duration,
    pub(super) ping_every: Duration,
    pub(super) ping_timeout: Duration,
}

impl ConnectConfig {
    pub(crate) fn new(
        endpoint: Endpoint,
        in_cluster: bool,
        options: &RedisOptions,
        events: StoreEvents,
    ) -> Self {
        let lease = options.lease;
        Self {
            endpoint,
            in_cluster,
            prefix: options.prefix.clone(),
            session: options.session.clone(),
            events,
            backoff_max: timing::reconnect_pause_max(lease),
            ping_every: timing::ping_every(lease),
            ping_timeout: timing::ping_timeout(lease),
        }
    }

    /// A checked connection for commands.
    pub(crate) async fn commands(&self) -> Result<MultiplexedConnection, StoreError> {
        let server = self.with_timeout(self.endpoint.server(CONNECT_TIMEOUT)).await?;
        let connecting = async {
            let mut connection = connect(&server).await?;
            let failed = |failed: redis::RedisError| error::of_connecting(&failed);
            let (mut second, mut third) = (connection.clone(), connection.clone());
            let probe = self.acl_probe();
            // Sent together, in one round trip.
            let (version, memory, denied) = tokio::join!(
                info("server", &mut connection),
                info("memory", &mut second),
                denied(&probe, &mut third)
            );
            // Checked first, because a server of another kind has other commands.
            let version = version.map_err(failed)?;
            check_mode(&version, self.in_cluster)?;
            check_version(&version, self.in_cluster)?;
            let (memory, denied) = (memory.map_err(failed)?, denied.map_err(failed)?);
            let role = match self.endpoint {
                Endpoint::Server(_) => None,
                Endpoint::Sentinels(_) => Some(info("replication", &mut connection).await.map_err(failed)?),
            };
            Ok((connection, memory, denied, role))
        };
        let (connection, memory, denied, role) = self.with_timeout(connecting).await?;
        if !denied.is_empty() {
            let reason = missing_rights(&denied, &self.prefix);
            return Err(StoreError::Denied { reason });
        }
        if role.is_some_and(|info| field(&info, "role") != Some("master")) {
            // The sentinels are about to name another server, or this one has not been promoted yet.
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
        connect(&self.endpoint.server(CONNECT_TIMEOUT).await?).await
    }

    fn acl_probe(&self) -> redis::Cmd {
        let mut probe = redis::cmd("EVAL");
        probe
            .arg(script::ACL_PROBE)
            .arg(0)
            .arg(keys::some_key(&self.prefix))
            .arg(keys::some_channel(&self.prefix, self.in_cluster, &self.session))
            .arg(if self.in_cluster { "S" } else { "" });
        probe
    }

    /// A connection that is subscribed to `channels`.
    pub(super) async fn subscriber(
        &self,
        channels: &BTreeSet<String>,
    ) -> Result<(Subscriber, Messages), StoreError> {
        let server = self.with_timeout(self.endpoint.server(CONNECT_TIMEOUT)).await?;
        let connecting = async {
            let connecting = Subscriber::connect(&server, self.in_cluster).await;
            connecting.map_err(|failed| error::of_connecting(&failed))
        };
        let (mut subscriber, messages) = self.with_timeout(connecting).await?;
        self.subscribe(&mut subscriber, channels).await?;
        Ok((subscriber, messages))
    }

    /// Subscribes to more channels. A channel that has moved to another node is left out: the cluster subscribes to it
    /// there.
    pub(super) async fn subscribe(
        &self,
        subscriber: &mut Subscriber,
        channels: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        for channel in channels {
            let subscribing = async {
                match subscriber.subscribe(channel).await {
                    Err(error) if error.redirect_node().is_some() => Ok(()),
                    result => result.map_err(|failed| error::of_connecting(&failed)),
                }
            };
            self.with_timeout(subscribing).await.map_err(|error| match error {
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
            Ok(result) => result.map_err(|error| error.at(&self.endpoint)),
            Err(_) => Err(StoreError::Unreachable {
                reason: format!("{}: no connection within {CONNECT_TIMEOUT:?}", self.endpoint),
            }),
        }
    }
}

async fn info(section: &str, connection: &mut MultiplexedConnection) -> redis::RedisResult<String> {
    redis::cmd("INFO").arg(section).query_async(connection).await
}

async fn denied(
    probe: &redis::Cmd,
    connection: &mut MultiplexedConnection,
) -> redis::RedisResult<Vec<String>> {
    probe.query_async(connection).await
}

/// Delays between attempts: doubling up to a bound, each drawn from the upper half.
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(super) fn new(config: &ConnectConfig) -> Self {
        Self { next: timing::BACKOFF.first, max: config.backoff_max }
    }

    pub(super) async fn wait(&mut self) {
        sleep(self.next.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.next = (self.next * 2).min(self.max);
    }
}
