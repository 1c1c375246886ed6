//! Standard output: a closed pipe is no failure, a full disk is.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use permits_testkit::{ChildGuard, HANGS, in_real_time};
use rustix::fs::OFlags;

use crate::support::{Local, Store as _, code, output, permits};

/// A call of each verb that prints something itself.
const PRINTING: &[&[&str]] = &[
    &["status", "x"],
    &["status", "x", "--json"],
    &["list"],
    &["list", "--json"],
    &["limit", "x", "2"],
    &["limit", "x", "--unpin"],
    &["pause", "x"],
    &["resume", "x"],
    &["completions", "bash"],
    &["man"],
    &["man", "run"],
    &["--help"],
    &["help", "run"],
    &["hold", "y", "--limit", "1"],
];

/// The exit code and the messages of a call that prints to `stdout`.
#[track_caller]
fn printed_to(stdout: impl Into<Stdio>, store: &Local, arguments: &[&str]) -> (i32, String) {
    let mut command = permits(&store.url(), arguments);
    let mut stderr = tempfile::tempfile().expect("a temporary file");
    command.stdout(stdout).stderr(stderr.try_clone().expect("a file can be shared"));
    let status = ChildGuard::spawn(&mut command).wait_timeout(HANGS).expect("it ends");
    let mut said = String::new();
    stderr.rewind().and_then(|()| stderr.read_to_string(&mut said)).expect("it can be read");
    (code(status), said)
}

/// A store with a semaphore.
fn store() -> Local {
    let store = Local::new();
    output(&mut permits(&store.url(), ["limit", "x", "1", "--new"])).ends(0);
    store
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let store = store();
    for arguments in PRINTING {
        let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
        drop(reader);
        assert_eq!(printed_to(writer, &store, arguments), (0, String::new()), "{arguments:?}");
    }
}

/// A program that shares the file may have made it non-blocking.
#[test]
fn a_full_pipe_for_errors_that_does_not_block_gets_all_lines() {
    let store = store();
    // The command waits half a second for a reader that does not read.
    in_real_time(|| {
        let (mut reader, mut writer) = std::io::pipe().expect("the system has a pipe to give");
        rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).expect("it is ours");
        while writer.write(&[b'\n'; 64]).is_ok() {}
        let mut command = permits(&store.url(), ["run", "unknown", "true"]);
        let mut guard = ChildGuard::spawn(command.stderr(writer));
        drop(command);
        std::thread::sleep(Duration::from_millis(200));
        let mut said = String::new();
        reader.read_to_string(&mut said).expect("it can be read");
        assert_eq!(guard.wait_timeout(HANGS).map(code), Some(64));
        assert!(said.trim_start().starts_with("permits: "), "{said}");
    });
}

#[test]
fn a_full_disk_is_71() {
    let store = store();
    for arguments in PRINTING {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("the system has one");
        let (code, stderr) = printed_to(full, &store, arguments);
        assert_eq!(code, 71, "{arguments:?}");
        assert!(stderr.starts_with("permits: cannot write to standard output: "), "{arguments:?}: {stderr}");
    }
}
