//! Programs that mean harm, with and without a token. Other programs are served meanwhile.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use permits_testkit::wait;
use serde_json::json;

use super::super::http::{Request, connect, reply};
use super::super::slow::memory;
use super::super::{Serve, TOKEN, allow_open_files, token_file};
use super::{granted, start};
use crate::support::{Local, Store as _, counts, permits, prepare, until_counts};

/// More connections than the server has places.
const MANY: usize = 1_500;

/// A semaphore whose permit is held, and for which a request waits.
#[track_caller]
fn waiting(serve: &Serve, store: &Local) -> (serde_json::Value, TcpStream) {
    prepare(store, "exports");
    let held = serve.acquire(&json!({ "acquire": "exports", "limit": 1 }));
    let waiting = serve.ask(&json!({ "acquire": "exports", "timeout_ms": 60_000 })).begin();
    until_counts(store, "exports", (1, 1));
    (json!({ "handle": held["handle"] }), waiting)
}

/// Demands that the request which waits has kept its place, and that others are served.
#[track_caller]
fn goes_on(serve: &Serve, store: &Local, (held, waiting): (serde_json::Value, TcpStream)) {
    assert_eq!(counts(store, "exports"), (1, 1), "it waits");
    assert_eq!(serve.get("/healthz").send().status, 200);
    assert_eq!(serve.operate("release", &held).status, 200);
    let permit = granted(&reply(waiting));
    assert_eq!(serve.operate("release", &json!({ "handle": permit["handle"] })).status, 200);
}

#[test]
fn malformed_requests_are_refused_one_by_one() {
    let store = Local::new();
    let serve = start(&store);
    let waiting = waiting(&serve, &store);
    let used = memory(&serve);
    let deep = "[".repeat(8_000);
    let bodies = ["", "{", "null", "\u{0}", "{\"acquire\":{}}", "{\"acquire\":\"\\ud800\"}", &deep];
    let bodies = bodies.into_iter().chain(["{\"acquire\":\"x\",\"acquire\":\"y\"}", "{\"\":\"\"}", "1e999"]);
    for (number, body) in bodies.cycle().take(1_000).enumerate() {
        let path = ["/v1/acquire", "/v1/renew", "/v1/release"][number % 3];
        let token = if number % 2 == 0 { TOKEN } else { "0123456789abcdef" };
        let request = Request::new(serve.address, "POST", path).bearer(token);
        let refused = request.header("Content-Type", "application/json").body(body).send();
        let expected: &[u16] = if number % 2 == 0 { &[400, 422] } else { &[401] };
        assert!(expected.contains(&refused.status), "{path} {body:?}: {refused:?}");
    }
    // Send bytes that are not HTTP.
    for text in [
        "\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "POST /v1/acquire HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nHost\r\n\r\n",
    ] {
        connect(serve.address).write_all(text.as_bytes()).expect("it listens");
    }
    let grown = memory(&serve).saturating_sub(used);
    assert!(grown < 16, "{grown} MiB");
    goes_on(&serve, &store, waiting);
}

#[test]
fn connections_without_a_token_end_no_wait_and_keep_nobody_out() {
    allow_open_files(2 * MANY);
    let store = Local::new();
    let serve = start(&store);
    let waiting = waiting(&serve, &store);
    let begun = |head: &str| {
        let mut stream = connect(serve.address);
        // The server may have closed this connection already, to make room for a later one.
        let _ = write!(stream, "POST /v1/acquire HTTP/1.1\r\nHost: {}\r\n{head}", serve.address);
        stream
    };
    let flood: Vec<TcpStream> = (0..MANY)
        .map(|number| match number % 4 {
            // A body that does not come, of a request without a token.
            0 => begun("Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"),
            // A head that does not end.
            1 => begun("X-Slow: "),
            // A head that is too large.
            2 => begun(&format!("X-Large: {}\r\n", "x".repeat(15_000))),
            _ => connect(serve.address),
        })
        .collect();
    goes_on(&serve, &store, waiting);
    drop(flood);
}

#[test]
fn connections_with_a_wrong_token_keep_nobody_out() {
    allow_open_files(2 * MANY);
    let store = Local::new();
    let serve = start(&store);
    let waiting = waiting(&serve, &store);
    let flood: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let mut stream = connect(serve.address);
            let head = format!("POST /v1/acquire HTTP/1.1\r\nHost: {}\r\n", serve.address);
            let wrong = "Authorization: Bearer 0123456789abcdef\r\nContent-Length: 0\r\n\r\n";
            stream.write_all((head + wrong).as_bytes()).expect("it listens");
            let mut status = [0; 12];
            stream.read_exact(&mut status).expect("it is answered");
            assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 401");
            stream
        })
        .collect();
    goes_on(&serve, &store, waiting);
    drop(flood);
}

/// A token that is removed has no more rights than one that was never there.
#[test]
fn connections_whose_token_was_removed_keep_nobody_out() {
    let other = "fedcba9876543210fedcba9876543210";
    let (store, file) = (Local::new(), token_file(&format!("{TOKEN}\n{other}"), 0o600));
    let command =
        permits(&store.url(), ["serve", "--listen", "127.0.0.1:0", "--acquire", "--acquire-tokens"]);
    // A server with 16 places.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 80; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    limited.arg(file.path()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let serve = Serve::of(&mut limited, Some(file));
    let waiting = waiting(&serve, &store);
    let ask = |stream: &TcpStream| {
        let request = Request::new(serve.address, "POST", "/v1/renew").bearer(other).body("{}");
        request.header("Content-Type", "application/json").send_on(stream).status
    };
    // All places but that of the request which waits.
    let flood: Vec<TcpStream> = (0..15).map(|_| connect(serve.address)).collect();
    for stream in &flood {
        assert_eq!(ask(stream), 422, "the token is known, and the body is not valid");
    }
    assert_eq!(serve.get("/healthz").send().status, 503, "all places are taken");
    std::fs::write(serve.tokens(), TOKEN).expect("it can be written");
    assert!(wait::until(|| ask(&flood[0]) == 401), "{}", serve.stderr());
    for stream in &flood {
        assert_eq!(ask(stream), 401);
    }
    goes_on(&serve, &store, waiting);
}

#[test]
fn a_body_that_does_not_arrive_asks_for_nothing() {
    let store = Local::new();
    let serve = start(&store);
    let body = r#"{"acquire":"exports","limit":1"#;
    let slow = serve.post("/v1/acquire", body).header("Content-Length", "31");
    assert_eq!(slow.send().refusal(), (408, "the body is incomplete after 10 s".to_owned()));
    assert_eq!(counts(&store, "exports"), (0, 0));
}

#[test]
fn what_is_sent_again_by_another_does_nothing() {
    let store = Local::new();
    let serve = start(&store);
    prepare(&store, "exports");
    let permit = serve.acquire(&json!({ "acquire": "exports", "limit": 1 }));
    let handle = json!({ "handle": permit["handle"] });
    assert_eq!(serve.operate("release", &handle).status, 200);
    let next = serve.acquire(&json!({ "acquire": "exports" }));
    // A second release of the first permit does not end the second permit, and a renewal does not bring the
    // first one back.
    assert_eq!(serve.operate("release", &handle).status, 409);
    assert_eq!(serve.operate("renew", &handle).status, 409);
    assert_eq!(counts(&store, "exports"), (1, 0));
    assert_eq!(serve.operate("renew", &json!({ "handle": next["handle"] })).status, 200);
}

#[test]
fn a_page_of_another_site_gets_no_permit() {
    let store = Local::new();
    let serve = start(&store);
    let asked = || serve.ask(&json!({ "acquire": "exports", "limit": 1 }));
    assert_eq!(asked().header("Origin", "http://evil.example").send().status, 403);
    assert_eq!(asked().header("Host", "evil.example").send().status, 421);
    assert_eq!(counts(&store, "exports"), (0, 0));
    let named = Serve::acquiring(&store.url(), TOKEN, &["--host", "p.test"]);
    let asked = named.ask(&json!({ "acquire": "exports", "limit": 1 })).header("Host", "p.test");
    granted(&asked.send());
}
