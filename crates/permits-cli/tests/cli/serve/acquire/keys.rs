//! `Idempotency-Key`: requests that are sent again.

use std::net::TcpStream;
use std::time::Duration;

use permits_testkit::wait;
use serde_json::{Value, json};

use super::super::http::{Reply, Request, reply};
use super::super::{Serve, TOKEN};
use super::{goes_away, granted, start};
use crate::support::{Holder, Store, counts, on_a_server, output, permits, until_counts};

on_a_server! {
    a_released_permit_frees_its_key,
    a_retry_has_the_permit_that_is_held,
    a_retry_waits_with_the_first_request,
    a_retry_of_a_refused_request_is_a_new_one,
    a_key_belongs_to_its_token_and_its_body,
    a_key_outlasts_a_rotation_of_the_tokens,
}

const KEY: &str = "7f1d8a3e-0c53-4a2b-9d53-000000000001";

fn with_key(serve: &Serve, key: &str, body: &Value) -> Request {
    serve.ask(body).header("Idempotency-Key", key)
}

#[track_caller]
fn send(serve: &Serve, body: &Value) -> Reply {
    with_key(serve, KEY, body).send()
}

fn a_retry_has_the_permit_that_is_held(store: &dyn Store, name: &str) {
    let serve = start(store);
    let body = json!({ "acquire": name, "limit": 2 });
    let first = granted(&send(&serve, &body));
    let second = granted(&send(&serve, &body));
    assert_eq!((&second["handle"], &second["token"]), (&first["handle"], &first["token"]));
    assert!(second["remaining_ms"].as_u64().is_some_and(|left| left > 250_000), "{second}");
    assert_eq!(counts(store, name), (1, 0));
    let left = || granted(&send(&serve, &body))["remaining_ms"].as_u64();
    let is_renewed = || {
        let before = left();
        std::thread::sleep(Duration::from_millis(50));
        left() >= before
    };
    assert!(wait::until(is_renewed), "a retry has a whole lease");
    assert_eq!(serve.operate("release", &json!({ "handle": first["handle"] })).status, 200);
    let third = granted(&send(&serve, &body));
    assert_ne!(third["handle"], first["handle"], "a permit that has ended is none");
    // By another program, of which the server does not know.
    let handle = third["handle"].as_str().expect("a text");
    output(&mut permits(&store.url(), ["release", handle])).prints(0, "");
    assert_ne!(granted(&send(&serve, &body))["handle"], third["handle"]);
    assert_eq!(counts(store, name), (1, 0));
}

/// So the same key may be of another request then.
fn a_released_permit_frees_its_key(store: &dyn Store, name: &str) {
    let serve = start(store);
    for weight in [1, 2] {
        let body = json!({ "acquire": name, "limit": 2, "weight": weight, "lane": "a", "at_least_ms": 10 });
        let permit = granted(&send(&serve, &body));
        let released = serve.operate("release", &json!({ "handle": permit["handle"], "count": 0 }));
        assert_eq!(released.status, 200, "{released:?}");
    }
}

fn a_retry_waits_with_the_first_request(store: &dyn Store, name: &str) {
    let serve = start(store);
    let holder = Holder::start(store, name, "--limit 1");
    let body = json!({ "acquire": name, "timeout_ms": 60_000 });
    let mut waiting: Vec<TcpStream> = (0..3).map(|_| with_key(&serve, KEY, &body).begin()).collect();
    until_counts(store, name, (1, 1));
    // The retries have come when another request has been answered, since each connection has its own turn.
    let other = with_key(&serve, KEY, &json!({ "acquire": name, "timeout_ms": 50 })).send();
    assert_eq!(other.status, 409, "{other:?}");
    goes_away(waiting.remove(0));
    let alive = with_key(&serve, KEY, &json!({ "acquire": name, "timeout_ms": 50 })).send();
    assert_eq!((alive.status, counts(store, name)), (409, (1, 1)), "the others wait on");
    holder.release();
    let handles: Vec<Value> =
        waiting.into_iter().map(|waiting| granted(&reply(waiting))["handle"].clone()).collect();
    assert_eq!(handles[0], handles[1]);
    assert_eq!(counts(store, name), (1, 0));
    let waiting = with_key(&serve, "another", &body).begin();
    until_counts(store, name, (1, 1));
    goes_away(waiting);
    until_counts(store, name, (1, 0));
    let again = with_key(&serve, "another", &json!({ "acquire": name, "timeout_ms": 50 })).send();
    assert_eq!(again.status, 429, "the key of a request that has left the line is free: {again:?}");
}

fn a_retry_of_a_refused_request_is_a_new_one(store: &dyn Store, name: &str) {
    let serve = start(store);
    let holder = Holder::start(store, name, "--limit 1");
    let body = json!({ "acquire": name, "timeout_ms": 0 });
    assert_eq!(send(&serve, &body).status, 429);
    assert_eq!(send(&serve, &body).status, 429);
    holder.release();
    granted(&send(&serve, &body));
}

fn a_key_belongs_to_its_token_and_its_body(store: &dyn Store, name: &str) {
    let other = "fedcba9876543210fedcba9876543210";
    let serve = Serve::acquiring(&store.url(), &format!("{TOKEN}\n{other}\n"), &[]);
    let body = json!({ "acquire": name, "limit": 2, "weight": 1 });
    let first = granted(&send(&serve, &body));
    // A request that is spelled otherwise, and means the same, is the same request.
    let spelled = format!(r#"{{ "weight": 1, "limit": 2, "lane": null, "acquire": {} }}"#, json!(name));
    let spelled = serve.post("/v1/acquire", &spelled).header("Idempotency-Key", KEY).send();
    assert_eq!(granted(&spelled)["handle"], first["handle"]);
    for other in [
        json!({ "acquire": name, "limit": 3, "weight": 1 }),
        json!({ "acquire": name, "limit": 2, "weight": 2 }),
        json!({ "acquire": format!("{name}/2"), "limit": 2, "weight": 1 }),
        json!({ "acquire": name, "limit": 2, "timeout_ms": 1 }),
    ] {
        let refused = send(&serve, &other).refusal();
        let reason = "the Idempotency-Key was used with another request: use a new one";
        assert_eq!(refused, (409, reason.to_owned()), "{other}");
    }
    let request = Request::new(serve.address, "POST", "/v1/acquire").bearer(other);
    let request = request.header("Content-Type", "application/json").header("Idempotency-Key", KEY);
    let of_other = granted(&request.body(&body.to_string()).send());
    assert_ne!(of_other["handle"], first["handle"]);
    assert_eq!(counts(store, name), (2, 0));
    let too_long = "x".repeat(65);
    for wrong in ["", &too_long] {
        assert_eq!(with_key(&serve, wrong, &body).send().refusal().0, 400, "{wrong:?}");
    }
    let twice = with_key(&serve, KEY, &body).header("Idempotency-Key", "x").send();
    assert_eq!(twice.refusal().0, 400);
}

fn a_key_outlasts_a_rotation_of_the_tokens(store: &dyn Store, name: &str) {
    let other = "fedcba9876543210fedcba9876543210";
    let serve = start(store);
    let body = json!({ "acquire": name, "limit": 2 });
    let first = granted(&send(&serve, &body));
    std::fs::write(serve.tokens(), format!("{other}\n{TOKEN}\n")).expect("it can be written");
    let renewal = || Request::new(serve.address, "POST", "/v1/renew").bearer(other).body("{}");
    assert!(wait::until(|| renewal().send().status == 415), "{}", serve.stderr());
    assert_eq!(granted(&send(&serve, &body))["handle"], first["handle"]);
    assert_eq!(counts(store, name), (1, 0));
}
