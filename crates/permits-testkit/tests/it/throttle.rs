//! The limits of the proxy, before a real server.

use std::time::{Duration, Instant};

use permits_testkit::HANGS;
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
