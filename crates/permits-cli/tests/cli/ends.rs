//! The end of `permits run`: exit codes, the environment of the command, and a clean store.

use std::fs;
use std::io::Write as _;

use permits_testkit::{Proxy, Server, wait};
use serde_json::json;

use crate::support::{
    Holder, Running, Store, ageless, assert_own_lines, counts, fresh, gate, on_a_server, on_both_stores,
    output, permits, prepare, run, status,
};

on_both_stores! {
    the_code_of_the_command_is_passed_on,
    the_command_knows_its_permit,
}

on_a_server! {
    the_command_inherits_the_standard_streams,
    a_command_that_cannot_run_holds_nothing,
    no_permit_in_time_is_75,
    a_name_that_is_held_already_has_the_end_of_its_lease,
    without_a_limit_the_stored_one_counts,
    a_weight_over_the_limit_is_64,
    a_run_reports_the_limit_that_it_replaces,
    a_required_limit_is_not_replaced,
    a_script_can_choose_the_code_of_no_permit_and_silence,
    a_stop_by_an_operator_is_no_permit_that_others_hold,
    options_of_the_command_are_its_own_without_dashes_too,
}

fn the_code_of_the_command_is_passed_on(store: &dyn Store, name: &str) {
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137)] {
        let output = output(&mut run(store, name, "--limit 1", script));
        assert_eq!((output.code, output.stderr.as_str()), (code, ""), "{script}");
        // The permit was released before the exit.
        assert_eq!(counts(store, name), (0, 0), "{script}");
    }
}

fn the_command_knows_its_permit(store: &dyn Store, name: &str) {
    let script =
        r#"printf '%s\n' "$PERMITS_NAME" "$PERMITS_HOLDER" "$PERMITS_TOKEN" "$PERMITS_SLOT"; read x"#;
    let mut command = run(store, name, "--limit 5 --weight 2 --holder web-3", script);
    let gate = gate(&mut command);
    let running = Running::until(&mut command, "\n0\n");
    let status = status(store, name);
    let token = status["holders"][0]["token"].as_u64().expect("a token");
    assert_eq!(running.stdout(), format!("{name}\nweb-3\n{token}\n0\n"));
    drop(gate);
    assert_eq!(running.finish().code, 1, "the shell found the end of its input");
}

fn the_command_inherits_the_standard_streams(store: &dyn Store, name: &str) {
    let mut input = tempfile::tempfile().expect("a temporary file");
    let bytes: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    input.write_all(bytes.as_bytes()).expect("it has room");
    std::io::Seek::rewind(&mut input).expect("it is a file");
    let mut command = run(store, name, "--limit 1", "cat; echo to stderr >&2");
    let output = output(command.stdin(input));
    assert_eq!((output.code, output.stderr.as_str()), (0, "to stderr\n"));
    assert!(output.stdout == bytes, "the output is the input");
}

fn a_command_that_cannot_run_holds_nothing(store: &dyn Store, name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let plain = directory.path().join("plain");
    fs::write(&plain, "no program").expect("it can be written");
    let (plain, directory) = (plain.to_str().expect("plain text"), directory.path().to_str().expect("text"));
    for (program, code, reason) in [
        ("no-such-command-anywhere", 127, "command not found: \"no-such-command-anywhere\""),
        ("/no/such/path", 127, "command not found"),
        ("", 127, "command not found"),
        (plain, 126, "cannot execute"),
        (directory, 126, "cannot execute"),
    ] {
        let output = output(&mut permits(&store.url(), ["run", name, "--limit", "1", "--", program]));
        assert_eq!(output.code, code, "{program}: {}", output.stderr);
        assert!(output.stderr.contains(reason), "{}", output.stderr);
        assert_own_lines(&output.stderr);
        assert_eq!(counts(store, name), (0, 0));
    }
}

#[test]
fn no_password_is_shown_when_the_server_goes_away() {
    let server = Server::builder().password("t0p-secret").start();
    let options = "--limit 1 --lease 2s -vvv";
    let running = Holder::start(&server, "x", options);
    server.kill();
    let output = running.finish();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert!(output.stderr.contains("connecting again"), "{}", output.stderr);
    assert!(!output.stderr.contains("t0p-secret"), "{}", output.stderr);
}

#[test]
fn foreign_keys_are_69() {
    let (server, name) = fresh();
    server.command(&["SET", &format!("permits:{{{name}}}:state"), "not ours"]);
    let output = output(&mut run(&server, &name, "--limit 1", "echo ran"));
    assert_eq!((output.code, output.stdout.as_str()), (69, ""));
    assert!(output.stderr.contains("WRONGTYPE"), "{}", output.stderr);
}

fn no_permit_in_time_is_75(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 1 --holder first");
    for (options, reason) in [
        ("--no-wait", "no permit now: 1 of 1 held by first, 0 waiting\n"),
        ("--wait 0", "no permit now: 1 of 1 held by first, 0 waiting\n"),
        ("--wait 200ms", "no permit within 200ms: 1 of 1 held by first, 0 waiting\n"),
        ("--holder first --no-wait", "holder \"first\" holds or waits for a permit already"),
        ("--holder first", "holder \"first\" holds or waits for a permit already"),
    ] {
        let output = output(&mut run(store, name, options, "echo ran"));
        assert_eq!((output.code, output.stdout.as_str()), (75, ""), "{options}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(ageless(&output.stderr).contains(reason), "{options}: {}", output.stderr);
        assert_own_lines(&output.stderr);
        assert_eq!(counts(store, name), (1, 0), "{options}");
    }
    drop(holder);
}

fn a_name_that_is_held_already_has_the_end_of_its_lease(store: &dyn Store, name: &str) {
    // As a process leaves it that has died.
    assert_eq!(
        output(&mut permits(
            &store.url(),
            ["acquire", name, "--limit", "1", "--lease", "5h", "--holder", "web-3"]
        ))
        .code,
        0
    );
    let refused = output(&mut run(store, name, "--holder web-3", "echo ran"));
    let says = "permits: holder \"web-3\" holds or waits for a permit already; its lease ends in 4 h ";
    assert_eq!((refused.code, refused.stdout.as_str()), (75, ""));
    assert!(refused.stderr.starts_with(says), "{}", refused.stderr);
}

fn without_a_limit_the_stored_one_counts(store: &dyn Store, _: &str) {
    let name = "unused";
    let refused = output(&mut run(store, name, "", "echo ran"));
    assert_eq!((refused.code, refused.stdout.as_str()), (64, ""));
    assert!(refused.stderr.contains("--limit N"), "{}", refused.stderr);
    assert!(refused.stderr.contains("permits limit NAME N"), "{}", refused.stderr);

    assert_eq!(output(&mut run(store, name, "--limit 2", "true")).code, 0);
    assert_eq!(output(&mut run(store, name, "", "echo ran")).stdout, "ran\n");
    assert_eq!(status(store, name)["limit"], json!(2));
}

fn a_weight_over_the_limit_is_64(store: &dyn Store, name: &str) {
    prepare(store, name);
    for (options, exceeded) in [("--limit 2 --weight 3", 2), ("--weight 2", 1)] {
        let output = output(&mut run(store, name, options, "echo ran"));
        assert_eq!((output.code, output.stdout.as_str()), (64, ""));
        let says = format!("exceeds the limit of {exceeded}");
        assert!(output.stderr.contains(&says), "{}", output.stderr);
        assert_eq!(status(store, name)["limit"], 1, "the refused request has changed nothing");
    }
}

fn a_run_reports_the_limit_that_it_replaces(store: &dyn Store, name: &str) {
    prepare(store, name);
    let first = output(&mut run(store, name, "--limit 4", "true"));
    assert_eq!((first.code, first.stderr.lines().count()), (0, 1), "{}", first.stderr);
    assert!(first.stderr.contains("from=1, to=4"), "{}", first.stderr);
    assert_eq!(output(&mut run(store, name, "--limit 4", "true")).stderr, "");
}

fn a_required_limit_is_not_replaced(store: &dyn Store, name: &str) {
    prepare(store, name);
    let refused = output(&mut run(store, name, "--limit 4 --require-limit", "echo ran"));
    assert_eq!((refused.code, refused.stdout.as_str()), (64, ""));
    assert!(refused.stderr.contains("has a limit of 1, not 4"), "{}", refused.stderr);
    assert_eq!(status(store, name)["limit"], 1);
    assert_eq!(output(&mut run(store, name, "--limit 1 --require-limit", "echo ran")).stdout, "ran\n");
}

fn a_script_can_choose_the_code_of_no_permit_and_silence(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 1 --holder first");
    for options in ["--no-wait", "--wait 100ms", "--holder first"] {
        let silent = output(&mut run(store, name, &format!("{options} -q -E 0"), "echo ran"));
        assert_eq!((silent.code, silent.stdout.as_str(), silent.stderr.as_str()), (0, "", ""), "{options}");
        let reported =
            output(&mut run(store, name, &format!("{options} --conflict-exit-code 9"), "echo ran"));
        assert_eq!(
            (reported.code, reported.stderr.lines().count()),
            (9, 1),
            "{options}: {}",
            reported.stderr
        );
    }
    // `-q` and `-E` apply to no other failure.
    let refused = output(&mut run(store, name, "--limit 2 --require-limit -q -E 0", "echo ran"));
    assert_eq!(refused.code, 64);
    assert!(refused.stderr.contains("has a limit of 1, not 2"), "{}", refused.stderr);
}

fn a_stop_by_an_operator_is_no_permit_that_others_hold(store: &dyn Store, name: &str) {
    for (stop, end, reason) in [("pause", "resume", "paused"), ("close", "open", "the line is closed")] {
        assert_eq!(output(&mut permits(&store.url(), [stop, name])).code, 0);
        for options in ["--no-wait", "--wait 100ms"] {
            let refused = output(&mut run(store, name, &format!("--limit 1 {options} -q -E 0"), "echo ran"));
            assert_eq!((refused.code, refused.stdout.as_str()), (75, ""), "{stop} {options}");
            assert!(refused.stderr.contains(reason), "{stop} {options}: {}", refused.stderr);
        }
        assert_eq!(output(&mut permits(&store.url(), [end, name])).code, 0);
    }
}

#[test]
fn a_store_that_falls_silent_during_the_wait_is_69() {
    let (server, name) = fresh();
    let _holder = Holder::start(&server, &name, "--limit 1 --lease 1h");
    let mut seconds = 2;
    loop {
        let proxy = Proxy::start(server.address());
        let script = ["run", &name, "--wait", &format!("{seconds}s"), "-q", "-E", "0", "echo", "ran"];
        let mut waiter = Running::start(&mut permits(&proxy.url(), script));
        let waits = wait::until(|| !waiter.guard.is_running() || counts(&server, &name) == (1, 1));
        assert!(waits, "it joins the queue");
        proxy.stall(true);
        // Else its time was over before.
        if counts(&server, &name) == (1, 1) {
            let ended = waiter.finish();
            assert_eq!((ended.code, ended.stdout.as_str()), (69, ""), "{}", ended.stderr);
            assert_own_lines(&ended.stderr);
            return;
        }
        seconds *= 2;
    }
}

fn options_of_the_command_are_its_own_without_dashes_too(store: &dyn Store, name: &str) {
    for dashes in [&[][..], &["--"]] {
        let options = ["run", name, "--limit", "1"];
        let command = ["echo", "-v", "--url", "x", "--", "--limit", "-n"];
        let output = output(&mut permits(&store.url(), [&options, dashes, &command].concat()));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        assert_eq!(output.stdout, "-v --url x -- --limit -n\n");
    }
}

#[test]
fn a_store_of_this_process_alone_serves() {
    let output =
        output(&mut permits("memory:", ["run", "x", "--limit", "1", "--no-wait", "--", "echo", "ran"]));
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "ran\n", ""));
}

#[test]
fn a_silent_store_does_not_delay_the_exit_code_for_long() {
    let (server, name) = fresh();
    let proxy = Proxy::start(server.address());
    let mut command = permits(&proxy.url(), ["run", &name, "--limit", "1", "--"]);
    command.args(["sh", "-c", "echo ready; read x; exit 3"]);
    let gate = gate(&mut command);
    let running = Running::until(&mut command, "ready");
    proxy.stall(true);
    drop(gate);
    let output = running.finish();
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert_own_lines(&output.stderr);
}
