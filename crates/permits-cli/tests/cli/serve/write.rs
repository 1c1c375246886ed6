//! The endpoints that change a semaphore.

use permits_testkit::wait;
use serde_json::{Value, json};

use super::http::{Reply, Request};
use super::{PAUSE, Serve};
use crate::support::{
    Holder, Local, Store, assert_matches_schema, on_a_server, on_both_stores, status, waiter,
};

on_both_stores! {
    an_operator_changes_a_semaphore,
}

on_a_server! {
    a_change_is_reported_although_its_client_has_gone,
    a_holder_and_a_waiter_are_revoked_with_a_reason,
}

fn change_of(serve: &Serve, name: &str, change: &Value) -> Reply {
    serve.post(&format!("/api/v1/semaphores/{name}/change"), &change.to_string()).send()
}

fn an_operator_changes_a_semaphore(store: &dyn Store, name: &str) {
    let serve = Serve::writable(store);
    let change = |change: Value| {
        let reply = change_of(&serve, name, &change);
        assert_eq!(reply.status, 200, "{change}: {reply:?}");
        assert_matches_schema("status.schema.json", &reply.json());
        reply.json()
    };
    let limited = change(json!({ "change": "set_limit", "limit": 8 }));
    assert_eq!((&limited["limit"], &limited["pinned"]), (&json!(8), &json!(true)));
    assert_eq!(status(store, name)["limit"], 8);
    assert_eq!(change(json!({ "change": "unpin" }))["pinned"], false);
    assert_eq!(change(json!({ "change": "pause" }))["paused"], true);
    assert_eq!(status(store, name)["paused"], true);
    assert_eq!(change(json!({ "change": "resume" }))["paused"], false);
    assert_eq!(status(store, name)["paused"], false);
    let paused = change(json!({ "change": "pause", "time_ms": 3_600_000, "reason": "429" }));
    assert_eq!((&paused["paused"], &paused["pause_reason"]), (&json!(true), &json!("429")));
    assert!(paused["pause_remaining_ms"].as_u64().is_some_and(|ms| ms <= 3_600_000), "{paused}");
    assert_eq!(change(json!({ "change": "resume" }))["pause_reason"], Value::Null);
    assert_eq!(change(json!({ "change": "close_line", "reason": "moved" }))["closed"], "moved");
    assert_eq!(status(store, name)["closed"], "moved");
    assert_eq!(change(json!({ "change": "open_line" }))["closed"], Value::Null);
    assert_eq!(change(json!({ "change": "delete" }))["limit"], Value::Null);
    assert_eq!(status(store, name)["limit"], Value::Null);
    let again = change_of(&serve, name, &json!({ "change": "delete" })).refusal();
    assert!(again.0 == 404 && again.1.starts_with("no program has used "), "{again:?}");
    let log = serve.stderr();
    let made: Vec<&str> =
        log.lines().filter_map(|line| line.split_once("\": ")).map(|(_, made)| made).collect();
    assert_eq!(
        made,
        [
            "set the limit to 8",
            "unpin the limit",
            "pause",
            "resume",
            "pause for 1 h: 429",
            "resume",
            "close the line: moved",
            "open the line",
            "delete",
        ],
        "{log}"
    );
    assert!(log.lines().all(|line| line.starts_with("permits: 127.0.0.1:")), "{log}");
}

/// Each client goes away without having read the reply.
fn a_change_is_reported_although_its_client_has_gone(store: &dyn Store, name: &str) {
    let serve = Serve::writable(store);
    for limit in 1..=50 {
        let change = json!({ "change": "set_limit", "limit": limit });
        drop(serve.post(&format!("/api/v1/semaphores/{name}/change"), &change.to_string()).begin());
    }
    let reported = || serve.stderr().matches("set the limit to").count();
    let made = || status(store, name)["changes"].as_array().map_or(0, Vec::len);
    // Some may have been given up before they began.
    assert!(wait::until(|| made() > 0 && made() == reported()), "{} {}", made(), serve.stderr());
    let (before, last) = (made(), change_of(&serve, name, &json!({ "change": "set_limit", "limit": 99 })));
    assert_eq!(last.status, 200, "{last:?}");
    assert!(wait::until(|| made() == reported() && made() > before), "{} {}", made(), serve.stderr());
}

fn a_holder_and_a_waiter_are_revoked_with_a_reason(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 1 --holder web/1");
    let waiter = waiter(store, name, "--holder web/2", (1, 1));
    let serve = Serve::writable(store);
    let revoke = |holder: &str| {
        change_of(&serve, name, &json!({ "change": "revoke", "holder": holder, "reason": "it \"hangs\"" }))
    };
    let deleted = change_of(&serve, name, &json!({ "change": "delete" })).refusal();
    assert!(deleted.0 == 409 && deleted.1.contains("in use"), "{deleted:?}");
    assert_eq!(revoke("web/3").refusal(), (404, "\"web/3\" neither holds nor waits".to_owned()));
    let after = revoke("web/2");
    assert_eq!((after.status, &after.json()["waiting"]), (200, &json!(0)), "{after:?}");
    let after = revoke("web/1");
    assert_eq!((after.status, &after.json()["held"]), (200, &json!(0)), "{after:?}");
    for (ended, code) in [(waiter.finish(), 75), (holder.finish(), 76)] {
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains("it \"hangs\""), "{}", ended.stderr);
    }
}

#[test]
fn without_allow_write_nothing_is_changed() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let refused = change_of(&serve, "x", &json!({ "change": "pause" })).refusal();
    assert_eq!(refused.0, 403);
    assert!(refused.1.contains("start it with --allow-write and --token-file PATH"), "{}", refused.1);
    assert_eq!(status(&store, "x")["paused"], false);
}

#[test]
fn malformed_changes_are_refused() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    // Most are tested with the library, which has their words.
    for (body, expected) in [
        ("", "the body is malformed"),
        ("[", "the body is malformed"),
        (r#"{"limit":8}"#, "\"change\" is missing"),
        (r#"{"change":"puase"}"#, "\"puase\" is unknown: write \"pause\""),
        (r#"{"change":"set_limit","limit":0}"#, "it must be at least 1"),
        (r#"{"change":"set_limit","limit":"3"}"#, "from 1 to 4294967295, not the string \"3\""),
        (r#"{"change":"delete","reason":"old"}"#, "\"reason\" is no field of delete"),
        (r#"{"change":"pause","reason":"a\nb"}"#, "control character"),
    ] {
        let (status, reason) = serve.post("/api/v1/semaphores/x/change", body).send().refusal();
        assert_eq!(status, 400, "{body}: {reason}");
        assert!(reason.contains(expected), "{body}: {reason}");
    }
    let of_form = Request::new(serve.address, "POST", "/api/v1/semaphores/x/change").bearer(super::TOKEN);
    let of_form = of_form.header("Content-Type", "application/x-www-form-urlencoded").body(PAUSE);
    assert_eq!(of_form.send().refusal().0, 415);
    let foreign = serve.post("/api/v1/semaphores/x/change", PAUSE).header("Origin", "http://evil.example");
    assert_eq!(foreign.send().refusal().0, 403);
    let of_reading = serve.get("/api/v1/semaphores/x/change").bearer(super::TOKEN).send();
    assert_eq!((of_reading.header("allow"), of_reading.refusal().0), (Some("POST"), 405));
    assert_eq!(serve.post("/api/v1/semaphores/x", "{}").send().refusal().0, 405);
    assert_eq!(serve.post("/api/v1/semaphores/x/forget", "{}").send().status, 404);
    assert_eq!(status(&store, "x")["paused"], false);
}
