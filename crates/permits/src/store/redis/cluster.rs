//! A cluster: which node a command goes to, and one supervisor for each node that serves slots.
//!
//! The map of slots is asked of any node, and again whenever a node says that a slot has moved, or cannot be
//! reached. MOVED and ASK are followed at once. What may pass (TRYAGAIN, CLUSTERDOWN, a primary that died) fails
//! the call, and the session, which knows what may be sent again, tries until its timeout is over. Each node has
//! connections of its own, so one that is stalled holds up nobody else's semaphores.
//!
//! Wake-ups come by sharded channels, which live in their semaphore's slot, so a session listens to one for each
//! semaphore that it uses, before its first command there. Channels follow their slots.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::address::Server;
use super::connecting::Plan;
use super::connection::connect;
use super::errors::{self, Failure};
use super::place::Place;
use super::slots::{Node, Slots};
use super::supervisor::Supervisor;
use super::{Calling, keys, listing};
use crate::events::emit;
use crate::protocol::{Command, Name, Operation, Reply};
use crate::store::{EVENT_BUFFER, StoreError, StoreEvent, StoreEvents, StoreOptions};

/// How many times a command is sent on to another node.
const REDIRECTIONS: usize = 5;

/// How long a node may take to tell the map.
const MAP_TIMEOUT: Duration = Duration::from_secs(1);

/// How soon the map is asked for again: at the earliest, and while a node stays down.
const MAP_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// From so many semaphores on, channels of those not used for a while are given up.
const CHANNELS: usize = 1024;

/// See the module.
pub(super) struct Cluster {
    shared: Arc<Shared>,
    refreshing: AbortHandle,
}

struct Shared {
    seeds: Vec<Server>,
    opening: StoreOptions,
    inner: Mutex<Inner>,
    /// The map may be out of date.
    stale: Notify,
}

#[derive(Default)]
struct Inner {
    slots: Slots,
    nodes: HashMap<Node, Arc<Member>>,
    channels: HashMap<Name, Channel>,
    /// The longest lease of any command.
    lease_ms: u64,
}

/// A node that is connected to.
struct Member {
    supervisor: Supervisor,
    forwarding: AbortHandle,
}

/// A channel that is listened to.
struct Channel {
    slot: u16,
    node: Node,
    used: Instant,
}

impl Drop for Member {
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
    pub(super) async fn connect(seeds: &[Server], opening: StoreOptions) -> Result<Self, StoreError> {
        let mut seeds = seeds.to_vec();
        // An attempt may end before it has come to the last of many.
        fastrand::shuffle(&mut seeds);
        let shared = Arc::new(Shared { seeds, opening, inner: Mutex::default(), stale: Notify::new() });
        let (slots, server) = shared.ask_for_map().await?;
        let plan = shared.plan(&server, shared.opening.events.clone());
        drop(plan.commands().await?);
        shared.lock().slots = slots;
        // A new channel has room for it.
        let _ = shared.opening.events.try_send(StoreEvent::Up);
        let refreshing = tokio::spawn(refresh(shared.clone())).abort_handle();
        Ok(Self { shared, refreshing })
    }

    /// Executes a command where its semaphore lives.
    pub(super) async fn run(&self, calling: &Calling<'_>) -> Result<(Reply, u32), StoreError> {
        let command = calling.command;
        let tag = keys::tag(&command.semaphore);
        let slot = super::slots::slot_of(&tag);
        let mut ask: Option<Node> = None;
        for _ in 0..REDIRECTIONS {
            let node = match &ask {
                Some(node) => node.clone(),
                None => self.shared.node_of(slot)?,
            };
            let member = self.shared.member(&node)?;
            if let Err(error) = member.supervisor.connection_within(calling.left()).await {
                self.shared.stale.notify_one();
                return Err(error);
            }
            if ask.is_none() && listens(&command.operation) {
                self.shared.listen(command, slot, &node, &member, calling.left()).await;
            }
            match calling.call(&member.supervisor, ask.is_some()).await {
                Ok(reply) => return Ok(reply),
                Err(Failure::Moved(to)) => {
                    let to = self.shared.address(&to, &node)?;
                    emit!(
                        DEBUG,
                        [host = to.0.clone(), port = to.1],
                        slot,
                        node = %host,
                        port,
                        "the slot has moved"
                    );
                    self.shared.lock().slots.set(slot, to);
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
        let reason = format!("slot {slot} was sent on more than {REDIRECTIONS} times");
        Err(StoreError::Unreachable { reason })
    }

    /// The names on all nodes.
    pub(super) async fn list(&self, timeout: Duration) -> Result<BTreeSet<Name>, StoreError> {
        let mut names = BTreeSet::new();
        let nodes = self.shared.lock().slots.nodes();
        for node in nodes {
            let member = self.shared.member(&node)?;
            let (_, mut connection) = member.supervisor.connection_within(timeout).await?;
            names.extend(listing::list(&mut connection, &self.shared.opening.prefix, timeout).await?);
        }
        Ok(names)
    }
}

/// Whether what an operation leaves behind may be told about.
fn listens(operation: &Operation) -> bool {
    matches!(operation, Operation::Acquire { .. } | Operation::Adopt(_) | Operation::Renew(_))
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node_of(&self, slot: u16) -> Result<Node, StoreError> {
        let node = self.lock().slots.node(slot).cloned();
        node.ok_or_else(|| {
            self.stale.notify_one();
            StoreError::Unreachable { reason: format!("no node of the cluster serves slot {slot}") }
        })
    }

    /// An address such as MOVED names. Without a host it is the one of whoever said it.
    fn address(&self, text: &str, said_by: &Node) -> Result<Node, StoreError> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let malformed = || StoreError::Malformed { reason: format!("no address: {text:?}") };
        let (host, port) = parts.ok_or_else(malformed)?;
        let host = if host.is_empty() { said_by.0.clone() } else { Arc::from(host) };
        Ok((host, port))
    }

    fn plan(&self, server: &Server, signals: StoreEvents) -> Plan {
        Plan::new(Place::Server(Box::new(server.clone())), true, &self.opening, signals)
    }

    /// The node, to be connected to if it is new.
    fn member(self: &Arc<Self>, node: &Node) -> Result<Arc<Member>, StoreError> {
        let mut inner = self.lock();
        if let Some(member) = inner.nodes.get(node) {
            return Ok(member.clone());
        }
        let server = self.seeds[0].at(&node.0, node.1);
        let server = server.map_err(|reason| StoreError::Unsupported { reason })?;
        let (signals, told) = mpsc::channel(EVENT_BUFFER);
        let supervisor = Supervisor::begin(self.plan(&server, signals));
        let forwarding = tokio::spawn(forward(Arc::downgrade(self), told)).abort_handle();
        let member = Arc::new(Member { supervisor, forwarding });
        inner.nodes.insert(node.clone(), member.clone());
        Ok(member)
    }

    /// Listens to a semaphore's channel, before the first command that may lead to a message on it.
    async fn listen(&self, command: &Command, slot: u16, node: &Node, member: &Member, timeout: Duration) {
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
            let known = Channel { slot, node: node.clone(), used: now };
            let left = inner.channels.insert(command.semaphore.clone(), known);
            (idle, left.and_then(|left| inner.nodes.get(&left.node).cloned()))
        };
        for (name, member) in idle {
            member.supervisor.ignore(&self.channel(&name));
        }
        if let Some(left) = left {
            left.supervisor.ignore(&channel);
        }
        // Wake-ups are never trusted to arrive: without them a renewal tells.
        member.supervisor.listen(&channel, timeout / 2).await;
    }

    fn channel(&self, semaphore: &Name) -> String {
        keys::channel(&self.opening.prefix, Some(semaphore), &self.opening.session)
    }

    /// Asks nodes that may know it for the map, beginning with those that are connected.
    async fn ask_for_map(&self) -> Result<(Slots, Server), StoreError> {
        let mut known: Vec<(bool, Server)> = {
            let inner = self.lock();
            let up = |node: &Node| inner.nodes.get(node).is_some_and(|member| member.supervisor.is_up());
            let server = |node: Node| Some((up(&node), self.seeds[0].at(&node.0, node.1).ok()?));
            inner.slots.nodes().into_iter().filter_map(server).collect()
        };
        fastrand::shuffle(&mut known);
        known.sort_by_key(|(up, _)| !up);
        ask_for_map(known.into_iter().map(|(_, server)| server).chain(self.seeds.iter().cloned())).await
    }

    /// Takes a new map: forgets nodes that serve nothing any more, and lets channels follow their slots.
    async fn apply(self: &Arc<Self>, slots: Slots) {
        let moved = {
            let mut inner = self.lock();
            let serving = slots.nodes();
            inner.nodes.retain(|node, _| serving.contains(node));
            inner.slots = slots;
            inner.take_moved()
        };
        let anything = !moved.is_empty();
        for (name, from, to) in moved {
            let channel = self.channel(&name);
            if let Some(from) = from {
                from.supervisor.ignore(&channel);
            }
            if let Ok(member) = self.member(&to) {
                member.supervisor.listen(&channel, MAP_TIMEOUT).await;
            }
        }
        if anything {
            // Messages may have been missed meanwhile. If the session has ended nobody minds.
            let _ = self.opening.events.send(StoreEvent::Up).await;
        }
    }

    /// Whether every node that serves slots and was used is connected.
    fn is_well(&self) -> bool {
        let inner = self.lock();
        inner.nodes.values().all(|member| member.supervisor.is_up())
    }
}

impl Inner {
    /// Forgets channels that nothing alive can need: whatever waits or holds is renewed within its lease.
    fn take_idle(&mut self, now: Instant) -> Vec<(Name, Arc<Member>)> {
        if self.channels.len() < CHANNELS {
            return Vec::new();
        }
        let lease = Duration::from_millis(self.lease_ms);
        let nodes = &self.nodes;
        let idle = self.channels.extract_if(|_, channel| now.duration_since(channel.used) > lease);
        idle.filter_map(|(name, channel)| Some((name, nodes.get(&channel.node)?.clone()))).collect()
    }

    /// The channels whose slot another node serves now: name, from, to.
    fn take_moved(&mut self) -> Vec<(Name, Option<Arc<Member>>, Node)> {
        let mut moved = Vec::new();
        for (name, channel) in &mut self.channels {
            match self.slots.node(channel.slot) {
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

/// Asks one after the other for the map. Returns it with who told it.
pub(crate) async fn ask_for_map(
    servers: impl Iterator<Item = Server>,
) -> Result<(Slots, Server), StoreError> {
    let mut error = StoreError::Unreachable { reason: "no node of the cluster is known".into() };
    for server in servers {
        let failed = match timeout(MAP_TIMEOUT, ask_one(&server)).await {
            Ok(Ok(slots)) => return Ok((slots, server)),
            Ok(Err(mismatch @ StoreError::Mismatch { .. })) => return Err(mismatch),
            Ok(Err(failed)) => failed,
            Err(_) => {
                let reason = format!("{server}: no answer within {MAP_TIMEOUT:?}");
                StoreError::Unreachable { reason }
            }
        };
        // A refusal that lasts counts more than a node that is away.
        if error.is_temporary() {
            error = failed;
        }
    }
    Err(error)
}

async fn ask_one(server: &Server) -> Result<Slots, StoreError> {
    let mut connection = connect(server).await.map_err(|error| error.at(server))?;
    let asked = server.host_and_port().map(|(host, _)| host).unwrap_or_default();
    match redis::cmd("CLUSTER").arg("SLOTS").query_async::<Value>(&mut connection).await {
        Ok(value) => Slots::read(&value, asked).ok_or_else(|| StoreError::Unreachable {
            reason: format!("{server}: the cluster serves no slots"),
        }),
        Err(error) if error.detail().is_some_and(|text| text.contains("cluster support disabled")) => {
            let reason = format!("{server} is not in a cluster: connect with redis://");
            Err(StoreError::Mismatch { reason })
        }
        Err(error) => Err(errors::of_connecting(&error).at(server)),
    }
}

/// Hands on what a node signals. That one is down is no news for the session: only that it is back.
async fn forward(shared: std::sync::Weak<Shared>, mut told: mpsc::Receiver<StoreEvent>) {
    while let Some(signal) = told.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        match signal {
            StoreEvent::Down(_) => shared.stale.notify_one(),
            signal => {
                if shared.opening.events.send(signal).await.is_err() {
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
                Ok((slots, _)) => shared.apply(slots).await,
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
