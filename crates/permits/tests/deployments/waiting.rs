//! A store that is unreachable when a client connects: the client retries until its store timeout.
//!
//! An error that no retry can help is returned at once: see `urls`.

use std::time::{Duration, Instant};

use permits::{Client, ConnectError, StoreError};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Cluster, Connection, HANGS, Proxy, Resp, Sentinels, Server, skip, wait};
use tokio::task::JoinHandle;

use crate::{builder, in_time};

/// Begins to connect to an unreachable store.
fn connecting(url: &str) -> JoinHandle<Result<Client, ConnectError>> {
    let builder = builder(url).store_timeout(HANGS);
    tokio::spawn(async move { builder.connect().await })
}

/// Waits for the connection, and uses it.
async fn connects(connecting: JoinHandle<Result<Client, ConnectError>>) {
    let client = in_time(connecting).await.expect("it does not panic").expect("the store is up");
    let semaphore = client.named("exports", 1);
    let permit = in_time(semaphore.acquire()).succeeds().await;
    permit.release().succeeds().await;
    client.close().succeeds().await;
}

/// Connects to `url` while `server` is down, which is then started again.
async fn is_waited_for(url: &str, server: &Server) {
    server.kill();
    let connecting = connecting(url);
    // Enough time for many attempts.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!connecting.is_finished());
    server.restart();
    connects(connecting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_started_late_is_waited_for() {
    for builder in [Server::builder(), Server::builder().unix_socket()] {
        let server = builder.start();
        is_waited_for(&server.url(), &server).await;
    }
    let set = Sentinels::builder().replicas(0).sentinels(1).quorum(1).start();
    is_waited_for(&set.url(), &set.sentinels()[0]).await;
    if !skip::before(7, 0) {
        let cluster = Cluster::builder().primaries(1).replicas(0).start();
        is_waited_for(&cluster.url(), &cluster.nodes()[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_loading_is_waited_for() {
    // An older server lacks the settings that slow down loading.
    if skip::before(7, 0) {
        return;
    }
    let server = Server::builder().arg("enable-debug-command", "yes").start();
    server.command(&["DEBUG", "POPULATE", "20000"]);
    // The server takes a second and a half to load its data, and replies LOADING meanwhile.
    server.command(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    server.command(&["CONFIG", "SET", "key-load-delay", "75"]);
    let mut loader = Connection::connect(server.address()).expect("it is up");
    loader.send(&["DEBUG", "RELOAD"]).expect("it is up");
    let mut other = Connection::connect(server.address()).expect("it is up");
    let mut loading =
        || matches!(other.call(&["GET", "key:1"]), Ok(Resp::Error(said)) if said.starts_with("LOADING"));
    assert!(wait::until(&mut loading), "it is loading");
    let at_once = builder(&server.url()).store_timeout(Duration::ZERO).connect();
    let error = in_time(at_once).await.expect_err("it is loading");
    assert!(error.to_string().contains("LOADING"), "{error}");
    connects(connecting(&server.url())).await;
    assert!(!loading(), "it has loaded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_too_many_clients_is_waited_for() {
    let server = Server::start();
    let mut keeper = server.connect().expect("it is up");
    keeper.call(&["CONFIG", "SET", "maxclients", "1"]).expect("it is up");
    let error = in_time(builder(&server.url()).store_timeout(Duration::ZERO).connect()).await;
    let error = error.expect_err("there is no room");
    assert!(matches!(error, ConnectError::Store(StoreError::Unreachable { .. })), "{error:?}");
    assert!(error.to_string().contains("max number of clients"), "{error}");
    let connecting = connecting(&server.url());
    let refused = |keeper: &mut Connection| {
        let info = keeper.call(&["INFO", "stats"]).expect("it is up");
        let line = info.text().lines().find_map(|line| line.strip_prefix("rejected_connections:"));
        line.and_then(|count| count.trim().parse::<u32>().ok()).expect("servers count")
    };
    assert!(wait::until(|| refused(&mut keeper) > 5), "it is refused");
    assert!(!connecting.is_finished());
    keeper.call(&["CONFIG", "SET", "maxclients", "100"]).expect("it is up");
    connects(connecting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_in_progress_is_waited_for() {
    let set = Sentinels::start();
    let old = set.primary();
    set.servers()[old].kill();
    let connecting = connecting(&set.url());
    set.wait_for_switch(old);
    connects(connecting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stays_away_is_given_up_in_time() {
    let away = ["redis://", "redis+sentinel://", "redis+cluster://"]
        .map(|scheme| format!("{scheme}:s3cr3t@127.0.0.1:1"));
    let [server, sentinel, cluster] = away;
    let [socket, nowhere] =
        ["redis+unix:///nowhere/at/all.sock", "redis://nowhere.invalid"].map(str::to_owned);
    let timeout = Duration::from_millis(800);
    for url in [server, format!("{sentinel}/s"), cluster, socket, nowhere] {
        let began = Instant::now();
        let error = in_time(builder(&url).store_timeout(timeout).connect()).await.expect_err(&url);
        assert!(matches!(error, ConnectError::Store(StoreError::Unreachable { .. })), "{url}: {error:?}");
        // The last pause does not begin if it would end too late.
        assert!(began.elapsed() > timeout / 4, "{url}: given up after {:?}", began.elapsed());
        let printed = format!("{error} {error:?}");
        assert!(!printed.contains("os error") && !printed.contains("s3cr3t"), "{url}: {printed}");
    }
}

/// A timeout of zero allows one attempt.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_timeout_there_is_one_attempt() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    proxy.refuse(true);
    in_time(builder(&proxy.url()).store_timeout(Duration::ZERO).connect()).await.expect_err("it is refused");
    // The client opens a connection for commands, one for messages, and one that tests whether the server
    // uses TLS.
    assert!(proxy.accepted() <= 3, "{} connections", proxy.accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_ends_the_attempts() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    proxy.refuse(true);
    let connecting = connecting(&proxy.url());
    assert!(wait::until(|| proxy.accepted() > 2), "it tries again and again");
    assert!(!connecting.is_finished());
    connecting.abort();
    // The task has ended, so any connection from now on would come from attempts that continue.
    assert!(connecting.await.is_err());
    let quiet = || {
        let before = proxy.accepted();
        std::thread::sleep(Duration::from_secs(1));
        proxy.accepted() == before
    };
    assert!(wait::until(quiet), "no attempt is made any more");
}
