//! The store: each command goes to the server that has its semaphore.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::address::Address;
use super::call::{Call, Wire};
use super::cluster::Cluster;
use super::error::Failure;
use super::script::Scripts;
use super::sentinel::{Endpoint, SentinelGroup};
use super::server::handshake::ConnectConfig;
use super::server::managed::{ManagedConnection, Owner};
use super::{keys, listing};
use crate::protocol::{Command, Name, Reply};
use crate::store::backend::{Store, StoreEvent, StoreOptions};
use crate::store::error::StoreError;
use crate::store::sending::{Executed, Report, Request, Sink};

/// Connections to Redis or Valkey servers.
pub(crate) struct RedisStore {
    route: Route,
    prefix: String,
    adapter: Arc<Adapter>,
}

/// The destination of commands.
enum Route {
    /// All to one server.
    One(ManagedConnection),
    /// Each to the node that serves its hash slot.
    Cluster(Cluster),
}

impl RedisStore {
    /// Connects, checks the server, and subscribes to the session's channel: one attempt. Must be called on the session's
    /// runtime.
    pub(crate) async fn connect(address: &Address, options: StoreOptions) -> Result<Self, StoreError> {
        let scripts = Scripts::new(matches!(address, Address::Cluster(_)));
        Self::connect_with(address, options, scripts).await
    }

    /// The same, with these scripts.
    pub(super) async fn connect_with(
        address: &Address,
        options: StoreOptions,
        scripts: Scripts,
    ) -> Result<Self, StoreError> {
        let prefix = options.prefix.clone();
        let adapter = Adapter::new(options.events.clone());
        let sink: Arc<dyn Sink> = adapter.clone();
        let sharded = matches!(address, Address::Cluster(_));
        let wire = Arc::new(Wire { scripts, prefix: prefix.clone(), sharded });
        let endpoint = match address {
            Address::Server(server) => Endpoint::Server(Box::new(server.clone())),
            Address::Sentinels(sentinels) => {
                Endpoint::Sentinels(Arc::new(SentinelGroup::new(sentinels.clone())))
            }
            Address::Cluster(seeds) => {
                let route = Route::Cluster(Cluster::connect(seeds, options, wire, sink).await?);
                return Ok(Self { route, prefix, adapter });
            }
        };
        let channel = keys::channel(&prefix, None, &options.session);
        let config = ConnectConfig::new(endpoint, false, &options);
        let owner = Arc::new(OneServer(sink));
        let route = Route::One(ManagedConnection::connect(config, wire, owner, channel).await?);
        Ok(Self { route, prefix, adapter })
    }

    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>> {
        let sent = match &self.route {
            Route::One(managed) => managed.send(Call::new(request), None),
            Route::Cluster(cluster) => cluster.send(request),
        };
        sent.err().map(Err)
    }
}

/// The owner of the only connection: its reports are those of the store.
struct OneServer(Arc<dyn Sink>);

impl Owner for OneServer {
    fn report(&self, reports: &mut Vec<Report>) {
        self.0.report(reports);
    }

    fn redirected(&self, call: Call, failure: Failure) -> Option<Report> {
        Some(Report::Outcome { id: call.request.id, result: Err(failure.into()) })
    }

    fn channel_lost(&self, _: &str) {}
}

/// Throw-away: the old interface on top of the new one.
struct Adapter {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<Executed, StoreError>>>>,
    events: mpsc::UnboundedSender<StoreEvent>,
}

impl Adapter {
    fn new(to: crate::store::StoreEvents) -> Arc<Self> {
        let (events, mut received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = received.recv().await {
                if to.send(event).await.is_err() {
                    return;
                }
            }
        });
        Arc::new(Self { next: AtomicU64::new(0), waiting: Mutex::default(), events })
    }
}

impl Sink for Adapter {
    fn report(&self, reports: &mut Vec<Report>) {
        for report in reports.drain(..) {
            let event = match report {
                Report::Outcome { id, result } => {
                    let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                    let _ = waiting.expect("an outcome comes once").send(result);
                    continue;
                }
                Report::Event(event) => StoreEvent::Event(event),
                Report::Up => StoreEvent::Up,
                Report::Down(error) => StoreEvent::Down(error),
                Report::Writable => continue,
            };
            let _ = self.events.send(event);
        }
    }
}

impl RedisStore {
    async fn run(&self, command: &Command, replicas: u32, timeout: Duration) -> Result<Executed, StoreError> {
        let id = self.adapter.next.fetch_add(1, Ordering::Relaxed);
        let (sender, outcome) = oneshot::channel();
        self.adapter.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        if let Some(known) = self.send(Request { id, command: command.clone(), timeout, replicas }) {
            self.adapter.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            return known;
        }
        outcome.await.expect("there is an outcome")
    }
}

impl Store for RedisStore {
    fn execute<'a>(
        &'a self,
        command: &'a Command,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, StoreError>> {
        Box::pin(async move { Ok(self.run(command, 0, timeout).await?.reply) })
    }

    fn confirm<'a>(
        &'a self,
        command: &'a Command,
        replicas: u32,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(Reply, u32), StoreError>> {
        Box::pin(async move {
            let executed = self.run(command, replicas, timeout).await?;
            Ok((executed.reply, executed.confirmed))
        })
    }

    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        Box::pin(async move {
            let names = match &self.route {
                Route::One(managed) => listing::list(&managed.connection()?, &self.prefix, timeout).await?,
                Route::Cluster(cluster) => cluster.list(timeout).await?,
            };
            Ok(names.into_iter().collect())
        })
    }
}
