//! `permits watch`: the events of a real store, and its ends.

use std::process::Command;

use permits::Limit;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    CLOSED_PORT, Holder, Local, Running, Store, assert_own_lines, fresh, json_lines, on_both_stores, output,
    permits, prepare, revoke, run, status,
};
use permits_testkit::sound::Named as _;
use permits_testkit::{ChildGuard, HANGS, Server, wait};

on_both_stores! {
    the_events_of_a_semaphore,
    a_signal_ends_it_with_0,
    an_unused_semaphore_is_watched_too,
    more_than_1000_are_followed_by_number,
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

fn the_events_of_a_semaphore(store: &dyn Store, name: &str) {
    prepare(store, name);
    let watch = watch(store, name);
    let holder = Holder::start(store, name, "--limit 3 --holder web-1 --weight 2 --label nightly");
    let granted = until(&watch, "granted", &[("holder", json!("web-1"))]);
    let of_status = &status(store, name)["holders"][0];
    for field in ["weight", "slot", "token", "label"] {
        assert_eq!(granted[field], of_status[field], "{field}");
    }
    assert_eq!(granted["held"], json!(2));
    until(&watch, "limit", &[("before", json!(1)), ("limit", json!(3))]);
    let waiter = Running::start(&mut run(store, name, "--holder web-2 --weight 3", "true"));
    until(&watch, "queued", &[("holder", json!("web-2")), ("position", json!(0)), ("waiting", json!(1))]);
    revoke(store, name, "web-2", "");
    let revoked = until(&watch, "changed", &[("change", json!("revoked")), ("holder", json!("web-2"))]);
    assert_eq!((&revoked["text"], &revoked["limit"]), (&json!("revoked the waiter web-2"), &json!(null)));
    until(&watch, "left_queue", &[("holder", json!("web-2")), ("cause", json!("revoked"))]);
    assert_eq!(waiter.finish().code, 75);
    holder.release();
    until(&watch, "left", &[("holder", json!("web-1")), ("cause", json!("released")), ("held", json!(0))]);
    let operations: &[(&[&str], &str)] = &[
        (&["pause", name], "paused"),
        (&["resume", name], "resumed"),
        (&["close", name, "--reason", "moved"], "closed"),
        (&["open", name], "opened"),
        (&["limit", name, "5"], "pinned"),
        (&["limit", name, "--unpin"], "unpinned"),
    ];
    for (arguments, event) in operations {
        assert_eq!(output(&mut permits(&store.url(), *arguments)).code, 0);
        until(&watch, event, &[]);
    }
    assert_eq!(until(&watch, "closed", &[])["reason"], json!("moved"));
    let changed = events(&watch.stdout()).into_iter().filter(|event| event["event"] == "changed");
    let changes: Vec<Value> = changed.map(|event| event["change"].clone()).collect();
    assert_eq!(
        changes,
        ["revoked", "paused", "resumed", "line_closed", "line_opened", "limit_set", "unpinned"],
        "once each, in order"
    );
    // Every grant is counted, whether an inspection saw its permit or not.
    for _ in 0..3 {
        assert_eq!(output(&mut run(store, name, "", "true")).code, 0);
    }
    let sum = |field: &str| -> u64 {
        let counts = events(&watch.stdout()).into_iter().filter(|event| event["event"] == "counts");
        counts.map(|event| event[field].as_u64().expect("a number")).sum()
    };
    assert!(wait::until(|| sum("grants") == 4), "{}", watch.stdout());
    let seen = events(&watch.stdout()).iter().filter(|event| event["event"] == "granted").count() as u64;
    assert_eq!((seen + sum("unseen"), sum("revoked")), (4, 1), "{}", watch.stdout());
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
    assert_eq!(output(&mut permits(&store.url(), ["limit", "later", "2"])).code, 0);
    until(&watch, "limit", &[("before", Value::Null), ("limit", json!(2))]);
    ended(watch);
}

fn more_than_1000_are_followed_by_number(store: &dyn Store, name: &str) {
    let client = permits::Client::connect(&store.url()).wait().expect("the store is up");
    let semaphore = client.named(name, 1010);
    let acquire = |_| semaphore.try_acquire().wait().expect("there are units");
    let mut permits: Vec<_> = (0..999).map(acquire).collect();
    let watch = watch(store, name);
    permits.extend((0..3).map(acquire));
    until(&watch, "partial", &[("holders", json!(true)), ("waiters", json!(false))]);
    // The end of a permit while not all are listed.
    drop(permits.pop());
    until(&watch, "counts", &[("held", json!(1001)), ("unseen", Value::Null)]);
    permits.truncate(1000);
    until(&watch, "partial", &[("holders", json!(false))]);
    until(&watch, "state", &[("held", json!(1000))]);
    let left = |events: &[Value]| events.iter().filter(|event| event["event"] == "left").count();
    assert_eq!(left(&events(&watch.stdout())), 0, "{}", watch.stderr());
    // All are listed again, and an end has its line.
    drop(permits.pop());
    until(&watch, "left", &[("held", json!(999)), ("cause", json!("released"))]);
    assert_eq!(left(&events(&watch.stdout())), 1);
    ended(watch);
}

#[test]
fn an_unreachable_store_is_reported_once_and_read_again() {
    let (server, name) = fresh();
    let watch = watch(&server, &name);
    server.kill();
    until(&watch, "unreachable", &[("held", Value::Null)]);
    server.restart();
    until(&watch, "back", &[]);
    // The server keeps nothing on disk.
    until(&watch, "reset", &[]);
    watch.signal(Signal::TERM);
    let ended = watch.finish();
    assert_eq!(ended.code, 0);
    let unreachable = events(&ended.stdout).iter().filter(|event| event["event"] == "unreachable").count();
    assert_eq!(unreachable, 1, "{}", ended.stdout);
    assert_own_lines(&ended.stderr);
    let said = |text: &str| ended.stderr.lines().filter(|line| line.contains(text)).count();
    assert_eq!(
        (said("permits: the store cannot be reached"), said("can be reached again")),
        (1, 1),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_reader_that_has_gone_ends_it_quietly() {
    // With a change, and without one.
    for changes in [true, false] {
        let store = Local::new();
        let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
        let stderr = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut watch = command(&store, "x", &[]);
        watch.stdout(writer).stderr(stderr.reopen().expect("a file can be shared"));
        let mut guard = ChildGuard::spawn(&mut watch);
        // The command keeps the other end of the pipe open.
        drop(watch);
        let mut reader = std::io::BufReader::new(reader);
        std::io::BufRead::read_line(&mut reader, &mut String::new()).expect("it prints the state");
        drop(reader);
        if changes {
            assert_eq!(output(&mut permits(&store.url(), ["pause", "x"])).code, 0);
        }
        let status = guard.wait_timeout(HANGS).expect("it ends");
        assert_eq!(crate::support::code(status), 0);
        assert_eq!(std::fs::read_to_string(stderr.path()).expect("it is there"), "");
    }
}

#[test]
fn a_store_that_cannot_be_used_is_69() {
    let server = Server::builder().password("t0p-secret").start();
    let wrong = server.url().replace("t0p-secret", "guess");
    for (url, says) in [(CLOSED_PORT, "cannot be reached"), (&wrong, "password")] {
        let ended = output(&mut permits(url, ["watch", "x", "--store-timeout", "0"]));
        assert_eq!((ended.code, ended.stdout.as_str()), (69, ""), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
    let (server, name) = fresh();
    server.command(&["SET", &format!("permits:{{{name}}}:state"), "not ours"]);
    let foreign = output(&mut command(&server, &name, &[]));
    assert_eq!((foreign.code, foreign.stdout.as_str()), (69, ""), "{}", foreign.stderr);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the system has one");
    let mut watch = command(&Local::new(), &name, &[]);
    let mut guard = ChildGuard::spawn(watch.stdout(full).stderr(std::process::Stdio::null()));
    assert_eq!(crate::support::code(guard.wait_timeout(HANGS).expect("it ends")), 71);
}

#[test]
fn people_get_sentences() {
    let (server, name) = fresh();
    let watch = Running::until(&mut command(&server, &name, &[]), "0 of 1 held, 0 waiting\n");
    let client = permits::Client::connect(&server.url()).wait().expect("the store is up");
    client.named(&name, Limit::Stored).close_line("moved").wait().expect("it is ours");
    watch.prints(" closed the line: moved\n");
    let refused = output(&mut run(&server, &name, "--no-wait", "true"));
    assert_eq!(refused.code, 75);
    watch.prints("Z  counted: 1 refused\n");
    ended(watch);
}
