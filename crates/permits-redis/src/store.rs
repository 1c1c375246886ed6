//! The store: each command goes to the server that has its semaphore.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::address::Address;
use super::call::{Call, Wire};
use super::cluster::Cluster;
use super::error::Failure;
use super::script::Scripts;
use super::sentinel::{Endpoint, SentinelGroup};
use super::server::handshake::ConnectConfig;
use super::server::link::Owner;
use super::server::managed::ManagedConnection;
use super::subscriptions::Subscriptions;
use super::{keys, listing};
use crate::protocol::{Command, Name};
use permits_store::StoreError;
use permits_store::{Executed, Report, Request, Sink, Store, StoreOptions};

/// Connections to Redis or Valkey servers.
pub(crate) struct RedisStore {
    route: Route,
    prefix: String,
}

/// The destination of commands.
enum Route {
    /// All to one server. With the semaphores whose recalls the session is subscribed to.
    One(ManagedConnection<Arc<dyn Sink>>, Mutex<Subscriptions<()>>),
    /// Each to the node that serves its hash slot.
    Cluster(Cluster),
}

impl RedisStore {
    /// Connects, checks the server, and subscribes to the session's channel: one attempt. Must be called on
    /// the session's runtime.
    pub(crate) async fn connect(address: &Address, options: StoreOptions) -> Result<Self, StoreError> {
        let scripts = Scripts::new(matches!(address, Address::Cluster(_)));
        Self::connect_with(address, options, scripts).await
    }

    /// Connects as [`connect`](Self::connect) does, with these scripts.
    pub(super) async fn connect_with(
        address: &Address,
        options: StoreOptions,
        scripts: Scripts,
    ) -> Result<Self, StoreError> {
        let prefix = options.prefix.clone();
        let sharded = matches!(address, Address::Cluster(_));
        let wire = Arc::new(Wire { scripts, prefix: prefix.clone(), sharded });
        let endpoint = match address {
            Address::Server(server) => Endpoint::Server(Box::new(server.clone())),
            Address::Sentinels(sentinels) => {
                Endpoint::Sentinels(Arc::new(SentinelGroup::new(sentinels.clone())))
            }
            Address::Cluster(seeds) => {
                let route = Route::Cluster(Cluster::connect(seeds, options, wire).await?);
                return Ok(Self { route, prefix });
            }
        };
        let channel = keys::channel(&prefix, None, &options.session);
        let config = ConnectConfig::new(endpoint, None, &options);
        let managed = ManagedConnection::connect(config, wire, options.sink, channel).await?;
        Ok(Self { route: Route::One(managed, Mutex::default()), prefix })
    }

    /// The channel on which is recalled what a session keeps, if the command may make it keep a permit.
    fn recall_channels(
        &self,
        managed: &ManagedConnection<Arc<dyn Sink>>,
        recalls: &Mutex<Subscriptions<()>>,
        command: &Command,
    ) -> Vec<String> {
        if command.kept_for_ms() == 0 {
            return Vec::new();
        }
        let channel = |name: &Name| keys::recall_channel(&self.prefix, false, name);
        let mut recalls = recalls.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if recalls.touch(command, now).is_none() {
            for (idle, ()) in recalls.take_idle(now) {
                managed.unsubscribe(&channel(&idle));
            }
            recalls.insert(&command.semaphore, (), command.longest_lease_ms(), now);
        }
        vec![channel(&command.semaphore)]
    }
}

/// The session owns the only connection itself.
impl Owner for Arc<dyn Sink> {
    fn report(&self, reports: &mut Vec<Report>) {
        (**self).report(reports);
    }

    fn redirected(&self, call: Box<Call>, failure: Failure) -> Option<Report> {
        Some(Report::Outcome { id: call.request.id, result: Err(failure.into()) })
    }

    fn channels_lost(&self, _: &[String]) {}
}

impl Store for RedisStore {
    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>> {
        let sent = match &self.route {
            Route::One(managed, recalls) => {
                let channels = self.recall_channels(managed, recalls, &request.command);
                managed.send(Call::new(request), channels)
            }
            Route::Cluster(cluster) => cluster.send(request),
        };
        sent.err().map(Err)
    }

    fn reports_all(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        match &self.route {
            Route::One(managed, _) => managed.is_full(),
            // A full node refuses its calls, since the others take theirs.
            Route::Cluster(_) => false,
        }
    }

    fn probe(&self) {
        match &self.route {
            Route::One(managed, _) => managed.probe(),
            Route::Cluster(cluster) => cluster.probe(),
        }
    }

    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        Box::pin(async move {
            let names = match &self.route {
                Route::One(managed, _) => {
                    listing::list(&managed.connection()?, &self.prefix, timeout).await?
                }
                Route::Cluster(cluster) => cluster.list(timeout).await?,
            };
            Ok(names.into_iter().collect())
        })
    }
}
