//! The channels of a session in a cluster: they move with their hash slots, and the end of each is noticed.
//! No server is needed.

use super::*;
use crate::protocol::{Declaration, Operation, Recovery, SessionId};
use crate::script::Scripts;
use permits_store::Sink;

#[derive(Default)]
struct Keeper(Mutex<Vec<Report>>);

impl Sink for Keeper {
    fn report(&self, reports: &mut Vec<Report>) {
        self.0.lock().expect("no panic").append(reports);
    }
}

/// A session, and the semaphores that it uses: of each the name, the node, and whether it keeps permits.
fn session(sink: Arc<Keeper>, used: [(&str, &Node, bool); 3]) -> Arc<Shared> {
    let session = SessionId::new("session").expect("it is plain");
    let (lease, prefix) = (Duration::from_secs(15), "p".to_owned());
    let options = StoreOptions { session, prefix: prefix.clone(), lease, sink };
    let wire = Arc::new(Wire { scripts: Scripts::new(true), prefix, sharded: true });
    let (runtime, inner, stale) = (Handle::current(), Mutex::default(), Notify::new());
    let (seeds, members) = (Vec::new(), Arc::default());
    let shared = Arc::new(Shared { seeds, options, wire, runtime, inner, members, stale });
    for (name, node, keeps) in used {
        let channels = Channels { hash_slot: 0, node: Some(node.clone()), keeps };
        let name = Name::new(name).expect("valid");
        shared.lock().subscriptions.insert(&name, channels, 15_000, Instant::now());
    }
    shared
}

/// The session learns nothing else of the loss, because it has other nodes.
#[tokio::test]
async fn what_is_kept_on_a_node_that_is_lost_is_recalled() {
    let sink = Arc::<Keeper>::default();
    let [lost, well]: [Node; 2] = [("lost".into(), 1), ("well".into(), 1)];
    let used = [("kept", &lost, true), ("used", &lost, false), ("elsewhere", &well, true)];
    let shared = session(sink.clone(), used);
    let owner = NodeOwner { shared: Arc::downgrade(&shared), node: lost };
    owner.report(&mut vec![Report::Down(StoreError::Unreachable { reason: "it was killed".into() })]);
    let reports = std::mem::take(&mut *sink.0.lock().expect("no panic"));
    let [Report::Recall(recalled)] = &reports[..] else { panic!("not one recall") };
    assert_eq!(recalled.as_str(), "kept");
}

#[tokio::test]
async fn channels_move_with_their_hash_slots_those_of_recalls_too() {
    let [before, after]: [Node; 2] = [("before".into(), 1), ("after".into(), 1)];
    let used = [("kept", &before, true), ("used", &before, false), ("unmoved", &after, true)];
    let shared = session(Arc::default(), used);
    let mut inner = shared.lock();
    let primary = Value::Array(vec![Value::BulkString("after".into()), Value::Int(1)]);
    let all = Value::Array(vec![Value::Int(0), Value::Int(16383), primary]);
    inner.map = SlotMap::read(&Value::Array(vec![all]), "asked").expect("it is valid");
    let moved = inner.take_moved().into_iter();
    let moved: BTreeSet<_> =
        moved.map(|moved| (moved.semaphore.to_string(), moved.keeps, moved.to)).collect();
    assert_eq!(moved, [("kept".into(), true, after.clone()), ("used".into(), false, after)].into());
    assert!(inner.take_moved().is_empty());
}

#[tokio::test]
async fn a_call_that_keeps_nothing_leaves_the_subscription_to_recalls() {
    let [before, after]: [Node; 2] = [("before".into(), 1), ("after".into(), 1)];
    let used = [("kept", &before, true), ("used", &before, false), ("elsewhere", &after, true)];
    let shared = session(Arc::default(), used);
    for (name, channels) in [("kept", 2), ("used", 1)] {
        let command = Command {
            semaphore: Name::new(name).expect("valid"),
            session: shared.options.session.clone(),
            lease_ms: 15_000,
            recovery: Recovery::Off,
            declaration: Declaration::Stored,
            operation: Operation::Renew(Vec::new()),
        };
        for node in [&before, &after] {
            assert_eq!(shared.use_channels(&command, 0, node).len(), channels, "{name} on {node:?}");
        }
    }
}

#[tokio::test]
async fn the_end_of_either_subscription_of_a_semaphore_is_noticed() {
    let [node, other]: [Node; 2] = [("here".into(), 1), ("there".into(), 1)];
    for at in [0, 1] {
        let used = [("kept", &node, true), ("used", &node, false), ("elsewhere", &other, true)];
        let shared = session(Arc::default(), used);
        let channels = shared.channels(&Name::new("kept").expect("valid"), true);
        let owner = |node: &Node| NodeOwner { shared: Arc::downgrade(&shared), node: node.clone() };
        owner(&other).channels_lost(&channels[at..=at]);
        assert_eq!(left(&shared), ["elsewhere", "kept", "used"], "it had moved already");
        owner(&node).channels_lost(&channels[at..=at]);
        assert_eq!(left(&shared), ["elsewhere", "used"]);
    }
}

/// The semaphores whose subscriptions have not ended.
fn left(shared: &Shared) -> Vec<String> {
    let mut inner = shared.lock();
    let left = inner.subscriptions.iter_mut().filter(|(_, known)| known.node.is_some());
    left.map(|(name, _)| name.to_string()).collect::<BTreeSet<_>>().into_iter().collect()
}
