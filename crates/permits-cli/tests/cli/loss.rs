//! A lost permit: the command is ended, the exit code is 76, and standard error has the reason.

use std::fs::{self, Permissions};
use std::io::PipeReader;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use permits_testkit::{ChildGuard, HANGS, Proxy, in_real_time, skip, wait};
use rustix::process::{Signal, getuid};

use crate::support::{
    Holder, Local, Running, Store, assert_own_lines, code, counts, fresh, full_pipe, gate, is_alive,
    on_a_server, on_both_stores, output, permits, revoke, run, send, without_home,
};

on_both_stores! {
    a_revoked_permit_ends_the_command,
}

on_a_server! {
    a_command_that_ignores_sigterm_is_killed_with_its_group,
    a_stopped_command_gets_sigterm_after_a_loss,
    a_command_ends_with_its_longest_hold,
    a_loss_while_suspended_is_noticed_at_once,
    a_loss_noticed_after_the_command_has_ended_is_76,
    a_revoked_command_ends_though_standard_error_is_full,
}

/// Prints `ready`, and `asked` on SIGTERM. Standard error is closed, because some shells report the end of
/// their children on it.
const ASKED: &str =
    r#"exec 2> /dev/null; trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.02; done"#;

fn a_revoked_permit_ends_the_command(store: &dyn Store, name: &str) {
    let running = Running::until(&mut run(store, name, "--limit 1 --holder h", ASKED), "ready");
    revoke(store, name, "h", "the building is on fire");
    let output = running.finish();
    output.prints(76, "ready\nasked\n");
    assert!(output.stderr.contains("the building is on fire"), "{}", output.stderr);
    assert_own_lines(&output.stderr);
    assert_eq!(counts(store, name), (0, 0));
}

#[test]
fn a_lost_server_ends_the_command_before_the_lease_ends() {
    let (server, name) = fresh();
    let running = Running::until(&mut run(&server, &name, "--limit 1 --lease 2s", ASKED), "ready");
    server.kill();
    let output = running.finish();
    output.prints(76, "ready\nasked\n");
    assert!(output.stderr.contains("it could not be renewed in time"), "{}", output.stderr);
    assert_own_lines(&output.stderr);
}

#[test]
fn a_restart_within_the_lease_changes_nothing() {
    let (server, name) = fresh();
    let running = Holder::start(&server, &name, "--limit 1");
    server.kill();
    server.restart();
    assert!(wait::until(|| counts(&server, &name) == (1, 0)), "the holder is there again");
    running.release();
}

fn a_command_that_ignores_sigterm_is_killed_with_its_group(store: &dyn Store, name: &str) {
    // The shell dies at once. Its child ignores SIGTERM, SIGINT and SIGHUP.
    let script =
        r#"exec 2> /dev/null; sh -c 'trap "" TERM INT HUP; echo $$; while :; do sleep 0.1; done'; true"#;
    let running = Running::until(&mut run(store, name, "--limit 1 --holder h", script), "\n");
    let stubborn: u32 = running.stdout().trim().parse().expect("a process id");
    let began = Instant::now();
    revoke(store, name, "h", "");
    let output = running.finish();
    output.ends(76);
    assert_eq!(output.stderr, "permits: the permit was revoked; ending the command\n");
    assert!(!is_alive(stubborn));
    assert!(began.elapsed() >= Duration::from_secs(5), "it had its time");
}

fn a_stopped_command_gets_sigterm_after_a_loss(store: &dyn Store, name: &str) {
    let script = format!("echo $$; {ASKED}");
    let running = Running::until(&mut run(store, name, "--limit 1 --holder h", &script), "ready");
    let child: u32 = running.stdout().lines().next().and_then(|pid| pid.parse().ok()).expect("a process id");
    send(child, Signal::STOP);
    revoke(store, name, "h", "");
    let output = running.finish();
    output.ends(76);
    assert!(output.stdout.ends_with("asked\n"), "{}", output.stdout);
}

fn a_command_ends_with_its_longest_hold(store: &dyn Store, name: &str) {
    for seconds in [1, 4] {
        let began = Instant::now();
        let options = format!("--limit 1 --max-hold {seconds}s");
        let ended = output(&mut run(store, name, &options, "while :; do sleep 0.02; done"));
        let says = format!("{seconds}s is the longest time that its request allows; ending the command\n");
        ended.ends(76);
        assert!(ended.stderr.ends_with(&says), "{}", ended.stderr);
        assert!(began.elapsed() >= Duration::from_secs(seconds) * 3 / 4, "it had its time");
    }
}

#[test]
fn a_command_in_another_process_group_ends_with_its_permit() {
    if skip::without_program("python3") {
        return;
    }
    let ignores = "signal.signal(signal.SIGTERM, signal.SIG_IGN)";
    let answers = "signal.signal(signal.SIGTERM, lambda *_: (print('asked'), exit()))";
    // The command has a fifth of the longest hold for its answer.
    for (on_signal, longest, answer) in [(answers, "5s", "asked\n"), (ignores, "1s", "")] {
        in_real_time(|| {
            let store = Local::new();
            let moves = "os.setpgid(0, os.getpgid(os.getppid()))";
            let script = format!("import os, signal, time; {on_signal}; {moves}; time.sleep(1000)");
            let options = ["run", "x", "--limit", "1", "--max-hold", longest, "python3", "-c", &script];
            let ended = output(&mut permits(&store.url(), options));
            ended.prints(76, answer);
            assert!(!ended.stderr.contains("has not ended yet"), "{}", ended.stderr);
        });
    }
}

#[test]
fn a_longest_hold_is_the_reason_on_a_slow_link_too() {
    let (server, name) = fresh();
    let proxy = Proxy::start(server.address());
    proxy.delay_replies(Duration::from_millis(100));
    for options in [&["--max-hold", "1s"][..], &["--max-hold", "3s", "--lease", "2s"]] {
        in_real_time(|| {
            let mut command = permits(&proxy.url(), ["run", &name, "--limit", "1"]);
            let ended = output(command.args(options).args(["sleep", "1000"]));
            ended.ends(76);
            assert!(ended.stderr.contains("is the longest time that its request allows"), "{}", ended.stderr);
        });
    }
}

fn a_loss_while_suspended_is_noticed_at_once(store: &dyn Store, name: &str) {
    in_real_time(|| {
        let mut running = Running::until(&mut run(store, name, "--limit 1 --lease 2s", ASKED), "ready");
        running.guard.pause();
        // Granted when the lease has ended.
        output(&mut run(store, name, "--lease 2s", "echo ran")).prints(0, "ran\n");
        running.guard.resume();
        let output = running.finish();
        output.prints(76, "ready\nasked\n");
    });
}

fn a_loss_noticed_after_the_command_has_ended_is_76(store: &dyn Store, name: &str) {
    let mut command = run(store, name, "--limit 1 --lease 2s", "echo ready; read x; exit 0");
    let gate = gate(&mut command);
    let mut running = Running::until(&mut command, "ready");
    running.guard.pause();
    output(&mut run(store, name, "--lease 2s", "echo ran")).prints(0, "ran\n");
    drop(gate);
    running.guard.resume();
    let output = running.finish();
    output.ends(76);
    assert_own_lines(&output.stderr);
}

/// Writes its process id again and again, so that the file's time shows its last moment. With `trap '' TERM;`
/// before it, it ignores SIGTERM.
const BEATS: &str = r#"while :; do echo $$ > "$BEAT"; sleep 0.02; done"#;

/// Starts the command with a full pipe as standard error, which is never read, and waits until the command
/// runs.
#[track_caller]
fn start_with_full_stderr(command: &mut Command, beat: &Path) -> (ChildGuard, PipeReader) {
    let (reader, writer) = full_pipe();
    let _ = fs::remove_file(beat);
    let guard = ChildGuard::spawn(command.env("BEAT", beat).stdout(Stdio::null()).stderr(writer));
    assert!(wait::until(|| process_of(beat).is_some()), "it runs");
    (guard, reader)
}

/// The process that writes the beat.
fn process_of(beat: &Path) -> Option<u32> {
    fs::read_to_string(beat).ok()?.trim().parse().ok()
}

fn a_revoked_command_ends_though_standard_error_is_full(store: &dyn Store, name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let beat = directory.path().join("beat");
    for trap in ["", "trap '' TERM; "] {
        let mut command = run(store, name, "--limit 1 --holder h -vvv", &format!("{trap}{BEATS}"));
        let (mut guard, _reader) = start_with_full_stderr(&mut command, &beat);
        let process = process_of(&beat).expect("it beats");
        revoke(store, name, "h", "");
        let status = guard.wait_timeout(HANGS).expect("it ends");
        assert_eq!((code(status), is_alive(process)), (76, false), "{trap}");
    }
}

#[test]
fn a_command_that_ignores_sigterm_is_dead_at_the_deadline_though_standard_error_is_full() {
    in_real_time(|| {
        let (server, name) = fresh();
        let directory = tempfile::tempdir().expect("a directory");
        let beat = directory.path().join("beat");
        let lease = Duration::from_secs(5);
        let mut command = run(&server, &name, "--limit 1 --lease 5s -vvv", &format!("trap '' TERM; {BEATS}"));
        let (mut guard, _reader) = start_with_full_stderr(&mut command, &beat);
        // Read now: a process killed while it writes leaves the file empty.
        let process = process_of(&beat).expect("it beats");
        server.pause();
        // A renewal that was answered was sent before this.
        let silent_since = SystemTime::now();
        let status = guard.wait_timeout(HANGS).expect("it ends");
        server.resume();
        assert_eq!(code(status), 76);
        let last = fs::metadata(&beat).and_then(|beat| beat.modified()).expect("it was written");
        let worked = last.duration_since(silent_since).expect("it went on for a while");
        assert!(worked <= lease, "it worked for {worked:?} after a renewal was last possible");
        output(&mut run(&server, &name, "", "echo ran")).prints(0, "ran\n");
        assert!(!is_alive(process));
    });
}

#[test]
fn a_command_gets_sigterm_before_an_unrenewed_permit_ends() {
    in_real_time(|| {
        let (server, name) = fresh();
        let script = r#"exec 2> /dev/null; trap "sleep 0.2; echo done; exit 0" TERM
        echo ready; while :; do sleep 0.02; done"#;
        let running = Running::until(&mut run(&server, &name, "--limit 1 --lease 15s", script), "ready");
        server.pause();
        let silent_since = Instant::now();
        let output = running.finish();
        // The lease was last extended before the server fell silent.
        assert!(silent_since.elapsed() < Duration::from_secs(15), "permits has ended, too");
        output.prints(76, "ready\ndone\n");
        assert!(
            output.stderr.contains("it could not be renewed in time; ending the command"),
            "{}",
            output.stderr
        );
    });
}

/// As `sudo` by a user who is not root. Only root can make such a program.
#[test]
fn a_command_that_may_not_be_signalled_is_not_said_to_be_killed() {
    let (server, name) = fresh();
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let as_root = directory.path().join("as-root");
    let copied = fs::copy("/usr/bin/setpriv", &as_root)
        .and_then(|_| fs::set_permissions(&as_root, Permissions::from_mode(0o4755)));
    let as_user = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups"]).arg(program);
        without_home(&mut command);
        command
    };
    let mut probe = as_user(&as_root);
    let works = copied.is_ok()
        && getuid().is_root()
        && probe.args(["--reuid=0", "true"]).output().is_ok_and(|probe| probe.status.success())
        && as_user(Path::new(env!("CARGO_BIN_EXE_permits")))
            .arg("--version")
            .output()
            .is_ok_and(|it| it.status.success());
    if !works {
        println!("SKIPPED: not root, no setpriv, or a directory without setuid programs");
        return;
    }
    let mut command = as_user(Path::new(env!("CARGO_BIN_EXE_permits")));
    command.args(["run", &name, "--limit", "1", "--holder", "h", "--url", &server.url(), "--"]);
    command.arg(&as_root).args(["--reuid=0", "sh", "-c", "echo $$.; exec sleep 1000"]);
    let running = Running::until(&mut command, ".");
    let child = running.stdout().trim_end().trim_end_matches('.').parse().expect("a process id");
    running.signal(Signal::USR1);
    assert!(
        wait::until(|| running
            .stderr()
            .contains("signal 10 could not be forwarded: it runs as another user")),
        "{}",
        running.stderr()
    );
    revoke(&server, &name, "h", "");
    let output = running.finish();
    let is_alive = is_alive(child);
    send(child, Signal::KILL);
    assert!(is_alive, "{}", output.stderr);
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert!(
        output.stderr.contains("the command runs on without a permit. It could not be killed"),
        "{}",
        output.stderr
    );
    assert!(!output.stderr.contains("was killed"), "{}", output.stderr);
}
