//! The nodes that make up the cluster which a session is connected to.
//!
//! An address can pass to somebody else: a pod dies, and the next pod with its address may be a node of
//! another cluster. That node would serve the session's commands, with keys of its own, so that two sessions
//! might both hold what the limit admits once. The ids of nodes tell the clusters apart, because no two
//! clusters have a node in common, and a node keeps its id when it restarts, moves or is promoted.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::resp::Value;

/// The ids in the newest map of the cluster.
#[derive(Default)]
pub(crate) struct Members(Mutex<BTreeSet<String>>);

impl Members {
    /// Returns false if these are the nodes of another cluster. A server that names no node, such as a proxy,
    /// cannot be told apart.
    pub(crate) fn include(&self, ids: &BTreeSet<String>) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_empty() || ids.is_empty() || !known.is_disjoint(ids)
    }

    /// Takes the ids of a new map.
    pub(super) fn replace(&self, ids: BTreeSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ids;
    }
}

/// The ids of the primaries and replicas in a reply to CLUSTER SLOTS.
pub(crate) fn ids(slots: &Value) -> BTreeSet<String> {
    let Value::Array(ranges) = slots else { return BTreeSet::new() };
    let nodes = ranges.iter().filter_map(|range| match range {
        Value::Array(fields) => fields.get(2..),
        _ => None,
    });
    let id = |node: &Value| match node {
        Value::Array(fields) => match fields.get(2)? {
            Value::BulkString(id) if !id.is_empty() => Some(String::from_utf8_lossy(id).into_owned()),
            _ => None,
        },
        _ => None,
    };
    nodes.flatten().filter_map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    /// A reply with one range, which these nodes serve.
    fn slots(names: &[&str]) -> Value {
        let node = |id: &&str| Value::Array(vec![text("host"), Value::Int(1), text(id)]);
        let bounds = [Value::Int(0), Value::Int(16383)];
        Value::Array(vec![Value::Array(bounds.into_iter().chain(names.iter().map(node)).collect())])
    }

    #[test]
    fn a_cluster_is_known_by_any_of_its_nodes() {
        let members = Members::default();
        assert!(members.include(&ids(&slots(&["a", "b"]))), "the first cluster is the session's");
        members.replace(ids(&slots(&["a", "b"])));
        assert!(
            members.include(&ids(&slots(&["c", "b"]))),
            "the replica b was promoted or has another primary"
        );
        assert!(!members.include(&ids(&slots(&["c", "d"]))));
        assert!(members.include(&ids(&slots(&[]))), "a proxy that names no node");
        assert!(members.include(&ids(&Value::Nil)));
    }
}
