//! A hash slot on its way from one primary to another.

use super::Cluster;
use crate::group;
use crate::resp::Resp;
use crate::server::Server;

/// The keys that one command moves.
const BATCH: usize = 100;

/// The time that a command that moves keys may take, in milliseconds.
const MOVE_LIMIT_MS: &str = "5000";

/// A slot whose migration has begun; made by [`Cluster::begin_migration`].
///
/// The old owner answers for the keys that it still has and replies `ASK` for others, until
/// [`finish`](Self::finish). A command on several keys of which some have moved gets `TRYAGAIN`. A migration
/// that is dropped before it is finished stays where it is, as when the tool that made it has crashed.
#[derive(Debug)]
#[must_use = "a migration that is not finished stays half done"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    #[track_caller]
    pub(super) fn begin(cluster: &'a Cluster, slot: u16, to: usize) -> Self {
        let from = cluster.primary_of(slot);
        assert_ne!(from, to, "node {to} owns slot {slot} already");
        let number = slot.to_string();
        // The order matters: the other way round, the new owner would redirect a client back.
        group::order(&cluster.nodes()[to], &["CLUSTER", "SETSLOT", &number, "IMPORTING", &cluster.ids[from]]);
        group::order(&cluster.nodes()[from], &["CLUSTER", "SETSLOT", &number, "MIGRATING", &cluster.ids[to]]);
        Self { cluster, slot, from, to }
    }

    /// Moves up to `count` keys of the slot. Returns the number of keys that there were to move.
    #[track_caller]
    pub fn move_keys(&self, count: usize) -> usize {
        let found = self.node(self.from).command(&[
            "CLUSTER",
            "GETKEYSINSLOT",
            &self.slot.to_string(),
            &count.to_string(),
        ]);
        self.send(&found.array().iter().map(Resp::text).collect::<Vec<&str>>());
        found.array().len()
    }

    /// Moves the remaining keys, sets the new owner at every primary, and waits until all nodes know it.
    #[track_caller]
    pub fn finish(self) {
        while self.move_keys(BATCH) > 0 {}
        let number = self.slot.to_string();
        let assign = ["CLUSTER", "SETSLOT", &number, "NODE", &self.cluster.ids[self.to]];
        // The new owner first: it takes a new epoch, by which its claim is the newest. If the old one gave
        // the slot up before, the slot would have no owner for a moment.
        group::order(self.node(self.to), &assign);
        group::order(self.node(self.from), &assign);
        self.cluster.wait_for("every node knows who owns the slot", || {
            let views = self.cluster.views()?;
            match views.iter().find(|(_, view)| view.owners[usize::from(self.slot)] != Some(self.to)) {
                Some((node, _)) => Err(format!("node {node} does not know that node {} has it", self.to)),
                None => Ok(()),
            }
        });
    }

    fn node(&self, index: usize) -> &Server {
        &self.cluster.nodes()[index]
    }

    #[track_caller]
    fn send(&self, keys: &[&str]) {
        if keys.is_empty() {
            return;
        }
        let target = self.node(self.to).address();
        let (host, port) = (target.ip().to_string(), target.port().to_string());
        let mut command = vec!["MIGRATE", &host, &port, "", "0", MOVE_LIMIT_MS];
        if let Some(password) = &self.cluster.password {
            command.extend(["AUTH", password]);
        }
        command.push("KEYS");
        command.extend(keys);
        match self.node(self.from).command(&command) {
            // Maybe no key is left: the last one may expire between the poll and the command.
            Resp::Text(reply) if reply == "OK" || reply == "NOKEY" => {}
            other => panic!("keys {keys:?} did not move: {other:?}"),
        }
    }
}
