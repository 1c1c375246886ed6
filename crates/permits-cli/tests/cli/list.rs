//! `permits list`: the table and the JSON, of none and of thousands.

use permits_testkit::Server;
use permits_testkit::sound::Named as _;
use serde_json::{Value, json};

use crate::support::{
    Holder, Local, Store, assert_matches_schema, json, on_a_server, on_both_stores, output, permits, run,
    waiter,
};

on_both_stores! {
    each_is_listed_with_its_counts,
}

on_a_server! {
    unused_semaphores_are_not_listed,
    thousands_are_listed_in_order,
}

/// `permits list --json`, without the fields that differ from run to run.
#[track_caller]
fn list(store: &dyn Store) -> Value {
    let mut list = json(&mut permits(&store.url(), ["list", "--json"]));
    for semaphore in list.as_array_mut().expect("an array") {
        let semaphore = semaphore.as_object_mut().expect("an object");
        for varying in [
            "oldest_holder_age_ms",
            "oldest_holder",
            "oldest_waiter_age_ms",
            "recovering_ms",
            "limit_version",
            "grants",
            "refused",
            "expired",
            "revoked",
            "waits",
        ] {
            semaphore.remove(varying).expect("it is there");
        }
        for author in ["paused_by", "closed_by"] {
            let age = semaphore[author].as_object_mut().and_then(|author| author.remove("age_ms"));
            assert_eq!(age.is_some(), !semaphore[author].is_null(), "{author}");
        }
    }
    list
}

fn row(name: &str, limit: Value, held: u64, waiting: u64, paused: bool, pinned: bool) -> Value {
    let need = match (paused, waiting) {
        (false, _) => 0,
        (true, 0) => 2,
        (true, _) => 7,
    };
    json!({"name": name, "limit": limit, "held": held, "waiting": waiting, "paused": paused, "pinned": pinned,
        "pause_remaining_ms": null, "pause_reason": if paused { json!("") } else { json!(null) },
        "paused_by": if paused { json!({"by": "ann"}) } else { json!(null) },
        "closed": null, "closed_by": null, "cooling": 0, "may_be_kept": 0, "unreadable": null, "need": need,
        "alert": {"wait_ms": null, "waiting": null}})
}

/// An unheld semaphore with this limit.
fn used(name: &str, limit: u32) -> Value {
    row(name, limit.into(), 0, 0, false, false)
}

#[test]
fn an_empty_list_is_no_failure() {
    for store in [&Local::new() as &dyn Store, &Server::start()] {
        assert_eq!(list(store), json!([]));
        let text = output(&mut permits(&store.url(), ["list"]));
        assert_eq!((text.code, text.stdout.as_str()), (0, ""));
        assert_eq!(text.stderr, "permits: there are no semaphores\n");
    }
}

fn each_is_listed_with_its_counts(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 3 --weight 2");
    let _waiters = [1, 2].map(|place| waiter(store, name, "--weight 2", (1, place)));
    for arguments in [
        &["limit", "another name", "12"][..],
        &["pause", "zzz", "-v", "--by", "ann"],
        &["pause", name, "-v", "--by", "ann"],
    ] {
        assert_eq!(output(&mut permits(&store.url(), arguments)).code, 0);
    }
    let another = row("another name", 12.into(), 0, 0, false, true);
    let expected =
        [another, row(name, 3.into(), 2, 2, true, false), row("zzz", Value::Null, 0, 0, true, false)];
    assert_eq!(list(store), json!(expected));
    let ages = json(&mut permits(&store.url(), ["list", "--json", "--busy"]));
    assert_eq!(ages.as_array().map(Vec::len), Some(1), "{ages}");
    let age = |field: &str| ages[0][field].as_u64().expect("a number");
    let (held, waited) = (age("oldest_holder_age_ms"), age("oldest_waiter_age_ms"));
    assert!(0 < waited && waited < held, "{held} {waited}");
    let recovers = || {
        let listed = json(&mut permits(&store.url(), ["list", "--json"]));
        listed[0]["recovering_ms"].as_u64().expect("a number") > 0
    };
    let before = recovers();
    let text = output(&mut permits(&store.url(), ["list"]));
    let after = recovers();
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    let expected = |flag| {
        format!(
            "\
NAME          HELD  LIMIT  WAITING
another name     0     12        0  pinned{flag}
semaphore        2      3        2  PAUSED
zzz              0      -        0  PAUSED
"
        )
    };
    // On a slow machine the window, which began when the server did, may be over, or end meanwhile.
    let shown = text.stdout == expected(", recovering");
    assert!(shown || text.stdout == expected(""), "{}", text.stdout);
    assert!(if shown { before } else { !after }, "{before} {after}: {}", text.stdout);
}

fn unused_semaphores_are_not_listed(store: &dyn Store, name: &str) {
    for verb in ["pause", "resume"] {
        assert_eq!(output(&mut permits(&store.url(), [verb, "only paused once"])).code, 0);
    }
    assert_eq!(output(&mut run(store, name, "--limit 7", "true")).code, 0);
    assert_eq!(list(store), json!([used(name, 7)]));
}

fn thousands_are_listed_in_order(store: &dyn Store, name: &str) {
    let client = permits::Client::connect(&store.url()).wait().expect("the store is up");
    let names: Vec<String> = (0..3000).map(|number| format!("number {number:04} of {{3000}} 100%")).collect();
    for name in &names {
        client.named(name, permits::Limit::Stored).set_limit(3).wait().expect("it can be set");
    }
    assert_eq!(output(&mut run(store, name, "--limit 1", "true")).code, 0);
    let listed = list(store);
    let listed = listed.as_array().expect("an array");
    let (last, first) = listed.split_last().expect("there are some");
    assert_eq!(last, &used(name, 1));
    assert!(first.iter().map(|semaphore| semaphore["name"].as_str().expect("text")).eq(&names));
    assert!(first.iter().all(|semaphore| semaphore["limit"] == 3 && semaphore["pinned"] == true));
}

#[test]
fn a_server_is_never_asked_for_all_keys_at_once() {
    let server = Server::start();
    let keys: Vec<String> = (0..5000).map(|number| format!("stranger:{number}")).collect();
    for keys in keys.chunks(500) {
        let words: Vec<&str> =
            ["MSET"].into_iter().chain(keys.iter().flat_map(|key| [key.as_str(), "x"])).collect();
        server.command(&words);
    }
    assert_eq!(output(&mut permits(&server.url(), ["limit", "one of ours", "3"])).code, 0);
    assert_eq!(list(&server).as_array().map(Vec::len), Some(1));
    let stats = server.command(&["INFO", "commandstats"]);
    let stats = stats.text();
    assert!(stats.contains("cmdstat_scan:calls=") && !stats.contains("cmdstat_keys"), "{stats}");
}

#[test]
fn semaphores_that_cannot_be_read_hide_no_others() {
    let server = Server::start();
    server.command(&["SET", "permits:{alien}:state", "not ours"]);
    server.command(&["HSET", "permits:{bad}:state", "\tstate", "abc"]);
    assert_eq!(output(&mut permits(&server.url(), ["limit", "one of ours", "3"])).code, 0);
    let text = output(&mut permits(&server.url(), ["list", "--busy"]));
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert!(lines[1].starts_with("alien     -      -        -  UNREADABLE: a key of semaphore"), "{lines:?}");
    assert!(lines[2].starts_with("bad       -      -        -  UNREADABLE: semaphore "), "{lines:?}");
    assert_eq!(lines.len(), 3, "it is not in use: {lines:?}");
    let text = output(&mut permits(&server.url(), ["list"])).stdout;
    assert!(text.contains("\none of ours     0      3        0  pinned"), "{text}");
    let listed = json(&mut permits(&server.url(), ["list", "--json"]));
    assert_matches_schema("list.schema.json", &listed);
    let reasons = ["alien", "bad", "one of ours"].map(|name| {
        let row =
            listed.as_array().expect("an array").iter().find(|row| row["name"] == name).expect("listed");
        row["unreadable"].as_str().unwrap_or_default().to_owned()
    });
    assert!(reasons[0].contains("another program") && reasons[1].contains("delete --force"), "{reasons:?}");
    assert_eq!(reasons[2], "");

    let _holder = Holder::start(&server, "used", "--limit 1");
    let sorted = |order: &str| {
        let listed = json(&mut permits(&server.url(), ["list", "--json", "--sort", order]));
        let names = listed.as_array().expect("an array").iter().map(|row| row["name"].to_string());
        names.collect::<Vec<_>>().join(" ").replace('"', "")
    };
    assert_eq!(sorted("need"), "alien bad used one of ours");
    assert_eq!(sorted("held"), "used one of ours alien bad");
}

#[test]
fn a_list_of_a_store_that_denies_access_fails() {
    let server = Server::start();
    assert_eq!(output(&mut permits(&server.url(), ["limit", "one of ours", "3"])).code, 0);
    server.command(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    let denied = output(&mut permits(&server.url(), ["list"]));
    assert_eq!((denied.code, denied.stdout.as_str()), (69, ""));
}
