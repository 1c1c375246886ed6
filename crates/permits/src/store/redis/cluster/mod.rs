//! A cluster: a connection to each node that serves hash slots, and the node that each command goes to.
//!
//! Any node is asked for the map of hash slots, and again whenever a node replies that a hash slot has moved,
//! or cannot be reached. MOVED and ASK are followed at once. A temporary error (TRYAGAIN, CLUSTERDOWN, a
//! primary that died) fails the call; the session, which knows which calls it may send again, retries until
//! its timeout. Each node has a connection of its own, so that a stalled node delays only its own semaphores.
//!
//! Messages come by sharded channels, which belong to their semaphore's hash slot. So a session subscribes to
//! one channel for each semaphore that it uses, on the connection and right before its first command there.
//! Channels follow their hash slots.

pub(crate) mod slot_map;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use self::slot_map::{Node, SlotMap, hash_slot_of};
use super::address::Server;
use super::call::{Call, Wire};
use super::error::{self, Failure};
use super::sentinel::Endpoint;
use super::server::handshake::ConnectConfig;
use super::server::link::Owner;
use super::server::login::connect;
use super::server::managed::ManagedConnection;
use super::server::state::{NoReceiver, Times};
use super::{keys, listing};
use crate::observe::events;
use crate::protocol::{Command, Name};
use crate::store::redis::resp::{Value, cmd};
use crate::store::{Report, Request, StoreError, StoreOptions};

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
    options: StoreOptions,
    wire: Arc<Wire>,
    runtime: Handle,
    inner: Mutex<Inner>,
    /// The map may be out of date.
    stale: Notify,
}

#[derive(Default)]
struct Inner {
    map: SlotMap,
    nodes: HashMap<Node, Arc<ManagedConnection>>,
    channels: HashMap<Name, Channel>,
    /// The longest lease of any command.
    lease_ms: u64,
}

/// A channel that the session is subscribed to.
struct Channel {
    hash_slot: u16,
    /// `None` if the node of before has ended the subscription.
    node: Option<Node>,
    used: Instant,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.refreshing.abort();
    }
}

impl Cluster {
    /// Finds the nodes, and connects to one of them to see whether it may be used.
    pub(crate) async fn connect(
        seeds: &[Server],
        options: StoreOptions,
        wire: Arc<Wire>,
    ) -> Result<Self, StoreError> {
        let mut seeds = seeds.to_vec();
        // An attempt may time out before it has reached the last of many.
        fastrand::shuffle(&mut seeds);
        let (runtime, inner, stale) = (Handle::current(), Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { seeds, options, wire, runtime, inner, stale });
        let (map, server) = shared.ask_for_map().await?;
        shared.config(&server).connect(&BTreeSet::new(), &shared.wire, Arc::new(NoReceiver)).await?;
        shared.lock().map = map;
        shared.options.sink.report(&mut vec![Report::Up]);
        let refreshing = tokio::spawn(refresh(shared.clone())).abort_handle();
        Ok(Self { shared, refreshing })
    }

    /// Sends a request to the node that has its semaphore. Returns its error if that is known at once.
    pub(crate) fn send(&self, request: Request) -> Result<(), StoreError> {
        self.shared.send(Call::new(request))
    }

    /// The names on all nodes.
    pub(crate) async fn list(&self, timeout: Duration) -> Result<BTreeSet<Name>, StoreError> {
        let mut names = BTreeSet::new();
        let nodes = self.shared.lock().map.nodes();
        for node in nodes {
            let connected = self.shared.connection(&node);
            let connection = connected.connection_within(timeout).await?;
            names.extend(listing::list(&connection, &self.shared.options.prefix, timeout).await?);
        }
        Ok(names)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call to the node that serves its hash slot.
    fn send(self: &Arc<Self>, call: Box<Call>) -> Result<(), StoreError> {
        let command = &call.request.command;
        let hash_slot = hash_slot_of(&keys::tag(&command.semaphore));
        let Some(node) = self.lock().map.node(hash_slot).cloned() else {
            self.stale.notify_one();
            let reason = format!("no node of the cluster serves hash slot {hash_slot}");
            return Err(StoreError::Unreachable { reason });
        };
        let connected = self.connection(&node);
        let channel = command.operation.keeps_entries().then(|| self.use_channel(command, hash_slot, &node));
        connected.send(call, channel).inspect_err(|_| self.stale.notify_one())
    }

    /// Notes that a command uses a semaphore's channel. Returns it. The channels of idle semaphores are
    /// unsubscribed.
    fn use_channel(&self, command: &Command, hash_slot: u16, node: &Node) -> String {
        let (idle, left) = {
            let mut inner = self.lock();
            inner.lease_ms = inner.lease_ms.max(command.longest_lease_ms());
            let now = Instant::now();
            let known = inner.channels.get_mut(&command.semaphore);
            if let Some(known) = known
                && known.node.as_ref() == Some(node)
            {
                known.used = now;
                return self.channel(&command.semaphore);
            }
            let idle = inner.take_idle(now);
            let known = Channel { hash_slot, node: Some(node.clone()), used: now };
            let left = inner.channels.insert(command.semaphore.clone(), known);
            (idle, left.and_then(|left| inner.nodes.get(&left.node?).cloned()))
        };
        for (name, connected) in idle {
            connected.unsubscribe(&self.channel(&name));
        }
        let channel = self.channel(&command.semaphore);
        if let Some(left) = left {
            left.unsubscribe(&channel);
        }
        channel
    }

    fn channel(&self, semaphore: &Name) -> String {
        keys::channel(&self.options.prefix, Some(semaphore), &self.options.session)
    }

    /// Sends a call to the node that another one has named.
    fn follow(
        self: &Arc<Self>,
        mut call: Box<Call>,
        failure: Failure,
        sender: &Node,
    ) -> Result<(), StoreError> {
        let hash_slot = hash_slot_of(&keys::tag(&call.request.command.semaphore));
        call.redirections += 1;
        if call.redirections > REDIRECTIONS {
            let reason = format!("hash slot {hash_slot} was redirected more than {REDIRECTIONS} times");
            return Err(StoreError::Unreachable { reason });
        }
        match failure {
            Failure::Moved(to) => {
                let to = address(&to, sender)?;
                events::hash_slot_moved(hash_slot.into(), &to.0, to.1.into());
                self.lock().map.set(hash_slot, to);
                self.stale.notify_one();
                call.asking = false;
                self.send(call)
            }
            Failure::Ask(to) => {
                call.asking = true;
                self.connection(&address(&to, sender)?).send(call, None)
            }
            Failure::Store(error) => Err(error),
        }
    }

    fn config(&self, server: &Server) -> ConnectConfig {
        ConnectConfig::new(Endpoint::Server(Box::new(server.clone())), true, &self.options)
    }

    /// The connection to a node, which is begun if the node is new.
    fn connection(self: &Arc<Self>, node: &Node) -> Arc<ManagedConnection> {
        let mut inner = self.lock();
        if let Some(connected) = inner.nodes.get(node) {
            return connected.clone();
        }
        let config = self.config(&self.seeds[0].at(&node.0, node.1));
        let owner = Arc::new(NodeOwner { shared: Arc::downgrade(self), node: node.clone() });
        let managed = ManagedConnection::begin(config, self.wire.clone(), owner, &self.runtime);
        let connected = Arc::new(managed);
        inner.nodes.insert(node.clone(), connected.clone());
        connected
    }

    /// Asks known nodes for the map, connected nodes first.
    async fn ask_for_map(&self) -> Result<(SlotMap, Server), StoreError> {
        let mut known: Vec<(bool, Server)> = {
            let inner = self.lock();
            let up = |node: &Node| inner.nodes.get(node).is_some_and(|connected| connected.is_up());
            let server = |node: Node| (up(&node), self.seeds[0].at(&node.0, node.1));
            inner.map.nodes().into_iter().map(server).collect()
        };
        fastrand::shuffle(&mut known);
        known.sort_by_key(|(up, _)| !up);
        ask_for_map(known.into_iter().map(|(_, server)| server).chain(self.seeds.iter().cloned())).await
    }

    /// Takes a new map: drops nodes that no longer serve a hash slot, and moves channels with their hash
    /// slots.
    fn apply(self: &Arc<Self>, map: SlotMap) {
        let (moved, left) = {
            let mut inner = self.lock();
            let serving = map.nodes();
            let left: Vec<_> = inner.nodes.extract_if(|node, _| !serving.contains(node)).collect();
            inner.map = map;
            (inner.take_moved(), left)
        };
        // Calls to nodes that have left fail. They may be dropped here, where nothing is locked.
        drop(left);
        let any_moved = !moved.is_empty();
        for (name, from, to) in moved {
            let channel = self.channel(&name);
            if let Some(from) = from {
                from.unsubscribe(&channel);
            }
            self.connection(&to).subscribe(channel);
        }
        if any_moved {
            // Messages may have been missed meanwhile. The session's next calls follow the subscriptions.
            self.options.sink.report(&mut vec![Report::Up]);
        }
    }

    /// Returns true if every node that serves hash slots and was used is connected.
    fn is_well(&self) -> bool {
        let inner = self.lock();
        inner.nodes.values().all(|connected| connected.is_up())
    }

    /// Notes that `node` has ended the subscription to a channel.
    fn channel_lost(&self, channel: &str, node: &Node) {
        let mut inner = self.lock();
        for (name, known) in &mut inner.channels {
            if known.node.as_ref() == Some(node) && self.channel(name) == channel {
                known.node = None;
                self.stale.notify_one();
            }
        }
    }
}

impl Inner {
    /// Forgets channels that were not used for the longest lease: every live entry is renewed within it.
    fn take_idle(&mut self, now: Instant) -> Vec<(Name, Arc<ManagedConnection>)> {
        if self.channels.len() < CHANNELS {
            return Vec::new();
        }
        let lease = Duration::from_millis(self.lease_ms);
        let nodes = &self.nodes;
        let idle = self.channels.extract_if(|_, channel| now.duration_since(channel.used) > lease);
        idle.filter_map(|(name, channel)| Some((name, nodes.get(&channel.node?)?.clone()))).collect()
    }

    /// The channels whose hash slot another node serves now: name, from, to.
    fn take_moved(&mut self) -> Vec<(Name, Option<Arc<ManagedConnection>>, Node)> {
        let mut moved = Vec::new();
        for (name, channel) in &mut self.channels {
            match self.map.node(channel.hash_slot) {
                Some(node) if Some(node) != channel.node.as_ref() => {
                    let from = channel.node.replace(node.clone());
                    moved.push((
                        name.clone(),
                        from.and_then(|from| self.nodes.get(&from).cloned()),
                        node.clone(),
                    ));
                }
                _ => {}
            }
        }
        moved
    }
}

/// The owner of a node's connection.
struct NodeOwner {
    shared: Weak<Shared>,
    node: Node,
}

impl Owner for NodeOwner {
    fn report(&self, reports: &mut Vec<Report>) {
        let Some(shared) = self.shared.upgrade() else { return };
        // A node that cannot be reached only causes a refresh of the map.
        reports.retain(|report| {
            let is_down = matches!(report, Report::Down(_));
            let is_temporary =
                matches!(report, Report::Outcome { result: Err(error), .. } if error.is_temporary());
            if is_down || is_temporary {
                shared.stale.notify_one();
            }
            // One node of many does not keep the session waiting.
            !is_down && !matches!(report, Report::Writable)
        });
        if !reports.is_empty() {
            shared.options.sink.report(reports);
        }
    }

    fn redirected(&self, call: Box<Call>, failure: Failure) -> Option<Report> {
        let id = call.request.id;
        let shared = self.shared.upgrade()?;
        match shared.follow(call, failure, &self.node) {
            Ok(()) => None,
            Err(error) => Some(Report::Outcome { id, result: Err(error) }),
        }
    }

    fn channel_lost(&self, channel: &str) {
        if let Some(shared) = self.shared.upgrade() {
            shared.channel_lost(channel, &self.node);
        }
    }
}

/// The address in a MOVED or ASK of `sender`. Without a host it is the sender's.
fn address(text: &str, sender: &Node) -> Result<Node, StoreError> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let malformed = || StoreError::Malformed { reason: format!("no address: {text:?}") };
    let (host, port) = parts.ok_or_else(malformed)?;
    let host = if host.is_empty() { sender.0.clone() } else { Arc::from(host) };
    Ok((host, port))
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
    let connection = connect(server, Times::default()).await.map_err(|error| error.at(server))?;
    let asked = server.host_and_port().map(|(host, _)| host).unwrap_or_default();
    match connection.query::<Value>(cmd("CLUSTER").arg("SLOTS")).await {
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

/// Keeps the map up to date.
async fn refresh(shared: Arc<Shared>) {
    loop {
        shared.stale.notified().await;
        let mut pause = MAP_AGAIN.0;
        loop {
            match shared.ask_for_map().await {
                Ok((map, _)) => shared.apply(map),
                Err(error) => events::no_slot_map(&error),
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            if shared.is_well() {
                break;
            }
            pause = (2 * pause).min(MAP_AGAIN.1);
        }
    }
}
