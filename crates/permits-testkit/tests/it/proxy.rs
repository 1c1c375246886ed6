//! The faults of the proxy that a suite would not miss: one in which they do not happen passes.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use permits_testkit::wait::{HANGS, SILENCE};
use permits_testkit::{Connection, Proxy, Resp, Server, wait};

fn start() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    (server, proxy)
}

/// A client whose connection is known to be open, by a first round trip.
fn client(proxy: &Proxy) -> Connection {
    let mut client = Connection::connect(proxy.address()).expect("the proxy accepts");
    assert_eq!(client.call(&["PING"]).expect("nothing fails yet").text(), "PONG");
    client
}

#[track_caller]
fn assert_silent(client: &mut Connection) {
    client.set_timeout(SILENCE).expect("it is not zero");
    let error = client.receive().expect_err("nothing must come");
    assert!(
        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        "the connection is not silent but lost: {error}"
    );
    client.set_timeout(HANGS).expect("it is not zero");
}

#[track_caller]
fn assert_lost(client: &mut Connection, arguments: &[&str]) {
    let error = client.call(arguments).expect_err("the connection must be lost");
    assert!(
        !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        "the connection is not lost but silent"
    );
}

#[test]
fn cut_ends_open_connections_and_accepts_new_ones() {
    let (server, proxy) = start();
    let mut clients: Vec<Connection> = (0..3).map(|_| client(&proxy)).collect();

    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    for client in &mut clients {
        assert_lost(client, &["INCR", "number"]);
    }
    assert_eq!(server.command(&["EXISTS", "number"]).int(), 0, "no request passed after the cut");

    let mut client = client(&proxy);
    assert_eq!(client.call(&["INCR", "number"]).expect("nothing fails").int(), 1);
    assert_eq!((proxy.connections(), proxy.accepted()), (1, 4));
}

#[test]
fn ending_a_delay_releases_delayed_bytes() {
    let (server, proxy) = start();
    let mut client = client(&proxy);
    proxy.delay_replies(10 * HANGS);
    client.send(&["INCR", "number"]).expect("the connection is open");
    assert!(wait::until(|| server.command(&["GET", "number"]) == text("1")));
    assert_silent(&mut client);

    proxy.delay_replies(Duration::ZERO);
    assert_eq!(client.receive().expect("it is let go").int(), 1);

    proxy.delay_requests(10 * HANGS);
    client.send(&["INCR", "number"]).expect("the connection is open");
    assert_silent(&mut client);
    assert_eq!(server.command(&["GET", "number"]).text(), "1", "it is held back");

    proxy.delay_requests(Duration::ZERO);
    assert_eq!(client.receive().expect("it is let go").int(), 2);
}

#[test]
fn swallowed_replies_never_come_though_requests_pass() {
    let (server, proxy) = start();
    let mut client = client(&proxy);

    proxy.swallow_replies(true);
    client.send(&["INCR", "number"]).expect("the connection is open");
    assert!(wait::until(|| proxy.swallowed() == 1));
    assert_eq!(server.command(&["GET", "number"]).text(), "1");
    assert_silent(&mut client);
    assert_eq!(proxy.connections(), 1);

    proxy.swallow_replies(false);
    assert_eq!(client.call(&["INCR", "number"]).expect("it is heard again").int(), 2);
    assert_eq!(proxy.swallowed(), 1);
}

#[test]
fn the_next_reply_is_swallowed_and_its_connection_cut() {
    let (server, proxy) = start();
    let mut first = client(&proxy);
    let mut second = client(&proxy);

    proxy.swallow_next_reply_then_cut();
    assert_eq!((proxy.swallowed(), proxy.connections()), (0, 2), "nothing until a reply comes");
    assert_lost(&mut first, &["INCR", "number"]);
    assert_eq!((proxy.swallowed(), proxy.connections()), (1, 1));
    assert_eq!(server.command(&["GET", "number"]).text(), "1", "the server has acted on it");

    assert_eq!(second.call(&["INCR", "number"]).expect("it happens once").int(), 2);
    assert_eq!(proxy.swallowed(), 1);
}

#[test]
fn the_reply_to_a_chosen_request_is_swallowed() {
    let (server, proxy) = start();
    let mut first = client(&proxy);
    let mut second = client(&proxy);

    proxy.swallow_reply_to(b"chosen");
    assert_eq!(first.call(&["INCR", "other"]).expect("another passes").int(), 1);
    assert_lost(&mut second, &["INCR", "chosen"]);
    assert_eq!((proxy.swallowed(), proxy.connections()), (1, 1));
    assert_eq!(server.command(&["GET", "chosen"]).text(), "1", "the server has acted on it");

    assert_eq!(first.call(&["INCR", "chosen"]).expect("it happens once").int(), 2);
    assert_eq!(proxy.swallowed(), 1);
}

/// The server reads in pieces and answers in between. A connection closed at its first answer would make it
/// drop the pieces that it has not read, and the chosen request with them.
#[test]
fn a_chosen_request_behind_many_others_is_carried_out() {
    let (server, proxy) = start();
    let mut client = client(&proxy);
    proxy.swallow_reply_to(b"chosen");

    server.pause();
    for _ in 0..20_000 {
        client.send(&["INCR", "others"]).expect("the system takes the request");
    }
    client.send(&["INCR", "chosen"]).expect("the system takes the request");
    assert_silent(&mut client);
    server.resume();

    let lost = loop {
        if let Err(error) = client.receive() {
            break error;
        }
    };
    assert!(!matches!(lost.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{lost}");
    assert_eq!(proxy.swallowed(), 1);
    assert_eq!(server.command(&["GET", "chosen"]), text("1"));
    assert_eq!(server.command(&["GET", "others"]), text("20000"));
}

#[test]
fn chosen_messages_are_swallowed_and_nothing_else() {
    let (server, proxy) = start();
    let mut listener = client(&proxy);
    for channel in ["grants", "recalls"] {
        listener.call(&["SUBSCRIBE", channel]).expect("the server is up");
    }
    proxy.swallow_messages(b"recalls");
    let publish = |channel: &str, texts: &[&str]| {
        texts.iter().for_each(|text| assert_eq!(server.command(&["PUBLISH", channel, text]).int(), 1));
    };
    publish("recalls", &["1"]);
    publish("grants", &["2\r\n$1\r\n", "recalls are not chosen here"]);
    publish("recalls", &["3", "4"]);
    assert!(wait::until(|| proxy.swallowed() == 3));
    proxy.swallow_messages(b"");
    publish("recalls", &["5"]);

    let mut next = || listener.receive().expect("it is passed on").array()[2].text().to_owned();
    assert_eq!([next(), next(), next()], ["2\r\n$1\r\n", "recalls are not chosen here", "5"]);
    assert_eq!(proxy.swallowed(), 3);
}

#[test]
fn a_stalled_proxy_is_a_black_hole_with_open_sockets() {
    let (server, proxy) = start();
    let mut before = client(&proxy);

    proxy.stall(true);
    let mut meanwhile = Connection::connect(proxy.address()).expect("the proxy accepts");
    for client in [&mut before, &mut meanwhile] {
        client.send(&["INCR", "number"]).expect("the system takes the request");
        assert_silent(client);
    }
    assert_eq!(server.command(&["EXISTS", "number"]).int(), 0, "nothing passes");
    assert_eq!(proxy.connections(), 2);

    proxy.stall(false);
    let replies = [&mut before, &mut meanwhile].map(|client| client.receive().expect("late").int());
    assert_eq!(HashSet::from(replies), HashSet::from([1, 2]));
}

fn text(text: &str) -> Resp {
    Resp::Text(text.to_owned())
}
