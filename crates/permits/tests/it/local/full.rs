//! No room: the disk is full, or a file may not grow.
//!
//! Permits that are held can still be renewed and released: the log, once emptied, has room for another
//! command.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

use permits::{AcquireError, AcquireOptions, StoreError};
use permits::{Client, Permit, Semaphore};
use permits_testkit::HOUR;
use permits_testkit::sound::Named as _;
use tempfile::TempDir;

use crate::local::child_task;
use crate::local::fixture::{Fixture, refusal, url};

/// The largest file, in blocks of 512 bytes: less than the size at which SQLite empties the log by itself.
const BLOCKS: u64 = 900;

fn connect(path: &std::path::Path) -> Client {
    let builder = Client::builder(url(path)).lease(HOUR);
    builder.connect().wait().expect("the file can be used")
}

/// Acquires until there is no room for more.
fn acquire_all(semaphore: &Semaphore) -> Vec<Permit> {
    let mut permits = Vec::new();
    loop {
        // A long name takes more room.
        let options = AcquireOptions::new().holder(format!("{:0>200}", permits.len()));
        match semaphore.acquire_with(options).wait() {
            Ok(permit) => permits.push(permit),
            Err(AcquireError::Store(StoreError::OutOfMemory { reason })) => {
                println!("{} permits; then: {reason}", permits.len());
                return permits;
            }
            Err(other) => panic!("there are units: {other}"),
        }
    }
}

#[test]
fn where_files_may_not_grow_permits_can_be_renewed_and_released() {
    let fixture = Fixture::small();
    // The limit comes with a signal, which would end the process.
    let script = format!("trap '' XFSZ; ulimit -f {BLOCKS}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(std::env::current_exe().expect("a test knows its executable"));
    println!(
        "{:#?}",
        child_task::done(child_task::send(
            command.args(child_task::ARGUMENTS),
            "without_room",
            &fixture.path()
        ))
    );
    fixture.assert_sound();
}

/// a child task.
pub(crate) fn without_room() {
    let client = connect(&child_task::place());
    let semaphore = client.named("room", 100_000);
    for _ in 0..300 {
        semaphore
            .acquire()
            .wait()
            .expect("the log is emptied when it is full")
            .release()
            .wait()
            .expect("it is held");
    }
    let permits: Vec<Permit> = (0..50).map(|_| semaphore.acquire().wait().expect("there is room")).collect();
    for _ in 0..20 {
        for permit in &permits {
            permit.renew().wait().expect("it can be renewed");
        }
    }
    for permit in permits {
        permit.release().wait().expect("it can be released");
    }
    // When the file itself is full, only a clear error is promised.
    drop(acquire_all(&semaphore));
}

#[test]
fn on_a_full_disk_permits_can_be_renewed_and_released() {
    let directory = TempDir::new().expect("there is room");
    // A small tmpfs that only this process sees.
    let alone = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.arg(format!("mount -t tmpfs -o size=1m permits \"$PERMITS_DISK\" && {script}"));
        command.env("PERMITS_DISK", directory.path());
        command
    };
    if !alone("true").output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: this system does not let its users mount anything");
    }
    let mut command = alone("exec \"$0\" \"$@\"");
    command.arg(std::env::current_exe().expect("a test knows its executable"));
    let said = child_task::done(child_task::send(
        command.args(child_task::ARGUMENTS),
        "on_a_full_disk",
        directory.path(),
    ));
    println!("{said:#?}");
}

/// a child task.
pub(crate) fn on_a_full_disk() {
    let directory = child_task::place();
    let path = directory.join("semaphores.db");
    let client = connect(&path);
    let semaphore = client.named("room", 100_000);
    let permits: Vec<Permit> = (0..20).map(|_| semaphore.acquire().wait().expect("there is room")).collect();
    let filler = directory.join("filler");
    let mut file = File::create(&filler).expect("there is room");
    while file.write_all(&[0x5A; 512]).is_ok() {}

    let error = refusal(Client::connect(&url(&directory.join("another.db"))).wait());
    assert!(matches!(error, StoreError::OutOfMemory { .. }), "a new file has no room: {error}");
    let late = connect(&path);
    let more = acquire_all(&late.named("room", 100_000));
    let seen = semaphore.inspect_up_to(0).wait().expect("it needs no room");
    assert_eq!(seen.held, (permits.len() + more.len()) as u64);
    // Both write enough that the log must be emptied many times.
    for _ in 0..20 {
        for permit in &permits {
            permit.renew().wait().expect("it can be renewed");
        }
    }
    for permit in permits.into_iter().chain(more) {
        permit.release().wait().expect("it can be released");
    }
    late.close().wait().expect("the file can be used");
    std::fs::remove_file(filler).expect("it is ours");
    let permit = semaphore.acquire().wait().expect("there is room again");
    permit.release().wait().expect("it is held");
    client.close().wait().expect("the file can be used");
}
