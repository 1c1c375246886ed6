//! `permits list` of thousands, and the schemas of JSON.

use permits_testkit::sound::Named as _;
use permits_testkit::{HANGS, Server};
use serde_json::json;

use crate::support::{
    Holder, Running, assert_matches_schema, fresh, json, output, permits, prepare, run, status, waiter,
};

#[test]
fn thousands_are_listed_in_order_and_a_server_is_never_asked_for_all_keys_at_once() {
    let server = Server::start();
    let strangers: Vec<String> = (0..5000).map(|number| format!("stranger:{number}")).collect();
    let words: Vec<&str> = strangers.iter().flat_map(|key| [key.as_str(), "x"]).collect();
    server.command(&[&["MSET"], &words[..]].concat());
    let client = permits::Client::connect(&server.url()).wait().expect("the store is up");
    let names: Vec<String> = (0..3000).map(|number| format!("number {number:04} of {{3000}} 100%")).collect();
    for name in &names {
        client.named(name, permits::Limit::Stored).set_limit(3).wait().expect("it can be set");
    }
    let listed = json(&mut permits(&server.url(), ["list", "--json"]));
    let listed = listed.as_array().expect("an array");
    assert!(listed.iter().map(|semaphore| semaphore["name"].as_str().expect("text")).eq(&names));
    assert!(listed.iter().all(|semaphore| semaphore["limit"] == 3 && semaphore["pinned"] == true));
    let stats = server.command(&["INFO", "commandstats"]);
    let stats = stats.text();
    assert!(stats.contains("cmdstat_scan:calls=") && !stats.contains("cmdstat_keys"), "{stats}");
}

#[test]
fn printed_json_matches_the_schemas() {
    let (server, name) = fresh();
    let url = server.url();
    let list = || json(&mut permits(&url, ["list", "--json"]));
    assert_matches_schema("status.schema.json", &status(&server, "unused"));
    assert_matches_schema("list.schema.json", &list());
    // The command prints a warning, too, because it replaces a limit.
    let acquired = output(&mut permits(&url, ["acquire", &name, "--limit", "2", "--json"])).stdout;
    let acquired = serde_json::from_str(&acquired).expect("it is JSON");
    assert_matches_schema("acquire.schema.json", &acquired);
    prepare(&server, "rate");
    let _holder = Holder::start(&server, &name, "--limit 2 --label nightly --lane a");
    let _waiter = waiter(&server, &name, "--lane b", (2, 1));
    output(&mut run(&server, "rate", "--limit 1 --at-least 1h", "true")).ends(0);
    for arguments in [["pause", &name, "--for=1h"], ["close", &name, "--reason=moved"], ["limit", &name, "3"]]
    {
        output(&mut permits(&url, arguments)).ends(0);
    }
    server.command(&["HSET", "permits:{bad}:state", "\tstate", "abc"]);
    for name in [&name, "rate"] {
        assert_matches_schema("status.schema.json", &status(&server, name));
    }
    assert_matches_schema("list.schema.json", &list());
}

#[test]
fn units_that_may_be_kept_are_shown_while_no_request_waits() {
    let (server, name) = fresh();
    let (store, name) = (&server, name.as_str());
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
