//! Child processes: paused, resumed, read, and gone with their guard.

use std::env;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use permits_testkit::wait::{HANGS, SILENCE};
use permits_testkit::{ChildGuard, Server, wait};

fn shell(script: &str) -> ChildGuard {
    ChildGuard::spawn(Command::new("sh").args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()))
}

#[test]
fn lines_arrive_in_order_and_end() {
    let mut child = shell("echo one; echo two; printf three");
    let lines = child.lines();
    for expected in ["one", "two", "three"] {
        assert_eq!(lines.next_line(HANGS).as_deref(), Some(expected));
    }
    assert_eq!(lines.next_line(HANGS), None);
    assert!(child.wait_timeout(HANGS).expect("it ends by itself").success());
    assert!(!child.is_running());
}

#[test]
fn a_paused_child_is_silent_until_resumed() {
    let mut child = shell("i=0; while :; do i=$((i+1)); echo $i; done");
    let lines = child.lines();
    assert_eq!(lines.next_line(HANGS).as_deref(), Some("1"));
    child.pause();
    // The pipe and the channel bound its earlier output, so this loop ends.
    while lines.next_line(SILENCE).is_some() {}
    assert!(child.is_running());
    child.resume();
    assert!(lines.next_line(HANGS).is_some());
}

#[test]
fn a_running_child_outlasts_the_wait() {
    let mut child = shell("exec sleep 1000");
    assert_eq!(child.wait_timeout(SILENCE), None);
    child.terminate();
    assert!(!child.wait_timeout(HANGS).expect("it obeys").success());
}

#[test]
fn killing_reaches_a_paused_child_and_may_be_repeated() {
    let mut child = shell("exec sleep 1000");
    child.pause();
    child.pause();
    child.kill();
    child.kill();
    assert!(!child.is_running());
}

#[test]
#[should_panic(expected = "takes no signal")]
fn a_child_that_has_ended_takes_no_signal() {
    let mut child = shell("exec sleep 1000");
    child.kill();
    child.pause();
}

#[test]
fn dropping_the_guard_ends_a_paused_child() {
    let mut child = shell("echo ready; exec sleep 1000");
    let lines = child.lines();
    assert_eq!(lines.next_line(HANGS).as_deref(), Some("ready"));
    child.pause();
    assert_eq!(lines.next_line(SILENCE), None);
    drop(child);
    // The end of its only writer closes the pipe, long before the limit.
    let start = std::time::Instant::now();
    assert_eq!(lines.next_line(HANGS), None);
    assert!(start.elapsed() < HANGS, "the pipe is still open");
}

#[test]
fn a_child_outlives_the_thread_that_started_it() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = thread::spawn(move || ChildGuard::spawn(&mut command)).join().expect("it starts a child");
    assert_eq!(child.lines().next_line(HANGS).as_deref(), Some("ready"));
    assert_eq!(child.wait_timeout(SILENCE), None, "the child was not killed");
}

#[test]
fn a_command_can_be_started_again() {
    let mut command = Command::new("sh");
    command.args(["-c", "exit 7"]);
    for _ in 0..2 {
        let status = ChildGuard::spawn(&mut command).wait_timeout(HANGS).expect("it ends by itself");
        assert_eq!(status.code(), Some(7));
    }
}

#[test]
fn a_child_inherits_no_ignored_signal() {
    // A shell that ignores signals starts this test program again, which starts a shell.
    if env::var_os(INHERITING).is_some() {
        let script = "for signal in INT QUIT HUP PIPE TERM; do sh -c \"kill -$signal \\$\\$; echo survived $signal\"; done; echo ended";
        let mut child = shell(script);
        let lines = child.lines();
        assert_eq!(lines.next_line(HANGS).as_deref(), Some("ended"));
        return;
    }
    let test = "processes::a_child_inherits_no_ignored_signal";
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", r#"trap "" INT QUIT HUP PIPE TERM; exec "$@""#, "sh"]);
    ignoring.arg(env::current_exe().expect("a test has a program")).args(["--exact", test]);
    let status =
        ChildGuard::spawn(ignoring.env(INHERITING, "1")).wait_timeout(HANGS).expect("it ends by itself");
    assert!(status.success());
}

#[test]
fn a_child_inherits_no_setting_of_permits_but_those_it_is_given() {
    if env::var_os(INHERITING).is_none() {
        let test = "processes::a_child_inherits_no_setting_of_permits_but_those_it_is_given";
        let mut copy = Command::new(env::current_exe().expect("a test has a program"));
        copy.args(["--exact", test])
            .env(INHERITING, "1")
            .env("PERMITS_URL", "outer")
            .env("PERMITS_OTHER", "outer");
        let status = ChildGuard::spawn(&mut copy).wait_timeout(HANGS).expect("it ends by itself");
        return assert!(status.success());
    }
    let mut command = Command::new("sh");
    command.args(["-c", r#"echo "${PERMITS_OTHER-unset} $PERMITS_URL $PERMITS_TEST_INHERITING""#]);
    let mut child = ChildGuard::spawn(command.env("PERMITS_URL", "given").stdout(Stdio::piped()));
    assert_eq!(child.lines().next_line(HANGS).as_deref(), Some("unset given 1"));
}

/// Set for a copy of this test program with an inherited setting.
const INHERITING: &str = "PERMITS_TEST_INHERITING";

/// Set for a copy of this test program that is to be killed.
const ORPHANING: &str = "PERMITS_TEST_ORPHANING";

#[test]
#[cfg(target_os = "linux")]
fn a_server_ends_when_its_test_process_is_killed() {
    if env::var_os(ORPHANING).is_some() {
        let server = Server::start();
        println!("\nlistening {}", server.address());
        loop {
            thread::park();
        }
    }
    let program = env::current_exe().expect("a test has a program");
    let mut copy = ChildGuard::spawn(
        Command::new(program)
            .args(["--exact", "processes::a_server_ends_when_its_test_process_is_killed", "--nocapture"])
            .env(ORPHANING, "1")
            .stdout(Stdio::piped()),
    );
    let lines = copy.lines();
    let address: SocketAddr = loop {
        let line = lines.next_line(HANGS).expect("the copy starts a server");
        if let Some(address) = line.strip_prefix("listening ") {
            break address.parse().expect("it is an address");
        }
    };
    assert!(TcpStream::connect(address).is_ok());
    copy.kill();
    assert!(wait::until(|| TcpStream::connect(address).is_err()), "the server lives on");
}
