//! `permits acquire`, `permits renew` and `permits release`: a permit as a text between processes.

use std::io::Write as _;

use permits_testkit::{ChildGuard, HANGS};
use rustix::process::Signal;

use crate::support::{
    Output, Running, Store, assert_matches_schema, code, counts, gate, json, on_a_server, on_both_stores,
    output, permits, revoke, run, status, until_counts,
};

on_both_stores! {
    a_handle_is_held_renewed_and_released,
}

on_a_server! {
    the_lease_is_that_of_the_arguments,
    a_handle_whose_permit_has_gone_is_76,
    no_permit_in_time_is_75,
    json_has_the_token_and_the_slot,
    a_signal_ends_the_wait,
    a_handle_that_cannot_be_printed_is_released,
    without_standard_output_nothing_is_acquired,
}

/// `permits VERB -` with the handle on standard input.
#[track_caller]
fn with_handle(store: &dyn Store, verb: &str, handle: &str) -> Output {
    let mut command = permits(&store.url(), [verb, "-"]);
    let mut input = gate(&mut command);
    input.write_all(handle.as_bytes()).expect("a pipe takes a line");
    drop(input);
    output(&mut command)
}

/// The handle that `permits acquire NAME OPTIONS` prints.
#[track_caller]
fn acquired(store: &dyn Store, name: &str, options: &str) -> String {
    let mut command = permits(&store.url(), ["acquire", name]);
    let output = output(command.args(options.split_whitespace()));
    assert_eq!((output.code, output.stdout.lines().count()), (0, 1), "{}", output.stderr);
    output.stdout
}

#[track_caller]
fn succeeds(output: &Output) {
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""));
}

fn a_handle_is_held_renewed_and_released(store: &dyn Store, name: &str) {
    let handle = acquired(store, name, "--limit 2 --weight 2 --holder web-3 --label deploy");
    let shown = status(store, name);
    let holder = &shown["holders"][0];
    assert_eq!((&holder["holder"], &holder["weight"]), (&"web-3".into(), &2.into()));
    assert_eq!((&holder["label"], &shown["limit"]), (&"deploy".into(), &2.into()));
    for _ in 0..2 {
        succeeds(&output(&mut permits(&store.url(), ["renew", handle.trim()])));
        succeeds(&with_handle(store, "renew", &handle));
    }
    assert_eq!(counts(store, name), (1, 0));
    succeeds(&with_handle(store, "release", &handle));
    assert_eq!(counts(store, name), (0, 0));
}

fn the_lease_is_that_of_the_arguments(store: &dyn Store, name: &str) {
    for (options, at_least_ms, at_most_ms) in
        [("--limit 3", 200_000, 300_000), ("--lease 2h", 7_000_000, 7_200_000), ("--lease 10s", 1, 10_000)]
    {
        let handle = acquired(store, name, options);
        // A renewal of the handle keeps its lease.
        for _ in 0..2 {
            let remaining = status(store, name)["holders"][0]["lease_remaining_ms"].as_u64();
            assert!((Some(at_least_ms)..=Some(at_most_ms)).contains(&remaining), "{options}: {remaining:?}");
            succeeds(&with_handle(store, "renew", &handle));
        }
        succeeds(&with_handle(store, "release", &handle));
    }
}

fn a_handle_whose_permit_has_gone_is_76(store: &dyn Store, name: &str) {
    let handle = acquired(store, name, "--limit 1 --holder h");
    revoke(store, name, "h", "enough");
    for verb in ["renew", "release"] {
        let output = with_handle(store, verb, &handle);
        assert_eq!((output.code, output.stdout.as_str()), (76, ""));
        assert!(
            output.stderr.contains(&format!("no longer has this permit of {name:?}")),
            "{}",
            output.stderr
        );
        assert!(!output.stderr.contains("permits9:"), "a handle is a secret: {}", output.stderr);
    }
    assert_eq!(with_handle(store, "release", &acquired(store, name, "")).code, 0);
}

fn no_permit_in_time_is_75(store: &dyn Store, name: &str) {
    let handle = acquired(store, name, "--limit 1");
    for (options, code) in [("--no-wait", 75), ("--wait 100ms", 75), ("--no-wait -E 9", 9)] {
        let mut command = permits(&store.url(), ["acquire", name]);
        let output = output(command.args(options.split_whitespace()));
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{}", output.stderr);
        assert!(output.stderr.contains("1 of 1 held"), "{}", output.stderr);
    }
    let quiet = output(&mut permits(&store.url(), ["acquire", name, "--no-wait", "-q"]));
    assert_eq!((quiet.code, quiet.stderr.as_str()), (75, ""));
    assert_eq!(output(&mut run(store, name, "--no-wait", "true")).code, 75);
    succeeds(&with_handle(store, "release", &handle));
}

fn json_has_the_token_and_the_slot(store: &dyn Store, name: &str) {
    let printed = json(&mut permits(&store.url(), ["acquire", name, "--limit", "1", "--json"]));
    assert_matches_schema("acquire.schema.json", &printed);
    let holder = &status(store, name)["holders"][0];
    for field in ["holder", "weight", "token", "slot"] {
        assert_eq!(printed[field], holder[field], "{field}");
    }
    assert!(printed["remaining_ms"].as_u64() > Some(200_000), "{printed}");
    succeeds(&with_handle(store, "release", printed["handle"].as_str().expect("a text")));
}

fn a_signal_ends_the_wait(store: &dyn Store, name: &str) {
    let handle = acquired(store, name, "--limit 1");
    let waiter = Running::start(&mut permits(&store.url(), ["acquire", name]));
    until_counts(store, name, (1, 1));
    waiter.signal(Signal::TERM);
    let waiter = waiter.finish();
    assert_eq!((waiter.code, waiter.stdout.as_str()), (143, ""));
    until_counts(store, name, (1, 0));
    succeeds(&with_handle(store, "release", &handle));
}

fn a_handle_that_cannot_be_printed_is_released(store: &dyn Store, name: &str) {
    for options in [&["--limit", "1"][..], &["--json"]] {
        let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
        drop(reader);
        let mut command = permits(&store.url(), ["acquire", name]);
        let mut acquire = ChildGuard::spawn(command.args(options).stdout(writer));
        assert_eq!(acquire.wait_timeout(HANGS).map(code), Some(71));
        assert_eq!(counts(store, name), (0, 0));
    }
}

#[test]
fn an_input_without_a_handle_is_64() {
    let store = crate::support::Local::new();
    let endless = "x".repeat(5000);
    for (input, reason) in [
        ("", "it does not begin with permits and a number"),
        ("hello\n", "it does not begin with permits and a number"),
        (&endless, "it does not begin with permits and a number"),
        ("permits9:a:b\n", "it has fewer than 8 parts"),
    ] {
        let output = with_handle(&store, "release", input);
        assert_eq!((output.code, output.stdout.as_str()), (64, ""));
        assert!(output.stderr.contains(reason), "{}", output.stderr);
    }
}

fn without_standard_output_nothing_is_acquired(store: &dyn Store, name: &str) {
    let script = "\"$P\" acquire \"$NAME\" --limit 1 >&-; echo $?; \"$P\" acquire \"$NAME\" --limit 1 1<>/dev/null; echo $?";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).env("P", env!("CARGO_BIN_EXE_permits")).env("NAME", name);
    let Output { stdout, stderr, .. } = output(shell.env("PERMITS_URL", store.url()));
    assert_eq!(stdout, "71\n0\n", "/dev/null is a choice: {stderr}");
    assert_eq!(stderr, "permits: standard output is closed: no reader would have the handle\n");
    assert_eq!(counts(store, name), (1, 0));
}
