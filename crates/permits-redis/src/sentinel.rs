//! The server to connect to: always the same, or the primary that the sentinels name now.
//!
//! All sentinels are asked at once, and of the answers that come in time the one with the newest
//! configuration counts, as among the sentinels themselves: one that was cut off may be behind. The session
//! also subscribes to each sentinel, so that it follows a failover when it is decided, and not when the old
//! server stops replying: after a graceful failover the old server continues to reply, as a replica.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::address::{Sentinels, Server};
use super::error;
use super::resp::{FromValue as _, cmd};
use super::server::login::{connect, connect_with};
use super::server::state::{Arrival, Receiver, Times, closed};
use permits_store::observe::events;
use permits_store::{Report, StoreError};

/// The timeout for a sentinel's reply.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the other sentinels are waited for when one has named a primary. A sentinel whose host is gone
/// would otherwise delay each connection by its whole timeout.
const REST: Duration = Duration::from_millis(200);

/// The interval between pings to a sentinel, and between attempts to reach one.
const SENTINEL_EVERY: Duration = Duration::from_secs(1);

/// The channel on which a sentinel publishes that it has chosen another primary.
const SWITCHED: &str = "+switch-master";

/// The server, or the sentinels that name it.
#[derive(Clone)]
pub(crate) enum Endpoint {
    /// A server that the URL names.
    Server(Box<Server>),
    /// A node of a cluster that other nodes name.
    Node(Box<Server>),
    Sentinels(Arc<SentinelGroup>),
}

impl Endpoint {
    /// The server to connect to now, and its address in an error: with its origin, unless it is the URL's.
    pub(super) async fn server(&self, timeout: Duration) -> Result<(Server, String), StoreError> {
        match self {
            Self::Server(server) => Ok(((**server).clone(), server.to_string())),
            Self::Node(server) => {
                Ok(((**server).clone(), format!("{server}, an address that the cluster announced")))
            }
            Self::Sentinels(group) => group.ask(timeout.min(SENTINEL_TIMEOUT)).await,
        }
    }

    /// Returns true if what lets a connection in may be replaced: its login or its certificates.
    pub(super) fn may_be_let_in_later(&self) -> bool {
        match self {
            Self::Server(server) | Self::Node(server) => server.may_be_let_in_later(),
            Self::Sentinels(group) => {
                let Sentinels { sentinels, server, .. } = &group.address;
                sentinels.iter().chain([server]).any(Server::may_be_let_in_later)
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) | Self::Node(server) => server.fmt(f),
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

    /// The primary that the newest configuration names, and its address in an error.
    async fn ask(&self, timeout: Duration) -> Result<(Server, String), StoreError> {
        let (answers, mut errors) = self.ask_each(timeout, REST).await;
        let Some((named, sentinel)) = newest(answers.into_iter()) else {
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
        let service = &self.address.service;
        let place = format!("{server}, the address that the sentinel {sentinel} announced for {service:?}");
        Ok((server, place))
    }

    /// The primary that the newest configuration names; the sentinels that name another one, with its
    /// address; and the errors of those that name none.
    pub(crate) async fn poll_all(&self) -> (Option<Server>, Vec<String>, Vec<String>) {
        let (answers, errors) = self.ask_each(SENTINEL_TIMEOUT, SENTINEL_TIMEOUT).await;
        let place = |named: &NamedPrimary| self.address.server.at(&named.host, named.port);
        let newest =
            newest(answers.iter().map(|(named, sentinel)| (named, sentinel))).map(|(named, _)| named);
        let is_other =
            |named: &NamedPrimary| newest.is_some_and(|it| (&it.host, it.port) != (&named.host, named.port));
        let others = answers.iter().filter(|(named, _)| is_other(named));
        let others = others.map(|(named, sentinel)| format!("{sentinel} names {}", place(named))).collect();
        (newest.map(place), others, errors.into_iter().map(StoreError::into_reason).collect())
    }

    /// Asks all sentinels at once. When the first one has named a primary, waits no longer than `rest` for
    /// the others.
    async fn ask_each(
        &self,
        timeout: Duration,
        rest: Duration,
    ) -> (Vec<(NamedPrimary, &Server)>, Vec<StoreError>) {
        let asking = self.address.sentinels.iter().map(async |sentinel| {
            let answer = self.ask_one(sentinel, timeout).await;
            (sentinel, answer)
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        let (mut named, mut errors) = (Vec::new(), Vec::new());
        let mut end = Instant::now();
        loop {
            let answered = tokio::select! {
                answered = asking.next() => answered,
                () = sleep_until(end), if !named.is_empty() => None,
            };
            match answered {
                Some((sentinel, Ok(answer))) => {
                    if named.is_empty() {
                        end = Instant::now() + rest;
                    }
                    named.push((answer, sentinel));
                }
                Some((sentinel, Err(error))) => errors.push(error.at(sentinel)),
                None => return (named, errors),
            }
        }
    }

    async fn ask_one(&self, sentinel: &Server, timeout: Duration) -> Result<NamedPrimary, StoreError> {
        let login = sentinel.login().await?;
        let asking = async {
            let connection = connect(sentinel, login, Times::default()).await?;
            let ask = |what| {
                let mut ask = cmd("SENTINEL");
                ask.arg(what).arg(&self.address.service);
                ask
            };
            // The sentinel that leads a failover has the epoch of the new configuration with the address of
            // the old primary, until all replicas follow the new one. By the other command it names that one.
            let mut replies = connection.query_all(&[ask("MASTER"), ask("GET-MASTER-ADDR-BY-NAME")]).await;
            let [address, fields] =
                [replies.pop(), replies.pop()].map(|reply| reply.unwrap_or_else(|| Err(closed())));
            let address = address.and_then(<(String, String)>::from_value).ok();
            match fields.and_then(BTreeMap::from_value) {
                Ok(fields) => NamedPrimary::of(&fields, address).ok_or_else(|| StoreError::Unreachable {
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
    pub(super) async fn watch(&self, number: usize, moved: Arc<impl Fn() + Send + Sync + 'static>) {
        let sentinel = &self.address.sentinels[number];
        let times = Times { ping: Some((SENTINEL_EVERY, SENTINEL_TIMEOUT)), query: None };
        let mut subscribe = cmd("SUBSCRIBE");
        subscribe.arg(SWITCHED);
        loop {
            let watch = Watch { service: self.address.service.clone(), moved: moved.clone() };
            let subscribing = async {
                let login = sentinel.login().await?;
                connect_with(sentinel, login, times, watch, vec![subscribe.clone()]).await
            };
            if let Ok(Ok((connection, replies))) = timeout(SENTINEL_TIMEOUT, subscribing).await
                && replies.iter().all(Result::is_ok)
            {
                // The primary may have changed before the subscription.
                let known = self.lock().clone();
                if self.ask(SENTINEL_TIMEOUT).await.is_ok() && known.is_some() && *self.lock() != known {
                    moved();
                }
                connection.ended().await;
            }
            sleep(SENTINEL_EVERY).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(String, u16)>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The primary that a sentinel names. Ordered by the age of the sentinel's configuration.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedPrimary {
    epoch: u64,
    host: String,
    port: u16,
}

impl NamedPrimary {
    /// The primary of a reply, at `address` if the sentinel has given one.
    fn of(fields: &BTreeMap<String, String>, address: Option<(String, String)>) -> Option<Self> {
        let epoch = fields.get("config-epoch")?.parse().ok()?;
        let of_fields = || Some((fields.get("ip")?.clone(), fields.get("port")?.clone()));
        let (host, port) = address.or_else(of_fields)?;
        Some(Self { epoch, host, port: port.parse().ok()? })
    }
}

/// The answer with the newest configuration, and who gave it.
fn newest<N: Ord, T>(answers: impl Iterator<Item = (N, T)>) -> Option<(N, T)> {
    answers.max_by(|(one, _), (other, _)| one.cmp(other))
}

/// The receiver of a sentinel's messages: `service old-host old-port new-host new-port`.
struct Watch<F> {
    service: String,
    moved: Arc<F>,
}

impl<F: Fn() + Send + Sync + 'static> Receiver for Watch<F> {
    fn receive(&self, arrival: Arrival, _: &mut Vec<Report>) {
        let Arrival::Message(payload) = arrival else { return };
        if String::from_utf8_lossy(&payload).split(' ').next() == Some(&self.service) {
            events::primary_moved(&self.service);
            (self.moved)();
        }
    }

    fn hand_on(&self, _: &mut Vec<Report>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sentinel that was cut off names the primary of before.
    #[test]
    fn the_newest_configuration_counts_whoever_answers_first() {
        let named = |epoch, host: &str| (NamedPrimary { epoch, host: host.to_owned(), port: 1 }, ());
        for epochs in [[9, 10], [10, 9]] {
            let answers = epochs.map(|epoch| named(epoch, if epoch == 10 { "a" } else { "b" }));
            assert_eq!(newest(answers.into_iter()), Some(named(10, "a")));
        }
    }

    /// The leader of a failover has the old address beside the new epoch.
    #[test]
    fn the_address_that_a_sentinel_gives_to_clients_counts() {
        let fields = [("config-epoch", "7"), ("ip", "10.0.0.9"), ("port", "1")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let named = |host: &str, port| Some(NamedPrimary { epoch: 7, host: host.to_owned(), port });
        let address = ("10.0.0.7".to_owned(), "2".to_owned());
        assert_eq!(NamedPrimary::of(&fields, Some(address)), named("10.0.0.7", 2));
        assert_eq!(NamedPrimary::of(&fields, None), named("10.0.0.9", 1));
    }
}
