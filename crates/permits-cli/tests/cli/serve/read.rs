//! The endpoints that read.

use permits_testkit::{Server, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::Serve;
use super::http::Request;
use super::metrics::Metrics;
use crate::support::{
    CLOSED_PORT, Holder, Local, Store, assert_matches_schema, on_a_server, on_both_stores, output, permits,
    prepare, run, status, until_counts, waiter,
};

on_both_stores! {
    lists_are_those_of_the_other_verbs,
    the_oldest_waiter_and_the_author_of_a_pause_are_shown,
}

on_a_server! {
    names_are_percent_encoded,
    the_last_minutes_are_kept,
}

/// A path with a name, of which every byte is percent-encoded.
fn of(name: &str, rest: &str) -> String {
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/api/v1/semaphores/{encoded}{rest}")
}

/// A value without the fields that differ from moment to moment.
fn timeless(mut value: Value) -> Value {
    // The list has `need`, too, because it depends on the longest wait.
    const TIMES: [&str; 6] = [
        "lease_remaining_ms",
        "age_ms",
        "recovering_ms",
        "oldest_holder_age_ms",
        "oldest_waiter_age_ms",
        "need",
    ];
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|name, _| !TIMES.contains(&name.as_str()));
            fields.values_mut().for_each(|field| *field = timeless(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = timeless(item.take())),
        _ => {}
    }
    value
}

fn lists_are_those_of_the_other_verbs(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 3 --weight 2 --label nightly");
    let _waiter = waiter(store, name, "--weight 2", (1, 1));
    output(&mut permits(&store.url(), ["limit", "another name", "12"])).ends(0);
    let serve = Serve::start(store, &[]);

    let list = serve.read("/api/v1/semaphores");
    assert_eq!(list.status, 200, "{list:?}");
    assert_matches_schema("list.schema.json", &list.json());
    let by_verb = crate::support::json(&mut permits(&store.url(), ["list", "--json"]));
    assert_eq!(timeless(list.json()), timeless(by_verb));
    assert!(list.json()[1]["oldest_waiter_age_ms"].is_u64(), "{list:?}");

    let one = serve.read(&of(name, ""));
    assert_eq!(one.status, 200, "{one:?}");
    assert_matches_schema("status.schema.json", &one.json());
    assert_eq!(timeless(one.json()), timeless(status(store, name)));
}

/// The oldest waiter is the first of its lane, and the last change may be about something else than a pause.
fn the_oldest_waiter_and_the_author_of_a_pause_are_shown(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 1");
    let _first = waiter(store, name, "--lane interactive --holder first", (1, 1));
    let _oldest = waiter(store, name, "--lane batch", (1, 2));
    let oldest = || status(store, name)["oldest_waiter_age_ms"].as_u64().expect("one waits");
    assert!(wait::until(|| oldest() > 2_000));
    let _next = waiter(store, name, "--lane interactive", (1, 3));
    // Then the first lane of the line has the younger waiter.
    output(&mut permits(&store.url(), ["revoke", name, "first"])).ends(0);
    until_counts(store, name, (1, 2));
    for (verb, options) in [("pause", &["--by", "dana"][..]), ("alert", &["--wait", "8h", "--by", "erik"])] {
        let mut command = permits(&store.url(), [verb, name]);
        assert_eq!(output(command.args(options)).code, 0, "{verb}");
    }
    let least = oldest();
    let serve = Serve::start(store, &[]);
    let row = &serve.read("/api/v1/semaphores").json()[0];
    assert!(row["oldest_waiter_age_ms"].as_u64().is_some_and(|age| age >= least), "{row} after {least}");
    assert_eq!(row["paused_by"]["by"], "dana", "{row}");
}

fn names_are_percent_encoded(store: &dyn Store, unused: &str) {
    let names = [
        "a/b",
        "a b",
        "<script>alert(1)</script>",
        r#"quo"te's\"#,
        "100%",
        "ü 日本語 🚦",
        "a?b#c&d=e+f",
        "/",
        "..",
        "{x}",
        "history",
        "a/history",
        &"x".repeat(200),
    ];
    for name in names {
        assert_eq!(output(&mut permits(&store.url(), ["limit", "--", name, "7"])).code, 0, "{name}");
    }
    let serve = Serve::start(store, &[]);
    for name in names {
        let one = serve.read(&of(name, "")).json();
        assert_eq!((&one["name"], &one["limit"]), (&json!(name), &json!(7)));
        assert_eq!(serve.read(&of(name, "/history")).json()["points"][0]["limit"], 7, "{name}");
    }
    let listed = serve.read("/api/v1/semaphores").json();
    let listed = listed.as_array().expect("an array").iter().filter_map(|row| row["name"].as_str());
    let listed: Vec<&str> = listed.filter(|listed| *listed != unused).collect();
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(listed, sorted);
    for (path, reason) in [
        ("/api/v1/semaphores/a%0Ab", "control character"),
        ("/api/v1/semaphores/a%00b", "control character"),
        ("/api/v1/semaphores/%FF", "malformed"),
        (&of(&"x".repeat(201), ""), "201 bytes: at most 200"),
        (&of("a\nb", "/history"), "control character"),
    ] {
        let (status, said) = serve.read(path).refusal();
        assert_eq!(status, 400, "{path}");
        assert!(said.contains(reason), "{path}: {said}");
    }
}

fn the_last_minutes_are_kept(store: &dyn Store, name: &str) {
    let serve = Serve::start(store, &[]);
    // Reads without a client come rarely: this one makes them frequent.
    let mut events = serve.get("/api/v1/events").open();
    events.event("all");
    let holder = Holder::start(store, name, "--limit 3 --weight 2");
    while events.event("change")["changed"][0]["held"] != 2 {}
    holder.release();
    while events.event("change")["changed"][0]["held"] != 0 {}
    let history = serve.read(&of(name, "/history")).json();
    assert_eq!((&history["name"], &history["window_ms"]), (&json!(name), &json!(3_600_000)));
    let points = history["points"].as_array().expect("an array");
    let held: Vec<u64> = points.iter().filter_map(|point| point["held"].as_u64()).collect();
    assert!(held.ends_with(&[2, 0]), "{history}");
    assert_eq!(grants(&history), 1, "those before the first read do not count: {history}");
    let short = serve.read(&of(name, "/history?window_ms=1000")).json();
    assert_eq!(short["window_ms"], 1000);
    assert!(short["points"].as_array().is_some_and(|short| short.len() <= points.len()), "{short}");
    for query in ["window_ms=x", "window=5", "window_ms=-1"] {
        assert_eq!(serve.read(&of(name, &format!("/history?{query}"))).refusal().0, 400, "{query}");
    }
    let times: Vec<u64> = points.iter().filter_map(|point| point["at_ms"].as_u64()).collect();
    assert!(times.is_sorted() && times[0] > 1_700_000_000_000, "{times:?}");
    assert!(history["at_ms"].as_u64() >= times.last().copied(), "{history}");
}

/// All grants of a history.
fn grants(history: &Value) -> u64 {
    let points = history["points"].as_array().expect("an array");
    points.iter().map(|point| point["grants"].as_u64().expect("a number")).sum()
}

#[test]
fn a_counter_that_falls_or_begins_again_shows_no_grants() {
    let server = Server::start();
    prepare(&server, "exports");
    let run_one = || output(&mut run(&server, "exports", "--limit 3", "true")).ends(0);
    let [state, copy] = ["permits:{exports}:state", "{exports}:copy"];
    assert_eq!(server.command(&["COPY", state, copy]).int(), 1);
    (0..5).for_each(|_| run_one());
    let serve = Serve::start(&server, &[]);
    let mut events = serve.get("/api/v1/events").open();
    assert_eq!(events.event("all")["semaphores"][0]["grants"], 6);
    run_one();
    while events.event("change")["changed"][0]["grants"] != 7 {}
    // As if a replica without the last changes took over.
    assert_eq!(server.command(&["COPY", copy, state, "REPLACE"]).int(), 1);
    while events.event("change")["changed"][0]["grants"] != 1 {}
    server.command(&["FLUSHALL"]);
    while events.event("change")["removed"] != json!(["exports"]) {}
    prepare(&server, "exports");
    run_one();
    while events.event("change")["changed"][0]["grants"] != 2 {}
    let history = serve.read(&of("exports", "/history")).json();
    assert_eq!(grants(&history), 3, "one before the first loss, and two after the second: {history}");
}

#[test]
fn an_unused_semaphore_is_no_failure_and_leaves_no_keys() {
    let server = Server::start();
    let serve = Serve::start(&server, &[]);
    assert_eq!(serve.read("/api/v1/semaphores").body, "[]\n");
    let one = serve.read("/api/v1/semaphores/unused");
    assert_eq!((one.status, &one.json()["limit"]), (200, &Value::Null));
    assert_eq!(serve.read("/healthz").status, 200);
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn a_user_that_may_not_list_is_reported() {
    let server = Server::start();
    let serve = Serve::start(&server, &[]);
    server.command(&["ACL", "SETUSER", "default", "-scan"]);
    assert!(wait::until(|| serve.read("/api/v1/semaphores").status == 503));
    // A check is valid for a second.
    assert!(wait::until(|| serve.read("/healthz").status == 503));
    assert!(serve.read("/healthz").body.contains("scan"), "{:?}", serve.read("/healthz"));
    server.command(&["ACL", "SETUSER", "default", "+scan"]);
    assert!(wait::until(|| serve.read("/healthz").status == 200));
    assert!(wait::until(|| serve.stderr().contains("the store can be read again")));
    let log = serve.stderr();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("permits: cannot read the store: "), "{log}");
}

#[test]
fn health_follows_the_store() {
    let server = Server::builder().password("se/cret").start();
    let serve = Serve::start(&server, &["--store-timeout", "1s"]);
    let healthy = serve.read("/healthz");
    assert_eq!((healthy.status, healthy.body.as_str()), (200, "ok\n"));
    server.kill();
    // A check is valid for a second.
    assert!(wait::until(|| serve.read("/healthz").status == 503));
    let ill = serve.read("/healthz");
    assert!(ill.body.contains("cannot be reached"), "{ill:?}");
    let (status, reason) = serve.read("/api/v1/semaphores").refusal();
    assert!(status == 503 && reason.contains("cannot be reached"), "{status} {reason}");
    let down = serve.read("/metrics");
    assert_eq!(down.status, 200);
    assert!(down.body.contains("\npermits_store_up 0\n"), "{}", down.body);
    for reply in [ill.body, reason, down.body, serve.stderr()] {
        assert!(!reply.contains("cret"), "{reply}");
    }
    server.restart();
    assert!(wait::until(|| serve.read("/healthz").status == 200));
    assert!(wait::until(|| { serve.read("/metrics").body.contains("\npermits_store_up 1\n") }));
}

#[test]
fn a_signal_ends_the_server_and_its_streams() {
    let store = Local::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let serve = Serve::start(&store, &[]);
        let mut events = serve.get("/api/v1/events").open();
        events.event("all");
        let idle = super::http::connect(serve.address);
        let ended = serve.end(signal);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{signal:?}");
        assert!(events.rest().ends_with("0\r\n\r\n"), "the stream has its end");
        drop(idle);
    }
}

#[test]
fn a_port_in_use_is_71_and_says_what_to_do() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let listen = serve.address.to_string();
    let second = output(&mut permits(&store.url(), ["serve", "--listen", &listen]));
    second.prints(71, "");
    assert!(second.stderr.contains(&format!("cannot listen on {listen}: ")), "{}", second.stderr);
    assert!(second.stderr.contains("take another port with --listen"), "{}", second.stderr);
}

#[test]
fn semaphores_that_cannot_be_read_are_told_and_hide_no_others() {
    let server = Server::start();
    server.command(&["SET", "permits:{alien}:state", "not ours"]);
    let damage = ["HSET", "permits:{bad}:state", "\tstate", "abc"];
    server.command(&damage);
    // Health checks inspect this semaphore.
    server.command(&["HSET", "permits:{permits serve: health}:state", "\tstate", "abc"]);
    output(&mut permits(&server.url(), ["limit", "one of ours", "3"])).ends(0);
    let serve = Serve::start(&server, &[]);
    let mut events = serve.get("/api/v1/events").open();
    let all = events.event("all");
    let rows = all["semaphores"].as_array().expect("an array");
    let names: Vec<&Value> = rows.iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["alien", "bad", "one of ours", "permits serve: health"]);
    let reason = |row: usize| rows[row]["unreadable"].as_str().unwrap_or_default();
    assert!(reason(0).contains("another program"), "{all}");
    assert!(reason(1).starts_with("semaphore ") && reason(2).is_empty(), "{all}");
    assert!(all["error"].is_null() && rows[2]["limit"] == 3, "{all}");

    let list = serve.read("/api/v1/semaphores");
    assert_eq!(list.status, 200, "{list:?}");
    assert_matches_schema("list.schema.json", &list.json());
    let metrics = Metrics::parse(&serve.read("/metrics").body, "");
    let of_store = ["up", "semaphores", "semaphores_omitted", "semaphores_unreadable"];
    assert_eq!(of_store.map(|name| metrics.store(name)), [1.0, 4.0, 0.0, 3.0]);
    assert_eq!((metrics.of("held", "bad"), metrics.of("held", "one of ours")), (None, Some(0.0)));
    assert_eq!(serve.read("/healthz").status, 200);
    let (status, refused) = serve.read("/api/v1/semaphores/bad").refusal();
    assert_eq!((status, refused.as_str()), (503, reason(1)));

    for limit in ["4", "5"] {
        output(&mut permits(&server.url(), ["limit", "one of ours", limit])).ends(0);
        events.event("change");
    }
    for name in ["alien", "bad"] {
        let line = format!("{name:?} is UNREADABLE: ");
        assert_eq!(serve.stderr().matches(&line).count(), 1, "{}", serve.stderr());
    }
    server.command(&["DEL", damage[1]]);
    while events.event("change")["removed"] != json!(["bad"]) {}
}

#[test]
fn the_examples_of_the_help_work() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Local::new();
    for file in ["token", "tokens"].map(|file| directory.path().join(file)) {
        std::fs::write(&file, super::TOKEN).expect("it can be written");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
    }
    let help = output(&mut permits(CLOSED_PORT, ["serve", "--help"])).stdout;
    let examples = help.split("\nExamples:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let examples: Vec<&str> = examples.expect("examples").lines().map(str::trim).collect();
    assert!(examples.len() > 3, "{examples:?}");
    for example in examples {
        let words: Vec<&str> = example.split_whitespace().skip(1).collect();
        // Take a free port in place of the example's, because the tests run side by side.
        let words = words.iter().map(|word| {
            let port = |(address, _): (&str, &str)| format!("{address}:0");
            word.rsplit_once(':').map_or_else(|| (*word).to_owned(), port)
        });
        let mut command = permits(&store.url(), words);
        command.current_dir(directory.path());
        if !example.contains("--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let serve = Serve::of(&mut command, None);
        let host = if example.contains("permits.test") { "permits.test" } else { "localhost" };
        let page = Request::new(([127, 0, 0, 1], serve.address.port()).into(), "GET", "/");
        assert_eq!(page.header("Host", host).send().status, 200, "{example}");
    }
}

#[test]
fn a_server_that_refuses_writes_is_read() {
    let server = Server::start();
    let _holder = Holder::start(&server, "exports", "--limit 1 --lease 1h");
    assert_eq!(server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).text(), "OK");
    let serve = Serve::start(&server, &[]);
    let served = serve.read("/api/v1/semaphores/exports").json();
    assert_eq!([&served["held"], &served["holders"][0]["weight"]], [1, 1], "{served}");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
}
