//! The bounds of what a client may cost.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use futures_util::future::try_join_all;
use permits_testkit::sound::Named as _;
use permits_testkit::{Server, wait};

use super::http::{Request, connect, reply};
use super::{Serve, TOKEN};
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
    let body = format!(r#"{{"change":"revoke","holder":"{}"}}"#, "x".repeat(9_000));
    let large = serve.post("/api/v1/semaphores/x/change", &body).send();
    assert_eq!(large.refusal().0, 413, "{large:?}");
    let announced = serve.post("/api/v1/semaphores/x/change", "{}").header("Content-Length", "1000000000000");
    let stream = announced.open();
    assert!(stream.head.starts_with("HTTP/1.1 413 "), "{}", stream.head);
    assert_eq!(serve.read("/healthz").status, 200);
}

#[test]
fn a_body_that_does_not_arrive_is_refused() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    // A valid body without its last byte.
    let body = r#"{"change":"set_limit","limit":3"#;
    let length = (body.len() + 1).to_string();
    let announced = serve.post("/api/v1/semaphores/x/change", body).header("Content-Length", &length);
    assert_eq!(announced.send().refusal(), (408, "the body is incomplete after 10 s".to_owned()));
    assert!(status(&store, "x")["limit"].is_null(), "nothing has changed");
}

#[test]
fn connections_too_many_are_refused_and_the_others_go_on() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    let read = || serve.get("/api/v1/semaphores").bearer(TOKEN).open();
    let mut kept = Vec::new();
    let refused = wait::until(|| {
        // Each has shown the token, and waits for its next request, which the server allows for some time.
        kept = (0..256).map(|_| read()).collect();
        let mut further = connect(serve.address);
        further.shutdown(Shutdown::Write).expect("it is open");
        let mut text = String::new();
        further.read_to_string(&mut text).expect("it is closed");
        text.starts_with("HTTP/1.1 503 ") && text.ends_with("\r\n\r\ntoo many connections\n")
    });
    assert!(refused, "they keep their places");
    drop(kept);
    let served = || Request::new(serve.address, "GET", "/healthz").send().status == 200;
    assert!(wait::until(served), "their places are free");
}

#[test]
fn connections_without_a_token_keep_no_client_out() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    let mut kept = serve.get("/api/v1/events").bearer(TOKEN).open();
    let idle: Vec<_> = (0..600).map(|_| connect(serve.address)).collect();
    assert_eq!(Request::new(serve.address, "GET", "/healthz").send().status, 200);
    assert_eq!(serve.get("/metrics").bearer(TOKEN).send().status, 200);
    assert!(kept.event("all")["error"].is_null(), "a client with a token keeps its place");
    drop(idle);
}

#[test]
fn a_health_check_needs_no_host() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let plain = |line: &str| {
        let mut stream = connect(serve.address);
        stream.write_all(format!("{line}\r\n\r\n").as_bytes()).expect("it is read");
        reply(stream).status
    };
    assert_eq!(plain("GET /healthz HTTP/1.0"), 200);
    assert_eq!(plain("GET /healthz HTTP/1.1"), 400);
    assert_eq!(plain("GET /api/v1/semaphores HTTP/1.0"), 400);
}

#[test]
fn a_client_that_sends_nothing_is_disconnected() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let mut slow = connect(serve.address);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").expect("it is read");
    let mut rest = Vec::new();
    // Ends by the server's timeout, which is shorter than the timeout of this end.
    slow.read_to_end(&mut rest).expect("the server closes");
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
