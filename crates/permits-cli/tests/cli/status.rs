//! `permits status`: the text and the JSON.

use permits_testkit::sound::Named as _;
use permits_testkit::{HANGS, Server};
use serde_json::{Value, json};

use crate::support::{
    Holder, Local, Running, Store, assert_matches_schema, gate, json, on_a_server, on_both_stores, output,
    permits, run, status, waiter,
};

on_both_stores! {
    holders_and_waiters_are_listed,
}

on_a_server! {
    a_paused_semaphore_is_shown_as_such,
    what_cools_is_shown_and_can_be_freed,
    units_that_may_be_kept_are_shown_while_no_request_waits,
    printed_json_matches_the_schemas,
}

#[test]
fn no_text_of_a_program_reorders_a_terminal() {
    let store = Local::new();
    let mut command = run(&store, "x", "--limit 1", "echo ready; read x");
    let gate = gate(command.env("PERMITS_LABEL", "a\u{202e}b\u{200b}"));
    let running = Running::until(&mut command, "ready");
    let escaped = r"a\u{202e}b\u{200b}";
    let shown = output(&mut permits(&store.url(), ["status", "x"])).stdout;
    assert!(shown.contains(escaped) && !shown.contains('\u{202e}'), "{shown}");
    let refused = output(&mut run(&store, "x", "--no-wait", "true")).stderr;
    assert!(refused.contains(escaped) && !refused.contains('\u{202e}'), "{refused}");
    drop(gate);
    running.finish();
}

#[test]
fn an_unused_semaphore_is_shown_with_66_and_leaves_no_keys() {
    let server = Server::start();
    let json = output(&mut permits(&server.url(), ["status", "unused", "--json"]));
    let says = "permits: no program has used \"unused\" lately\n";
    assert_eq!((json.code, json.stderr.as_str()), (66, says));
    assert!(json.stdout.starts_with(r#"{"name":"unused","limit":null,"#), "{}", json.stdout);
    let text = output(&mut permits(&server.url(), ["status", "unused"]));
    assert_eq!((text.code, text.stderr.as_str()), (66, says));
    assert_eq!(text.stdout, "unused: not in use, no limit is set\n");
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

fn holders_and_waiters_are_listed(store: &dyn Store, name: &str) {
    let options = "--limit 3 --weight 2 --holder web-1 --label nightly";
    let first = Holder::start(store, name, options);
    let second = waiter(store, name, "--weight 3 --holder web-2", (1, 1));

    let mut json = status(store, name);
    let mut number = |pointer: &str| {
        let number = json.pointer_mut(pointer).expect("it is there").take();
        number.as_u64().expect("a number")
    };
    let (remaining, token) = (number("/holders/0/lease_remaining_ms"), number("/holders/0/token"));
    let (held, waited) = (number("/holders/0/age_ms"), number("/waiters/0/age_ms"));
    assert_eq!(number("/oldest_holder_age_ms"), held);
    assert_eq!(number("/oldest_waiter_age_ms"), waited);
    // More than this one if the semaphore was used before.
    assert!((1..=2).contains(&number("/grants")));
    number("/limit_version");
    number("/waits/total_us");
    assert_eq!(json["waits"]["numbers"].take().as_array().map(Vec::len), Some(6));
    assert!((1..=15_000).contains(&remaining), "{remaining}");
    assert!(token > 1_000_000_000_000_000, "{token}");
    assert!(0 < waited && waited < held && held < 60_000, "{waited} {held}");
    assert_eq!(
        json,
        json!({
            "name": name, "limit": 3, "held": 2, "paused": false, "pause_remaining_ms": null, "pause_reason": null,
            "waits": { "total_us": null, "numbers": null },
            "holders": [{
                "holder": "web-1", "weight": 2, "slot": 0, "token": null, "lease_remaining_ms": null,
                "age_ms": null, "label": "nightly", "cooling": false,
                "may_be_kept": false, "lane": null,
            }],
            "waiters": [{
                "holder": "web-2", "weight": 3, "position": 0, "age_ms": null, "label": null, "lane": null,
            }],
            "lanes": [],
            "store": store.url(), "waiting": 1, "pinned": false, "limit_version": null, "recovering_ms": 0,
            "closed": null, "oldest_holder_age_ms": null, "oldest_waiter_age_ms": null, "cooling": 0,
            "may_be_kept": 0, "grants": null, "refused": 0, "expired": 0, "revoked": 0, "changes": [],
            "alert": { "wait_ms": null, "waiting": null },
        })
    );

    let text = output(&mut permits(&store.url(), ["status", name]));
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert_eq!(lines[0], format!("{name}: 2 of 3 held, 1 waiting"));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[2]), ["HOLDER", "WEIGHT", "SLOT", "TOKEN", "LEASE", "AGE", "LABEL"]);
    assert_eq!(words(lines[3])[..4], ["web-1", "2", "0", &token.to_string()]);
    assert!(lines[3].ends_with(" s  nightly"), "{}", lines[3]);
    assert_eq!(words(lines[5]), ["WAITER", "WEIGHT", "BEFORE", "AGE", "LABEL"]);
    assert_eq!(words(lines[6])[..3], ["web-2", "3", "0"]);
    let end = |line: &str, of: &str| line.find(of).map(|place| place + of.len());
    assert_eq!(end(lines[2], "AGE"), end(lines[3], " s  nightly").map(|end| end - 9), "columns are aligned");

    first.release();
    assert_eq!(second.finish().code, 0);
}

fn what_cools_is_shown_and_can_be_freed(store: &dyn Store, name: &str) {
    let options = "--limit 1 --holder web-1 --at-least 1h";
    assert_eq!(output(&mut run(store, name, options, "true")).code, 0);
    let json = status(store, name);
    assert_eq!((&json["holders"][0]["cooling"], &json["cooling"]), (&json!(true), &json!(1)), "{json}");
    assert_matches_schema("status.schema.json", &json);
    let text = output(&mut permits(&store.url(), ["status", name])).stdout;
    assert!(text.starts_with(&format!("{name}: 0 of 1 held, cooling 1, 0 waiting\n")), "{text}");
    assert!(text.contains("  cooling 59 m "), "{text}");
    let listed = output(&mut permits(&store.url(), ["list"])).stdout;
    assert_eq!(listed.lines().nth(1), Some("semaphore     0      1        0  cooling 1"));
    let refused = output(&mut run(store, name, "--no-wait", "true"));
    let says = "permits: no permit now: 1 of 1 held by web-1, free in 59 m, 0 waiting\n";
    assert_eq!(refused.stderr, says);
    let refused = output(&mut run(store, name, "--no-wait --log-format json", "true"));
    let fields: Value = serde_json::from_str(refused.stderr.trim()).expect("it is a line of JSON");
    let retry_after_ms = fields["fields"]["retry_after_ms"].as_u64().expect("its end is known");
    assert!(refused.code == 75 && (1..=3_600_001).contains(&retry_after_ms), "{fields}");
    let freed = output(&mut permits(&store.url(), ["revoke", name, "web-1"]));
    assert_eq!((freed.code, freed.stdout), (0, format!("{name}: web-1 revoked, 0 of 1 held, 0 waiting\n")));
    assert_eq!(output(&mut run(store, name, options, "true")).code, 0);
    let freed = output(&mut permits(&store.url(), ["revoke", name, "--all"]));
    assert_eq!(freed.code, 0, "{}", freed.stderr);
    assert_eq!(output(&mut run(store, name, "--no-wait", "true")).code, 0);
}

fn units_that_may_be_kept_are_shown_while_no_request_waits(store: &dyn Store, name: &str) {
    let client = permits::Client::connect(&store.url()).wait().expect("the store is up");
    let semaphore = client.named(name, 3).keep(HANGS);
    let _permit = semaphore.acquire_many(2).wait().expect("it is free");
    let json = status(store, name);
    assert_eq!(
        (&json["holders"][0]["may_be_kept"], &json["may_be_kept"]),
        (&json!(true), &json!(2)),
        "{json}"
    );
    assert_matches_schema("status.schema.json", &json);
    let text = output(&mut permits(&store.url(), ["status", name])).stdout;
    assert!(text.starts_with(&format!("{name}: 2 of 3 held, 2 may be kept, 0 waiting\n")), "{text}");
    assert!(text.contains(" s, may be kept  "), "{text}");
    let listed = output(&mut permits(&store.url(), ["list"])).stdout;
    assert_eq!(listed.lines().nth(1), Some("semaphore     2      3        0  2 may be kept"));
    Running::until(&mut permits(&store.url(), ["watch", name]), "2 of 3 held, 2 may be kept, 0 waiting");

    let _waiter = waiter(store, name, "--weight 2", (1, 1));
    let json = status(store, name);
    assert_eq!(
        (&json["holders"][0]["may_be_kept"], &json["may_be_kept"]),
        (&json!(false), &json!(0)),
        "{json}"
    );
}

fn printed_json_matches_the_schemas(store: &dyn Store, name: &str) {
    let list = || json(&mut permits(&store.url(), ["list", "--json"]));
    assert_matches_schema("status.schema.json", &status(store, "unused"));
    assert_matches_schema("list.schema.json", &list());
    let _holder = Holder::start(store, name, "--limit 1 --label nightly");
    let _waiter = waiter(store, name, "", (1, 1));
    assert_matches_schema("status.schema.json", &status(store, name));
    assert_matches_schema("list.schema.json", &list());
}

fn a_paused_semaphore_is_shown_as_such(store: &dyn Store, name: &str) {
    let client = permits::Client::connect(&store.url()).wait().expect("the server is up");
    client.named(name, permits::Limit::Stored).set_limit(4).wait().expect("it can be set");
    client.named(name, permits::Limit::Stored).pause("").wait().expect("it can be paused");
    assert_eq!(status(store, name)["paused"], json!(true));
    let text = output(&mut permits(&store.url(), ["status", name])).stdout;
    let first = text.lines().next().expect("there is a line");
    assert!(first.starts_with(&format!("{name}: 0 of 4 held, 0 waiting, limit pinned by ")), "{text}");
    assert!(first.contains(", PAUSED by "), "{text}");
}
