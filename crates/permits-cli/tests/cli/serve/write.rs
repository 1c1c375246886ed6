//! The endpoints that change a semaphore.

use serde_json::{Value, json};

use super::Serve;
use super::http::Request;
use crate::support::{
    Holder, Local, Store, assert_matches_schema, on_a_server, on_both_stores, status, waiter,
};

on_both_stores! {
    an_operator_changes_a_semaphore,
}

on_a_server! {
    a_holder_and_a_waiter_are_revoked_with_a_reason,
}

fn an_operator_changes_a_semaphore(store: &dyn Store, name: &str) {
    let serve = Serve::writable(store);
    let change = |verb: &str, body: &str| {
        let reply = serve.post(&format!("/api/v1/semaphores/{name}/{verb}"), body).send();
        assert_eq!(reply.status, 200, "{verb}: {reply:?}");
        assert_matches_schema("status.schema.json", &reply.json());
        reply.json()
    };
    let limited = change("limit", r#"{"limit":8}"#);
    assert_eq!((&limited["limit"], &limited["pinned"]), (&json!(8), &json!(true)));
    assert_eq!(status(store, name)["limit"], 8);
    assert_eq!(change("limit", r#"{"unpin":true}"#)["pinned"], false);
    assert_eq!(change("pause", "{}")["paused"], true);
    assert_eq!(status(store, name)["paused"], true);
    assert_eq!(change("resume", "{}")["paused"], false);
    assert_eq!(status(store, name)["paused"], false);
    let paused = change("pause", r#"{"for_ms":3600000,"reason":"429"}"#);
    assert_eq!((&paused["paused"], &paused["pause_reason"]), (&json!(true), &json!("429")));
    assert!(paused["pause_remaining_ms"].as_u64().is_some_and(|ms| ms <= 3_600_000), "{paused}");
    assert_eq!(change("resume", "{}")["pause_reason"], Value::Null);
    assert_eq!(change("close", r#"{"reason":"moved"}"#)["closed"], "moved");
    assert_eq!(status(store, name)["closed"], "moved");
    assert_eq!(change("open", "{}")["closed"], Value::Null);
    assert_eq!(change("delete", "{}")["limit"], Value::Null);
    assert_eq!(status(store, name)["limit"], Value::Null);
    let log = serve.stderr();
    let verbs: Vec<&str> =
        log.lines().filter_map(|line| line.split_once("\": ")).map(|(_, verb)| verb).collect();
    assert_eq!(
        verbs,
        [
            "limit 8",
            "limit --unpin",
            "pause",
            "resume",
            "pause for 3600000 ms with reason \"429\"",
            "resume",
            "close with reason \"moved\"",
            "open",
            "delete",
        ],
        "{log}"
    );
    assert!(log.lines().all(|line| line.starts_with("permits: 127.0.0.1:")), "{log}");
}

fn a_holder_and_a_waiter_are_revoked_with_a_reason(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 1 --holder web/1");
    let waiter = waiter(store, name, "--holder web/2", (1, 1));
    let serve = Serve::writable(store);
    let revoke = |holder: &str| {
        let body = json!({"holder": holder, "reason": "it \"hangs\""}).to_string();
        serve.post(&format!("/api/v1/semaphores/{name}/revoke"), &body).send()
    };
    let deleted = serve.post(&format!("/api/v1/semaphores/{name}/delete"), "{}").send().refusal();
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
    for (verb, body) in [
        ("limit", r#"{"limit":8}"#),
        ("pause", "{}"),
        ("close", "{}"),
        ("delete", "{}"),
        ("revoke", r#"{"holder":"x"}"#),
    ] {
        let refused = serve.post(&format!("/api/v1/semaphores/x/{verb}"), body).send().refusal();
        assert_eq!(refused.0, 403, "{verb}");
        assert!(refused.1.contains("start it with --allow-write and --token-file PATH"), "{}", refused.1);
    }
    let unchanged = status(&store, "x");
    assert_eq!((&unchanged["limit"], &unchanged["paused"]), (&Value::Null, &json!(false)));
}

#[test]
fn malformed_changes_are_refused() {
    let store = Local::new();
    let serve = Serve::writable(&store);
    let long = format!(r#"{{"holder":"x","reason":"{}"}}"#, "r".repeat(1001));
    for (verb, body, expected) in [
        ("limit", "{}", "give a limit"),
        ("limit", r#"{"limit":0}"#, "it must be at least 1"),
        ("limit", r#"{"limit":-1}"#, "the body is malformed"),
        ("limit", r#"{"limit":4294967296}"#, "the body is malformed"),
        ("limit", r#"{"limit":3,"unpin":true}"#, "give a limit"),
        ("limit", r#"{"limit":3,"force":true}"#, "unknown field `force`"),
        ("limit", "", "the body is malformed"),
        ("pause", "[", "the body is malformed"),
        ("pause", r#"{"name":"y"}"#, "unknown field `name`"),
        ("close", r#"{"reason":"a\nb"}"#, "control character"),
        ("delete", r#"{"force":true}"#, "unknown field `force`"),
        ("revoke", "{}", "missing field `holder`"),
        ("revoke", r#"{"holder":""}"#, "the holder is empty"),
        ("revoke", r#"{"holder":"x","reason":"a\nb"}"#, "control character"),
        ("revoke", &long, "the reason has 1001 bytes"),
    ] {
        let (status, reason) = serve.post(&format!("/api/v1/semaphores/x/{verb}"), body).send().refusal();
        assert_eq!(status, 400, "{verb} {body}: {reason}");
        assert!(reason.contains(expected), "{verb} {body}: {reason}");
    }
    let of_form = Request::new(serve.address, "POST", "/api/v1/semaphores/x/pause").bearer(super::TOKEN);
    let of_form = of_form.header("Content-Type", "application/x-www-form-urlencoded").body("{}");
    assert_eq!(of_form.send().refusal().0, 415);
    let foreign = serve.post("/api/v1/semaphores/x/pause", "{}").header("Origin", "http://evil.example");
    assert_eq!(foreign.send().refusal().0, 403);
    assert_eq!(serve.get("/api/v1/semaphores/x/pause").bearer(super::TOKEN).send().status, 405);
    assert_eq!(serve.post("/api/v1/semaphores/x", "{}").send().status, 405);
    assert_eq!(serve.post("/api/v1/semaphores/x/forget", "{}").send().status, 404);
    assert_eq!(status(&store, "x")["paused"], false);
}
