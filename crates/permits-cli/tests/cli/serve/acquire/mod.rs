//! `permits serve --acquire`: permits over HTTP.

mod attacks;
mod keys;
mod polls;
mod tokens;

use std::net::TcpStream;

use permits_testkit::wait;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::http::{Reply, Request, reply};
use super::{Serve, TOKEN};
use crate::support::{
    Holder, Local, Store, against_openapi, assert_matches_schema, counts, on_a_server, on_both_stores,
    output, permits, read_schema, status, until_counts,
};
use permits_testkit::Server;

on_both_stores! {
    a_permit_is_acquired_renewed_and_released,
    a_client_that_goes_away_leaves_the_line,
}

on_a_server! {
    a_handle_outlives_its_server,
    a_waiting_request_is_granted,
    a_server_that_ends_answers_those_who_wait,
    units_are_corrected_with_the_release,
    each_refusal_has_its_status,
    a_store_that_is_away_is_a_503,
    a_read_of_the_server_declares_nothing,
}

/// Starts a server with [`TOKEN`], for all names.
#[track_caller]
pub(crate) fn start(store: &dyn Store) -> Serve {
    Serve::acquiring(&store.url(), TOKEN, &[])
}

impl Serve {
    /// A request for a permit.
    pub(super) fn ask(&self, body: &Value) -> Request {
        self.post("/v1/acquire", &body.to_string())
    }

    /// The permit of a request that is granted.
    #[track_caller]
    pub(super) fn acquire(&self, body: &Value) -> Value {
        granted(&self.ask(body).send())
    }

    /// The reply to a request about a handle.
    #[track_caller]
    pub(super) fn operate(&self, verb: &str, body: &Value) -> Reply {
        self.post(&format!("/v1/{verb}"), &body.to_string()).send()
    }

    /// The status and the code of a request that is refused.
    #[track_caller]
    pub(super) fn refused(&self, body: &Value) -> (u16, String) {
        code(&self.ask(body).send())
    }
}

/// The permit of a reply.
#[track_caller]
pub(super) fn granted(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    let permit = reply.json();
    assert_matches_schema("acquire.schema.json", &permit);
    assert_eq!(against_openapi("Permit", &permit), Ok(()), "{permit}");
    permit
}

#[track_caller]
fn code(reply: &Reply) -> (u16, String) {
    (reply.status, reply.problem()["code"].as_str().unwrap_or_default().to_owned())
}

/// Demands that the client gets no reply, and goes away.
#[track_caller]
pub(super) fn goes_away(stream: TcpStream) {
    stream.set_nonblocking(true).expect("valid");
    let read = stream.peek(&mut [0]).expect_err("there is no reply yet");
    assert_eq!(read.kind(), std::io::ErrorKind::WouldBlock);
}

fn a_permit_is_acquired_renewed_and_released(store: &dyn Store, name: &str) {
    let serve = start(store);
    let body = json!({ "acquire": name, "limit": 3, "weight": 2, "holder": "f/1", "label": "function" });
    let permit = serve.acquire(&body);
    assert_eq!((&permit["name"], &permit["weight"]), (&json!(name), &json!(2)));
    assert!(permit["remaining_ms"].as_u64().is_some_and(|left| left > 250_000), "5 min: {permit}");
    let held = status(store, name)["holders"][0].clone();
    assert_eq!((&held["holder"], &held["label"]), (&json!("f/1"), &json!("function")));
    assert_eq!((&held["token"], &held["slot"]), (&permit["token"], &permit["slot"]));
    assert!(held["lease_remaining_ms"].as_u64().is_some_and(|left| left > 250_000), "{held}");
    let handle = json!({ "handle": permit["handle"] });
    assert_eq!(against_openapi("Request", &body).and(against_openapi("Renewal", &handle)), Ok(()));
    let renewed = serve.operate("renew", &handle).json();
    assert_eq!(against_openapi("Renewed", &renewed), Ok(()));
    assert!(renewed["remaining_ms"].as_u64().is_some_and(|left| left > 290_000), "{renewed}");
    let released = serve.operate("release", &handle).json();
    assert_eq!(against_openapi("Release", &handle).and(against_openapi("Released", &released)), Ok(()));
    assert_eq!(counts(store, name), (0, 0));
    for verb in ["renew", "release"] {
        let again = serve.operate(verb, &handle);
        assert_eq!(code(&again), (409, "LOST".to_owned()), "{again:?}");
    }
    let short = serve.acquire(&json!({ "acquire": name, "lease_ms": 100 }));
    until_counts(store, name, (0, 0));
    let ended = serve.operate("renew", &json!({ "handle": short["handle"] }));
    assert_eq!(code(&ended), (409, "LOST".to_owned()), "nobody has renewed it");
}

fn a_client_that_goes_away_leaves_the_line(store: &dyn Store, name: &str) {
    let serve = start(store);
    let holder = Holder::start(store, name, "--limit 1");
    let waiting = serve.ask(&json!({ "acquire": name })).begin();
    until_counts(store, name, (1, 1));
    goes_away(waiting);
    until_counts(store, name, (1, 0));
    holder.release();
    serve.acquire(&json!({ "acquire": name, "timeout_ms": 0 }));
}

fn a_handle_outlives_its_server(store: &dyn Store, name: &str) {
    let serve = start(store);
    let permit = serve.acquire(&json!({ "acquire": name, "limit": 1 }));
    let handle = json!({ "handle": permit["handle"] });
    assert_eq!(serve.end(Signal::TERM).code, 0);
    assert_eq!(counts(store, name), (1, 0));
    let other = start(store);
    assert_eq!(other.operate("renew", &handle).status, 200);
    assert_eq!(other.operate("release", &handle).status, 200);
    assert_eq!(counts(store, name), (0, 0));
    // The command takes a handle that the server gave.
    let permit = other.acquire(&json!({ "acquire": name }));
    let handle = permit["handle"].as_str().expect("a text");
    output(&mut permits(&store.url(), ["release", handle])).prints(0, "");
}

fn a_waiting_request_is_granted(store: &dyn Store, name: &str) {
    let serve = start(store);
    let held = serve.acquire(&json!({ "acquire": name, "limit": 1 }));
    let waiting = serve.ask(&json!({ "acquire": name })).begin();
    until_counts(store, name, (1, 1));
    assert_eq!(serve.operate("release", &json!({ "handle": held["handle"] })).status, 200);
    let permit = granted(&reply(waiting));
    assert!(permit["token"].as_u64() > held["token"].as_u64(), "{permit} {held}");
    let preferred = serve.ask(&json!({ "acquire": name })).header("Prefer", "wait=1").send();
    assert_eq!(code(&preferred), (429, "TIMED_OUT".to_owned()));
}

fn a_server_that_ends_answers_those_who_wait(store: &dyn Store, name: &str) {
    let serve = start(store);
    let permit = serve.acquire(&json!({ "acquire": name, "limit": 1 }));
    let waiting = serve.ask(&json!({ "acquire": name })).begin();
    until_counts(store, name, (1, 1));
    assert_eq!(serve.end(Signal::TERM).code, 0);
    assert_eq!(reply(waiting).refusal(), (503, "this server ends: ask again".to_owned()));
    assert_eq!(counts(store, name), (1, 0), "it has left the line, and what is held stays");
    assert_eq!(status(store, name)["holders"][0]["token"], permit["token"]);
}

fn units_are_corrected_with_the_release(store: &dyn Store, name: &str) {
    let serve = start(store);
    let body = json!({ "acquire": name, "limit": 10, "weight": 8, "at_least_ms": 600_000 });
    let handle = serve.acquire(&body)["handle"].clone();
    let counted = serve.operate("release", &json!({ "handle": handle, "count": 3 }));
    assert_eq!(counted.status, 200, "{counted:?}");
    assert_eq!(status(store, name)["held"], 3, "3 cool in place of 8");
    let handle = serve.acquire(&json!({ "acquire": name }))["handle"].clone();
    let wrong = serve.operate("release", &json!({ "handle": handle, "count": 3 }));
    assert_eq!(code(&wrong), (422, "INVALID_INPUT".to_owned()));
    let cooling = json!({ "acquire": name, "weight": 7, "timeout_ms": 0 });
    let cooling = serve.ask(&cooling).send();
    assert!(["COOLING", "NO_PERMITS"].contains(&&*code(&cooling).1), "{cooling:?}");
}

/// Covers each row of the table in docs/languages/http.md, except the rows about the store and the bounds.
fn each_refusal_has_its_status(store: &dyn Store, name: &str) {
    let serve = start(store);
    let held = serve.acquire(&json!({ "acquire": name, "limit": 2, "weight": 2, "holder": "first" }));
    let refused = |body: Value| {
        let mut asked = json!({ "acquire": name, "timeout_ms": 0 });
        asked.as_object_mut().expect("an object").extend(body.as_object().expect("an object").clone());
        let (status, code) = serve.refused(&asked);
        format!("{status} {code}")
    };
    assert_eq!(refused(json!({})), "429 NO_PERMITS");
    assert_eq!(refused(json!({ "timeout_ms": 50 })), "429 TIMED_OUT");
    assert_eq!(refused(json!({ "holder": "first", "timeout_ms": 50 })), "409 ALREADY_HELD");
    assert_eq!(refused(json!({ "weight": 3 })), "422 EXCEEDS_LIMIT");
    assert_eq!(refused(json!({ "acquire": "no/limit" })), "422 NO_LIMIT");
    assert_eq!(refused(json!({ "limit": 3, "require_limit": true })), "422 LIMIT_MISMATCH");
    assert_eq!(refused(json!({ "timeout_ms": 60_001 })), "422 INVALID_INPUT");
    assert_eq!(refused(json!({ "max_hold_ms": 1_000 })), "422 INVALID_INPUT");
    assert_eq!(refused(json!({ "auto_renew": true })), "422 INVALID_INPUT");
    assert_eq!(refused(json!({ "also": [] })), "422 INVALID_INPUT");
    assert_eq!(refused(json!({ "id": 1 })), "422 INVALID_INPUT");
    output(&mut permits(&store.url(), ["pause", name, "--for", "1h"])).ends(0);
    assert_eq!(refused(json!({})), "503 PAUSED");
    // The store says why within a tenth of the wait, unless the machine is slow.
    let says_why = || refused(json!({ "timeout_ms": 1_000 })) == "503 TIMED_OUT";
    assert!(wait::until(says_why), "a pause is not taken for other holders");
    output(&mut permits(&store.url(), ["resume", name])).ends(0);
    output(&mut permits(&store.url(), ["close", name, "--reason", "moved"])).ends(0);
    assert_eq!(refused(json!({})), "503 LINE_CLOSED");
    output(&mut permits(&store.url(), ["open", name])).ends(0);
    assert_eq!(serve.operate("release", &json!({ "handle": held["handle"] })).status, 200);

    let rate =
        json!({ "acquire": "rate", "limit": 1, "at_least_ms": 20_000, "lease_ms": 100, "timeout_ms": 0 });
    let reached = wait::until(|| serve.ask(&rate).send().status == 200);
    assert!(reached, "a new semaphore grants when its recovery has ended");
    // The lease of the permit ends soon, and its unit counts on.
    let cools = || serve.refused(&rate) == (429, "COOLING".to_owned());
    assert!(wait::until(cools), "{:?}", serve.refused(&rate));
    let refused = serve.ask(&rate).send();
    let problem = refused.problem();
    let after = refused.header("retry-after").and_then(|after| after.parse::<u64>().ok());
    let expected = problem["retry_after_ms"].as_u64().map(|after| after.div_ceil(1_000));
    assert!(after == expected && after > Some(10), "{refused:?}");

    let post = |path: &str, body: &str| serve.post(path, body).send().refusal();
    for (body, reason) in [
        ("{", "the body is not JSON: EOF while parsing an object at byte 1"),
        ("[]", "the body is not an object: write {\"acquire\":NAME}"),
        ("{\n \"acquire\" }", "the body is not JSON: expected `:` at line 2, byte 12"),
        ("\u{feff}{}", "the body is not JSON: expected value at byte 1"),
    ] {
        assert_eq!(post("/v1/acquire", body), (400, reason.to_owned()));
    }
    assert_eq!(post("/v1/renew", "{}"), (422, "\"handle\" must be a string".to_owned()));
    assert_eq!(post("/v1/renew", r#"{"handle":"x","count":1}"#).0, 422);
    let (status, reason) = post("/v1/release", r#"{"handle":"x"}"#);
    assert!(status == 422 && reason.contains("as what `permits acquire` prints does"), "{reason}");
    assert_eq!(serve.get("/v1/acquire").bearer(TOKEN).send().status, 405);
    assert_eq!(serve.post("/v1/forget", "{}").send().status, 404);
    let plain = Request::new(serve.address, "POST", "/v1/acquire").bearer(TOKEN).body("{}").send();
    assert_eq!(plain.status, 415);
    let large = format!(r#"{{"acquire":"{}"}}"#, "x".repeat(9_000));
    assert_eq!(post("/v1/acquire", &large).0, 413);
}

fn a_store_that_is_away_is_a_503(_: &dyn Store, _: &str) {
    let server = Server::start();
    let serve = start(&server);
    server.kill();
    let body = json!({ "acquire": "x", "limit": 1, "timeout_ms": 300 });
    let refused = serve.ask(&body).send();
    let problem = refused.problem();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        ["UNREACHABLE", "NO_ANSWER"].contains(&problem["code"].as_str().unwrap_or_default()),
        "{problem}"
    );
}

/// The server reads the store by the client that acquires.
fn a_read_of_the_server_declares_nothing(store: &dyn Store, name: &str) {
    let serve = start(store);
    let acquire = || {
        let permit = serve.acquire(&json!({ "acquire": name, "limit": 4 }));
        assert_eq!(serve.operate("release", &json!({ "handle": permit["handle"] })).status, 200);
    };
    acquire();
    output(&mut permits(&store.url(), ["limit", name, "8", "--declare"])).ends(0);
    assert_eq!(serve.read(&format!("/api/v1/semaphores/{name}")).json()["limit"], 8);
    acquire();
    assert_eq!(status(store, name)["limit"], 8, "the server has declared 4 already");
}

#[test]
fn the_server_starts_on_nothing_without_tokens() {
    let store = Local::new();
    let refused = |options: &[&str]| {
        let refused = output(permits(&store.url(), ["serve", "--listen", "127.0.0.1:0"]).args(options));
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""), "{options:?}: {refused:?}");
        refused.stderr
    };
    assert!(refused(&["--acquire"]).contains("give a file with one a line by --acquire-tokens PATH"));
    assert!(refused(&["--acquire", "--acquire-tokens", "/no/such"]).contains("cannot be read"));
    assert!(refused(&["--allow", "x/"]).contains("--acquire"));
    let open = super::token_file(TOKEN, 0o644);
    let open = open.path().to_str().expect("it is text");
    assert!(
        refused(&["--acquire", "--acquire-tokens", open]).contains("so every user has access: chmod 600")
    );
    let file = super::token_file(TOKEN, 0o600);
    let in_memory = ["serve", "--listen", "127.0.0.1:0", "--acquire", "--acquire-tokens"];
    let in_memory = output(permits("memory:", in_memory).arg(file.path()));
    assert!(
        in_memory.code == 64 && in_memory.stderr.contains("memory: ends with this process"),
        "{in_memory:?}"
    );
    let without = Serve::writable(&store);
    assert_eq!(without.ask(&json!({ "acquire": "x" })).send().status, 404, "other tokens open no door");
}

/// docs/reference/openapi.json has a copy, because tools that read it read no other file.
#[test]
fn the_description_has_the_fields_of_a_permit() {
    let (described, schema) = (read_schema("openapi.json"), read_schema("acquire.schema.json"));
    let permit = &described["components"]["schemas"]["Permit"];
    for part in ["properties", "required"] {
        assert_eq!(permit[part], schema[part]);
    }
    let paths = described["paths"].as_object().expect("an object");
    let serve = start(&Local::new());
    for path in paths.keys() {
        let refused = Request::new(serve.address, "POST", path).send();
        assert_eq!(refused.status, 401, "{path} is an endpoint with a token");
    }
}
