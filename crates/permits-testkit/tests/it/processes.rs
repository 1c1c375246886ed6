//! Child processes inherit no settings, and are gone with their test.

use std::env;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use permits_testkit::HANGS;
use permits_testkit::{ChildGuard, Server, wait};

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
