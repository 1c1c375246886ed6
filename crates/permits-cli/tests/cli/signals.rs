//! Signals: those that end the wait, those that reach the command, and those that kill it.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use permits_testkit::{ChildGuard, HANGS, Proxy, wait};
use rustix::process::Signal;

use crate::support::{
    Holder, Running, Store, code, counts, fresh, full_pipe, gate, is_alive, on_a_server, output, permits,
    run, send, state, waiter,
};

on_a_server! {
    signals_reach_the_command,
    permits_is_stopped_only_with_its_command,
    signals_reach_the_whole_group,
    a_command_that_dies_of_a_signal_is_128_and_its_number,
    signals_leave_the_line_at_once,
    a_signal_ends_an_acquire_whose_handle_cannot_be_written,
    ignored_signals_stay_ignored,
    blocked_signals_are_received_and_stay_blocked_in_the_command,
    the_command_does_not_outlive_a_killed_permits,
    background_processes_of_the_command_are_left_alone,
}

/// Prints `ready`, waits for any of the signals, and prints its name.
const TRAPS: &str = r#"
    exec 2> /dev/null # where some shells report the end of their children
    for signal in $(seq 1 64); do
        case $signal in 9 | 17 | 18 | 19 | 32 | 33) continue ;; esac
        trap "echo got $signal; exit 7" $signal
    done
    echo ready
    # Without a child, which a signal might stop: a shell waits for it before it runs its trap.
    while :; do :; done"#;

/// The signals that reach a command: all that can be caught but SIGCHLD, SIGCONT, which continues it,
/// SIGPIPE, and the signals of a fault.
fn forwarded() -> impl Iterator<Item = Signal> {
    let not = [4, 5, 7, 8, 9, 11, 13, 17, 18, 19, 31, 32, 33];
    // SAFETY: 32 and 33, which the C library keeps for itself, are left out.
    (1..=64).filter(move |raw| !not.contains(raw)).map(|raw| unsafe { Signal::from_raw_unchecked(raw) })
}

fn signals_reach_the_command(store: &dyn Store, name: &str) {
    for signal in forwarded() {
        let running = Running::until(&mut run(store, name, "--limit 1", TRAPS), "ready");
        running.signal(signal);
        let output = running.finish();
        assert_eq!((output.code, output.stderr.as_str()), (7, ""), "{}", signal.as_raw());
        assert_eq!(output.stdout, format!("ready\ngot {}\n", signal.as_raw()));
        assert_eq!(counts(store, name), (0, 0));
    }
}

/// As a supervisor starts its programs: in a group of their own, which has a parent in its session.
fn permits_is_stopped_only_with_its_command(store: &dyn Store, name: &str) {
    let states = |running: &Running, child: u32| [state(running.guard.pid()), state(child)];
    for signal in [Signal::TTIN, Signal::TTOU, Signal::TSTP] {
        let mut command =
            run(store, name, "--limit 1 --lease 1h", "echo $$.; read line < /dev/null; exec sleep 1000");
        let running = Running::until(command.process_group(0), ".");
        let child = running.stdout().trim().trim_end_matches('.').parse().expect("a process id");
        running.signal(signal);
        let stopped = wait::until(|| states(&running, child) == ['T', 'T']);
        assert!(stopped, "{} of permits and its command", String::from_iter(states(&running, child)));
        running.signal(Signal::CONT);
        assert!(wait::until(|| !states(&running, child).contains(&'T')));
        running.signal(Signal::TERM);
        assert_eq!(running.finish().code, 143);
    }
}

fn signals_reach_the_whole_group(store: &dyn Store, name: &str) {
    let script = r#"exec 2> /dev/null
        trap "wait; echo outer; exit 0" TERM
        sh -c 'trap "echo inner; exit" TERM; echo ready; while :; do sleep 0.02; done' &
        wait"#;
    let running = Running::until(&mut run(store, name, "--limit 1", script), "ready");
    running.signal(Signal::TERM);
    let output = running.finish();
    output.prints(0, "ready\ninner\nouter\n");
}

fn a_command_that_dies_of_a_signal_is_128_and_its_number(store: &dyn Store, name: &str) {
    let ending = |signal: &Signal| {
        ![Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::URG, Signal::WINCH].contains(signal)
    };
    for signal in forwarded().filter(ending) {
        let running =
            Running::until(&mut run(store, name, "--limit 1", "echo ready; exec sleep 1000"), "ready");
        running.signal(signal);
        assert_eq!(running.finish().code, 128 + signal.as_raw());
    }
}

fn signals_leave_the_line_at_once(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 1");
    let last = forwarded().last().expect("a real-time signal");
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::ALARM,
        #[cfg(target_os = "linux")]
        Signal::POWER,
        last,
    ] {
        let waiter = waiter(store, name, "", (1, 1));
        // A waiter ignores these.
        waiter.signal(Signal::USR1);
        waiter.signal(Signal::USR2);
        waiter.signal(signal);
        let output = waiter.finish();
        assert_eq!(output.code, 128 + signal.as_raw(), "{}", output.stderr);
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""));
        assert_eq!(counts(store, name), (1, 0), "the line is empty when the command has ended");
    }
}

fn a_signal_ends_an_acquire_whose_handle_cannot_be_written(store: &dyn Store, name: &str) {
    let (_reader, writer) = full_pipe();
    let mut command = permits(&store.url(), ["acquire", name, "--limit", "1"]);
    let mut acquire = ChildGuard::spawn(command.stdout(writer).stderr(Stdio::null()));
    assert!(wait::until(|| counts(store, name) == (1, 0)));
    send(acquire.pid(), Signal::TERM);
    assert_eq!(acquire.wait_timeout(HANGS).map(code), Some(143));
    assert_eq!(counts(store, name), (0, 0), "the permit that no program has is released");
}

#[test]
fn a_signal_cancels_the_connection_attempt() {
    let (server, name) = fresh();
    let proxy = Proxy::start(server.address());
    proxy.stall(true);
    let waiter =
        Running::start(&mut permits(&proxy.url(), ["run", &name, "--limit", "1", "--", "echo", "ran"]));
    assert!(wait::until(|| proxy.accepted() > 0));
    waiter.signal(Signal::TERM);
    let output = waiter.finish();
    output.prints(143, "");
}

#[test]
fn a_signal_ends_a_verb_that_is_starting() {
    let server = permits_testkit::Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let lock = std::fs::File::open(directory.path()).expect("ours");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("no other process has it");
    let socket = format!("unix:{}", directory.path().join("socket").display());
    for (arguments, code) in [
        (&["serve", "--listen", "127.0.0.1:0"][..], 0),
        (&["watch", "x"], 0),
        (&["hold", "--many"], 143),
        (&["hold", "--listen", &socket], 143),
    ] {
        let proxy = Proxy::start(server.address());
        proxy.stall(true);
        let mut command = permits(&proxy.url(), arguments);
        let _gate = gate(command.args(["--store-timeout", "1h"]));
        let mut running = Running::start(&mut command);
        let waits = |running: &Running| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", running.guard.pid()));
            // The signal is caught.
            status.unwrap_or_default().lines().any(|line| {
                let caught = line.strip_prefix("SigCgt:").map(|mask| u64::from_str_radix(mask.trim(), 16));
                matches!(caught, Some(Ok(mask)) if mask & (1 << 14) != 0)
            })
        };
        let begun =
            wait::until(|| waits(&running) && (proxy.accepted() > 0 || arguments.contains(&&*socket)));
        assert!(begun && running.guard.is_running(), "{arguments:?}: {}", running.stderr());
        running.signal(Signal::TERM);
        assert_eq!(running.finish().code, code, "{arguments:?}");
    }
}

#[test]
fn a_directory_that_stays_locked_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let lock = std::fs::File::open(directory.path()).expect("ours");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("no other process has it");
    let socket = format!("unix:{}", directory.path().join("socket").display());
    let refused = output(&mut permits("memory:", ["hold", "--listen", &socket]));
    refused.ends(71);
    assert!(refused.stderr.contains("another process keeps its directory locked"), "{}", refused.stderr);
}

fn ignored_signals_stay_ignored(store: &dyn Store, name: &str) {
    let mut command = Command::new("sh");
    let ignoring = r#"trap "" HUP INT QUIT TERM PIPE USR1 USR2; exec "$@""#;
    command.args(["-c", ignoring, "sh", env!("CARGO_BIN_EXE_permits"), "run", name]);
    command.args(["--limit", "1", "--url", &store.url(), "--", "sh", "-c"]);
    let script = "for signal in HUP INT QUIT TERM PIPE USR1 USR2; do kill -$signal $$ $PPID; done";
    command.arg(format!("{script}; echo survived"));
    let output = output(&mut command);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "survived\n", ""));
}

/// As from a program that blocks signals in the thread that starts the command.
fn blocked_signals_are_received_and_stay_blocked_in_the_command(store: &dyn Store, name: &str) {
    let blocking = |program: &[&str]| {
        let mut command = Command::new("env");
        command.args(["--block-signal=CHLD,CONT,INT,TERM", &format!("PERMITS_URL={}", store.url())]);
        command.args(program);
        command
    };
    let permits = env!("CARGO_BIN_EXE_permits");
    let mask = ["grep", "SigBlk", "/proc/self/status"];
    let shown = output(&mut blocking(&[&[permits, "run", name, "--limit", "1"][..], &mask].concat()));
    assert_eq!((shown.code, shown.stderr.as_str()), (0, ""), "the end of the command is noticed");
    assert_eq!(shown.stdout, output(&mut blocking(&mask)).stdout);
    let mut hold = blocking(&[permits, "hold", name, "--limit", "1"]);
    let _gate = gate(&mut hold);
    let running = Running::until(&mut hold, "granted");
    running.signal(Signal::TERM);
    running.finish().ends(143);
    assert_eq!(counts(store, name), (0, 0));
}

fn the_command_does_not_outlive_a_killed_permits(store: &dyn Store, name: &str) {
    let options = "--limit 1 --lease 3s";
    let mut running =
        Running::until(&mut run(store, name, options, "echo $$; trap '' TERM; exec sleep 1000"), "\n");
    let child: u32 = running.stdout().trim().parse().expect("a process id");
    assert!(is_alive(child));
    running.guard.kill();
    assert!(wait::until(|| !is_alive(child)), "the command died with permits");
    // The permit was not released; its lease ends.
    let next = output(&mut run(store, name, options, "echo ran"));
    next.prints(0, "ran\n");
}

fn background_processes_of_the_command_are_left_alone(store: &dyn Store, name: &str) {
    let output = output(&mut run(store, name, "--limit 1", "sleep 1000 & echo $!"));
    output.ends(0);
    let left: u32 = output.stdout.trim().parse().expect("a process id");
    assert!(is_alive(left));
    assert_eq!(counts(store, name), (0, 0));
    send(left, Signal::KILL);
}
