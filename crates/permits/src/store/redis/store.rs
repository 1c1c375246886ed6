//! The store: each command goes to the server that has its semaphore.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::address::Address;
use super::call::ScriptCall;
use super::cluster::Cluster;
use super::script::Scripts;
use super::sentinel::{Endpoint, SentinelGroup};
use super::server::connection::ManagedConnection;
use super::server::handshake::ConnectConfig;
use super::{keys, listing};
use crate::protocol::{Command, Name, Reply};
use crate::store::backend::{Executed, Report, Request, Sink, Store, StoreOptions};
use crate::store::error::StoreError;

/// Connections to Redis or Valkey servers.
pub(crate) struct RedisStore {
    inner: Arc<Inner>,
    sink: Arc<dyn Sink>,
    runtime: tokio::runtime::Handle,
}

struct Inner {
    route: Route,
    scripts: Scripts,
    prefix: String,
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
        let StoreOptions { session, prefix, lease, sink } = options;
        let (sender, mut events) = tokio::sync::mpsc::channel(super::EVENT_BUFFER);
        let options = super::RedisOptions { session, prefix: prefix.clone(), lease, events: sender };
        let forwarded = sink.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                forwarded.report(&mut vec![match event {
                    super::StoreEvent::Event(event) => Report::Event(event),
                    super::StoreEvent::Up => Report::Up,
                    super::StoreEvent::Down(error) => Report::Down(error),
                }]);
            }
        });
        let runtime = tokio::runtime::Handle::current();
        let endpoint = match address {
            Address::Server(server) => Endpoint::Server(Box::new(server.clone())),
            Address::Sentinels(sentinels) => {
                Endpoint::Sentinels(Arc::new(SentinelGroup::new(sentinels.clone())))
            }
            Address::Cluster(seeds) => {
                let route = Route::Cluster(Cluster::connect(seeds, options).await?);
                return Ok(Self { inner: Arc::new(Inner { route, scripts, prefix }), sink, runtime });
            }
        };
        let channel = keys::channel(&prefix, None, &options.session);
        let config = ConnectConfig::new(endpoint, false, &options, options.events.clone());
        let route = Route::One(ManagedConnection::connect(config, channel).await?);
        Ok(Self { inner: Arc::new(Inner { route, scripts, prefix }), sink, runtime })
    }
}

impl Inner {
    async fn run(
        &self,
        command: &Command,
        replicas: u32,
        timeout: Duration,
    ) -> Result<(Reply, u32), StoreError> {
        let call = ScriptCall {
            command,
            script: self.scripts.of(&command.operation),
            prefix: &self.prefix,
            sharded: matches!(self.route, Route::Cluster(_)),
            replicas,
            timeout,
            deadline: Instant::now() + timeout,
        };
        match &self.route {
            Route::One(managed) => {
                managed.connection()?;
                Ok(call.run(managed, false).await?)
            }
            Route::Cluster(cluster) => cluster.run(&call).await,
        }
    }
}

impl Store for RedisStore {
    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>> {
        let Request { id, command, timeout, replicas } = request;
        let (inner, sink) = (self.inner.clone(), self.sink.clone());
        self.runtime.spawn(async move {
            let result = inner.run(&command, replicas, timeout).await;
            let result = result.map(|(reply, confirmed)| Executed { reply, confirmed });
            sink.report(&mut vec![Report::Outcome { id, result }]);
        });
        None
    }

    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        Box::pin(async move {
            let names = match &self.inner.route {
                Route::One(managed) => {
                    let (_, mut connection) = managed.connection()?;
                    listing::list(&mut connection, &self.inner.prefix, timeout).await?
                }
                Route::Cluster(cluster) => cluster.list(timeout).await?,
            };
            Ok(names.into_iter().collect())
        })
    }
}
