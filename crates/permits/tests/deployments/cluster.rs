//! A cluster: primaries that die, hash slots that move, maps that are out of date, one shard that is stalled.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, ConnectError, Limit, Permit, StoreError};
use permits_testkit::cluster::{Cluster, ClusterBuilder, slot};
use permits_testkit::real_time::awaited_in_real_time;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Proxy, Server, skip, wait};

use crate::{builder, connect, granted, in_line, in_time, is_at_rest, renewed, still_waits, until};

/// The hash slot of a semaphore's keys.
fn slot_of(name: &str) -> u16 {
    slot(&format!("permits:{{{name}}}:state"))
}

/// A name of a semaphore on this node.
fn name_on(cluster: &Cluster, node: usize) -> String {
    let names = (0..).map(|number| format!("exports-{number}"));
    names.into_iter().find(|name| cluster.primary_of(slot_of(name)) == node).expect("there is one")
}

/// Three primaries without replicas. When one fails, the others continue to serve.
fn apart() -> ClusterBuilder {
    Cluster::builder().replicas(0).arg("cluster-require-full-coverage", "no")
}

/// The cluster, unless the test is skipped: an older server has no sharded channels.
fn started(builder: ClusterBuilder) -> Option<Cluster> {
    (!skip::before(7, 0)).then(|| builder.start())
}

/// The number of channels with a subscriber on a node.
fn channels(node: &Server) -> usize {
    node.command(&["PUBSUB", "SHARDCHANNELS"]).array().len()
}

/// The waiter would learn of its grant without the message only by its renewal, after a third of its lease,
/// or when the holder's lease ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_in_a_cluster_learns_of_its_grant_by_a_message() {
    let Some(cluster) = started(Cluster::builder().replicas(0)) else { return };
    let lease = Duration::from_secs(600);
    for node in 0..3 {
        let name = name_on(&cluster, node);
        let connect = async || builder(&cluster.url()).lease(lease).connect().succeeds().await;
        let (holder, waiter) = (connect().await, connect().await);
        let permit = holder.named(&name, 1).acquire().succeeds().await;
        let next = in_line(&waiter.named(&name, 1), "next").await;
        permit.release().succeeds().await;
        granted(next).await.release().succeeds().await;
    }
}

/// Waits until the replicas of a node have all that the node has written.
fn replicated(cluster: &Cluster, node: usize) {
    let offset =
        |info: &str, server: &Server| server.info(info).and_then(|offset| offset.parse::<u64>().ok());
    let (primary, replicas) = (&cluster.nodes()[node], cluster.replicas_of(node));
    let has_all = |replica: &usize| {
        let (written, has) =
            (offset("master_repl_offset", primary), offset("slave_repl_offset", &cluster.nodes()[*replica]));
        written.is_some() && has >= written
    };
    assert!(wait::until(|| replicas.iter().all(has_all)), "replicas {replicas:?} of node {node} lag");
}

/// The second cluster serves the same hash slots at the address of the dead node, and has the same semaphore
/// free. It refuses to be copied: otherwise the dead node's replica, which connects to that address, too,
/// would replace its own data by the data of the second cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_at_the_address_of_a_dead_one_is_not_used() {
    let Some(cluster) = started(Cluster::builder()) else { return };
    let not_copied = "default on nopass ~* &* +@all -psync -sync";
    let other = Cluster::builder().replicas(0).arg("user", not_copied).start();
    let name = name_on(&cluster, 0);
    let (holder, waiter) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let permit = holder.named(&name, 1).acquire().succeeds().await;
    let next = in_line(&waiter.named(&name, 1), "next").await;
    replicated(&cluster, 0);
    cluster.nodes()[0].kill();
    let stranger = Proxy::start_at(cluster.nodes()[0].address(), other.nodes()[0].address());
    let commands = || other.nodes()[0].command(&["INFO", "commandstats"]).text().to_owned();
    let asked = || commands().contains("cmdstat_cluster|slots");
    assert!(wait::until(asked), "no session has tried the address: {} have", stranger.accepted());
    cluster.wait_for_new_primary(slot_of(&name), 0);
    renewed(&permit).await;
    let next = still_waits(next).await;
    permit.release().await.expect("it is held still");
    granted(next).await.release().succeeds().await;
    is_at_rest(&holder.named(&name, Limit::Stored)).await;
    for node in other.nodes() {
        assert_eq!(node.command(&["KEYS", "*"]).array().len(), 0, "{:?}", node.command(&["KEYS", "*"]));
    }
}

/// The URL names one address, at which there is a new cluster, such as a test environment that is made again.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_replaces_another_at_the_address_of_the_url_is_used() {
    let Some(cluster) = started(Cluster::builder().primaries(1).replicas(0)) else { return };
    let other = Cluster::builder().primaries(1).replicas(0).start();
    let entry = Proxy::start(cluster.nodes()[0].address());
    let client = connect(&format!("redis+cluster://{}", entry.address())).await;
    let semaphore = client.named("exports", 1);
    semaphore.acquire().succeeds().await.release().succeeds().await;
    entry.lead_to(other.nodes()[0].address());
    drop(cluster);
    in_time(semaphore.acquire()).succeeds().await.release().succeeds().await;
    assert_eq!(connect(&other.url()).await.list().succeeds().await, ["exports"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_primary_loses_no_permit_and_no_waiter() {
    let Some(cluster) = started(Cluster::builder()) else { return };
    let name = name_on(&cluster, 0);
    let (holder, waiter) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let permit = holder.named(&name, 1).acquire().succeeds().await;
    let next = in_line(&waiter.named(&name, 1), "next").await;
    replicated(&cluster, 0);
    cluster.nodes()[0].kill();
    let new = cluster.wait_for_new_primary(slot_of(&name), 0);
    assert_ne!(new, 0);
    renewed(&permit).await;
    let next = still_waits(next).await;
    permit.release().await.expect("it is held still");
    granted(next).await.release().succeeds().await;
    is_at_rest(&holder.named(&name, Limit::Stored)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_agreement_is_followed() {
    let Some(cluster) = started(Cluster::builder()) else { return };
    let name = name_on(&cluster, 1);
    let client = connect(&cluster.url()).await;
    let semaphore = client.named(&name, 1);
    let permit = semaphore.acquire().succeeds().await;
    let next = in_line(&semaphore, "next").await;
    cluster.failover(1);
    in_time(permit.release()).await.expect("it is held still");
    granted(next).await.release().succeeds().await;
    is_at_rest(&semaphore).await;
}

/// A hash slot that moves makes either node refuse a script that may use a key that is not on it: TRYAGAIN.
/// Calls made meanwhile succeed when the hash slot has moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_slot_that_moves_takes_holders_and_waiters_along() {
    let Some(cluster) = started(Cluster::builder().replicas(0)) else { return };
    let name = name_on(&cluster, 0);
    let client = connect(&cluster.url()).await;
    let semaphore = client.named(&name, 1);
    let permit = semaphore.acquire().succeeds().await;
    let first = in_line(&semaphore, "first").await;
    let second = in_line(&semaphore, "second").await;

    let migration = cluster.begin_migration(slot_of(&name), 2);
    let releasing = tokio::spawn(permit.release());
    // First on the old node, then on both, then on the new one alone, where a call may succeed at once.
    let slot = slot_of(&name).to_string();
    let left = || cluster.nodes()[0].command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).int();
    while migration.move_keys(1) > 0 && left() > 0 {
        tokio::time::sleep(wait::SILENCE).await;
        assert!(!first.is_finished() && !releasing.is_finished(), "with {} keys on the old node", left());
    }
    while migration.move_keys(1) > 0 {}
    migration.finish();
    in_time(releasing).await.expect("it does not panic").expect("it is held still");
    granted(first).await.release().succeeds().await;
    granted(second).await.release().succeeds().await;

    // The new node wakes its waiters.
    let permit = semaphore.acquire().succeeds().await;
    let next = in_line(&semaphore, "next").await;
    assert!(wait::until(|| channels(&cluster.nodes()[2]) > 0), "its channel has followed");
    permit.release().succeeds().await;
    granted(next).await.release().succeeds().await;
    assert_eq!(channels(&cluster.nodes()[0]), 0);
    is_at_rest(&semaphore).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_is_out_of_date_is_corrected() {
    let Some(cluster) = started(Cluster::builder().replicas(0)) else { return };
    let name = name_on(&cluster, 0);
    let client = connect(&cluster.url()).await;
    let semaphore = client.named(&name, 1);
    semaphore.acquire().succeeds().await.release().succeeds().await;
    for to in [1, 2, 0, 1] {
        cluster.migrate_slot(slot_of(&name), to);
        let permit = in_time(semaphore.acquire()).succeeds().await;
        permit.release().succeeds().await;
    }
    is_at_rest(&semaphore).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_spans_all_shards() {
    let Some(cluster) = started(Cluster::builder().replicas(0)) else { return };
    let (client, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let mut names = [0, 1, 2].map(|node| name_on(&cluster, node));
    names.sort();
    let semaphores = names.clone().map(|name| client.named(name, 1));
    let start = || {
        let semaphores = names.clone().map(|name| other.named(name, 1));
        tokio::spawn(other.acquire_all(semaphores.map(|semaphore| (semaphore, AcquireOptions::new()))))
    };
    let [first, second, last] = &semaphores;
    let permit = last.acquire().succeeds().await;
    let waits_in_the_last = async || {
        until(last, 1, 1).await;
        until(first, 1, 0).await;
        until(second, 1, 0).await;
    };
    let acquiring = start();
    waits_in_the_last().await;
    acquiring.abort();
    until(last, 1, 0).await;
    is_at_rest(first).await;
    is_at_rest(second).await;

    let acquiring = start();
    waits_in_the_last().await;
    permit.release().succeeds().await;
    let set = in_time(acquiring).await.expect("it does not panic").expect("all are free");
    assert_eq!(set.permits().iter().map(Permit::semaphore).collect::<Vec<_>>(), names);
    set.release().succeeds().await;
    for semaphore in &semaphores {
        is_at_rest(semaphore).await;
    }
    assert_eq!(client.list().succeeds().await, names);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_shard_delays_only_its_own_semaphores() {
    let Some(cluster) = started(apart()) else { return };
    let client = connect(&cluster.url()).await;
    let (stalled, other) = (name_on(&cluster, 0), name_on(&cluster, 1));
    let (stalled, other) = (client.named(stalled, 1), client.named(other, 1));
    for semaphore in [&stalled, &other] {
        semaphore.acquire().succeeds().await.release().succeeds().await;
    }
    cluster.nodes()[0].pause();
    let late = {
        let stalled = stalled.clone();
        tokio::spawn(async move { stalled.acquire().await })
    };
    for _ in 0..20 {
        in_time(other.acquire()).succeeds().await.release().succeeds().await;
    }
    assert!(!late.is_finished());
    cluster.nodes()[0].resume();
    granted(late).await.release().succeeds().await;
    is_at_rest(&stalled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_stays_away_runs_out_its_callers_timeout_alone() {
    let Some(cluster) = started(apart()) else { return };
    let timeout = Duration::from_secs(3);
    // The URL names one node, which announces the others.
    let url = format!("redis+cluster://{}", cluster.nodes()[1].address());
    let client = builder(&url).store_timeout(timeout).connect().succeeds().await;
    let (dead, other) = (name_on(&cluster, 2), name_on(&cluster, 1));
    let (dead, other) = (client.named(dead, 1), client.named(other, 1));
    dead.acquire().succeeds().await.release().succeeds().await;
    cluster.nodes()[2].kill();
    let asked = tokio::spawn(async move { (dead.acquire().await, dead.inspect().await) });
    // A success on the other shard does not hide the failure of this one.
    while !asked.is_finished() {
        in_time(other.acquire()).succeeds().await.release().succeeds().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (acquired, inspected) = asked.await.expect("it does not panic");
    assert!(matches!(acquired, Err(AcquireError::Store(ref error)) if error.is_temporary()), "{acquired:?}");
    let address = cluster.nodes()[2].address();
    let announced = format!("{address}, an address that the cluster announced: connection refused");
    let error = inspected.expect_err("it is away").to_string();
    assert!(error.contains(&announced), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_of_idle_semaphores_are_unsubscribed() {
    let Some(cluster) = started(Cluster::builder().primaries(1).replicas(0)) else { return };
    let listened = || channels(&cluster.nodes()[0]);
    awaited_in_real_time(async || {
        // Idle is what no command has used for the longest lease.
        let lease = Duration::from_millis(500);
        let client = builder(&cluster.url()).lease(lease).connect().succeeds().await;
        let held = client.named("kept", 1).acquire().succeeds().await;
        let mut used = 0;
        // The channels of held permits stay. Of the others, the idle ones are unsubscribed when new ones
        // come.
        in_time(async {
            while used < 1500 || listened() > used / 2 {
                let semaphore = client.named(format!("semaphore-{used}"), 1);
                semaphore.acquire().succeeds().await.release().succeeds().await;
                used += 1;
            }
        })
        .await;
        let waiter = in_line(&client.named("kept", Limit::Stored), "next").await;
        held.release().succeeds().await;
        granted(waiter).await.release().succeeds().await;
    })
    .await;
}

/// A user with exactly the documented rules, on every node.
fn set_user(cluster: &Cluster, left_out: &str) -> String {
    let rights = permits::acl_rules("permits").expect("the prefix is valid");
    let rules: Vec<&str> = rights.iter().flat_map(|rights| &rights.rules).map(String::as_str).collect();
    for node in cluster.nodes() {
        let rules = rules.iter().copied().filter(|rule| *rule != left_out);
        let command: Vec<&str> =
            ["ACL", "SETUSER", "exporter", "reset", ">word"].into_iter().chain(rules).collect();
        assert_eq!(node.command(&command).text(), "OK");
    }
    cluster.url().replacen("://", "://exporter:word@", 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_are_enough_and_what_is_missing_is_named() {
    let Some(cluster) = started(Cluster::builder().replicas(0)) else { return };
    let client = connect(&set_user(&cluster, "")).await;
    let semaphore = client.named("exports", 1);
    let permit = semaphore.acquire().succeeds().await;
    let next = in_line(&semaphore, "next").await;
    permit.release().succeeds().await;
    granted(next).await.release().succeeds().await;
    assert_eq!(client.list().await.expect("it is allowed"), ["exports"]);
    client.close().succeeds().await;
    for (rule, named) in [
        ("+ssubscribe", "SSUBSCRIBE"),
        ("+spublish", "SPUBLISH"),
        ("+asking", "ASKING"),
        ("&permits:{*}:wake:*", "SPUBLISH"),
    ] {
        let url = set_user(&cluster, rule);
        let error = in_time(Client::connect(&url)).await.expect_err(rule);
        let ConnectError::Store(StoreError::Denied { reason }) = &error else { panic!("{rule}: {error:?}") };
        assert!(reason.contains(named), "{rule}: {reason}");
        let examination = Client::builder(&url).diagnose().succeeds().await;
        let named =
            |finding: &&permits::Finding| finding.subject == "rights" && finding.advice.contains(rule);
        assert!(examination.findings.iter().any(|finding| named(&finding)), "{rule}: {examination:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_covers_all_nodes_and_leaves_nothing() {
    let Some(cluster) = started(Cluster::builder().replicas(0)) else { return };
    let examination = Client::builder(cluster.url()).diagnose().succeeds().await;
    assert!(examination.is_healthy(), "{examination:?}");
    for node in cluster.nodes() {
        let address = node.address().to_string();
        let of_node = |finding: &&permits::Finding| finding.observed.starts_with(&address);
        let about: Vec<_> = examination.findings.iter().filter(of_node).map(|it| it.subject).collect();
        for subject in ["connection", "version", "rights", "eviction", "clock"] {
            assert!(about.contains(&subject), "{address}, {subject}: {examination:?}");
        }
        assert_eq!(node.command(&["DBSIZE"]).int(), 0);
    }
    let subjects: Vec<_> = examination.findings.iter().map(|finding| finding.subject).collect();
    assert!(subjects.contains(&"cluster") && subjects.contains(&"semaphore"), "{subjects:?}");
}

/// The hosts are asked in a random order.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_in_the_cluster_hinders_nobody() {
    let Some(cluster) = started(Cluster::builder().replicas(0)) else { return };
    let other = Server::start();
    let url = cluster.url().replacen("://", &format!("://{},", other.address()), 1);
    for _ in 0..10 {
        connect(&url).await.close().succeeds().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hash_slots_without_a_node_are_found() {
    let Some(cluster) = started(apart()) else { return };
    let slot = slot_of("exports").to_string();
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTS", &slot]);
    }
    let examination = Client::builder(cluster.url()).diagnose().succeeds().await;
    let found =
        examination.findings.iter().find(|finding| finding.subject == "cluster").expect("it is looked at");
    assert_eq!(found.severity, permits::Severity::Problem);
    assert!(found.observed.contains("no node serves the other 1"), "{found:?}");
}
