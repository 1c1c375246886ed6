//! The connection of a session to a server: there is one, for calls and messages, and it bears more than
//! buffers hold.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use permits::{AcquireOptions, Client, Limit, Permit, Recovery};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Certificates, ClientCertificates, Cluster, HANGS, Server, skip, wait};
use tokio::task::JoinSet;

async fn connect(url: &str) -> Client {
    let builder = Client::builder(url).recovery(Recovery::Off).lease(Duration::from_secs(600));
    builder.store_timeout(HANGS).connect().succeeds().await
}

/// A server without TLS and, if this machine has the programs, one with TLS, each with its URL and its
/// certificates.
fn servers() -> Vec<(Server, String, Option<Certificates>)> {
    let plain = Server::start();
    let url = plain.url();
    let mut servers = vec![(plain, url, None)];
    if !skip::without_tls() {
        let certificates = Certificates::new();
        let server = Server::builder().tls(&certificates, ClientCertificates::Ignored).start();
        let url = format!("{}?tls_ca={}", server.url(), certificates.authority().path().display());
        servers.push((server, url, Some(certificates)));
    }
    servers
}

/// The connections of clients, each with the number of its subscriptions, apart from the connection that
/// asks.
fn connections(server: &Server) -> Vec<String> {
    let list = server.command(&["CLIENT", "LIST"]);
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let clients = list
        .text()
        .lines()
        .filter(|line| field(line, "cmd=") != "client|list" && field(line, "cmd=") != "client");
    clients.map(|line| format!("{}+{}", field(line, "sub="), field(line, "ssub="))).collect()
}

#[tokio::test]
async fn a_session_has_one_connection() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.named("exports", 1);
    let permit = semaphore.acquire().succeeds().await;
    let next = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    while semaphore.inspect().succeeds().await.waiting == 0 {}
    let connections = connections(&server);
    assert!(matches!(&connections[..], [one] if one.starts_with("1+")), "{connections:?}");
    permit.release().succeeds().await;
    next.await.expect("no panic").expect("it is granted").release().succeeds().await;
}

/// Subscribed connections stay, even while they send nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_idle_connections_leaves_that_of_a_session() {
    let server = Server::builder().arg("timeout", "1").start();
    let client = connect(&server.url()).await;
    let _permit = client.named("exports", 1).acquire().succeeds().await;
    let subscribed = || {
        let list = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.text().split(' ').next().filter(|id| id.starts_with("id=")).expect("it is connected").to_owned()
    };
    let before = subscribed();
    for _ in 0..2 {
        let mut idle = TcpStream::connect(server.address()).expect("it listens");
        idle.set_read_timeout(Some(HANGS)).expect("it is no zero");
        assert_eq!(idle.read(&mut [0]).expect("it is closed"), 0);
    }
    assert_eq!(subscribed(), before);
}

/// For example a server that has too little memory for its clients.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_connections_which_have_served_is_reached_with_pauses() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let permit = client.named("exports", 1).acquire().succeeds().await;
    let ended = || server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
    let mut count = 0;
    for _ in 0..300 {
        count += ended();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!((2..100).contains(&count), "{count} connections");
    let renewed = async { while permit.renew().await.is_err() {} };
    tokio::time::timeout(HANGS, renewed).await.expect("it is reached again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_one_connection_to_each_node_that_it_uses() {
    if skip::before(7, 0) {
        return;
    }
    let cluster = Cluster::builder().replicas(0).start();
    let client = connect(&cluster.url()).await;
    let names: Vec<String> = (0..20).map(|number| format!("exports-{number}")).collect();
    for name in &names {
        drop(client.named(name, 1).acquire().succeeds().await);
    }
    let mut subscribed = 0;
    for node in cluster.nodes() {
        let connections = connections(node);
        let [one] = &connections[..] else { panic!("{connections:?}") };
        subscribed += one.strip_prefix("0+").and_then(|count| count.parse::<usize>().ok()).expect("a number");
    }
    assert_eq!(subscribed, names.len(), "each channel is subscribed on one node");
}

#[tokio::test]
async fn scripts_are_sent_as_text_by_the_first_client_alone() {
    let server = Server::start();
    let evals = || {
        let stats = server.command(&["INFO", "commandstats"]);
        let line = stats.text().lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls="));
        line.and_then(|line| line.split(',').next()?.parse::<u32>().ok()).unwrap_or(0)
    };
    let use_once = async || {
        let client = connect(&server.url()).await;
        let permit = client.named("exports", 1).acquire().succeeds().await;
        permit.renew().succeeds().await;
        permit.release().succeeds().await;
    };
    use_once().await;
    let first = evals();
    use_once().await;
    // Each client also probes its rights.
    assert_eq!((first, evals()), (4, 5));
}

/// Calls on so many semaphores that neither the system's buffers nor the connection's hold them.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_takes_all_calls_when_it_continues() {
    const CALLS: usize = 12_000;
    for (server, url, _certificates) in servers() {
        let client = connect(&url).await;
        let label = "x".repeat(100);
        let mut waiting = JoinSet::new();
        server.pause();
        for number in 0..CALLS {
            let name = format!("{label}-{number}");
            let semaphore = client.named(name, 1);
            waiting.spawn(async move { semaphore.acquire().await.map(drop) });
        }
        // Long enough for most to be sent, and shorter than the timeout of a call.
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.resume();
        let all = async {
            while let Some(acquired) = waiting.join_next().await {
                acquired.expect("no panic").expect("it is free");
            }
        };
        tokio::time::timeout(HANGS, all).await.expect("all continue");
        // The client is dropped and not closed, because a slow machine may not release all permits within the
        // time of a close.
        drop(client);
        let keys = server.command(&["DBSIZE"]).int();
        assert!(keys >= i64::try_from(CALLS).expect("it fits"), "{keys} keys");
    }
}

/// Holders and waiters with names of the greatest length: the reply is larger than any buffer of the client.
#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_of_many_is_one_large_reply() {
    const EACH: u32 = 500;
    for (server, url, _certificates) in servers() {
        let client = connect(&url).await;
        let semaphore = client.named("exports", EACH);
        let acquire = |number: u32| {
            let semaphore = semaphore.clone();
            let options = AcquireOptions::new().holder(format!("{number:0>150}"));
            async move { semaphore.acquire_with(options).await }
        };
        let holding: JoinSet<_> = (0..EACH).map(acquire).collect();
        let held: Vec<Permit> =
            holding.join_all().await.into_iter().collect::<Result<_, _>>().expect("all are free");
        let mut waiting: JoinSet<_> = (EACH..2 * EACH).map(acquire).collect();
        let stored = client.named("exports", Limit::Stored);
        let seen = loop {
            let seen = stored.inspect_up_to(1000).succeeds().await;
            if seen.waiting == u64::from(EACH) {
                break seen;
            }
        };
        assert_eq!((seen.holders.len(), seen.waiters.len()), (500, 500));
        waiting.shutdown().await;
        drop(held);
        client.close().succeeds().await;
        assert!(wait::until(|| connections(&server).is_empty()), "its connection is closed");
    }
}
