//! `permits hold`: the line protocol.

use std::io::{PipeWriter, Write as _};
use std::process::Command;

use permits_testkit::{ChildGuard, HANGS, Server, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    CLOSED_PORT, Output, Running, Store, ageless, assert_own_lines, code, counts, fresh, gate, json_lines,
    on_a_server, on_both_stores, output, permits, prepare, revoke, run, status, until_counts,
};

on_both_stores! {
    a_line_releases,
    the_wait_is_reported,
}

on_a_server! {
    the_end_of_the_input_releases,
    the_end_of_the_input_ends_the_wait,
    a_revoked_permit_is_lost,
    a_renewal_is_answered,
    a_count_corrects_what_the_grant_counts_for,
    no_permit_in_time_is_a_failure,
    several_permits_are_held,
    sigterm_releases,
    signals_of_the_terminal_are_left_to_the_program,
    the_end_of_the_parent_releases,
    a_grant_that_cannot_be_reported_is_released,
    a_reader_that_reads_nothing_delays_nothing,
}

/// A running `permits hold`, with its standard input.
struct Hold {
    running: Running,
    input: PipeWriter,
}

impl Hold {
    #[track_caller]
    fn start(store: &dyn Store, name: &str, options: &str) -> Self {
        let mut command = hold(store, name, options);
        let input = gate(&mut command);
        Self { running: Running::start(&mut command), input }
    }

    #[track_caller]
    fn granted(store: &dyn Store, name: &str, options: &str) -> Self {
        let hold = Self::start(store, name, options);
        hold.running.prints("\"granted\"");
        hold
    }

    #[track_caller]
    fn write(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).expect("a pipe takes a line");
    }

    /// The events so far.
    #[track_caller]
    fn events(&self) -> Vec<Value> {
        events(&self.running.stdout())
    }

    /// Closes the input, unless it has ended. Returns the result and its events.
    #[track_caller]
    fn finish(self) -> (Output, Vec<Value>) {
        let Self { running, input } = self;
        drop(input);
        let output = running.finish();
        let events = events(&output.stdout);
        (output, events)
    }
}

fn hold(store: &dyn Store, name: &str, options: &str) -> Command {
    let mut command = permits(&store.url(), ["hold", name]);
    command.args(options.split_whitespace());
    command
}

/// The events of an output.
#[track_caller]
fn events(stdout: &str) -> Vec<Value> {
    json_lines("hold.schema.json", stdout)
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
    let mut hold = Hold::granted(store, name, "--limit 3 --weight 2 --holder h --label l");
    let granted = hold.events().remove(0);
    let status = status(store, name);
    let holder = &status["holders"][0];
    for field in ["holder", "weight", "token", "slot"] {
        assert_eq!(granted[field], holder[field], "{field}");
    }
    assert_eq!((&granted["name"], &granted["also"]), (&json!(name), &json!([])));
    let remaining = granted["remaining_ms"].as_u64().expect("a number");
    assert!((1..=15_000).contains(&remaining), "{granted}");
    hold.write("release\n");
    assert_released(&hold.finish(), "asked on standard input");
    assert_eq!(counts(store, name), (0, 0));
}

fn the_end_of_the_input_releases(store: &dyn Store, name: &str) {
    let hold = Hold::granted(store, name, "--limit 1");
    assert_released(&hold.finish(), "standard input is closed");
    assert_eq!(counts(store, name), (0, 0));
}

fn the_wait_is_reported(store: &dyn Store, name: &str) {
    let mut first = Hold::granted(store, name, "--limit 1");
    let second = Hold::start(store, name, "");
    second.running.prints("\"position\":0");
    first.write("release\n");
    second.running.prints("\"granted\"");
    let (first, second) = (first.finish().1, second.finish().1);
    assert_eq!(names(&second), ["waiting", "granted", "released"]);
    assert_eq!(second[0], json!({"event": "waiting", "name": name, "position": 0}));
    assert!(second[1]["token"].as_u64() > first[0]["token"].as_u64());
}

fn the_end_of_the_input_ends_the_wait(store: &dyn Store, name: &str) {
    let holder = Hold::granted(store, name, "--limit 1");
    for line in ["", "release\n"] {
        let mut waiter = Hold::start(store, name, "");
        waiter.running.prints("\"waiting\"");
        waiter.write(line);
        let (output, events) = waiter.finish();
        assert_eq!((output.code, names(&events)), (0, vec!["waiting", "released"]));
        assert_eq!(counts(store, name), (1, 0), "it has left the line");
    }
    drop(holder);
}

fn a_revoked_permit_is_lost(store: &dyn Store, name: &str) {
    let hold = Hold::granted(store, name, "--limit 1 --holder h");
    revoke(store, name, "h", "enough");
    hold.running.prints("\"lost\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (76, vec!["granted", "lost"]));
    let reason = "the permit was revoked: enough";
    assert_eq!(events[1], json!({"event": "lost", "name": name, "reason": reason}));
    assert_eq!(output.stderr, format!("permits: {name:?}: {reason}\n"));
}

fn a_renewal_is_answered(store: &dyn Store, name: &str) {
    let mut hold = Hold::granted(store, name, "--limit 1");
    hold.write("what?\nrenew\n");
    hold.running.prints("\"held\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (0, vec!["granted", "held", "released"]));
    assert_eq!(output.stderr, "permits: \"what?\" is no command: write release, renew, or count UNITS\n");
}

fn a_count_corrects_what_the_grant_counts_for(store: &dyn Store, name: &str) {
    let mut hold = Hold::granted(store, name, "--limit 10 --weight 6 --at-least 1h");
    hold.write("count many\ncount 9\ncount 2\nrelease\n");
    let (ended, events) = hold.finish();
    assert!(
        ended.stderr.ends_with("\"count many\" is no command: write release, renew, or count UNITS\n"),
        "{}",
        ended.stderr
    );
    assert_released(&(ended, events), "asked on standard input");
    let state = status(store, name);
    assert_eq!((&state["held"], &state["cooling"]), (&json!(2), &json!(2)));
    let mut plain = Hold::granted(store, name, "");
    plain.write("count 2\nrelease\n");
    let (ended, _) = plain.finish();
    assert!(ended.code == 0 && ended.stderr.contains("at_least"), "{}", ended.stderr);
}

fn no_permit_in_time_is_a_failure(store: &dyn Store, name: &str) {
    let holder = Hold::granted(store, name, "--limit 1 --holder h");
    let reason = "no permit now: 1 of 1 held by h, 0 waiting";
    for (options, code, stderr) in [
        ("--no-wait", 75, format!("permits: {reason}\n")),
        ("--no-wait -E 9", 9, format!("permits: {reason}\n")),
        ("--no-wait -q", 75, String::new()),
    ] {
        let refused = Hold::start(store, name, options);
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
    let mut command = hold(store, name, "--limit 4");
    let input = gate(command.args(["--also", &format!("{narrow}=2:2")]));
    let hold = Hold { running: Running::until(&mut command, "\"granted\""), input };
    let granted = hold.events().remove(0);
    assert_eq!((&granted["name"], &granted["weight"]), (&json!(name), &json!(1)));
    let also = granted["also"].as_array().expect("a list");
    assert_eq!((also.len(), &also[0]["name"], &also[0]["weight"]), (1, &json!(narrow), &json!(2)));
    assert_eq!(also[0]["token"], status(store, &narrow)["holders"][0]["token"]);
    assert_released(&hold.finish(), "standard input is closed");
    assert_eq!((counts(store, name), counts(store, &narrow)), ((0, 0), (0, 0)));
}

fn sigterm_releases(store: &dyn Store, name: &str) {
    let hold = Hold::granted(store, name, "--limit 1");
    hold.running.signal(Signal::TERM);
    hold.running.prints("\"released\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (143, vec!["granted", "released"]));
    assert_eq!(events[1]["reason"], json!("signal 15"));
    assert_eq!(counts(store, name), (0, 0));
}

fn signals_of_the_terminal_are_left_to_the_program(store: &dyn Store, name: &str) {
    let mut hold = Hold::granted(store, name, "--limit 1");
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT] {
        hold.running.signal(signal);
    }
    hold.write("renew\n");
    hold.running.prints("\"held\"");
    assert_eq!(counts(store, name), (1, 0));
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (0, vec!["granted", "held", "released"]));
}

fn the_end_of_the_parent_releases(store: &dyn Store, name: &str) {
    // The input stays open: this process has its writer.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3<&0; \"$0\" hold \"$1\" --limit 1 <&3 & wait"]);
    shell.args([env!("CARGO_BIN_EXE_permits"), name]).env("PERMITS_URL", store.url());
    let input = gate(&mut shell);
    let mut parent = Running::until(&mut shell, "\"granted\"");
    parent.signal(Signal::KILL);
    assert_eq!(parent.guard.wait_timeout(HANGS).map(code), Some(137));
    parent.prints("\"released\"");
    assert_eq!(events(&parent.stdout())[1]["reason"], json!("the parent process has ended"));
    until_counts(store, name, (0, 0));
    drop(input);
}

fn a_grant_that_cannot_be_reported_is_released(store: &dyn Store, name: &str) {
    let mut command = hold(store, name, "--limit 1");
    let input = gate(&mut command);
    let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
    drop(reader);
    let mut hold = ChildGuard::spawn(command.stdout(writer));
    assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
    assert_eq!(counts(store, name), (0, 0));
    drop(input);
}

fn a_reader_that_reads_nothing_delays_nothing(store: &dyn Store, name: &str) {
    let mut command = hold(store, name, "--limit 1");
    let mut input = gate(&mut command);
    let (reader, mut writer) = std::io::pipe().expect("the system has a pipe to give");
    // Full, except for less than a line.
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a small pipe");
    writer.write_all(&[b'\n'; 4090]).expect("it has the space");
    let mut hold = ChildGuard::spawn(command.stdout(writer));
    until_counts(store, name, (1, 0));
    input.write_all(b"release\n").expect("a pipe takes a line");
    assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
    assert_eq!(counts(store, name), (0, 0));
    drop((reader, input));
}

#[test]
fn a_server_that_does_not_answer_makes_the_permit_unsure() {
    let (server, name) = fresh();
    let hold = Hold::granted(&server, &name, "--limit 1 --lease 30s");
    let mut client = server.connect().expect("it is up");
    // Renewals fail at once, in place of an answer that never comes: the connection is closed and refused.
    client.call(&["CONFIG", "SET", "requirepass", "s"]).expect("it answers");
    for kind in ["normal", "pubsub"] {
        client.call(&["CLIENT", "KILL", "TYPE", kind]).expect("it answers");
    }
    hold.running.prints("\"unsure\"");
    client.call(&["CONFIG", "SET", "requirepass", ""]).expect("it answers");
    hold.running.prints("\"held\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events)), (0, vec!["granted", "unsure", "held", "released"]));
    assert_own_lines(&output.stderr);
}

#[test]
fn a_permit_that_cannot_be_renewed_is_lost() {
    let (server, name) = fresh();
    let hold = Hold::granted(&server, &name, "--limit 1 --lease 1s");
    server.pause();
    hold.running.prints("\"lost\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events).last()), (76, Some(&"lost")));
    server.resume();
}

#[test]
fn a_store_that_cannot_be_reached_is_a_failure() {
    struct Closed;
    impl Store for Closed {
        fn url(&self) -> String {
            CLOSED_PORT.to_owned()
        }
    }
    let hold = Hold::start(&Closed, "x", "--limit 1 --wait 0 --store-timeout 100ms");
    hold.running.prints("\"failed\"");
    let (output, events) = hold.finish();
    assert_eq!((output.code, names(&events), &events[0]["exit_code"]), (69, vec!["failed"], &json!(69)));
    assert!(output.stderr.contains("127.0.0.1:1"), "{}", output.stderr);
}

#[test]
fn a_permit_of_hold_counts_beside_those_of_run() {
    let server = Server::start();
    prepare(&server, "x");
    let hold = Hold::granted(&server, "x", "--limit 1");
    assert_eq!(output(&mut run(&server, "x", "--no-wait", "true")).code, 75);
    assert!(wait::until(|| counts(&server, "x") == (1, 0)));
    drop(hold.finish());
    assert_eq!(output(&mut run(&server, "x", "--no-wait", "true")).code, 0);
}
