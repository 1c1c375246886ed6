//! Somebody deletes the file while it is in use.
//!
//! Whoever has it open still sees the deleted file, and whoever comes makes another: two lines that know nothing
//! of each other, unless the first notice.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use permits::{AcquireError, StoreError};
use permits_testkit::history::What;
use permits_testkit::wait;

use crate::crew::LIMIT;
use crate::stage::{Stage, await_closed};
use crate::worker::SEMAPHORE;

/// Deletes the file, with what is beside it or without.
fn delete(stage: &Stage, suffixes: &[&str]) {
    for suffix in suffixes {
        fs::remove_file(format!("{}{suffix}", stage.path().display())).expect("it is there");
    }
}

/// Has a part of the file's content in its place, and another in the log.
fn fill(stage: &Stage) {
    let client = stage.client();
    for number in 0..60 {
        drop(client.semaphore(format!("semaphore {number}"), 1).acquire().expect("it is free"));
        if number == 40 {
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            stage.sqlite().query_row(checkpoint, [], |_| Ok(())).expect("the disk works");
        }
    }
    client.close().expect("the file can be used");
    await_closed(stage.directory());
}

/// How many units are held, by the file that is there now.
fn held(stage: &Stage) -> i64 {
    if !stage.path().exists() {
        return 0;
    }
    let sql = "SELECT coalesce(sum(json_extract(state, '$.held')), 0) FROM semaphores WHERE name = ?1";
    stage.sqlite().query_row(sql, [SEMAPHORE], |row| row.get(0)).unwrap_or(0)
}

#[test]
fn those_who_hold_and_wait_by_a_deleted_file_go_on_in_the_next() {
    for suffixes in [&["", "-wal", "-shm"][..], &[""]] {
        let stage = Stage::new(1, Duration::from_secs(10));
        let (mut holder, mut waiter) = (stage.worker("holder"), stage.worker("waiter"));
        let first = holder.acquire("first");
        waiter.ask("second");
        stage.await_waiting(1);
        delete(&stage, suffixes);
        assert!(wait::until(LIMIT, || held(&stage) == 1), "the holder is not in the new file");
        let mut newcomer = stage.worker("newcomer");
        newcomer.ask("third");
        stage.await_waiting(2);
        assert!(!newcomer.has_told("third", |what| matches!(what, What::Acquired { .. })));
        holder.renewed("first");
        assert_eq!(holder.granted("first").token, first.token, "it is the same permit");
        holder.release("first");
        // Which of them came first to the new file is not said.
        waiter.tell_release("second");
        newcomer.tell_release("third");
        waiter.released("second");
        newcomer.released("third");
        for worker in [holder, waiter, newcomer] {
            worker.close();
        }
        stage.assert_safe();
        stage.assert_at_rest();
    }
}

/// The one thing that a deletion can break, and for how long.
///
/// The holder is stopped, so that it cannot notice. If the file was deleted alone, it still has locks on what is
/// beside it.
#[test]
fn a_holder_that_does_not_fit_into_the_next_file_stops_by_its_deadline() {
    for suffixes in [&["", "-wal", "-shm"][..], &[""]] {
        let stage = Stage::new(1, Duration::from_secs(4));
        let mut holder = stage.worker("holder");
        holder.acquire("first");
        fill(&stage);
        holder.pause();
        delete(&stage, suffixes);
        let mut newcomer = stage.worker("newcomer");
        newcomer.acquire("second");
        stage.assert_sound();
        // Too many hold now, and nobody could know.
        let before = holder.granted("first").until;
        holder.resume();
        holder.lost("first");
        let after = holder.granted("first").until;
        // What is stated is a microsecond more or less each time.
        assert!(after < before + 1000, "it was renewed, from {before} to {after}");
        newcomer.release("second");
        for worker in [holder, newcomer] {
            worker.close();
        }
        stage.assert_at_rest();
    }
}

#[test]
fn without_its_directory_the_store_is_out_of_reach_until_somebody_makes_it() {
    let stage = Stage::new(1, Duration::from_secs(60));
    let below: PathBuf = stage.directory().join("below");
    let url = crate::stage::url(&below.join("semaphores.db"));
    let hasty = permits::Client::builder(&url).store_timeout(Duration::from_millis(300));
    let client = permits::blocking::Client::connect_with(hasty).expect("the file can be used");
    let semaphore = client.semaphore(SEMAPHORE, 1);
    let held = semaphore.acquire().expect("it is free");
    fs::remove_dir_all(&below).expect("it is ours");
    match semaphore.try_acquire() {
        Err(AcquireError::Store(StoreError::Unreachable { reason })) => {
            assert!(reason.contains("was deleted, with its directory"), "{reason}");
        }
        other => panic!("there is no directory: {other:?}"),
    }
    assert!(!below.exists(), "it may have been meant");
    fs::create_dir(&below).expect("there is room");
    held.renew().expect("there is a directory");
    held.release().expect("it is held");
    client.close().expect("the file can be used");
}
