//! A program that does not read its events.

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use permits_testkit::in_real_time;
use permits_testkit::{ChildGuard, HANGS, Server, wait};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::support::{code, counts, fresh, gate, permits, revoke, status};

/// Requests that the program writes, far more than fit into pipes and buffers.
const REQUESTS: usize = 10_000;

/// More requests than are accepted before the program reads: each has an event of 180 bytes at least, and
/// 64 KiB of them may wait, beside two pipes and what is read ahead.
const ACCEPTED: usize = 4_000;

/// A running `permits hold --many`, its standard input, and its output with these flags, which nothing reads
/// yet.
fn unread(server: &Server, flags: OFlags) -> (ChildGuard, PipeWriter, PipeReader) {
    let mut command = permits(&server.url(), ["hold", "--many"]);
    let input = gate(&mut command);
    let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
    rustix::fs::fcntl_setfl(&writer, flags).expect("it is ours");
    (ChildGuard::spawn(command.stdout(writer)), input, reader)
}

#[test]
fn the_end_of_the_input_is_noticed_behind_lines_that_are_not_read() {
    let (server, name) = fresh();
    let (mut hold, mut input, reader) = unread(&server, OFlags::empty());
    rustix::fs::fcntl_setfl(&input, OFlags::NONBLOCK).expect("it is ours");
    let line = json!({"id": 1, "renew": true}).to_string() + "\n";
    // The answers to a full pipe are more than the output takes.
    while input.write_all(line.repeat(100).as_bytes()).is_ok() {}
    drop(input);
    assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
    assert_eq!(counts(&server, &name), (0, 0));
    drop(reader);
}

/// A program that shares the file may have made it non-blocking.
#[test]
fn an_output_that_does_not_block_gets_all_events() {
    let (server, _) = fresh();
    let (mut hold, mut input, reader) = unread(&server, OFlags::NONBLOCK);
    let line = json!({"id": 1, "renew": true}).to_string() + "\n";
    let writing = std::thread::spawn(move || {
        input.write_all(line.repeat(ACCEPTED).as_bytes()).expect("all of it is read");
        input
    });
    // The answers are more than the pipe takes. It is full when nothing comes any more.
    let mut before = 0;
    assert!(wait::until(|| {
        std::thread::sleep(Duration::from_millis(20));
        let bytes = rustix::io::ioctl_fionread(&reader).expect("it is a pipe");
        bytes > 40_000 && std::mem::replace(&mut before, bytes) == bytes
    }));
    let answers = BufReader::new(reader).lines().map(|line| line.expect("text"));
    assert_eq!(answers.filter(|line| line.contains("\"id\":1")).take(ACCEPTED).count(), ACCEPTED);
    drop(writing.join().expect("it does not panic"));
    assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
}

/// The pipes to a child of Node are sockets.
#[test]
fn the_end_of_a_reader_of_a_socket_releases_the_permit() {
    let (server, name) = fresh();
    let mut command = permits(&server.url(), ["hold", &name, "--limit", "1"]);
    let input = gate(&mut command);
    let (reader, writer) = UnixStream::pair().expect("the system has sockets to give");
    let mut hold = ChildGuard::spawn(command.stdout(OwnedFd::from(writer)));
    let (mut reader, mut line) = (BufReader::new(reader), String::new());
    reader.read_line(&mut line).expect("it writes");
    assert!(line.contains("granted"), "{line}");
    drop(reader);
    assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
    assert_eq!(counts(&server, &name), (0, 0));
    drop(input);
}

#[test]
fn requests_of_a_program_that_does_not_read_are_not_read_while_its_permits_are_renewed() {
    in_real_time(|| {
        let (server, name) = fresh();
        let (mut hold, mut input, reader) = unread(&server, OFlags::empty());

        let all_written = Arc::new(AtomicBool::new(false));
        let has_ended = all_written.clone();
        let first = json!({"id": 0, "acquire": name, "limit": REQUESTS, "lease_ms": 1000, "holder": "first"});
        writeln!(input, "{first}").expect("a pipe takes a line");
        let writing = std::thread::spawn(move || {
            for id in 1..REQUESTS {
                let holder = format!("h{id}");
                let line = json!({"id": id, "acquire": name, "lease_ms": 600_000, "holder": holder});
                writeln!(input, "{line}").expect("it is read in the end");
            }
            has_ended.store(true, Ordering::SeqCst);
            input
        });
        let name = "semaphore";
        // The first permit has been renewed for four leases, by the server's clock. If it is lost before, the
        // test fails at once, so that a machine that stood still excuses it.
        let age_of = |wanted: &str| {
            let status = status(&server, name);
            let holder = status["holders"].as_array()?.iter().find(|info| info["holder"] == wanted)?.clone();
            holder["age_ms"].as_u64()
        };
        let mut was_granted = false;
        let mut age = None;
        wait::until(|| {
            age = age_of("first");
            was_granted |= age.is_some();
            age.map_or(was_granted, |age| age > 4000)
        });
        assert!(age.is_some_and(|age| age > 4000), "granted: {was_granted}, age: {age:?}");
        let (accepted, _) = counts(&server, name);
        assert!((100..ACCEPTED).contains(&accepted), "{accepted} of {REQUESTS}");
        assert!(!all_written.load(Ordering::SeqCst), "the program waits");
        revoke(&server, name, "first", "enough");
        assert!(wait::until(|| age_of("first").is_none()), "it is released");

        let mut granted = 0;
        let mut lost = 0;
        for line in BufReader::new(reader).lines() {
            let event: Value = serde_json::from_str(&line.expect("text")).expect("it is JSON");
            granted += usize::from(event["event"] == "granted");
            lost += usize::from(event["event"] == "lost" && event["id"] == 0);
            if granted == REQUESTS && lost == 1 {
                break;
            }
        }
        assert_eq!((granted, lost), (REQUESTS, 1));
        drop(writing.join().expect("it does not panic"));
        assert_eq!(hold.wait_timeout(HANGS).map(code), Some(0));
        assert_eq!(counts(&server, name), (0, 0));
    });
}
