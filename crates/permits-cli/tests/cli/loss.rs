//! The permit is lost: the command is ended, the code is 76, and standard error says why.

use std::time::{Duration, Instant};

use permits_testkit::wait;
use rustix::process::Signal;

use crate::support::{
    LIMIT, Running, Store, assert_own_lines, counts, fresh, gate, is_alive, on_both_stores, output, revoke,
    run, send,
};

on_both_stores! {
    a_revoked_permit_ends_the_command,
    a_command_that_will_not_end_is_killed_with_its_group,
    a_stopped_command_hears_of_the_loss,
    a_loss_while_suspended_is_noticed_at_once,
    a_loss_that_is_noticed_after_the_command_has_ended_is_76,
}

/// Says `ready`, and `asked` when it is asked to end. Some shells tell on standard error how their children
/// ended.
const ASKED: &str =
    r#"exec 2> /dev/null; trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.02; done"#;

fn a_revoked_permit_ends_the_command(store: &dyn Store, name: &str) {
    let running = Running::until(&mut run(store, name, "--limit 1 --holder h", ASKED), "ready");
    revoke(store, name, "h", "the building is on fire");
    let output = running.finish();
    assert_eq!((output.code, output.stdout.as_str()), (76, "ready\nasked\n"));
    assert!(output.stderr.contains("the building is on fire"), "{}", output.stderr);
    assert_own_lines(&output.stderr);
    assert_eq!(counts(store, name), (0, 0));
}

#[test]
fn a_server_that_is_gone_ends_the_command_when_the_lease_does() {
    let (server, name) = fresh();
    let running = Running::until(&mut run(&server, &name, "--limit 1 --lease 2s", ASKED), "ready");
    server.kill();
    let output = running.finish();
    assert_eq!((output.code, output.stdout.as_str()), (76, "ready\nasked\n"));
    assert!(output.stderr.contains("it could not be renewed in time"), "{}", output.stderr);
    assert_own_lines(&output.stderr);
}

#[test]
fn a_server_that_comes_back_in_time_changes_nothing() {
    let (server, name) = fresh();
    let mut command = run(&server, &name, "--limit 1", "echo ready; read x; exit 3");
    let gate = gate(&mut command);
    let running = Running::until(&mut command, "ready");
    server.kill();
    server.restart();
    assert!(wait::until(LIMIT, || counts(&server, &name) == (1, 0)), "the holder is there again");
    drop(gate);
    assert_eq!(running.finish().code, 3);
}

fn a_command_that_will_not_end_is_killed_with_its_group(store: &dyn Store, name: &str) {
    // The shell dies at once; what it has started is as stubborn as can be.
    let script =
        r#"exec 2> /dev/null; sh -c 'trap "" TERM INT HUP; echo $$; while :; do sleep 0.1; done'; true"#;
    let running = Running::until(&mut run(store, name, "--limit 1 --holder h", script), "\n");
    let stubborn: u32 = running.stdout().trim().parse().expect("a process id");
    let began = Instant::now();
    revoke(store, name, "h", "");
    let output = running.finish();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert_eq!(output.stderr, "permits: the permit was revoked; ending the command\n");
    assert!(!is_alive(stubborn));
    assert!(began.elapsed() >= Duration::from_secs(5), "it had its time");
}

fn a_stopped_command_hears_of_the_loss(store: &dyn Store, name: &str) {
    let script = format!("echo $$; {ASKED}");
    let running = Running::until(&mut run(store, name, "--limit 1 --holder h", &script), "ready");
    let child: u32 = running.stdout().lines().next().and_then(|pid| pid.parse().ok()).expect("a process id");
    send(child, Signal::STOP);
    revoke(store, name, "h", "");
    let output = running.finish();
    assert_eq!(output.code, 76);
    assert!(output.stdout.ends_with("asked\n"), "{}", output.stdout);
}

fn a_loss_while_suspended_is_noticed_at_once(store: &dyn Store, name: &str) {
    let mut running = Running::until(&mut run(store, name, "--limit 1 --lease 2s", ASKED), "ready");
    running.guard.pause();
    // Granted when the lease has ended.
    assert_eq!(output(&mut run(store, name, "--lease 2s", "echo ran")).stdout, "ran\n");
    running.guard.resume();
    let output = running.finish();
    assert_eq!((output.code, output.stdout.as_str()), (76, "ready\nasked\n"), "{}", output.stderr);
}

fn a_loss_that_is_noticed_after_the_command_has_ended_is_76(store: &dyn Store, name: &str) {
    let mut command = run(store, name, "--limit 1 --lease 2s", "echo ready; read x; exit 0");
    let gate = gate(&mut command);
    let mut running = Running::until(&mut command, "ready");
    running.guard.pause();
    assert_eq!(output(&mut run(store, name, "--lease 2s", "echo ran")).stdout, "ran\n");
    drop(gate);
    running.guard.resume();
    let output = running.finish();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert_own_lines(&output.stderr);
}
