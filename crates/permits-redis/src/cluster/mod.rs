//! A cluster: a connection to each node that serves hash slots, and the node that each command goes to.
//!
//! Any node is asked for the map of hash slots, and again whenever a node replies that a hash slot has moved,
//! or cannot be reached. MOVED and ASK are followed at once. A temporary error (TRYAGAIN, CLUSTERDOWN, a
//! primary that died) fails the call; the session, which knows which calls it may send again, retries until
//! its timeout. Each node has a connection of its own, so that a stalled node delays only its own semaphores.
//!
//! Messages come by sharded channels, which belong to their semaphore's hash slot. So a session subscribes to
//! a channel for each semaphore that it uses, and to another if it keeps permits, on the connection and right
//! before its first command there. Channels follow their hash slots.

pub(crate) mod members;
pub(crate) mod slot_map;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use self::members::Members;
use self::slot_map::{Node, SlotMap, hash_slot_of};
use super::address::{Login, Server};
use super::call::{Call, Wire};
use super::error::{self, Failure};
use super::sentinel::Endpoint;
use super::server::handshake::ConnectConfig;
use super::server::link::Owner;
use super::server::login::connect;
use super::server::managed::ManagedConnection;
use super::server::state::{NoReceiver, Times};
use super::subscriptions::Subscriptions;
use super::{keys, listing};
use crate::protocol::{Command, Name};
use crate::resp::{Value, cmd};
use permits_store::observe::events;
use permits_store::{Report, Request, StoreError, StoreOptions};

/// The most redirections of one command.
const REDIRECTIONS: usize = 5;

/// The timeout for a node's reply with the map.
const MAP_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay until the map is requested again: the first, and the longest while a node stays down.
const MAP_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

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
    members: Arc<Members>,
    /// The map may be out of date.
    stale: Notify,
}

#[derive(Default)]
struct Inner {
    map: SlotMap,
    /// The nodes of the first map. A node that takes the place of one of them, or serves hash slots of one
    /// that is gone, is not a first node any more.
    first_nodes: BTreeSet<Node>,
    nodes: HashMap<Node, Arc<ManagedConnection<NodeOwner>>>,
    subscriptions: Subscriptions<Channels>,
}

/// The channels of a semaphore that the session is subscribed to.
#[derive(Clone)]
struct Channels {
    hash_slot: u16,
    /// `None` if the node of before has ended a subscription.
    node: Option<Node>,
    /// The session keeps permits.
    keeps: bool,
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
        let members = Arc::default();
        let shared = Arc::new(Shared { seeds, options, wire, runtime, inner, members, stale });
        let (map, server) = shared.ask_for_map().await?;
        shared
            .config(Endpoint::Server(Box::new(server)))
            .connect(&BTreeSet::new(), &shared.wire, NoReceiver)
            .await?;
        {
            let mut inner = shared.lock();
            inner.first_nodes = map.nodes();
            inner.map = map;
        }
        shared.options.sink.report(&mut vec![Report::Up]);
        let refreshing = tokio::spawn(refresh(shared.clone())).abort_handle();
        Ok(Self { shared, refreshing })
    }

    /// Sends a request to the node that has its semaphore. Returns its error if that is known at once.
    pub(crate) fn send(&self, request: Request) -> Result<(), StoreError> {
        self.shared.send(Call::new(request))
    }

    /// Asks whether the connections to the nodes live.
    pub(crate) fn probe(&self) {
        self.shared.lock().nodes.values().for_each(|connected| connected.probe());
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
        let keeps_entries = command.operation.keeps_entries();
        let channels = if keeps_entries { self.use_channels(command, hash_slot, &node) } else { Vec::new() };
        connected.send(call, channels).inspect_err(|_| self.stale.notify_one())
    }

    /// Notes that a command uses a semaphore's channels. Returns them. Those of idle semaphores are
    /// unsubscribed.
    fn use_channels(&self, command: &Command, hash_slot: u16, node: &Node) -> Vec<String> {
        let (keeps, ended) = {
            let mut inner = self.lock();
            let now = Instant::now();
            let known = inner.subscriptions.touch(command, now);
            let keeps = command.kept_for_ms() > 0 || known.as_ref().is_some_and(|known| known.keeps);
            if let Some(known) = known
                && known.node.as_ref() == Some(node)
            {
                known.keeps = keeps;
                return self.channels(&command.semaphore, keeps);
            }
            let mut ended = inner.subscriptions.take_idle(now);
            let known = Channels { hash_slot, node: Some(node.clone()), keeps };
            let lease_ms = command.longest_lease_ms();
            let left = inner.subscriptions.insert(&command.semaphore, known, lease_ms, now);
            ended.extend(left.map(|left| (command.semaphore.clone(), left)));
            let connected = |(name, left): (Name, Channels)| {
                Some((name, left.keeps, inner.nodes.get(left.node.as_ref()?)?.clone()))
            };
            (keeps, ended.into_iter().filter_map(connected).collect::<Vec<_>>())
        };
        for (name, keeps, connected) in ended {
            self.channels(&name, keeps).iter().for_each(|channel| connected.unsubscribe(channel));
        }
        self.channels(&command.semaphore, keeps)
    }

    /// The channels of a semaphore: the session's, and the channel of recalls if it keeps permits.
    fn channels(&self, semaphore: &Name, keeps: bool) -> Vec<String> {
        let StoreOptions { prefix, session, .. } = &self.options;
        let recalls = keeps.then(|| keys::recall_channel(prefix, true, semaphore));
        [keys::channel(prefix, Some(semaphore), session)].into_iter().chain(recalls).collect()
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
                self.connection(&address(&to, sender)?).send(call, Vec::new())
            }
            Failure::Store(error) => Err(error),
        }
    }

    fn config(&self, endpoint: Endpoint) -> ConnectConfig {
        ConnectConfig::new(endpoint, Some(self.members.clone()), &self.options)
    }

    /// The connection to a node, which is begun if the node is new.
    fn connection(self: &Arc<Self>, node: &Node) -> Arc<ManagedConnection<NodeOwner>> {
        let mut inner = self.lock();
        if let Some(connected) = inner.nodes.get(node) {
            return connected.clone();
        }
        let is_of_url = |seed: &&Server| seed.host_and_port() == Some((&node.0, node.1));
        let config = self.config(match self.seeds.iter().find(is_of_url) {
            Some(seed) => Endpoint::Server(Box::new(seed.clone())),
            None => Endpoint::Node(Box::new(self.seeds[0].at(&node.0, node.1))),
        });
        let replaces = !inner.first_nodes.contains(node);
        let owner = NodeOwner { shared: Arc::downgrade(self), node: node.clone() };
        let managed = ManagedConnection::begin(config, self.wire.clone(), owner, &self.runtime, replaces);
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
        ask_for_map(known.into_iter().map(|(_, server)| server), &self.seeds, &self.members).await
    }

    /// Takes a new map: drops nodes that no longer serve a hash slot, and moves channels with their hash
    /// slots.
    fn apply(self: &Arc<Self>, map: SlotMap) {
        let (moved, left) = {
            let mut inner = self.lock();
            let serving = map.nodes();
            // A node that is gone loses all that it has not replicated. A node that serves other hash slots
            // has moved these away with their keys, so nothing is lost.
            let is_down = |node: &Node| inner.nodes.get(node).is_some_and(|connected| !connected.is_up());
            let is_gone = |node: &Node| !serving.contains(node) || is_down(node);
            for heir in map.heirs(&inner.map, is_gone) {
                inner.first_nodes.remove(&heir);
                inner.nodes.get(&heir).inspect(|connected| connected.replaces());
            }
            // A node that comes back later takes the place of another.
            inner.first_nodes.retain(|node| serving.contains(node));
            let left: Vec<_> = inner.nodes.extract_if(|node, _| !serving.contains(node)).collect();
            inner.map = map;
            (inner.take_moved(), left)
        };
        // Calls to nodes that have left fail. They may be dropped here, where nothing is locked.
        drop(left);
        let any_moved = !moved.is_empty();
        for Moved { semaphore, keeps, from, to } in moved {
            for channel in self.channels(&semaphore, keeps) {
                if let Some(from) = &from {
                    from.unsubscribe(&channel);
                }
                self.connection(&to).subscribe(channel);
            }
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

    /// The semaphores on `node` of which the session may keep permits.
    fn kept_of(&self, node: &Node) -> Vec<Name> {
        let mut inner = self.lock();
        let known = inner.subscriptions.iter_mut();
        let kept = known.filter(|(_, known)| known.keeps && known.node.as_ref() == Some(node));
        kept.map(|(semaphore, _)| semaphore.clone()).collect()
    }

    /// Notes that `node` has ended the subscriptions to these channels.
    fn channels_lost(&self, channels: &[String], node: &Node) {
        let lost: HashSet<&String> = channels.iter().collect();
        if lost.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for (name, known) in inner.subscriptions.iter_mut() {
            let is_of = |name| self.channels(name, known.keeps).iter().any(|of| lost.contains(of));
            if known.node.as_ref() == Some(node) && is_of(name) {
                known.node = None;
                self.stale.notify_one();
            }
        }
    }
}

impl Inner {
    /// The semaphores whose hash slot another node serves now.
    fn take_moved(&mut self) -> Vec<Moved> {
        let mut moved = Vec::new();
        for (semaphore, known) in self.subscriptions.iter_mut() {
            match self.map.node(known.hash_slot) {
                Some(to) if Some(to) != known.node.as_ref() => {
                    let from = known.node.replace(to.clone());
                    let from = from.and_then(|from| self.nodes.get(&from).cloned());
                    let (semaphore, to) = (semaphore.clone(), to.clone());
                    moved.push(Moved { semaphore, keeps: known.keeps, from, to });
                }
                _ => {}
            }
        }
        moved
    }
}

/// A semaphore whose channels move with its hash slot.
struct Moved {
    semaphore: Name,
    keeps: bool,
    from: Option<Arc<ManagedConnection<NodeOwner>>>,
    to: Node,
}

/// The owner of a node's connection.
struct NodeOwner {
    shared: Weak<Shared>,
    node: Node,
}

impl Owner for NodeOwner {
    fn report(&self, reports: &mut Vec<Report>) {
        let Some(shared) = self.shared.upgrade() else { return };
        if reports.iter().any(|report| matches!(report, Report::Down(_))) {
            // The connection is down, so recalls of this node do not arrive any more.
            reports.extend(shared.kept_of(&self.node).into_iter().map(Report::Recall));
        }
        // Otherwise a node that cannot be reached only causes a refresh of the map.
        reports.retain(|report| {
            let is_down = matches!(report, Report::Down(_));
            let is_temporary =
                matches!(report, Report::Outcome { result: Err(error), .. } if error.is_temporary());
            if is_down || is_temporary {
                shared.stale.notify_one();
            }
            // The session works on while one of many nodes is down.
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

    fn channels_lost(&self, channels: &[String]) {
        if let Some(shared) = self.shared.upgrade() {
            shared.channels_lost(channels, &self.node);
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
///
/// The map of a cluster to which `members` do not belong does not count, unless each of the seeds, which are
/// the servers of the URL, replies with such a map: then the URL names a new cluster.
pub(crate) async fn ask_for_map(
    known: impl Iterator<Item = Server>,
    seeds: &[Server],
    members: &Members,
) -> Result<(SlotMap, Server), StoreError> {
    let mut error = StoreError::Unreachable { reason: "no node of the cluster is known".into() };
    let (mut elsewhere, mut other) = (0, None);
    let asked = known.map(|server| (false, server));
    for (is_seed, server) in asked.chain(seeds.iter().map(|seed| (true, seed.clone()))) {
        let asking = async {
            let login = server.login().await.map_err(|error| error.at(&server))?;
            Ok(timeout(MAP_TIMEOUT, ask_one(&server, login)).await)
        };
        let failed = match asking.await.unwrap_or_else(|failed| Ok(Err(failed))) {
            Ok(Ok((map, ids))) if members.include(&ids) => {
                members.replace(ids);
                return Ok((map, server));
            }
            Ok(Ok((map, ids))) => {
                let failed = error::other_cluster().at(&server);
                elsewhere += usize::from(is_seed);
                other = Some((map, ids, server));
                failed
            }
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
    match other {
        Some((map, ids, server)) if elsewhere == seeds.len() => {
            members.replace(ids);
            Ok((map, server))
        }
        _ => Err(error),
    }
}

/// The map of a server, and the ids of the nodes in it.
async fn ask_one(server: &Server, login: Login) -> Result<(SlotMap, BTreeSet<String>), StoreError> {
    let connection = connect(server, login, Times::default()).await.map_err(|error| error.at(server))?;
    let asked = server.host_and_port().map(|(host, _)| host).unwrap_or_default();
    match connection.query::<Value>(cmd("CLUSTER").arg("SLOTS")).await {
        Ok(value) => {
            let map = SlotMap::read(&value, asked).ok_or_else(|| StoreError::Unreachable {
                reason: format!("{server}: the cluster serves no hash slots"),
            })?;
            Ok((map, members::ids(&value)))
        }
        Err(error) if error.detail().is_some_and(|text| text.contains("cluster support disabled")) => {
            let reason = format!("{server} is not in a cluster: connect with redis://");
            Err(StoreError::Mismatch { reason })
        }
        Err(failed) => Err(error::of_connecting(&failed).at(server)),
    }
}

/// Keeps the map up to date. While it is asked for again and again, the pauses grow: some errors last, and a
/// new map does not end them.
async fn refresh(shared: Arc<Shared>) {
    let (mut pause, mut asked) = (MAP_AGAIN.0, Instant::now());
    loop {
        shared.stale.notified().await;
        if asked.elapsed() > MAP_AGAIN.1 {
            pause = MAP_AGAIN.0;
        }
        loop {
            match shared.ask_for_map().await {
                Ok((map, _)) => shared.apply(map),
                Err(error) => events::no_slot_map(&error),
            }
            asked = Instant::now();
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (2 * pause).min(MAP_AGAIN.1);
            if shared.is_well() {
                break;
            }
        }
    }
}
