//! The server to connect to: always the same, or the primary that the sentinels name now.
//!
//! All sentinels are asked at once, and the answer with the newest configuration counts, as among the sentinels
//! themselves: a sentinel that was cut off may be behind. The session also subscribes to each sentinel, so that it
//! follows a failover when it is decided, and not when the old server stops replying: after a graceful failover the old
//! server continues to reply, as a replica.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::address::{Sentinels, Server};
use super::error;
use super::server::login::connect;
use super::server::subscriber::{Messages, Subscriber};
use crate::events::emit;
use crate::store::StoreError;

/// The timeout for a sentinel's reply.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval between pings to a sentinel, and between attempts to reach one.
const SENTINEL_EVERY: Duration = Duration::from_secs(1);

/// The channel on which a sentinel publishes that it has chosen another primary.
const SWITCHED: &str = "+switch-master";

/// The server, or the sentinels that name it.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Server(Box<Server>),
    Sentinels(Arc<SentinelGroup>),
}

impl Endpoint {
    /// The server to connect to now.
    pub(super) async fn server(&self, timeout: Duration) -> Result<Server, StoreError> {
        match self {
            Self::Server(server) => Ok((**server).clone()),
            Self::Sentinels(group) => group.ask(timeout.min(SENTINEL_TIMEOUT)).await,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Sentinels(group) => write!(f, "service {:?}", group.address.service),
        }
    }
}

/// The sentinels of one service.
pub(crate) struct SentinelGroup {
    address: Sentinels,
    /// The primary that they named last.
    named: Mutex<Option<(String, u16)>>,
}

impl SentinelGroup {
    pub(crate) fn new(address: Sentinels) -> Self {
        Self { address, named: Mutex::default() }
    }

    /// The number of sentinels.
    pub(crate) fn count(&self) -> usize {
        self.address.sentinels.len()
    }

    /// The primary that the newest configuration names.
    async fn ask(&self, timeout: Duration) -> Result<Server, StoreError> {
        let (newest, mut errors) = self.ask_each(timeout).await;
        let Some(named) = newest else {
            // An error that lasts counts more than a sentinel that is away.
            if let Some(lasting) = errors.iter().position(|error| !error.is_temporary()) {
                return Err(errors.swap_remove(lasting));
            }
            let reasons: Vec<String> = errors.into_iter().map(StoreError::into_reason).collect();
            return Err(StoreError::Unreachable {
                reason: format!("no sentinel names a server ({})", reasons.join("; ")),
            });
        };
        let server = self.address.server.at(&named.host, named.port);
        *self.lock() = Some((named.host, named.port));
        server.map_err(|reason| StoreError::Unsupported { reason })
    }

    /// The primary that the newest configuration names, and the errors of the sentinels that name none.
    pub(crate) async fn poll_all(&self) -> (Option<Server>, Vec<String>) {
        let (newest, errors) = self.ask_each(SENTINEL_TIMEOUT).await;
        let server = newest.and_then(|named| self.address.server.at(&named.host, named.port).ok());
        (server, errors.into_iter().map(StoreError::into_reason).collect())
    }

    async fn ask_each(&self, timeout: Duration) -> (Option<NamedPrimary>, Vec<StoreError>) {
        let asked = self.address.sentinels.iter().map(|sentinel| self.ask_one(sentinel, timeout));
        let mut newest: Option<NamedPrimary> = None;
        let mut errors = Vec::new();
        for (sentinel, answer) in self.address.sentinels.iter().zip(join_all(asked).await) {
            match answer {
                Ok(named) => newest = newest.max(Some(named)),
                Err(error) => errors.push(error.at(sentinel)),
            }
        }
        (newest, errors)
    }

    async fn ask_one(&self, sentinel: &Server, timeout: Duration) -> Result<NamedPrimary, StoreError> {
        let asking = async {
            let mut connection = connect(sentinel).await?;
            let mut ask = redis::cmd("SENTINEL");
            ask.arg("MASTER").arg(&self.address.service);
            match ask.query_async::<HashMap<String, String>>(&mut connection).await {
                Ok(fields) => NamedPrimary::of(&fields).ok_or_else(|| StoreError::Unreachable {
                    reason: "its reply lacks the address of the primary".into(),
                }),
                Err(failed) => Err(match error::of_connecting(&failed) {
                    StoreError::Unsupported { .. } => {
                        let reason = "it is no sentinel: name the sentinels, usually at port 26379, or connect to \
                                      the server itself with redis://";
                        StoreError::Mismatch { reason: reason.into() }
                    }
                    StoreError::Unreachable { reason } if reason.contains("No such master") => {
                        let reason = format!("it knows no service {:?}", self.address.service);
                        StoreError::Unreachable { reason }
                    }
                    other => other,
                }),
            }
        };
        let silent = || StoreError::Unreachable { reason: format!("no answer within {timeout:?}") };
        tokio::time::timeout(timeout, asking).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Stays subscribed to one of the sentinels, and calls `moved` when it names another primary.
    pub(super) async fn watch(&self, number: usize, moved: impl Fn()) {
        let sentinel = &self.address.sentinels[number];
        loop {
            if let Ok(Ok((mut subscriber, messages))) = timeout(SENTINEL_TIMEOUT, subscribe(sentinel)).await {
                // The primary may have changed before the subscription.
                let known = self.lock().clone();
                if self.ask(SENTINEL_TIMEOUT).await.is_ok() && known.is_some() && *self.lock() != known {
                    moved();
                }
                self.read(&mut subscriber, messages, &moved).await;
            }
            sleep(SENTINEL_EVERY).await;
        }
    }

    /// Reads until the connection ends. A message is `service old-host old-port new-host new-port`.
    async fn read(&self, subscriber: &mut Subscriber, mut messages: Messages, moved: &impl Fn()) {
        loop {
            match timeout(SENTINEL_EVERY, messages.recv()).await {
                Ok(Some(payload)) => {
                    let text = String::from_utf8_lossy(&payload);
                    if text.split(' ').next() == Some(&self.address.service) {
                        emit!(
                            INFO,
                            [service = self.address.service.clone()],
                            service,
                            "the sentinels have chosen another server"
                        );
                        moved();
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    if !matches!(timeout(SENTINEL_TIMEOUT, subscriber.ping()).await, Ok(Ok(()))) {
                        return;
                    }
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(String, u16)>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The primary that a sentinel names. Ordered by the age of the sentinel's configuration.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NamedPrimary {
    epoch: u64,
    host: String,
    port: u16,
}

impl NamedPrimary {
    fn of(fields: &HashMap<String, String>) -> Option<Self> {
        let epoch = fields.get("config-epoch")?.parse().ok()?;
        Some(Self { epoch, host: fields.get("ip")?.clone(), port: fields.get("port")?.parse().ok()? })
    }
}

async fn subscribe(sentinel: &Server) -> Result<(Subscriber, Messages), redis::RedisError> {
    let (mut subscriber, messages) = Subscriber::connect(sentinel, false).await?;
    subscriber.subscribe(SWITCHED).await?;
    Ok((subscriber, messages))
}
