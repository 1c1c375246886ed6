//! The view that one node of a cluster has of all of them, from `CLUSTER NODES`.
//!
//! Nodes learn of changes by gossip, so their views differ for a while. A view is therefore always that of
//! one node; [`Cluster`](super::Cluster) compares the views of all.

use super::slot::SLOTS;

/// The view of one node. Nodes are given by their index in the cluster.
#[derive(Debug, PartialEq)]
pub(super) struct View {
    /// The owner of each slot.
    pub(super) owners: Vec<Option<usize>>,
    /// The entry of each node; `None` for an unknown one, or one without its name yet.
    pub(super) nodes: Vec<Option<Belief>>,
    /// Nodes that do not count: half-known or foreign ones.
    pub(super) foreign: usize,
}

/// The entry of one node.
#[derive(Debug, PartialEq)]
pub(super) struct Belief {
    /// The primary it follows, if it is a replica and the primary is known.
    pub(super) primary: Option<usize>,
    /// True if it is, or may be, unreachable.
    pub(super) failing: bool,
    /// True if the node whose view this is has a link to it.
    pub(super) linked: bool,
    /// The version of its claims: of two owners of a slot, the one with the greater version is valid.
    pub(super) epoch: u64,
}

impl View {
    /// Reads a reply to `CLUSTER NODES`, in a cluster whose nodes have these ids.
    #[track_caller]
    pub(super) fn parse(reply: &str, ids: &[String]) -> Self {
        let mut view = Self {
            owners: vec![None; usize::from(SLOTS)],
            nodes: ids.iter().map(|_| None).collect(),
            foreign: 0,
        };
        for line in reply.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [id, _address, flags, primary, _ping, _pong, epoch, link, slots @ ..] = &fields[..] else {
                panic!("not a line of CLUSTER NODES: {line:?}");
            };
            let index = |id: &str| ids.iter().position(|known| known == id);
            let flag = |name: &str| flags.split(',').any(|flag| flag == name);
            let Some(node) = index(id).filter(|_| !flag("handshake")) else {
                view.foreign += 1;
                continue;
            };
            view.nodes[node] = Some(Belief {
                primary: index(primary),
                failing: flag("fail") || flag("fail?"),
                linked: flag("myself") || *link == "connected",
                epoch: epoch.parse().unwrap_or_else(|_| panic!("not an epoch: {line:?}")),
            });
            // A migration stands in brackets.
            for range in slots.iter().filter(|range| !range.starts_with('[')) {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let bound = |text: &str| text.parse().unwrap_or_else(|_| panic!("not a slot: {line:?}"));
                let (first, last): (usize, usize) = (bound(first), bound(last));
                view.owners[first..=last].fill(Some(node));
            }
        }
        view
    }

    /// The owner of `slot` and the version of its claim.
    pub(super) fn claim(&self, slot: u16) -> Option<(u64, usize)> {
        let owner = self.owners[usize::from(slot)]?;
        Some((self.nodes[owner].as_ref()?.epoch, owner))
    }

    /// The nodes that follow `primary`.
    pub(super) fn replicas_of(&self, primary: usize) -> Vec<usize> {
        let follows = |node: &usize| self.nodes[*node].as_ref().is_some_and(|it| it.primary == Some(primary));
        (0..self.nodes.len()).filter(follows).collect()
    }

    /// The owners and replicas, on which all nodes have to agree.
    pub(super) fn same_map(&self, other: &Self) -> bool {
        let primaries = |view: &Self| -> Vec<Option<usize>> {
            view.nodes.iter().map(|node| node.as_ref().and_then(|it| it.primary)).collect()
        };
        self.owners == other.owners && primaries(self) == primaries(other)
    }
}
