//! The ends of `permits run` that [`calls`](crate::calls) cannot show: large streams, and a store that goes
//! away.

use std::io::Write as _;

use permits_testkit::{Proxy, Server, wait};

use crate::support::{Holder, Running, assert_own_lines, counts, fresh, gate, output, permits, run};

#[test]
fn the_command_inherits_the_standard_streams() {
    let (server, name) = fresh();
    let mut input = tempfile::tempfile().expect("a temporary file");
    let bytes: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    input.write_all(bytes.as_bytes()).expect("it has room");
    std::io::Seek::rewind(&mut input).expect("it is a file");
    let mut command = run(&server, &name, "--limit 1", "cat; echo to stderr >&2");
    let output = output(command.stdin(input));
    assert_eq!((output.code, output.stderr.as_str()), (0, "to stderr\n"));
    assert!(output.stdout == bytes, "the output is the input");
}

#[test]
fn no_password_is_shown_when_the_server_goes_away() {
    let server = Server::builder().password("t0p-secret").start();
    let options = "--limit 1 --lease 2s -vvv";
    let running = Holder::start(&server, "x", options);
    server.kill();
    let output = running.finish();
    output.ends(76);
    assert!(output.stderr.contains("connecting again"), "{}", output.stderr);
    assert!(!output.stderr.contains("t0p-secret"), "{}", output.stderr);
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
            ended.prints(69, "");
            assert_own_lines(&ended.stderr);
            return;
        }
        seconds *= 2;
    }
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
    output.ends(3);
    assert_own_lines(&output.stderr);
}
