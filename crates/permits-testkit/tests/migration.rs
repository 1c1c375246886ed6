//! Slots of a cluster that move, and the replies to clients meanwhile.

use permits_testkit::cluster::slot;
use permits_testkit::{Cluster, Resp};

/// Two keys of one slot, which belongs to the first of two primaries.
const KEYS: [&str; 2] = ["{b}1", "{b}2"];

fn start() -> (Cluster, u16) {
    let cluster = Cluster::builder().primaries(2).replicas(0).start();
    let slot = slot("b");
    assert_eq!(cluster.primary_of(slot), 0);
    for key in KEYS {
        assert_eq!(cluster.nodes()[0].command(&["SET", key, key]).text(), "OK");
    }
    (cluster, slot)
}

fn redirection(kind: &str, slot: u16, cluster: &Cluster, node: usize) -> String {
    format!("{kind} {slot} {}", cluster.nodes()[node].address())
}

#[test]
fn a_moved_slot_has_its_keys_and_is_known_to_all() {
    let (cluster, slot) = start();
    cluster.migrate_slot(slot, 1);
    assert_eq!(cluster.primary_of(slot), 1);
    for key in KEYS {
        assert_eq!(cluster.nodes()[1].command(&["GET", key]).text(), key);
        let moved = redirection("MOVED", slot, &cluster, 1);
        assert_eq!(cluster.nodes()[0].command(&["GET", key]).error(), moved);
    }
    cluster.wait_until_ok();
    cluster.migrate_slot(slot, 0);
    assert_eq!(cluster.nodes()[0].command(&["GET", KEYS[0]]).text(), KEYS[0]);
}

#[test]
fn many_keys_move_and_none_is_lost() {
    let (cluster, slot) = start();
    let mut client = cluster.nodes()[0].connect().expect("it runs");
    for number in 0..1000 {
        let reply = client.call(&["SET", &format!("{{b}}n{number}"), "x"]).expect("it answers");
        assert_eq!(reply.text(), "OK");
    }
    cluster.migrate_slot(slot, 1);
    let count = |node: usize| cluster.nodes()[node].command(&["DBSIZE"]).int();
    assert_eq!((count(0), count(1)), (0, 1002));
}

#[test]
fn in_the_middle_a_slot_answers_ask_and_tryagain() {
    let (cluster, slot) = start();
    let (old, new) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let ask = redirection("ASK", slot, &cluster, 1);
    let migration = cluster.begin_migration(slot, 1);
    assert_eq!((migration.from(), migration.to()), (0, 1));
    assert_eq!(old.command(&["GET", KEYS[0]]).text(), KEYS[0], "nothing has moved yet");
    assert_eq!(old.command(&["GET", "{b}3"]).error(), ask, "a key that is not there may have moved");

    migration.move_these(&[KEYS[0]]);
    assert_eq!(old.command(&["GET", KEYS[0]]).error(), ask);
    assert_eq!(old.command(&["GET", KEYS[1]]).text(), KEYS[1]);
    let moved = redirection("MOVED", slot, &cluster, 0);
    assert_eq!(new.command(&["GET", KEYS[0]]).error(), moved, "it does not own the slot yet");
    let mut client = new.connect().expect("it runs");
    let mut asking = |command: &[&str]| {
        assert_eq!(client.call(&["ASKING"]).expect("it answers").text(), "OK");
        client.call(command).expect("it answers")
    };
    assert_eq!(asking(&["GET", KEYS[0]]).text(), KEYS[0]);

    let script = ["EVAL", "return redis.call('GET', KEYS[1])", "2", KEYS[0], KEYS[1]];
    for command in [&["MGET", KEYS[0], KEYS[1]][..], &script] {
        // Version 6 redirects the client because of the key that has gone.
        let reply = old.command(command);
        assert!(reply.error().starts_with("TRYAGAIN") || reply.error() == ask, "{reply:?}");
        assert!(asking(command).error().starts_with("TRYAGAIN"));
    }

    assert_eq!(migration.move_keys(10), 1);
    assert_eq!(migration.move_keys(10), 0);
    assert_eq!(old.command(&["MGET", KEYS[0], KEYS[1]]).error(), ask);
    migration.finish();
    let values = KEYS.map(|key| Resp::Text(key.to_owned()));
    assert_eq!(new.command(&["MGET", KEYS[0], KEYS[1]]).array(), values);
}

#[test]
fn an_abandoned_migration_stays_open_and_can_be_taken_up_again() {
    let (cluster, slot) = start();
    let migration = cluster.begin_migration(slot, 1);
    migration.move_these(&[KEYS[0]]);
    drop(migration);
    let ask = redirection("ASK", slot, &cluster, 1);
    assert_eq!(cluster.nodes()[0].command(&["GET", KEYS[0]]).error(), ask);

    cluster.migrate_slot(slot, 1);
    assert_eq!(cluster.nodes()[1].command(&["GET", KEYS[0]]).text(), KEYS[0]);
    assert_eq!(cluster.nodes()[1].command(&["GET", KEYS[1]]).text(), KEYS[1]);
}

#[test]
fn replicas_learn_of_a_moved_slot() {
    let cluster = Cluster::builder().primaries(2).start();
    let slot = slot("b");
    assert_eq!(cluster.nodes()[0].command(&["SET", "b", "x"]).text(), "OK");
    cluster.migrate_slot(slot, 1);
    cluster.wait_until_ok();
    let moved = redirection("MOVED", slot, &cluster, 1);
    for node in [0, 2, 3] {
        assert_eq!(cluster.nodes()[node].command(&["GET", "b"]).error(), moved);
    }
    // The key has reached the replica of the new owner, which keeps it when the new owner dies.
    assert_eq!(cluster.failover(1), 3);
    assert_eq!(cluster.nodes()[3].command(&["GET", "b"]).text(), "x");
}

#[test]
#[should_panic(expected = "owns slot 3300 already")]
fn a_slot_does_not_move_to_its_owner() {
    let cluster = Cluster::builder().primaries(1).replicas(0).start();
    cluster.migrate_slot(slot("b"), 0);
}
