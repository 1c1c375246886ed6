//! The end of the program, or of the command: every permit is released, and every wait ended.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;

use permits_testkit::{ChildGuard, HANGS};
use rustix::process::Signal;
use serde_json::json;

use super::{Hold, names_of};
use crate::support::{Running, Store, code, counts, gate, json_lines, on_a_server, permits, until_counts};

on_a_server! {
    the_end_of_the_input_releases_all,
    sigterm_releases_all,
    signals_of_the_terminal_are_left_to_the_program,
    the_end_of_the_parent_releases_all,
    an_output_that_is_closed_releases_all,
    a_killed_command_keeps_permits_for_a_lease,
}

/// A command with two permits and a waiter.
#[track_caller]
fn with_a_waiter(store: &dyn Store, name: &str) -> Hold {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 2}));
    many.granted(json!({"id": 2, "acquire": name}));
    many.write(json!({"id": 3, "acquire": name}));
    many.event(3, "waiting");
    many
}

/// Demands that each id was released for this reason, and that nothing is left.
#[track_caller]
fn assert_all_released(many: Hold, store: &dyn Store, name: &str, code: i32, reason: &str) {
    let (output, events) = many.finish();
    assert_eq!(output.code, code, "{}", output.stderr);
    for (id, expected) in [(1, vec!["granted"]), (2, vec!["granted"]), (3, vec!["waiting"])] {
        assert_eq!(names_of(&events, &json!(id)), [expected, vec!["released"]].concat());
        assert_eq!(super::named(&events, &json!(id), "released").expect("it is there")["reason"], reason);
    }
    assert_eq!(counts(store, name), (0, 0));
}

fn the_end_of_the_input_releases_all(store: &dyn Store, name: &str) {
    let many = with_a_waiter(store, name);
    assert_all_released(many, store, name, 0, "standard input is closed");
}

fn sigterm_releases_all(store: &dyn Store, name: &str) {
    let many = with_a_waiter(store, name);
    many.running.signal(Signal::TERM);
    many.event(3, "released");
    assert_all_released(many, store, name, 143, "signal 15");
}

fn signals_of_the_terminal_are_left_to_the_program(store: &dyn Store, name: &str) {
    let mut many = with_a_waiter(store, name);
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT] {
        many.running.signal(signal);
    }
    many.write(json!({"id": 2, "renew": true}));
    many.event(2, "held");
    assert_eq!(counts(store, name), (2, 1));
    assert_eq!(many.finish().0.code, 0);
}

fn the_end_of_the_parent_releases_all(store: &dyn Store, name: &str) {
    // The input stays open: this process has its writer.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3<&0; \"$0\" hold --many <&3 & wait"]);
    shell.arg(env!("CARGO_BIN_EXE_permits")).env("PERMITS_URL", store.url());
    let mut input = gate(&mut shell);
    let mut parent = Running::start(&mut shell);
    let line = json!({"id": 1, "acquire": name, "limit": 1});
    writeln!(input, "{line}").expect("a pipe takes a line");
    parent.prints("\"granted\"");
    parent.signal(Signal::KILL);
    assert_eq!(parent.guard.wait_timeout(HANGS).map(code), Some(137));
    parent.prints("\"released\"");
    let events = json_lines("hold.schema.json", &parent.stdout());
    assert_eq!(events[2]["reason"], "the parent process has ended");
    until_counts(store, name, (0, 0));
}

fn an_output_that_is_closed_releases_all(store: &dyn Store, name: &str) {
    let mut command = permits(&store.url(), ["hold", "--many"]);
    let mut input = gate(&mut command);
    let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
    let mut hold = ChildGuard::spawn(command.stdout(writer));
    drop(command);
    let line = json!({"id": 1, "acquire": name, "limit": 1});
    writeln!(input, "{line}").expect("a pipe takes a line");
    let mut reader = BufReader::new(reader);
    let mut first = String::new();
    for event in ["hello", "granted"] {
        first.clear();
        reader.read_line(&mut first).expect("it writes");
        assert!(first.contains(event), "{first}");
    }
    // Nothing is written from here on, so no write fails.
    drop(reader);
    assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
    assert_eq!(counts(store, name), (0, 0));
}

fn a_killed_command_keeps_permits_for_a_lease(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 2, "lease_ms": 1000}));
    many.granted(json!({"id": 2, "acquire": name, "lease_ms": 1000}));
    many.running.signal(Signal::KILL);
    assert_eq!(many.finish().0.code, 137);
    until_counts(store, name, (0, 0));
}
