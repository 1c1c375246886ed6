//! The forming of a cluster.
//!
//! The usual tool assigns the slots, lets one node meet all others, and leaves the rest to gossip, which
//! takes seconds. Here every node meets every other, and each wait is for a condition. A primary waits 2
//! seconds after its start before it accepts anything, which no option shortens.

use std::time::Duration;

use super::Cluster;
use super::slot::SLOTS;
use crate::group::{self, Options, deployment_options};
use crate::server::launch::ServerBuilder;
use crate::server::ports::BUS_OFFSET;

/// The silence after which the others consider a node dead where a replica can take over, which it does about
/// a second after that. Below 1 s, a busy machine alone causes failovers.
const WITH_REPLICAS: Duration = Duration::from_millis(1500);

/// Silence of a node where no replica can take over. No failover follows, so a short timeout only lets a
/// machine that stalls look like a dead node.
const WITHOUT_REPLICAS: Duration = Duration::from_secs(15);

/// A cluster to be configured; made by [`Cluster::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct ClusterBuilder {
    primaries: usize,
    replicas: usize,
    options: Options,
}

impl ClusterBuilder {
    pub(super) fn new() -> Self {
        Self { primaries: 3, replicas: 1, options: Options::default() }
    }

    /// The primaries that share the slots; 3 by default, and at least 1.
    ///
    /// The primaries vote on a failover: fewer than 3 cannot replace a primary that dies.
    pub fn primaries(mut self, primaries: usize) -> Self {
        self.primaries = primaries;
        self
    }

    /// The replicas of each primary; 1 by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    deployment_options!();

    /// Starts the cluster; returns once every node knows all the others and accepts commands, and every
    /// replica has its first copy.
    #[track_caller]
    pub fn start(self) -> Cluster {
        assert!(self.primaries > 0, "a cluster needs a primary");
        let count = self.primaries * (1 + self.replicas);
        let nodes: Vec<_> = (0..count).map(|_| self.node().start()).collect();
        let ids = nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"]).text().to_owned()).collect();
        let cluster = Cluster { nodes, ids, password: self.options.password.clone() };
        self.give_out_slots(&cluster);
        cluster.introduce();
        for (index, node) in cluster.nodes().iter().enumerate().skip(self.primaries) {
            group::order(node, &["CLUSTER", "REPLICATE", &cluster.ids[index % self.primaries]]);
        }
        cluster.wait_until_ok();
        cluster
    }

    fn node(&self) -> ServerBuilder {
        let timeout = if self.replicas > 0 { WITH_REPLICAS } else { WITHOUT_REPLICAS };
        self.options.apply(ServerBuilder::node(timeout))
    }

    /// Gives each primary an equal part of the slots, and an epoch of its own: nodes with equal ones have to
    /// resolve that first.
    fn give_out_slots(&self, cluster: &Cluster) {
        for (index, node) in cluster.nodes().iter().enumerate() {
            group::order(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index >= self.primaries {
                continue;
            }
            let bound = |index: usize| index * usize::from(SLOTS) / self.primaries;
            // The slots are named one by one, because ranges came with version 7.
            let slots: Vec<String> = (bound(index)..bound(index + 1)).map(|slot| slot.to_string()).collect();
            let mut command = vec!["CLUSTER", "ADDSLOTS"];
            command.extend(slots.iter().map(String::as_str));
            group::order(node, &command);
        }
    }
}

impl Cluster {
    /// Lets every node meet every other, and waits until they have.
    #[track_caller]
    fn introduce(&self) {
        for (index, node) in self.nodes().iter().enumerate() {
            let (port, bus) = (node.port().to_string(), (node.port() + BUS_OFFSET).to_string());
            for other in &self.nodes()[..index] {
                group::order(other, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        self.wait_for("all nodes know each other", || self.acquainted());
    }
}
