//! Each kind of deployment starts, loses a server and gets it back, as tests ask for it.

use std::io;

use permits::Client;
use permits::{AcquireError, StoreError};
use permits_testkit::cluster::slot;
use permits_testkit::sound::Named as _;
use permits_testkit::wait::{HANGS, SILENCE};
use permits_testkit::{
    Certificates, ClientCertificates, Cluster, Connection, FakeServer, FencedClient, FencedServer, Garbage,
    Resp, Sentinels, Server, Stale, skip, wait,
};

#[test]
fn a_server_dies_and_restarts_with_its_data_and_directives() {
    let server = Server::builder().append_only().arg("maxmemory", "64mb").start();
    let (run, pid) = (server.info("run_id"), server.pid());
    server.command(&["SET", "colour", "blue"]);
    server.kill();
    assert!(server.connect().is_err(), "no listener while it is down");
    server.restart();
    assert_eq!(server.command(&["GET", "colour"]).text(), "blue");
    assert_eq!(server.info("maxmemory"), Some((64 << 20).to_string()));
    assert!(server.info("run_id") != run && server.pid() != pid);
    let directory = server.dir().to_owned();
    server.pause();
    drop(server);
    assert!(!directory.exists());
}

#[test]
fn a_server_without_a_file_restarts_empty_after_either_end() {
    let server = Server::start();
    for end in [Server::stop, Server::kill] {
        server.command(&["SET", "colour", "blue"]);
        end(&server);
        server.restart();
        assert_eq!(server.command(&["GET", "colour"]), Resp::Nil);
    }
}

#[test]
fn a_paused_server_is_silent_until_resumed() {
    let server = Server::start();
    let mut client = server.connect().expect("it runs");
    assert_eq!(client.call(&["PING"]).expect("it runs").text(), "PONG");
    server.pause();
    client.set_timeout(SILENCE).expect("it is not zero");
    client.send(&["INCR", "number"]).expect("the system takes the request");
    let error = client.receive().expect_err("a paused server does not reply");
    assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
    server.resume();
    client.set_timeout(HANGS).expect("it is not zero");
    assert_eq!(client.receive().expect("the answer comes late").int(), 1);
}

#[test]
fn every_kind_of_reply_arrives() {
    let server = Server::start();
    assert_eq!(server.command(&["GET", "nothing"]), Resp::Nil);
    assert_eq!(server.command(&["INCRBY", "number", "-3"]).int(), -3);
    assert_eq!(server.command(&["SET", "text", "line\r\nline"]).text(), "OK");
    assert_eq!(server.command(&["GET", "text"]).text(), "line\r\nline");
    assert!(server.command(&["INCR", "text"]).error().starts_with("ERR"));
    assert_eq!(server.command(&["KEYS", "n*"]).array(), [Resp::Text("number".to_owned())]);
}

#[test]
fn the_kit_speaks_to_a_server_with_tls_and_a_password_and_others_do_not() {
    if skip::without_tls() {
        return;
    }
    let certificates = Certificates::new();
    let server =
        Server::builder().tls(&certificates, ClientCertificates::Required).password("secret").start();
    assert_eq!(server.url(), format!("rediss://:secret@127.0.0.1:{}/", server.port()));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    let mut plain = Connection::connect(server.address()).expect("it listens");
    plain.call(&["PING"]).expect_err("it is not TLS");
}

#[test]
fn a_cluster_replaces_a_primary_moves_a_slot_and_takes_the_primary_back() {
    let cluster = Cluster::start();
    let slot = slot("c");
    let set = |node: usize| cluster.nodes()[node].command(&["SET", "c", "x"]);
    assert_eq!((cluster.nodes().len(), cluster.primary_of(slot), cluster.replicas_of(1)), (6, 1, vec![4]));
    assert_eq!(set(1).text(), "OK");
    assert_eq!(set(0).error(), format!("MOVED {slot} {}", cluster.nodes()[1].address()));

    cluster.nodes()[1].kill();
    assert_eq!(cluster.wait_for_new_primary(slot, 1), 4);
    cluster.nodes()[1].restart();
    cluster.wait_until_ok();
    assert_eq!((cluster.primary_of(slot), cluster.replicas_of(4)), (4, vec![1]));
    assert_eq!(cluster.failover(4), 1, "in agreement");

    assert_eq!(set(1).text(), "OK");
    let migration = cluster.begin_migration(slot, 0);
    assert_eq!(cluster.nodes()[1].command(&["GET", "c"]).text(), "x", "nothing has moved yet");
    assert_eq!((migration.move_keys(10), migration.move_keys(10)), (1, 0));
    let ask = format!("ASK {slot} {}", cluster.nodes()[0].address());
    assert_eq!(cluster.nodes()[1].command(&["GET", "c"]).error(), ask);
    migration.finish();
    assert_eq!(cluster.nodes()[0].command(&["GET", "c"]).text(), "x");
    assert_eq!(cluster.primary_of(slot), 0);
}

#[test]
fn sentinels_replace_a_primary_and_take_it_back_as_a_replica() {
    let sentinels = Sentinels::builder().password("data").sentinel_password("watch").start();
    assert_eq!((sentinels.servers().len(), sentinels.sentinels().len(), sentinels.primary()), (3, 3, 0));
    sentinels.servers()[0].kill();
    let new = sentinels.wait_for_switch(0);
    assert_eq!(sentinels.servers()[new].command(&["SET", "colour", "blue"]).text(), "OK");
    sentinels.servers()[0].restart();
    sentinels.wait_until_ok();
    assert_eq!(sentinels.servers()[0].command(&["GET", "colour"]).text(), "blue");
    // On demand. On a busy machine the sentinels may have switched by themselves, too.
    sentinels.failover();
    sentinels.wait_until_ok();
    assert_eq!(sentinels.servers()[sentinels.primary()].command(&["GET", "colour"]).text(), "blue");
}

#[test]
fn a_primary_that_demands_replicas_refuses_writes_without_them() {
    let sentinels = Sentinels::builder().replicas(1).min_replicas_to_write(1).start();
    sentinels.servers()[1].pause();
    let refused = || sentinels.servers()[0].command(&["SET", "colour", "red"]);
    assert!(wait::until(|| matches!(refused(), Resp::Error(error) if error.starts_with("NOREPLICAS"))));
}

/// Without it, a client that never sees garbage would pass the tests of what garbage does.
#[test]
fn a_fake_server_sends_garbage_once() {
    let server = FakeServer::start();
    let client =
        Client::connect(&format!("redis://{}/", server.address())).wait().expect("the server behaves");
    let connections = server.connections();
    server.send(Garbage { to: "EVALSHA", bytes: b":1\r\n".to_vec(), ends: true });
    let semaphore = client.named("exports", 4);
    let error = semaphore.acquire().wait().expect_err("the reply is no array");
    assert!(matches!(error, AcquireError::Store(StoreError::Malformed { .. })), "{error}");
    semaphore.acquire().wait().expect("the server behaves").release().wait().expect("it is held");
    assert_eq!(server.behave(), 1);
    assert!(server.connections() > connections, "the client has connected again");
}

/// Without it, the fault matrix would accept late writes.
#[test]
fn the_fenced_service_refuses_a_stale_token_of_any_client() {
    let server = FencedServer::start();
    let mut first = FencedClient::connect(server.path()).expect("it listens");
    let mut second = FencedClient::connect(server.path()).expect("it listens");
    assert_eq!(first.write(0, 7, "two words").expect("it answers"), Ok(()));
    assert_eq!(second.write(0, 9, "").expect("it answers"), Ok(()));
    assert_eq!(second.write(1, 5, "of another slot").expect("it answers"), Ok(()));
    let stale = Stale { slot: 0, token: 7, highest: 9 };
    assert_eq!(first.write(0, 7, "late").expect("it answers"), Err(stale));
    assert_eq!((server.resource().writes().len(), server.resource().refused().len()), (3, 1));
}
