//! `permits hold NAME`: its words, its events without an id, and its exit codes.

use std::process::Command;

use permits_testkit::{ChildGuard, HANGS};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::Hold;

use crate::support::{
    Output, Store, ageless, code, counts, gate, on_a_server, on_both_stores, permits, prepare, revoke, status,
};

on_both_stores! {
    a_line_releases,
    the_wait_is_reported,
}

on_a_server! {
    the_end_of_the_input_ends_the_wait,
    a_revoked_permit_is_lost,
    a_renewal_is_answered,
    a_count_corrects_what_the_grant_counts_for,
    no_permit_in_time_is_a_failure,
    several_permits_are_held,
    a_grant_that_cannot_be_reported_is_released,
    a_signal_releases_and_is_the_exit_code,
}

impl Hold {
    #[track_caller]
    fn one(store: &dyn Store, name: &str, options: &str) -> Self {
        Self::of(&mut command(store, name, options))
    }

    /// A hold that has its permit.
    #[track_caller]
    fn one_granted(store: &dyn Store, name: &str, options: &str) -> Self {
        let hold = Self::one(store, name, options);
        hold.running.prints("\"granted\"");
        hold
    }
}

fn command(store: &dyn Store, name: &str, options: &str) -> Command {
    let mut command = permits(&store.url(), ["hold", name]);
    command.args(options.split_whitespace());
    command
}

/// The names of events.
fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().expect("each has a name")).collect()
}

/// Demands that it was granted and then released, for this reason.
#[track_caller]
fn assert_released((output, events): &(Output, Vec<Value>), reason: &str) {
    assert_eq!((output.code, names(events)), (0, vec!["granted", "released"]), "{}", output.stderr);
    assert_eq!(events[1]["reason"], json!(reason));
}

fn a_line_releases(store: &dyn Store, name: &str) {
    let mut hold = Hold::one_granted(store, name, "--limit 3 --weight 2 --holder h --label l");
    let granted = hold.lines().remove(0);
    let status = status(store, name);
    let holder = &status["holders"][0];
    for field in ["holder", "weight", "token", "slot"] {
        assert_eq!(granted[field], holder[field], "{field}");
    }
    assert_eq!((&granted["name"], &granted["also"]), (&json!(name), &json!([])));
    let remaining = granted["remaining_ms"].as_u64().expect("a number");
    assert!((1..=15_000).contains(&remaining), "{granted}");
    hold.write_text("release");
    assert_released(&hold.finish(), "asked by the program");
    assert_eq!(counts(store, name), (0, 0));
}

fn the_wait_is_reported(store: &dyn Store, name: &str) {
    let mut first = Hold::one_granted(store, name, "--limit 1");
    let second = Hold::one(store, name, "");
    second.running.prints("\"position\":0");
    first.write_text("release");
    second.running.prints("\"granted\"");
    let (first, second) = (first.finish().1, second.finish().1);
    assert_eq!(names(&second), ["waiting", "granted", "released"]);
    assert_eq!(second[0], json!({"event": "waiting", "name": name, "position": 0}));
    assert!(second[1]["token"].as_u64() > first[0]["token"].as_u64());
}

fn the_end_of_the_input_ends_the_wait(store: &dyn Store, name: &str) {
    let holder = Hold::one_granted(store, name, "--limit 1");
    for line in ["", "release"] {
        let mut waiter = Hold::one(store, name, "");
        waiter.running.prints("\"waiting\"");
        waiter.write_text(line);
        let (output, events) = waiter.finish();
        assert_eq!((output.code, names(&events)), (0, vec!["waiting", "released"]));
        assert_eq!(counts(store, name), (1, 0), "it has left the line");
    }
    drop(holder);
}

fn a_revoked_permit_is_lost(store: &dyn Store, name: &str) {
    let hold = Hold::one_granted(store, name, "--limit 1 --holder h");
    revoke(store, name, "h", "enough");
    hold.running.prints("\"lost\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (76, vec!["granted", "lost"]));
    let reason = "the permit was revoked: enough";
    assert_eq!(events[1], json!({"event": "lost", "name": name, "reason": reason}));
    assert_eq!(output.stderr, format!("permits: {name:?}: {reason}\n"));
}

fn a_renewal_is_answered(store: &dyn Store, name: &str) {
    let mut hold = Hold::one_granted(store, name, "--limit 1");
    hold.write_text("what?\nrenew");
    hold.running.prints("\"held\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (0, vec!["granted", "held", "released"]));
    assert_eq!(output.stderr, "permits: \"what?\" is no command: write release, renew, or count UNITS\n");
}

fn a_count_corrects_what_the_grant_counts_for(store: &dyn Store, name: &str) {
    let mut hold = Hold::one_granted(store, name, "--limit 10 --weight 6 --at-least 1h");
    hold.write_text("count many\ncount 9\ncount 2\nrelease");
    let (ended, events) = hold.finish();
    // A warning of the library may come before or after it.
    let refused = "\"count many\" is no command: write release, renew, or count UNITS\n";
    assert!(ended.stderr.contains(refused), "{}", ended.stderr);
    assert_released(&(ended, events), "asked by the program");
    let state = status(store, name);
    assert_eq!((&state["held"], &state["cooling"]), (&json!(2), &json!(2)));
    // A count is for the named semaphore, and not for the others of a set.
    prepare(store, "a");
    let mut command = command(store, name, "--weight 6 --at-least 1h");
    let mut several = Hold::of(command.args(["--also", "a"]));
    several.running.prints("\"granted\"");
    several.write_text("count 3\nrelease");
    assert_released(&several.finish(), "asked by the program");
    assert_eq!((&status(store, name)["cooling"], &status(store, "a")["cooling"]), (&json!(5), &json!(0)));
    let mut plain = Hold::one_granted(store, name, "");
    plain.write_text("count 2\nrelease");
    let (ended, _) = plain.finish();
    assert!(ended.code == 0 && ended.stderr.contains("at_least"), "{}", ended.stderr);
}

fn no_permit_in_time_is_a_failure(store: &dyn Store, name: &str) {
    let holder = Hold::one_granted(store, name, "--limit 1 --holder h");
    let reason = "no permit now: 1 of 1 held by h, 0 waiting";
    for (options, code, stderr) in [
        ("--no-wait", 75, format!("permits: {reason}\n")),
        ("--no-wait -E 9", 9, format!("permits: {reason}\n")),
        ("--no-wait -q", 75, String::new()),
    ] {
        let refused = Hold::one(store, name, options);
        refused.running.prints("\n");
        let (output, events) = refused.finish();
        assert_eq!((&events[0]["event"], &events[0]["exit_code"]), (&json!("failed"), &json!(code)));
        assert_eq!(ageless(events[0]["reason"].as_str().expect("a text")), reason);
        assert_eq!((output.code, ageless(&output.stderr)), (code, stderr));
    }
    drop(holder);
}

fn several_permits_are_held(store: &dyn Store, name: &str) {
    let narrow = format!("{name}/tenant 7");
    prepare(store, &narrow);
    let mut command = command(store, name, "--limit 4");
    let hold = Hold::of(command.args(["--also", &format!("{narrow}=2:2")]));
    hold.running.prints("\"granted\"");
    let granted = hold.lines().remove(0);
    assert_eq!((&granted["name"], &granted["weight"]), (&json!(name), &json!(1)));
    let also = granted["also"].as_array().expect("a list");
    assert_eq!((also.len(), &also[0]["name"], &also[0]["weight"]), (1, &json!(narrow), &json!(2)));
    assert_eq!(also[0]["token"], status(store, &narrow)["holders"][0]["token"]);
    assert_released(&hold.finish(), "standard input is closed");
    assert_eq!((counts(store, name), counts(store, &narrow)), ((0, 0), (0, 0)));
}

fn a_grant_that_cannot_be_reported_is_released(store: &dyn Store, name: &str) {
    let mut command = command(store, name, "--limit 1");
    let input = gate(&mut command);
    let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
    drop(reader);
    let mut hold = ChildGuard::spawn(command.stdout(writer));
    assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
    assert_eq!(counts(store, name), (0, 0));
    drop(input);
}

fn a_signal_releases_and_is_the_exit_code(store: &dyn Store, name: &str) {
    let hold = Hold::one_granted(store, name, "--limit 1");
    hold.running.signal(Signal::TERM);
    hold.running.prints("\"released\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (143, vec!["granted", "released"]), "{}", output.stderr);
    assert_eq!(counts(store, name), (0, 0));
}
