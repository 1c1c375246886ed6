//! The bounds of what a client may cost.

use std::io::Write as _;

use futures_util::future::try_join_all;
use permits_testkit::Server;
use permits_testkit::sound::Named as _;

use super::Serve;
use super::http::{Request, connect, reply};
use crate::support::{Local, status};

#[test]
fn a_large_head_is_refused() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let long = serve.get("/metrics").header("X-Long", &"x".repeat(20_000)).send();
    assert_eq!(long.status, 431, "{long:?}");
    let many =
        (0..70).fold(serve.get("/metrics"), |request, n| request.header(&format!("X-{n}"), "x")).send();
    assert_eq!(many.status, 431, "{many:?}");
    let path = serve.read(&format!("/{}", "x".repeat(20_000)));
    assert!([414, 431].contains(&path.status), "{path:?}");
    assert_eq!(serve.read("/healthz").status, 200);
}

#[test]
fn a_large_body_is_refused() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    let body = format!(r#"{{"holder":"{}"}}"#, "x".repeat(9_000));
    let large = serve.post("/api/v1/semaphores/x/revoke", &body).send();
    assert_eq!(large.refusal().0, 413, "{large:?}");
    let announced = serve.post("/api/v1/semaphores/x/revoke", "{}").header("Content-Length", "1000000000000");
    let stream = announced.open();
    assert!(stream.head.starts_with("HTTP/1.1 413 "), "{}", stream.head);
    assert_eq!(serve.read("/healthz").status, 200);
}

#[test]
fn a_body_that_does_not_arrive_is_refused() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    // A valid body without its last byte.
    let announced = serve.post("/api/v1/semaphores/x/limit", r#"{"limit":3"#).header("Content-Length", "11");
    assert_eq!(announced.send().refusal(), (408, "the body is incomplete after 10 s".to_owned()));
    assert!(status(&store, "x")["limit"].is_null(), "nothing has changed");
}

#[test]
fn connections_too_many_are_refused_and_the_others_go_on() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let idle: Vec<_> = (0..256).map(|_| connect(serve.address)).collect();
    let refused = reply(connect(serve.address));
    assert_eq!((refused.status, refused.body.as_str()), (503, "too many connections\n"));
    let mut last = idle.into_iter().next_back().expect("there are many");
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", serve.address);
    last.write_all(request.as_bytes()).expect("it is read");
    assert_eq!(reply(last).status, 200);
    // The others were closed: their places are free.
    let served = || Request::new(serve.address, "GET", "/healthz").send().status == 200;
    assert!(permits_testkit::wait::until(served));
}

#[test]
fn a_client_that_sends_nothing_is_disconnected() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let mut slow = connect(serve.address);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").expect("it is read");
    let mut rest = Vec::new();
    // Ends by the server's timeout, which is shorter than the one of this end.
    std::io::Read::read_to_end(&mut slow, &mut rest).expect("the server closes");
    let text = String::from_utf8_lossy(&rest);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 408 "), "{text}");
}

#[test]
fn the_number_of_semaphores_that_are_read_is_bounded() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(permits::Client::connect(&server.url())).expect("the server is up");
    let names = (0..10_002).map(|number| format!("s{number:05}"));
    let semaphores = names.map(|name| client.named(name, permits::Limit::Stored));
    let semaphores: Vec<_> = semaphores.collect();
    runtime.block_on(try_join_all(semaphores.iter().map(|one| one.set_limit(3)))).expect("they can be set");
    let serve = Serve::start(&server, &["--max-semaphores", "1"]);
    let mut events = serve.get("/api/v1/events").open();
    let mut read = events.event("all");
    if !read["error"].is_null() {
        // The first read may take longer than the server lets a client wait.
        read = events.event("change");
    }
    let rows = read["semaphores"].as_array().or(read["changed"].as_array()).expect("an array");
    assert_eq!((rows.len(), &read["omitted"]), (10_000, &2.into()));
    assert_eq!(rows.last().expect("there are many")["name"], "s09999", "the first by name");
    let metrics = serve.read("/metrics").body;
    assert!(metrics.contains("\npermits_store_semaphores 10002\n"), "{metrics}");
    assert!(metrics.contains("\npermits_store_semaphores_omitted 10001\n"), "{metrics}");
}
