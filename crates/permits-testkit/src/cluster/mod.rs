//! A real cluster: primaries, replicas, failovers, and hash slots that move.
//!
//! A [`Cluster`] owns its nodes, each a [`Server`] that can be killed and paused like any other, and waits
//! for the nodes' agreement. Its nodes have indexes, the primaries of the start first; an index stays with
//! its node, also when the node's role changes. Forming a cluster is in `launch`, the view of one node in
//! `view`, the migration of a hash slot in `migration`.

mod launch;
mod migration;
mod slot;
mod view;

pub use launch::ClusterBuilder;
pub use migration::Migration;
pub use slot::{SLOTS, slot};

use crate::group;
use crate::server::Server;
use crate::server::launch::{info_field, percent_encoded};
use view::View;

/// A running cluster of its own, whose nodes are killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
    password: Option<String>,
}

impl Cluster {
    /// Starts 3 primaries with a replica each; see [`ClusterBuilder::start`]. It takes a little over 2
    /// seconds.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A cluster to be configured before its start.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }

    /// The URL for a client: `redis+cluster://127.0.0.1:port,…`, with every node as a seed, and the password
    /// if there is one.
    pub fn url(&self) -> String {
        let password = self.password.as_deref().map(|password| format!(":{}@", percent_encoded(password)));
        let hosts: Vec<String> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        format!("redis+cluster://{}{}", password.unwrap_or_default(), hosts.join(","))
    }

    /// The nodes: first the original primaries, then their replicas. Node `i` beyond the primaries began as a
    /// replica of node `i` modulo their number.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The index of the node that owns `slot`, whether it is up or not: by the newest of all claims that the
    /// nodes know.
    #[track_caller]
    pub fn primary_of(&self, slot: u16) -> usize {
        self.wait_for("a node knows the owner", || {
            let claims = self.views()?.into_iter().filter_map(|(_, view)| view.claim(slot));
            claims.max().map(|(_, owner)| owner).ok_or_else(|| format!("slot {slot} has no owner"))
        })
    }

    /// The indexes of the nodes that are replicas of node `primary`, whether they are up or not.
    #[track_caller]
    pub fn replicas_of(&self, primary: usize) -> Vec<usize> {
        self.wait_for("a node answers", || {
            let views = self.views()?;
            // The primary's own view is the newest.
            let view = views.iter().find(|(node, _)| *node == primary).or(views.first());
            Ok(view.ok_or("no node is up")?.1.replicas_of(primary))
        })
    }

    /// Begins to move `slot` to the primary `to`, without any key yet.
    #[track_caller]
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        Migration::begin(self, slot, to)
    }

    /// Moves `slot` with all its keys to the primary `to`, while clients work.
    #[track_caller]
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        self.begin_migration(slot, to).finish();
    }

    /// Lets a replica take over from node `primary` in agreement with it (`CLUSTER FAILOVER`), without loss.
    /// Returns the index of the new primary, once all nodes know it.
    #[track_caller]
    pub fn failover(&self, primary: usize) -> usize {
        let replicas = self.replicas_of(primary);
        let Some(&replica) = replicas.iter().find(|replica| self.nodes()[**replica].is_up()) else {
            panic!("node {primary} has no replica that is up");
        };
        self.wait_for("the replica has a copy", || self.copied(replica));
        group::order(&self.nodes()[replica], &["CLUSTER", "FAILOVER"]);
        self.wait_for("the replica is the primary", || {
            // A node may learn from the old primary that it follows, before it learns from the new one that
            // it leads: then the slots have no owner for a moment.
            let heard = |view: &View| {
                view.replicas_of(replica).contains(&primary)
                    && view.owners.iter().all(|owner| owner.is_some_and(|owner| owner != primary))
            };
            match self.views()?.iter().find(|(_, view)| !heard(view)) {
                Some((node, _)) => Err(format!("node {node} has not heard that {replica} took over")),
                None => self.accepts(replica),
            }
        });
        replica
    }

    /// Waits until a node other than `old` owns `slot`, is up and accepts commands, and every node that is up
    /// knows it. Returns its index.
    #[track_caller]
    pub fn wait_for_new_primary(&self, slot: u16, old: usize) -> usize {
        self.wait_for("the slot has a new primary", || {
            let views = self.views()?;
            let owner = |view: &View| view.owners[usize::from(slot)];
            let (_, first) = views.first().ok_or("no node is up")?;
            let new = owner(first).ok_or("the slot has no owner")?;
            if let Some((node, _)) = views.iter().find(|(_, view)| owner(view) != Some(new)) {
                return Err(format!("node {node} does not take {new} for the owner"));
            }
            if new == old || !self.nodes()[new].is_up() {
                return Err(format!("the owner is node {new}"));
            }
            self.accepts(new)?;
            Ok(new)
        })
    }

    /// Waits until every slot has a primary that is up, all nodes that are up accept commands and agree on
    /// owners and replicas, and every replica among them has a copy of its primary's data.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        self.wait_for("the cluster is ok", || self.is_ok());
    }

    fn is_ok(&self) -> Result<(), String> {
        self.acquainted()?;
        let views = self.views()?;
        let (first, view) = views.first().ok_or("no node is up")?;
        for (node, other) in &views {
            if !view.same_map(other) {
                return Err(format!("nodes {first} and {node} disagree"));
            }
            self.accepts(*node)?;
        }
        for owner in &view.owners {
            owner.filter(|owner| self.nodes()[*owner].is_up()).ok_or("a slot has no owner that is up")?;
        }
        let is_replica = |node: &usize| view.nodes[*node].as_ref().is_some_and(|it| it.primary.is_some());
        views.iter().map(|(node, _)| *node).filter(is_replica).try_for_each(|node| self.copied(node))
    }

    /// Checks that the nodes that are up know all nodes, by their names, and reach each other.
    fn acquainted(&self) -> Result<(), String> {
        let up: Vec<bool> = self.nodes().iter().map(Server::is_up).collect();
        let views = self.views()?;
        for (node, view) in &views {
            if view.foreign > 0 {
                return Err(format!("node {node} is still meeting others"));
            }
            for (other, belief) in view.nodes.iter().enumerate() {
                let Some(belief) = belief else {
                    return Err(format!("node {node} does not know {other}"));
                };
                if up[other] && (belief.failing || !belief.linked) {
                    return Err(format!("node {node} does not reach {other}"));
                }
            }
        }
        if views.is_empty() { Err("no node is up".to_owned()) } else { Ok(()) }
    }

    /// Checks that a node considers the cluster complete.
    fn accepts(&self, node: usize) -> Result<(), String> {
        let info = group::ask_text(&self.nodes()[node], &["CLUSTER", "INFO"])?;
        if info_field(&info, "cluster_state") == Some("ok") {
            Ok(())
        } else {
            Err(format!("node {node} does not accept commands"))
        }
    }

    /// Checks that a replica has a copy of its primary's data.
    fn copied(&self, node: usize) -> Result<(), String> {
        let info = group::ask_text(&self.nodes()[node], &["INFO", "replication"])?;
        if info_field(&info, "master_link_status") == Some("up") {
            Ok(())
        } else {
            Err(format!("replica {node} has no link to its primary"))
        }
    }

    /// The views of the nodes that are up.
    fn views(&self) -> Result<Vec<(usize, View)>, String> {
        let view = |node: usize| {
            let reply = group::ask_text(&self.nodes()[node], &["CLUSTER", "NODES"])?;
            Ok((node, View::parse(&reply, &self.ids)))
        };
        group::up(&self.nodes).map(view).collect()
    }

    /// Waits until `condition` succeeds; otherwise panics with its last error and the logs of the nodes.
    #[track_caller]
    fn wait_for<T>(&self, what: &str, condition: impl FnMut() -> Result<T, String>) -> T {
        group::wait_for(what, self.nodes().iter(), condition)
    }
}
