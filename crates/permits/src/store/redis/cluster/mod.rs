//! A cluster: connections to each node that serves hash slots, and the node that each command goes to.
//!
//! Any node is asked for the map of hash slots, and again whenever a node replies that a hash slot has moved, or cannot
//! be reached. MOVED and ASK are followed at once. A temporary error (TRYAGAIN, CLUSTERDOWN, a primary that died) fails
//! the call; the session, which knows which calls it may send again, retries until its timeout. Each node has
//! connections of its own, so that a stalled node delays only its own semaphores.
//!
//! Messages come by sharded channels, which belong to their semaphore's hash slot. So a session subscribes to one
//! channel for each semaphore that it uses, before its first command there. Channels follow their hash slots.

pub(crate) mod slot_map;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use self::slot_map::{Node, SlotMap, hash_slot_of};
use super::address::Server;
use super::call::ScriptCall;
use super::error::{self, Failure};
use super::sentinel::Endpoint;
use super::server::connection::ManagedConnection;
use super::server::handshake::ConnectConfig;
use super::server::login::connect;
use super::{EVENT_BUFFER, RedisOptions, StoreEvent, StoreEvents};
use super::{keys, listing};
use crate::events::emit;
use crate::protocol::{Command, Name, Reply};
use crate::store::StoreError;

/// The most redirections of one command.
const REDIRECTIONS: usize = 5;

/// The timeout for a node's reply with the map.
const MAP_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay until the map is requested again: the first, and the longest while a node stays down.
const MAP_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The number of channels from which on those of idle semaphores are unsubscribed.
const CHANNELS: usize = 1024;

/// The connections to a cluster.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    refreshing: AbortHandle,
}

struct Shared {
    seeds: Vec<Server>,
    options: RedisOptions,
    inner: Mutex<Inner>,
    /// The map may be out of date.
    stale: Notify,
}

#[derive(Default)]
struct Inner {
    map: SlotMap,
    nodes: HashMap<Node, Arc<NodeConnection>>,
    channels: HashMap<Name, Channel>,
    /// The longest lease of any command.
    lease_ms: u64,
}

/// The connections to a node.
struct NodeConnection {
    managed: ManagedConnection,
    forwarding: AbortHandle,
}

/// A channel that the session is subscribed to.
struct Channel {
    hash_slot: u16,
    node: Node,
    used: Instant,
}

impl Drop for NodeConnection {
    fn drop(&mut self) {
        self.forwarding.abort();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.refreshing.abort();
    }
}

impl Cluster {
    /// Finds the nodes, and connects to one of them to see whether it may be used.
    pub(crate) async fn connect(seeds: &[Server], options: RedisOptions) -> Result<Self, StoreError> {
        let mut seeds = seeds.to_vec();
        // An attempt may time out before it has reached the last of many.
        fastrand::shuffle(&mut seeds);
        let shared = Arc::new(Shared { seeds, options, inner: Mutex::default(), stale: Notify::new() });
        let (map, server) = shared.ask_for_map().await?;
        let config = shared.config(&server, shared.options.events.clone());
        drop(config.commands().await?);
        shared.lock().map = map;
        // A new channel has room for it.
        let _ = shared.options.events.try_send(StoreEvent::Up);
        let refreshing = tokio::spawn(refresh(shared.clone())).abort_handle();
        Ok(Self { shared, refreshing })
    }

    /// Executes a command on the node that has its semaphore.
    pub(super) async fn run(&self, call: &ScriptCall<'_>) -> Result<(Reply, u32), StoreError> {
        let command = call.command;
        let hash_slot = hash_slot_of(&keys::tag(&command.semaphore));
        let mut ask: Option<Node> = None;
        for _ in 0..REDIRECTIONS {
            let node = match &ask {
                Some(node) => node.clone(),
                None => self.shared.node_of(hash_slot)?,
            };
            let connected = self.shared.node_connection(&node)?;
            if let Err(error) = connected.managed.connection_within(call.left()).await {
                self.shared.stale.notify_one();
                return Err(error);
            }
            if ask.is_none() && command.operation.keeps_entries() {
                self.shared.subscribe(command, hash_slot, &node, &connected, call.left()).await;
            }
            match call.run(&connected.managed, ask.is_some()).await {
                Ok(reply) => return Ok(reply),
                Err(Failure::Moved(to)) => {
                    let to = self.shared.address(&to, &node)?;
                    emit!(
                        DEBUG,
                        [host = to.0.clone(), port = to.1],
                        hash_slot,
                        node = %host,
                        port,
                        "the hash slot has moved"
                    );
                    self.shared.lock().map.set(hash_slot, to);
                    self.shared.stale.notify_one();
                    ask = None;
                }
                Err(Failure::Ask(to)) => ask = Some(self.shared.address(&to, &node)?),
                Err(Failure::Store(error)) => {
                    if error.is_temporary() {
                        self.shared.stale.notify_one();
                    }
                    return Err(error);
                }
            }
        }
        let reason = format!("hash slot {hash_slot} was redirected more than {REDIRECTIONS} times");
        Err(StoreError::Unreachable { reason })
    }

    /// The names on all nodes.
    pub(crate) async fn list(&self, timeout: Duration) -> Result<BTreeSet<Name>, StoreError> {
        let mut names = BTreeSet::new();
        let nodes = self.shared.lock().map.nodes();
        for node in nodes {
            let connected = self.shared.node_connection(&node)?;
            let (_, mut connection) = connected.managed.connection_within(timeout).await?;
            names.extend(listing::list(&mut connection, &self.shared.options.prefix, timeout).await?);
        }
        Ok(names)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node_of(&self, hash_slot: u16) -> Result<Node, StoreError> {
        let node = self.lock().map.node(hash_slot).cloned();
        node.ok_or_else(|| {
            self.stale.notify_one();
            StoreError::Unreachable { reason: format!("no node of the cluster serves hash slot {hash_slot}") }
        })
    }

    /// The address in a MOVED or ASK of `sender`. Without a host it is the sender's.
    fn address(&self, text: &str, sender: &Node) -> Result<Node, StoreError> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let malformed = || StoreError::Malformed { reason: format!("no address: {text:?}") };
        let (host, port) = parts.ok_or_else(malformed)?;
        let host = if host.is_empty() { sender.0.clone() } else { Arc::from(host) };
        Ok((host, port))
    }

    fn config(&self, server: &Server, events: StoreEvents) -> ConnectConfig {
        ConnectConfig::new(Endpoint::Server(Box::new(server.clone())), true, &self.options, events)
    }

    /// The connections to a node, which are begun if the node is new.
    fn node_connection(self: &Arc<Self>, node: &Node) -> Result<Arc<NodeConnection>, StoreError> {
        let mut inner = self.lock();
        if let Some(connected) = inner.nodes.get(node) {
            return Ok(connected.clone());
        }
        let server = self.seeds[0].at(&node.0, node.1);
        let server = server.map_err(|reason| StoreError::Unsupported { reason })?;
        let (sender, events) = mpsc::channel(EVENT_BUFFER);
        let managed = ManagedConnection::begin(self.config(&server, sender));
        let forwarding = tokio::spawn(forward(Arc::downgrade(self), events)).abort_handle();
        let connected = Arc::new(NodeConnection { managed, forwarding });
        inner.nodes.insert(node.clone(), connected.clone());
        Ok(connected)
    }

    /// Subscribes to a semaphore's channel, before the first command that may cause a message on it.
    async fn subscribe(
        &self,
        command: &Command,
        hash_slot: u16,
        node: &Node,
        connected: &NodeConnection,
        timeout: Duration,
    ) {
        let channel = self.channel(&command.semaphore);
        let (idle, left) = {
            let mut inner = self.lock();
            inner.lease_ms = inner.lease_ms.max(command.longest_lease_ms());
            let now = Instant::now();
            if let Some(known) = inner.channels.get_mut(&command.semaphore)
                && known.node == *node
            {
                known.used = now;
                return;
            }
            let idle = inner.take_idle(now);
            let known = Channel { hash_slot, node: node.clone(), used: now };
            let left = inner.channels.insert(command.semaphore.clone(), known);
            (idle, left.and_then(|left| inner.nodes.get(&left.node).cloned()))
        };
        for (name, connected) in idle {
            connected.managed.unsubscribe(&self.channel(&name));
        }
        if let Some(left) = left {
            left.managed.unsubscribe(&channel);
        }
        // Messages are never trusted to arrive: without one, the next renewal returns the grant.
        connected.managed.subscribe(&channel, timeout / 2).await;
    }

    fn channel(&self, semaphore: &Name) -> String {
        keys::channel(&self.options.prefix, Some(semaphore), &self.options.session)
    }

    /// Asks known nodes for the map, connected nodes first.
    async fn ask_for_map(&self) -> Result<(SlotMap, Server), StoreError> {
        let mut known: Vec<(bool, Server)> = {
            let inner = self.lock();
            let up = |node: &Node| inner.nodes.get(node).is_some_and(|connected| connected.managed.is_up());
            let server = |node: Node| Some((up(&node), self.seeds[0].at(&node.0, node.1).ok()?));
            inner.map.nodes().into_iter().filter_map(server).collect()
        };
        fastrand::shuffle(&mut known);
        known.sort_by_key(|(up, _)| !up);
        ask_for_map(known.into_iter().map(|(_, server)| server).chain(self.seeds.iter().cloned())).await
    }

    /// Takes a new map: drops nodes that no longer serve a hash slot, and moves channels with their hash slots.
    async fn apply(self: &Arc<Self>, map: SlotMap) {
        let moved = {
            let mut inner = self.lock();
            let serving = map.nodes();
            inner.nodes.retain(|node, _| serving.contains(node));
            inner.map = map;
            inner.take_moved()
        };
        let any_moved = !moved.is_empty();
        for (name, from, to) in moved {
            let channel = self.channel(&name);
            if let Some(from) = from {
                from.managed.unsubscribe(&channel);
            }
            if let Ok(connected) = self.node_connection(&to) {
                connected.managed.subscribe(&channel, MAP_TIMEOUT).await;
            }
        }
        if any_moved {
            // Messages may have been missed meanwhile. A session that has ended is ignored.
            let _ = self.options.events.send(StoreEvent::Up).await;
        }
    }

    /// Returns true if every node that serves hash slots and was used is connected.
    fn is_well(&self) -> bool {
        let inner = self.lock();
        inner.nodes.values().all(|connected| connected.managed.is_up())
    }
}

impl Inner {
    /// Forgets channels that were not used for the longest lease: every live entry is renewed within it.
    fn take_idle(&mut self, now: Instant) -> Vec<(Name, Arc<NodeConnection>)> {
        if self.channels.len() < CHANNELS {
            return Vec::new();
        }
        let lease = Duration::from_millis(self.lease_ms);
        let nodes = &self.nodes;
        let idle = self.channels.extract_if(|_, channel| now.duration_since(channel.used) > lease);
        idle.filter_map(|(name, channel)| Some((name, nodes.get(&channel.node)?.clone()))).collect()
    }

    /// The channels whose hash slot another node serves now: name, from, to.
    fn take_moved(&mut self) -> Vec<(Name, Option<Arc<NodeConnection>>, Node)> {
        let mut moved = Vec::new();
        for (name, channel) in &mut self.channels {
            match self.map.node(channel.hash_slot) {
                Some(node) if *node != channel.node => {
                    moved.push((name.clone(), self.nodes.get(&channel.node).cloned(), node.clone()));
                    channel.node = node.clone();
                }
                _ => {}
            }
        }
        moved
    }
}

/// Asks the servers for the map, one after the other. Returns it with the server that replied.
pub(crate) async fn ask_for_map(
    servers: impl Iterator<Item = Server>,
) -> Result<(SlotMap, Server), StoreError> {
    let mut error = StoreError::Unreachable { reason: "no node of the cluster is known".into() };
    for server in servers {
        let failed = match timeout(MAP_TIMEOUT, ask_one(&server)).await {
            Ok(Ok(map)) => return Ok((map, server)),
            Ok(Err(mismatch @ StoreError::Mismatch { .. })) => return Err(mismatch),
            Ok(Err(failed)) => failed,
            Err(_) => {
                let reason = format!("{server}: no answer within {MAP_TIMEOUT:?}");
                StoreError::Unreachable { reason }
            }
        };
        // An error that lasts counts more than a node that is away.
        if error.is_temporary() {
            error = failed;
        }
    }
    Err(error)
}

async fn ask_one(server: &Server) -> Result<SlotMap, StoreError> {
    let mut connection = connect(server).await.map_err(|error| error.at(server))?;
    let asked = server.host_and_port().map(|(host, _)| host).unwrap_or_default();
    match redis::cmd("CLUSTER").arg("SLOTS").query_async::<Value>(&mut connection).await {
        Ok(value) => SlotMap::read(&value, asked).ok_or_else(|| StoreError::Unreachable {
            reason: format!("{server}: the cluster serves no hash slots"),
        }),
        Err(error) if error.detail().is_some_and(|text| text.contains("cluster support disabled")) => {
            let reason = format!("{server} is not in a cluster: connect with redis://");
            Err(StoreError::Mismatch { reason })
        }
        Err(failed) => Err(error::of_connecting(&failed).at(server)),
    }
}

/// Forwards node events to the session, except `Down`: an unreachable node only causes a refresh of the map.
async fn forward(shared: std::sync::Weak<Shared>, mut events: mpsc::Receiver<StoreEvent>) {
    while let Some(event) = events.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        match event {
            StoreEvent::Down(_) => shared.stale.notify_one(),
            event => {
                if shared.options.events.send(event).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Keeps the map up to date.
async fn refresh(shared: Arc<Shared>) {
    loop {
        shared.stale.notified().await;
        let mut pause = MAP_AGAIN.0;
        loop {
            match shared.ask_for_map().await {
                Ok((map, _)) => shared.apply(map).await,
                Err(error) => emit!(DEBUG, [error], %error, "no map of the cluster"),
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            if shared.is_well() {
                break;
            }
            pause = (2 * pause).min(MAP_AGAIN.1);
        }
    }
}
