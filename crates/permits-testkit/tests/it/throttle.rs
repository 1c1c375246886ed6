//! The limits of the proxy, before a real server.

use std::time::{Duration, Instant};

use permits_testkit::wait::{HANGS, SILENCE};
use permits_testkit::{Connection, Proxy, Server};

fn start() -> (Server, Proxy, Connection) {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let mut client = Connection::connect(proxy.address()).expect("the proxy accepts");
    client.set_timeout(HANGS).expect("it is not zero");
    assert_eq!(client.call(&["PING"]).expect("nothing fails yet").text(), "PONG");
    (server, proxy, client)
}

#[test]
fn a_limit_on_replies_stretches_them() {
    let (server, proxy, mut client) = start();
    let long = "x".repeat(20_000);
    server.command(&["SET", "long", &long]);

    proxy.limit_replies(50_000);
    let began = Instant::now();
    assert_eq!(client.call(&["GET", "long"]).expect("it arrives").text(), long);
    // Not before the last piece but one was due.
    assert!(began.elapsed() >= Duration::from_millis(360), "it took {:?} only", began.elapsed());

    proxy.limit_replies(0);
    assert_eq!(client.call(&["GET", "long"]).expect("it arrives").text(), long);
}

#[test]
fn a_limit_on_requests_stretches_them() {
    let (server, proxy, mut client) = start();
    let long = "x".repeat(20_000);
    proxy.limit_requests(50_000);
    let began = Instant::now();
    assert_eq!(client.call(&["SET", "long", &long]).expect("it arrives").text(), "OK");
    assert!(began.elapsed() >= Duration::from_millis(360), "it took {:?} only", began.elapsed());
    assert_eq!(server.command(&["GET", "long"]).text(), long);
}

#[test]
fn lifting_a_limit_releases_waiting_bytes() {
    let (server, proxy, mut client) = start();
    let long = "x".repeat(100_000);
    server.command(&["SET", "long", &long]);
    proxy.limit_replies(1);
    client.send(&["GET", "long"]).expect("it is sent");
    // The first byte has come, so the limit is active. At this pace the last byte would take a day.
    let mut other = Connection::connect(proxy.address()).expect("the proxy accepts");
    other.set_timeout(SILENCE).expect("it is not zero");
    other.call(&["PING"]).expect_err("a reply takes 7 seconds");

    proxy.limit_replies(0);
    assert_eq!(client.receive().expect("it arrives").text(), long);
}

#[test]
fn bytes_before_a_limit_do_not_count_against_it() {
    let (_server, proxy, mut client) = start();
    let long = "x".repeat(1_000_000);
    assert_eq!(client.call(&["ECHO", &long]).expect("it arrives").text(), long);
    // The last chunk alone would be worth minutes.
    proxy.limit_replies(100);
    proxy.limit_requests(100);
    assert_eq!(client.call(&["PING"]).expect("it arrives").text(), "PONG");
}

#[test]
fn a_limit_on_one_connection_is_not_shared_with_another() {
    let (server, proxy, mut client) = start();
    server.command(&["SET", "long", &"x".repeat(100_000)]);
    proxy.limit_replies(500);
    client.send(&["GET", "long"]).expect("it is sent");
    let mut other = Connection::connect(proxy.address()).expect("the proxy accepts");
    other.set_timeout(HANGS).expect("it is not zero");
    assert_eq!(other.call(&["PING"]).expect("it arrives").text(), "PONG");
}

#[test]
fn a_limited_request_is_whole_before_its_reply_is_swallowed() {
    let (server, proxy, mut client) = start();
    let long = "x".repeat(5_000);
    proxy.limit_requests(50_000);
    proxy.swallow_reply_to(b"RPUSH");
    client.call(&["RPUSH", "list", &long]).expect_err("the connection is cut");
    assert_eq!(proxy.swallowed(), 1);
    assert_eq!(server.command(&["LRANGE", "list", "0", "-1"]).array()[0].text(), long);
}

#[test]
fn a_limited_connection_is_cut_at_once() {
    let (_server, proxy, mut client) = start();
    proxy.limit_replies(1);
    client.send(&["PING"]).expect("it is sent");
    proxy.cut();
    client.receive().expect_err("the connection is lost");
    assert_eq!(proxy.connections(), 0);
}
