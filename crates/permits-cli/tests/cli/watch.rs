//! `permits watch`: the states of a real store, the changes by operators, and its ends.

use std::process::Command;

use permits::Limit;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Holder, Local, Running, Store, assert_own_lines, fresh, json_lines, on_a_server, on_both_stores, output,
    permits, prepare, revoke, run, status,
};
use permits_testkit::sound::Named as _;
use permits_testkit::{ChildGuard, HANGS, wait};

on_both_stores! {
    states_that_differ_and_changes_have_a_line,
}

on_a_server! {
    a_signal_ends_it_with_0,
    an_unused_semaphore_is_watched_too,
}

fn command(store: &dyn Store, name: &str, options: &[&str]) -> Command {
    permits(&store.url(), ["watch", name, "--interval", "100ms"].iter().chain(options))
}

/// Starts watching, and waits for the state.
#[track_caller]
fn watch(store: &dyn Store, name: &str) -> Running {
    Running::until(&mut command(store, name, &["--json"]), "\"state\"")
}

/// The events of an output.
#[track_caller]
fn events(stdout: &str) -> Vec<Value> {
    json_lines("watch.schema.json", stdout)
}

/// Waits for an event of this name with these fields, and returns it.
#[track_caller]
fn until(watch: &Running, event: &str, fields: &[(&str, Value)]) -> Value {
    let matches =
        |found: &Value| found["event"] == event && fields.iter().all(|(name, value)| found[*name] == *value);
    let find = || events(&watch.stdout()).into_iter().find(&matches);
    assert!(wait::until(|| find().is_some()), "no {event} {fields:?}: {}{}", watch.stdout(), watch.stderr());
    find().expect("it was found")
}

#[track_caller]
fn ended(watch: Running) {
    watch.signal(Signal::TERM);
    let ended = watch.finish();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{}", ended.stdout);
}

fn states_that_differ_and_changes_have_a_line(store: &dyn Store, name: &str) {
    prepare(store, name);
    let watch = watch(store, name);
    let grants = events(&watch.stdout())[0]["grants"].as_u64().expect("a number");
    let holder = Holder::start(store, name, "--limit 3 --holder web-1 --weight 2 --label nightly");
    let held = until(&watch, "state", &[("held", json!(2))]);
    let of_status = &status(store, name)["holders"][0];
    for field in ["holder", "weight", "slot", "token", "label"] {
        assert_eq!(held["holders"][0][field], of_status[field], "{field}");
    }
    assert_eq!((&held["limit"], &held["grants"]), (&json!(3), &json!(grants + 1)));
    let waiter = Running::start(&mut run(store, name, "--holder web-2 --weight 3", "true"));
    let waiting = until(&watch, "state", &[("waiting", json!(1))]);
    assert_eq!(waiting["waiters"][0]["holder"], "web-2");
    revoke(store, name, "web-2", "");
    let revoked = until(&watch, "changed", &[("change", json!("revoked")), ("holder", json!("web-2"))]);
    assert_eq!((&revoked["text"], &revoked["limit"]), (&json!("revoked the waiter web-2"), &json!(null)));
    until(&watch, "state", &[("waiting", json!(0)), ("revoked", json!(1))]);
    waiter.finish().ends(75);
    holder.release();
    until(&watch, "state", &[("held", json!(0)), ("revoked", json!(1))]);
    let lane = json!({ "lane": "a", "waiting": 0, "held": 0, "limit": 2, "floor": 0, "pinned": true });
    let operations: &[(&[&str], &str, Value)] = &[
        (&["pause", name, "--reason", "deploy"], "pause_reason", json!("deploy")),
        (&["resume", name], "paused", json!(false)),
        (&["close", name, "--reason", "moved"], "closed", json!("moved")),
        (&["open", name], "closed", json!(null)),
        (&["limit", name, "5"], "limit", json!(5)),
        (&["limit", name, "--unpin"], "limit_version", json!(4)),
        (&["alert", name, "--wait", "1h"], "alert", json!({ "wait_ms": 3_600_000, "waiting": null })),
        (&["lane", name, "a", "--limit", "2"], "lanes", json!([lane])),
    ];
    for (arguments, field, value) in operations {
        output(&mut permits(&store.url(), *arguments)).ends(0);
        let shown = || events(&watch.stdout()).last().is_some_and(|last| last[*field] == *value);
        assert!(wait::until(shown), "{field} {value}: {}", watch.stdout());
    }
    let changed = events(&watch.stdout()).into_iter().filter(|event| event["event"] == "changed");
    let changes: Vec<Value> = changed.map(|event| event["change"].clone()).collect();
    assert_eq!(
        changes,
        [
            "revoked",
            "paused",
            "resumed",
            "line_closed",
            "line_opened",
            "limit_set",
            "unpinned",
            "alert_set",
            "lane_pinned"
        ],
        "once each, in order"
    );
    // Every grant is counted, whether a read saw its permit or not.
    for _ in 0..3 {
        output(&mut run(store, name, "", "true")).ends(0);
    }
    until(&watch, "state", &[("held", json!(0)), ("grants", json!(grants + 4))]);
    // A state that differs from the last one in times alone gets no line.
    let states: Vec<Value> =
        events(&watch.stdout()).into_iter().filter(|event| event["event"] == "state").collect();
    for pair in states.windows(2) {
        let times = ["age", "lease_remaining", "at_ms", "pause_remaining"];
        let of = |state: &Value| {
            let fields = state.as_object().expect("an object").iter();
            let lasting = fields.filter(|(name, value)| name.as_str() == "lanes" || !value.is_array());
            let lasting = lasting.filter(|(name, _)| !times.iter().any(|time| name.contains(time)));
            lasting.map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>()
        };
        assert_ne!(of(&pair[0]), of(&pair[1]), "{pair:?}");
    }
    ended(watch);
}

fn a_signal_ends_it_with_0(store: &dyn Store, name: &str) {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let watch = Running::until(&mut command(store, name, &[]), &format!("Z  {name}: "));
        watch.signal(signal);
        let ended = watch.finish();
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{signal:?}");
        assert_eq!(ended.stdout.lines().count(), 1, "{}", ended.stdout);
    }
}

fn an_unused_semaphore_is_watched_too(store: &dyn Store, _: &str) {
    let watch = watch(store, "later");
    assert_eq!(events(&watch.stdout())[0]["limit"], Value::Null);
    output(&mut permits(&store.url(), ["limit", "later", "2"])).ends(0);
    until(&watch, "state", &[("limit", json!(2)), ("pinned", json!(true))]);
    ended(watch);
}

#[test]
fn an_unreachable_store_is_reported_once_and_read_again() {
    let (server, name) = fresh();
    let watch = watch(&server, &name);
    server.kill();
    until(&watch, "unreachable", &[("name", json!(name))]);
    server.restart();
    // The server keeps nothing on disk.
    until(&watch, "state", &[("limit", Value::Null)]);
    watch.signal(Signal::TERM);
    let ended = watch.finish();
    ended.ends(0);
    let unreachable = events(&ended.stdout).iter().filter(|event| event["event"] == "unreachable").count();
    assert_eq!(unreachable, 1, "{}", ended.stdout);
    assert_own_lines(&ended.stderr);
    // A reading that was under way had no answer; the next one would find no server.
    let said = ended.stderr.lines().filter(|line| line.starts_with("permits: the store"));
    let (again, failed): (Vec<&str>, Vec<&str>) =
        said.partition(|line| line.contains("can be reached again"));
    assert_eq!((failed.len(), again.len()), (1, 1), "{}", ended.stderr);
}

#[test]
fn a_reader_that_has_gone_ends_it_quietly() {
    // The command notices the end of its reader both with a change to print and without one.
    for changes in [true, false] {
        let store = Local::new();
        let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
        let stderr = tempfile::NamedTempFile::new().expect("a temporary file");
        let interval = if changes { "100ms" } else { "1h" };
        let mut watch = permits(&store.url(), ["watch", "x", "--json", "--interval", interval]);
        watch.stdout(writer).stderr(stderr.reopen().expect("a file can be shared"));
        let mut guard = ChildGuard::spawn(&mut watch);
        // The command keeps the other end of the pipe open.
        drop(watch);
        let mut reader = std::io::BufReader::new(reader);
        std::io::BufRead::read_line(&mut reader, &mut String::new()).expect("it prints the state");
        drop(reader);
        if changes {
            output(&mut permits(&store.url(), ["pause", "x"])).ends(0);
        }
        let status = guard.wait_timeout(HANGS).expect("it ends");
        assert_eq!(crate::support::code(status), 0);
        assert_eq!(std::fs::read_to_string(stderr.path()).expect("it is there"), "");
    }
}

#[test]
fn a_store_that_cannot_be_used_is_69_and_a_full_disk_71() {
    let (server, name) = fresh();
    server.command(&["SET", &format!("permits:{{{name}}}:state"), "not ours"]);
    let foreign = output(&mut command(&server, &name, &[]));
    foreign.prints(69, "");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the system has one");
    let mut watch = command(&Local::new(), &name, &[]);
    let mut guard = ChildGuard::spawn(watch.stdout(full).stderr(std::process::Stdio::null()));
    assert_eq!(crate::support::code(guard.wait_timeout(HANGS).expect("it ends")), 71);
}

#[test]
fn people_get_sentences() {
    let (server, name) = fresh();
    let watch = Running::until(&mut command(&server, &name, &[]), "0 of 1 held, 0 waiting\n");
    let holder = Holder::start(&server, &name, "--limit 1 --holder web-1 --label nightly");
    watch.prints("1 of 1 held, 0 waiting; held by \"nightly\" (web-1); 1 granted\n");
    holder.release();
    let client = permits::Client::connect(&server.url()).wait().expect("the store is up");
    client.named(&name, Limit::Stored).close_line("moved").wait().expect("it is ours");
    watch.prints(" closed the line: moved\n");
    let refused = output(&mut run(&server, &name, "--no-wait", "true"));
    refused.ends(75);
    watch.prints("CLOSED (moved)");
    watch.prints("; 1 refused\n");
    ended(watch);
}
