//! `permits status`: what people and scripts read.

use permits_testkit::Server;
use serde_json::json;

use crate::support::{Running, Store, gate, on_both_stores, output, permits, run, status, until_counts};

on_both_stores! {
    holders_and_waiters_are_listed,
    a_paused_semaphore_is_shown_as_such,
}

#[test]
fn an_unused_semaphore_is_no_failure_and_leaves_no_keys() {
    let server = Server::start();
    let json = output(&mut permits(&server.url(), ["status", "nobody", "--json"]));
    assert_eq!((json.code, json.stderr.as_str()), (0, ""));
    let expected = r#"{"name":"nobody","limit":null,"held":0,"paused":false,"holders":[],"waiters":[]}"#;
    assert_eq!(json.stdout, format!("{expected}\n"));
    let text = output(&mut permits(&server.url(), ["status", "nobody"]));
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    assert_eq!(text.stdout, "nobody: not in use, no limit is set\n");
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

fn holders_and_waiters_are_listed(store: &dyn Store, name: &str) {
    let mut first = run(store, name, "--limit 3 --weight 2 --holder web-1", "echo ready; read x");
    let gate = gate(&mut first);
    let first = Running::until(&mut first, "ready");
    let second = Running::start(&mut run(store, name, "--weight 3 --holder web-2", "true"));
    until_counts(store, name, (1, 1));

    let mut json = status(store, name);
    let holder = json["holders"][0].as_object_mut().expect("an object");
    let remaining = holder.remove("lease_remaining_ms").and_then(|value| value.as_u64()).expect("a number");
    let token = holder.remove("token").and_then(|value| value.as_u64()).expect("a number");
    assert!((1..=15_000).contains(&remaining), "{remaining}");
    assert!(token > 1_000_000_000_000_000, "{token}");
    assert_eq!(
        json,
        json!({
            "name": name, "limit": 3, "held": 2, "paused": false,
            "holders": [{"holder": "web-1", "weight": 2, "slot": 0}],
            "waiters": [{"holder": "web-2", "weight": 3, "position": 0}],
        })
    );

    let text = output(&mut permits(&store.url(), ["status", name]));
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert_eq!(lines[0], format!("{name}: 2 of 3 held, 1 waiting"));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[2]), ["HOLDER", "WEIGHT", "SLOT", "TOKEN", "LEASE"]);
    assert_eq!(words(lines[3])[..4], ["web-1", "2", "0", &token.to_string()]);
    assert_eq!(words(lines[5]), ["WAITER", "WEIGHT", "POSITION"]);
    assert_eq!(words(lines[6]), ["web-2", "3", "0"]);
    assert_eq!((lines[2].len(), lines[5].len()), (lines[3].len(), lines[6].len()), "columns are aligned");

    drop(gate);
    assert_eq!((first.finish().code, second.finish().code), (1, 0));
}

fn a_paused_semaphore_is_shown_as_such(store: &dyn Store, name: &str) {
    let client = permits::blocking::Client::connect(&store.url()).expect("the server is up");
    client.open(name).set_limit(4).expect("it can be set");
    client.open(name).pause().expect("it can be paused");
    assert_eq!(status(store, name)["paused"], json!(true));
    let text = output(&mut permits(&store.url(), ["status", name])).stdout;
    assert_eq!(text, format!("{name}: 0 of 4 held, 0 waiting, limit pinned, PAUSED\n"));
}
