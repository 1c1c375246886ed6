//! Clusters: their start, the loss of a primary, and a failover by agreement. Migration is in `migration`.

use std::time::Duration;

use permits_testkit::cluster::slot;
use permits_testkit::{Cluster, Connection, Server};

/// A key of each of three primaries, by the slots at the start.
const KEYS: [&str; 3] = ["b", "c", "a"];

/// Writes to the primary of each key.
fn write(cluster: &Cluster, value: &str) {
    for key in KEYS {
        let primary = cluster.primary_of(slot(key));
        assert_eq!(cluster.nodes()[primary].command(&["SET", key, value]).text(), "OK");
    }
}

/// Reads from the primary of each key.
fn read(cluster: &Cluster) -> Vec<String> {
    let primary = |key| &cluster.nodes()[cluster.primary_of(slot(key))];
    KEYS.iter().map(|key| primary(key).command(&["GET", key]).text().to_owned()).collect()
}

#[test]
fn every_node_knows_the_whole_cluster_at_the_start() {
    let cluster = Cluster::start();
    assert_eq!(cluster.nodes().len(), 6);
    let hosts: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    assert_eq!(cluster.url(), format!("redis+cluster://{}", hosts.join(",")));

    for (expected, key) in KEYS.iter().enumerate() {
        let slot = slot(key);
        assert_eq!(cluster.primary_of(slot), expected);
        for (index, node) in cluster.nodes().iter().enumerate() {
            assert_eq!(node.command(&["CLUSTER", "KEYSLOT", key]).int(), i64::from(slot));
            let reply = node.command(&["SET", key, "x"]);
            if index == expected {
                assert_eq!(reply.text(), "OK");
            } else {
                assert_eq!(reply.error(), format!("MOVED {slot} {}", hosts[expected]));
            }
        }
        assert_eq!(cluster.replicas_of(expected), [expected + 3]);
    }
}

#[test]
fn sizes_are_as_asked_for() {
    let cluster = Cluster::builder().primaries(1).replicas(2).arg("maxmemory", "64mb").start();
    assert_eq!(cluster.nodes().len(), 3);
    assert_eq!((cluster.primary_of(0), cluster.primary_of(16_383)), (0, 0));
    assert_eq!(cluster.replicas_of(0), [1, 2]);
    assert!(cluster.nodes().iter().all(|node| node.info("maxmemory") == Some((64 << 20).to_string())));
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let cluster = Cluster::start();
    write(&cluster, "before");
    let slot = slot(KEYS[1]);
    cluster.nodes()[1].kill();
    assert_eq!(cluster.primary_of(slot), 1, "it still owns its slots");
    assert_eq!(cluster.wait_for_new_primary(slot, 1), 4);
    write(&cluster, "after");

    cluster.nodes()[1].restart();
    cluster.wait_until_ok();
    assert_eq!((cluster.primary_of(slot), cluster.replicas_of(4)), (4, vec![1]));
    assert_eq!(read(&cluster), ["after"; 3]);
}

#[test]
fn a_paused_primary_is_replaced_and_follows_when_resumed() {
    let cluster = Cluster::builder().node_timeout(Duration::from_secs(1)).start();
    let slot = slot(KEYS[2]);
    cluster.nodes()[2].pause();
    assert_eq!(cluster.wait_for_new_primary(slot, 2), 5);
    cluster.nodes()[2].resume();
    cluster.wait_until_ok();
    assert_eq!((cluster.primary_of(slot), cluster.replicas_of(5)), (5, vec![2]));
}

#[test]
fn a_failover_in_agreement_loses_nothing_and_can_be_undone() {
    let cluster = Cluster::start();
    write(&cluster, "before");
    assert_eq!(cluster.failover(0), 3);
    assert_eq!(cluster.primary_of(slot(KEYS[0])), 3);
    assert_eq!(read(&cluster), ["before"; 3]);
    write(&cluster, "between");
    assert_eq!(cluster.failover(3), 0);
    assert_eq!(read(&cluster), ["between"; 3]);
    cluster.wait_until_ok();
}

#[test]
fn a_cluster_comes_back_after_the_death_of_all_nodes() {
    let cluster = Cluster::builder().replicas(0).append_only().start();
    write(&cluster, "before");
    cluster.nodes().iter().for_each(Server::kill);
    cluster.nodes().iter().for_each(Server::restart);
    cluster.wait_until_ok();
    assert_eq!(read(&cluster), ["before"; 3]);
}

#[test]
fn a_password_is_demanded_by_every_node_and_used_among_them() {
    let cluster = Cluster::builder().password("open sesame").start();
    assert!(cluster.url().starts_with("redis+cluster://:open%20sesame@127.0.0.1:"), "{}", cluster.url());
    for node in cluster.nodes() {
        let mut outsider = Connection::connect(node.address()).expect("it runs");
        assert!(outsider.call(&["PING"]).expect("it answers").error().starts_with("NOAUTH"));
    }
    write(&cluster, "before");
    let slot = slot(KEYS[0]);
    cluster.migrate_slot(slot, 1);
    assert_eq!(cluster.primary_of(slot), 1);
    assert_eq!(read(&cluster), ["before"; 3]);
    assert_eq!(cluster.failover(1), 4);
    assert_eq!(read(&cluster), ["before"; 3]);
}

#[test]
fn announced_proxies_stand_between_clients_and_nodes() {
    let cluster = Cluster::builder().proxied().start();
    let slot = slot(KEYS[0]);
    let proxy = cluster.proxy(0).address();
    assert!(cluster.url().starts_with(&format!("redis+cluster://{proxy},")), "{}", cluster.url());
    let moved = format!("MOVED {slot} {proxy}");
    assert_eq!(cluster.nodes()[1].command(&["GET", KEYS[0]]).error(), moved);

    let mut client = Connection::connect(proxy).expect("the proxy accepts");
    cluster.proxy(0).swallow_reply_to(b"INCR");
    client.call(&["INCR", KEYS[0]]).expect_err("the connection is cut");
    assert_eq!(cluster.nodes()[0].command(&["GET", KEYS[0]]).text(), "1");

    // Also after a restart. A node that clients cannot reach is still a node for the others.
    cluster.nodes()[3].kill();
    cluster.nodes()[3].restart();
    cluster.wait_until_ok();
    cluster.proxy(0).refuse(true);
    assert_eq!(cluster.nodes()[3].command(&["GET", KEYS[0]]).error(), moved);
}

#[test]
#[should_panic(expected = "has no replica that is up")]
fn without_a_replica_there_is_no_failover() {
    Cluster::builder().primaries(1).replicas(0).start().failover(0);
}

#[test]
fn a_dropped_cluster_leaves_no_node_behind() {
    let cluster = Cluster::builder().primaries(2).replicas(0).start();
    let addresses: Vec<_> = cluster.nodes().iter().map(Server::address).collect();
    cluster.nodes()[0].pause();
    drop(cluster);
    for address in addresses {
        assert!(Connection::connect(address).is_err(), "{address} is gone");
    }
}
