//! Real servers: start, death, restart and pause.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use permits_testkit::{Resp, Server, wait};

/// The time limit of all waits.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_started_server_answers_at_its_url() {
    let server = Server::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}/", server.port()));
    assert!(server.address().ip().is_loopback());
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    assert_eq!(server.info("process_id"), Some(server.pid().to_string()));
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
fn servers_side_by_side_are_apart() {
    let servers: Vec<Server> = (0..4).map(|_| Server::start()).collect();
    let ports: HashSet<u16> = servers.iter().map(Server::port).collect();
    let dirs: HashSet<&Path> = servers.iter().map(Server::dir).collect();
    assert_eq!((ports.len(), dirs.len()), (4, 4));
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.command(&["DBSIZE"]).int(), 0, "server {number}");
        server.command(&["SET", "number", &number.to_string()]);
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.command(&["GET", "number"]).text(), number.to_string());
    }
}

#[test]
fn directives_reach_the_server() {
    let server = Server::builder()
        .arg("maxmemory", "64mb")
        .arg("client-output-buffer-limit", "pubsub 1mb 1mb 1")
        .start();
    let value = |name| server.command(&["CONFIG", "GET", name]).array()[1].text().to_owned();
    assert_eq!(value("maxmemory"), (64 << 20).to_string());
    assert!(value("client-output-buffer-limit").contains("pubsub 1048576 1048576 1"));
    assert_eq!(value("save"), "");
    assert_eq!(value("appendonly"), "no");
}

#[test]
#[should_panic(expected = "did not start")]
fn a_wrong_directive_fails_the_start() {
    Server::builder().arg("no-such-directive", "1").start();
}

#[test]
fn append_only_data_survives_a_kill() {
    let server = Server::builder().append_only().start();
    let (run, pid, address) = (server.info("run_id"), server.pid(), server.address());
    server.command(&["SET", "colour", "blue"]);

    server.kill();
    assert!(server.connect().is_err(), "no listener while it is down");
    server.restart();

    assert_eq!(server.command(&["GET", "colour"]).text(), "blue");
    assert_eq!(server.address(), address);
    assert_ne!(server.info("run_id"), run);
    assert_ne!(server.pid(), pid);
}

#[test]
fn data_in_memory_alone_is_lost_by_a_restart() {
    let server = Server::start();
    let run = server.info("run_id");
    server.command(&["SET", "colour", "blue"]);

    server.stop();
    assert!(server.connect().is_err(), "no listener while it is down");
    server.restart();
    assert_eq!(server.command(&["GET", "colour"]), Resp::Nil);
    assert_ne!(server.info("run_id"), run);

    server.command(&["SET", "colour", "blue"]);
    server.kill();
    server.restart();
    assert_eq!(server.command(&["GET", "colour"]), Resp::Nil);
}

#[test]
#[should_panic(expected = "kill or stop it before")]
fn a_running_server_is_not_restarted() {
    Server::start().restart();
}

#[test]
fn a_paused_server_is_silent_until_resumed() {
    let server = Server::start();
    let mut client = server.connect().expect("it runs");
    assert_eq!(client.call(&["PING"]).expect("it runs").text(), "PONG");

    server.pause();
    client.set_timeout(Duration::from_millis(50)).expect("it is not zero");
    client.send(&["INCR", "number"]).expect("the system takes the request");
    let error = client.receive().expect_err("a paused server does not reply");
    assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");

    server.resume();
    client.set_timeout(LIMIT).expect("it is not zero");
    assert_eq!(client.receive().expect("the answer comes late").int(), 1);
}

#[test]
fn a_paused_server_can_be_killed_stopped_and_dropped() {
    let server = Server::start();
    server.pause();
    server.pause();
    server.kill();
    server.restart();
    server.pause();
    server.stop();
    server.restart();
    server.pause();
    let address = server.address();
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err(), "it is gone");
}

#[test]
fn a_password_is_demanded_and_used() {
    let password = "open \"sesame\"/@:é";
    let server = Server::builder().password(password).start();
    let host = server.address();
    assert_eq!(server.url(), format!("redis://:open%20%22sesame%22%2F%40%3A%C3%A9@{host}/"));
    assert_eq!(server.command(&["PING"]).text(), "PONG");

    let mut outsider = permits_testkit::Connection::connect(host).expect("it runs");
    let reply = outsider.call(&["PING"]).expect("it answers");
    assert!(reply.error().starts_with("NOAUTH"));

    server.kill();
    server.restart();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_password_given_as_a_directive_does_not_hinder_the_start() {
    let server = Server::builder().arg("requirepass", "secret").start();
    assert!(server.command(&["PING"]).error().starts_with("NOAUTH"));
}

#[test]
fn a_unix_socket_replaces_the_port() {
    let server = Server::builder().unix_socket().append_only().start();
    let path = server.dir().join("server.sock");
    assert_eq!(server.url(), format!("redis+unix://{}", path.display()));
    assert_eq!(server.command(&["SET", "colour", "blue"]).text(), "OK");
    assert_eq!(server.info("tcp_port").as_deref(), Some("0"));

    server.kill();
    server.restart();
    assert_eq!(server.command(&["GET", "colour"]).text(), "blue");

    let secret = Server::builder().unix_socket().password("a&b").start();
    assert!(secret.url().ends_with("server.sock?pass=a%26b"), "{}", secret.url());
    assert_eq!(secret.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = Server::builder().password("secret").start();
    primary.command(&["SET", "colour", "blue"]);
    let replica = Server::builder().password("secret").replica_of(&primary).start();
    let linked = wait::until(LIMIT, || replica.info("master_link_status").as_deref() == Some("up"));
    assert!(linked, "{}", replica.log());
    assert_eq!(replica.command(&["GET", "colour"]).text(), "blue");
    assert!(replica.command(&["SET", "colour", "red"]).error().starts_with("READONLY"));
}

#[test]
fn the_directory_goes_with_the_server() {
    let server = Server::builder().append_only().start();
    let dir = server.dir().to_owned();
    assert!(dir.join("server.conf").is_file());
    assert!(!server.log().is_empty());
    drop(server);
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_server_serves_an_asynchronous_test() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let server = Server::start();
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.expect("it runs");
    stream.write_all(b"PING\r\n").await.expect("it runs");
    let mut reply = [0; 7];
    let read = stream.read_exact(&mut reply);
    tokio::time::timeout(LIMIT, read).await.expect("it is quick").expect("it runs");
    assert_eq!(&reply, b"+PONG\r\n");
}
