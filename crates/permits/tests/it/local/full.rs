//! The store has no room: the disk is full, a file may not grow, or the process has no descriptor left.
//!
//! Held permits can still be renewed and released, because that needs no new room.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use permits::{
    AcquireError, AcquireOptions, AdminError, Client, ClientBuilder, Permit, RenewError, Semaphore,
    StoreError,
};
use permits_testkit::sound::Named as _;
use permits_testkit::{HOUR, skip};
use tempfile::TempDir;

use crate::local::child_task;
use crate::local::fixture::{Fixture, refusal, url};

fn client(path: &Path) -> ClientBuilder {
    Client::builder(url(path)).lease(HOUR).store_timeout(Duration::from_secs(5))
}

fn connect(path: &Path) -> Client {
    client(path).connect().wait().expect("the directory can be used")
}

/// Acquires until there is no room for more.
fn acquire_all(semaphore: &Semaphore) -> Vec<Permit> {
    let mut permits = Vec::new();
    loop {
        // A long name takes more room.
        let options = AcquireOptions::new().holder(format!("{:0>200}", permits.len()));
        match semaphore.acquire_with(options).wait() {
            Ok(permit) => permits.push(permit),
            Err(AcquireError::Store(StoreError::OutOfMemory { .. })) => return permits,
            Err(other) => panic!("there are units: {other}"),
        }
    }
}

/// Renews and releases permits in files that have no more room.
fn renew_and_release(permits: Vec<Permit>) {
    for _ in 0..3 {
        for permit in &permits {
            permit.renew().wait().expect("it needs no more room");
        }
    }
    for permit in permits {
        permit.release().wait().expect("it needs no more room");
    }
}

/// Runs a child task in a shell, after `script`.
fn run(command: &mut Command, script: &str, child_task: &str, place: &Path) {
    command.args(["sh", "-c", &format!("{script} && exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().expect("a test knows its executable")).args(child_task::ARGUMENTS);
    child_task::done(child_task::send(command, child_task, place));
}

#[test]
fn where_files_may_not_grow_permits_can_be_renewed_and_released() {
    let fixture = Fixture::small();
    // 200 blocks of 512 bytes. A write beyond comes with a signal, which would end the process.
    run(&mut Command::new("env"), "ulimit -f 200", "without_room", &fixture.path());
    fixture.assert_at_rest();
}

/// A child task.
pub(crate) fn without_room() {
    let first = connect(&child_task::place());
    let semaphore = first.named("room", 100_000);
    let permits = acquire_all(&semaphore);
    renew_and_release(permits);
    renew_and_release(acquire_all(&semaphore));
    first.close().wait().expect("the directory can be used");
}

#[test]
fn on_a_full_disk_permits_can_be_renewed_and_released() {
    let directory = TempDir::new().expect("there is room");
    // A small tmpfs that only this process sees.
    let alone = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    let mount = format!("mount -t tmpfs -o size=1m permits {}", directory.path().display());
    if skip::unless_it_runs(alone().args(["sh", "-c", &mount])) {
        return;
    }
    run(&mut alone(), &mount, "on_a_full_disk", directory.path());
}

/// A child task.
pub(crate) fn on_a_full_disk() {
    let disk = child_task::place();
    let path = disk.join("permits");
    let first = connect(&path);
    let semaphore = first.named("room", 100_000);
    let mut permits: Vec<Permit> =
        (0..20).map(|_| semaphore.acquire().wait().expect("there is room")).collect();
    let filler = disk.join("filler");
    let mut file = File::create(&filler).expect("there is room");
    while file.write_all(&[0x5A; 512]).is_ok() {}

    let error = refusal(client(&disk.join("another")).connect().wait());
    assert!(matches!(error, StoreError::OutOfMemory { .. }), "a new directory has no room: {error}");
    let late = connect(&path);
    assert_eq!(acquire_all(&late.named("new", 1)).len(), 0);
    match late.named("room", 100_000).set_limit(5).wait() {
        Err(AdminError::Store(StoreError::OutOfMemory { .. })) => {}
        other => panic!("what stays has no room: {other:?}"),
    }
    permits.extend(acquire_all(&late.named("room", 100_000)));
    let seen = semaphore.inspect_up_to(0).wait().expect("it needs no room");
    assert_eq!((seen.held, seen.pinned), (permits.len() as u64, false));
    renew_and_release(permits);

    drop(file);
    fs::remove_file(filler).expect("it is ours");
    for semaphore in [&semaphore, &late.named("new", 1)] {
        renew_and_release(vec![semaphore.acquire().wait().expect("there is room again")]);
    }
    late.close().wait().expect("the directory can be used");
    first.close().wait().expect("the directory can be used");
}

#[test]
fn without_a_free_descriptor_the_directory_is_out_of_reach() {
    let fixture = Fixture::small();
    run(&mut Command::new("env"), "ulimit -n 64", "without_descriptors", &fixture.path());
    fixture.assert_at_rest();
}

/// A child task.
pub(crate) fn without_descriptors() {
    let path = child_task::place();
    let first = connect(&path);
    let semaphore = first.named("room", 2);
    let permit = semaphore.acquire().wait().expect("it is free");
    let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    match permit.renew().wait() {
        Err(RenewError::Store(StoreError::Unreachable { reason })) => {
            assert!(reason.contains("Too many open files"), "{reason}");
        }
        other => panic!("no file can be opened: {other:?}"),
    }
    let error = refusal(client(&path).connect().wait());
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    drop(taken);
    permit.renew().wait().expect("there are descriptors again");
    renew_and_release(vec![permit, semaphore.acquire().wait().expect("it is free")]);
    first.close().wait().expect("the directory can be used");
}
