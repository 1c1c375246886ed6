//! Which server to connect to: always the same, or the one that the sentinels name now.
//!
//! All sentinels are asked at once, and the one with the newest configuration counts, as it does among them: one
//! that was cut off may be behind. Each is also listened to, so that a failover is followed when it is decided, not when the old server stops answering;
//! after a graceful one it goes on answering, as a replica.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::address::{Sentinels, Server};
use super::connection::connect;
use super::errors;
use super::wakeups::{Messages, Wakeups};
use crate::events::emit;
use crate::store::StoreError;

/// How long a sentinel may take to answer.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);

/// How often to look whether a sentinel that is listened to is still there, and to reach one that is not.
const SENTINEL_EVERY: Duration = Duration::from_secs(1);

/// What a sentinel says when it has chosen another server.
const SWITCHED: &str = "+switch-master";

/// See the module.
#[derive(Clone)]
pub(super) enum Place {
    Server(Box<Server>),
    Sentinels(Arc<Watched>),
}

impl Place {
    /// The server to connect to now.
    pub(super) async fn server(&self, timeout: Duration) -> Result<Server, StoreError> {
        match self {
            Self::Server(server) => Ok((**server).clone()),
            Self::Sentinels(watched) => watched.ask(timeout.min(SENTINEL_TIMEOUT)).await,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Sentinels(watched) => write!(f, "service {:?}", watched.address.service),
        }
    }
}

/// A service that sentinels watch.
pub(crate) struct Watched {
    address: Sentinels,
    /// The server that was last named.
    named: Mutex<Option<(String, u16)>>,
}

impl Watched {
    pub(crate) fn new(address: Sentinels) -> Self {
        Self { address, named: Mutex::default() }
    }

    /// How many sentinels there are.
    pub(crate) fn count(&self) -> usize {
        self.address.sentinels.len()
    }

    async fn ask(&self, timeout: Duration) -> Result<Server, StoreError> {
        let (newest, mut errors) = self.ask_all(timeout).await;
        let Some(named) = newest else {
            // A refusal that lasts counts more than a sentinel that is away.
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

    /// The server that counts, and why those that name none do not.
    pub(crate) async fn roll_call(&self) -> (Option<Server>, Vec<String>) {
        let (newest, errors) = self.ask_all(SENTINEL_TIMEOUT).await;
        let server = newest.and_then(|named| self.address.server.at(&named.host, named.port).ok());
        (server, errors.into_iter().map(StoreError::into_reason).collect())
    }

    async fn ask_all(&self, timeout: Duration) -> (Option<Named>, Vec<StoreError>) {
        let asked = self.address.sentinels.iter().map(|sentinel| self.ask_one(sentinel, timeout));
        let mut newest: Option<Named> = None;
        let mut errors = Vec::new();
        for (sentinel, answer) in self.address.sentinels.iter().zip(join_all(asked).await) {
            match answer {
                Ok(named) => newest = newest.max(Some(named)),
                Err(error) => errors.push(error.at(sentinel)),
            }
        }
        (newest, errors)
    }

    async fn ask_one(&self, sentinel: &Server, timeout: Duration) -> Result<Named, StoreError> {
        let asking = async {
            let mut connection = connect(sentinel).await?;
            let mut ask = redis::cmd("SENTINEL");
            ask.arg("MASTER").arg(&self.address.service);
            match ask.query_async::<HashMap<String, String>>(&mut connection).await {
                Ok(fields) => Named::of(&fields).ok_or_else(|| StoreError::Unreachable {
                    reason: "an answer that makes no sense".into(),
                }),
                Err(error) => Err(match errors::of_connecting(&error) {
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

    /// Listens to one of the sentinels for ever, and calls `moved` when it says that the server is another one.
    pub(super) async fn watch(&self, number: usize, moved: impl Fn()) {
        let sentinel = &self.address.sentinels[number];
        loop {
            if let Ok(Ok((mut wakeups, messages))) = timeout(SENTINEL_TIMEOUT, listen(sentinel)).await {
                // What was said while nobody listened.
                let known = self.lock().clone();
                if self.ask(SENTINEL_TIMEOUT).await.is_ok() && known.is_some() && *self.lock() != known {
                    moved();
                }
                self.read(&mut wakeups, messages, &moved).await;
            }
            sleep(SENTINEL_EVERY).await;
        }
    }

    /// Reads until the connection ends. A message is `service old-host old-port new-host new-port`.
    async fn read(&self, wakeups: &mut Wakeups, mut messages: Messages, moved: &impl Fn()) {
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
                    if !matches!(timeout(SENTINEL_TIMEOUT, wakeups.ping()).await, Ok(Ok(()))) {
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

/// What a sentinel names. Ordered by how new its word is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    epoch: u64,
    host: String,
    port: u16,
}

impl Named {
    fn of(fields: &HashMap<String, String>) -> Option<Self> {
        let epoch = fields.get("config-epoch")?.parse().ok()?;
        Some(Self { epoch, host: fields.get("ip")?.clone(), port: fields.get("port")?.parse().ok()? })
    }
}

async fn listen(sentinel: &Server) -> Result<(Wakeups, Messages), redis::RedisError> {
    let (mut wakeups, messages) = Wakeups::connect(sentinel, false).await?;
    wakeups.listen(SWITCHED).await?;
    Ok((wakeups, messages))
}
