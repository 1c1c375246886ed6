//! The file is deleted while it is in use, or one of its companions is.
//!
//! Its users still have the deleted file open, and a new process makes another: two queues that do not see
//! each other, unless the users notice.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use permits::Client;
use permits::{AcquireError, RenewError, StoreError};
use permits_testkit::history::ClientEvent;
use permits_testkit::sound::Named as _;
use permits_testkit::worker::SEMAPHORE;
use permits_testkit::{HOUR, wait};

use crate::local::fixture::{Fixture, await_closed};

/// Deletes the file, with its companions or without.
fn delete(fixture: &Fixture, suffixes: &[&str]) {
    for suffix in suffixes {
        fs::remove_file(format!("{}{suffix}", fixture.path().display())).expect("it is there");
    }
}

/// Moves a part of the content into the file, and leaves another in the log.
fn fill(fixture: &Fixture, client: &Client) {
    for number in 0..60 {
        drop(client.named(format!("semaphore {number}"), 1).acquire().wait().expect("it is free"));
        if number == 40 {
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            fixture.sqlite().query_row(checkpoint, [], |_| Ok(())).expect("the disk works");
        }
    }
}

/// The number of units that are held, according to the file of that name now.
fn held(fixture: &Fixture) -> i64 {
    if !fixture.path().exists() {
        return 0;
    }
    let sql = "SELECT coalesce(sum(json_extract(state, '$.held')), 0) FROM semaphores WHERE name = ?1";
    fixture.sqlite().query_row(sql, [SEMAPHORE], |row| row.get(0)).unwrap_or(0)
}

/// The files that a test deletes.
const DELETED: [&[&str]; 5] = [&["", "-wal", "-shm"], &[""], &["-wal"], &["-shm"], &["-wal", "-shm"]];

/// Deletes `files`, and waits until the users have made a new file.
fn delete_and_await(fixture: &Fixture, suffixes: &[&str]) {
    let inode = || fs::metadata(fixture.path()).map(|metadata| metadata.ino()).ok();
    let before = inode();
    delete(fixture, suffixes);
    let replaced = || inode().is_some_and(|now| Some(now) != before) && held(fixture) > 0;
    assert!(wait::until(replaced), "no holder is in a new file: {suffixes:?}\n{}", fixture.tail());
}

#[test]
fn holders_and_waiters_of_a_deleted_file_continue_in_the_next() {
    for suffixes in DELETED {
        let fixture = Fixture::new(1, Duration::from_secs(4));
        let (mut holder, mut waiter) = (fixture.worker("holder"), fixture.worker("waiter"));
        let first = holder.acquire("first");
        waiter.ask("second");
        fixture.await_waiting(1);
        delete_and_await(&fixture, suffixes);
        let mut newcomer = fixture.worker("newcomer");
        newcomer.ask("third");
        fixture.await_waiting(2);
        assert!(!newcomer.has_reported("third", |what| matches!(what, ClientEvent::Acquired { .. })));
        holder.renewed("first");
        assert_eq!(holder.granted("first").token, first.token, "it is the same permit");
        holder.release("first");
        // The order in which they follow to the new file is undefined.
        waiter.start_release("second");
        newcomer.start_release("third");
        waiter.released("second");
        newcomer.released("third");
        for worker in [holder, waiter, newcomer] {
            worker.close();
        }
        fixture.assert_safe();
        fixture.assert_at_rest();
    }
}

/// Asserts that a newcomer is refused what another holds in a file that `delete`, which gets its directory,
/// has deleted. A machine that is so busy that the holder does not run for 0.3 s proves nothing.
fn assert_newcomer_waits(delete: impl Fn(&Path)) {
    let waits = |_| {
        let fixture = Fixture::new(1, Duration::from_secs(10));
        let below = fixture.directory().join("below");
        let url = crate::local::fixture::url(&below.join("semaphores.db"));
        let mut holder = fixture.start_connected("holder", &url, fixture.settings.lease);
        holder.acquire("first");
        delete(&below);
        let newcomer = Client::builder(&url).connect().wait().expect("the directory can be made");
        match fixture.semaphore(&newcomer).try_acquire().wait() {
            Err(AcquireError::NoPermits) => {}
            Ok(_) => return false,
            other => panic!("{other:?}\n{}", fixture.tail()),
        }
        newcomer.close().wait().expect("the file can be used");
        holder.release("first");
        holder.close();
        fixture.assert_safe();
        true
    };
    assert!((0..10).any(waits), "it is granted what another holds");
}

#[test]
fn a_new_client_waits_for_the_holder_to_follow() {
    for suffixes in DELETED {
        assert_newcomer_waits(|below| {
            for suffix in suffixes {
                fs::remove_file(below.join(format!("semaphores.db{suffix}"))).expect("it is there");
            }
        });
    }
}

/// A process that has just made the directory and the file can have earlier holders, too.
#[test]
fn a_new_client_that_makes_the_directory_again_waits_for_the_holder_to_follow() {
    assert_newcomer_waits(|below| fs::remove_dir_all(below).expect("it is ours"));
}

#[test]
fn clients_that_notice_at_once_follow_to_the_same_file() {
    const HOLDERS: u32 = 6;
    let fixture = Fixture::new(HOLDERS, Duration::from_secs(10));
    let mut holders: Vec<_> =
        (0..HOLDERS).map(|number| fixture.worker(&format!("holder-{number}"))).collect();
    for holder in &mut holders {
        holder.acquire("permit");
    }
    for suffixes in [&["-shm"][..], &["-wal"], &["-wal", "-shm"]] {
        delete_and_await(&fixture, suffixes);
        let all = || held(&fixture) == i64::from(HOLDERS);
        assert!(wait::until(all), "{} are in the new file\n{}", held(&fixture), fixture.tail());
    }
    for mut holder in holders {
        holder.release("permit");
        holder.close();
    }
    fixture.assert_safe();
    fixture.assert_at_rest();
}

/// An idle client does not poll, so it notices nothing, and the next client has to.
#[test]
fn a_deleted_companion_of_an_idle_clients_file_hinders_no_other_client() {
    for suffixes in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        for in_this_process in [true, false] {
            let fixture = Fixture::new(1, Duration::from_secs(10));
            let idle = fixture.client();
            fill(&fixture, &idle);
            delete(&fixture, suffixes);
            if in_this_process {
                let client = fixture.client();
                let permit = fixture.semaphore(&client).acquire().wait().expect("it is free");
                permit.release().wait().expect("it is held");
                client.close().wait().expect("the file can be used");
            } else {
                let mut other = fixture.worker("other");
                other.acquire("permit");
                assert!(matches!(
                    fixture.semaphore(&idle).try_acquire().wait(),
                    Err(AcquireError::NoPermits)
                ));
                other.release("permit");
                other.close();
            }
            let permit = fixture.semaphore(&idle).acquire().wait().expect("it is free");
            permit.release().wait().expect("it is held");
            idle.close().wait().expect("the file can be used");
            fixture.assert_at_rest();
        }
    }
}

#[test]
fn without_users_a_deleted_shared_memory_loses_nothing() {
    for suffixes in [&["-shm"][..], &[]] {
        let fixture = Fixture::small();
        let client = fixture.client();
        fixture.semaphore(&client).set_limit(7).wait().expect("the file can be used");
        client.close().wait().expect("the file can be used");
        await_closed(fixture.directory());
        delete(&fixture, suffixes);
        let client = fixture.client();
        let seen = fixture.semaphore(&client).inspect().wait().expect("the file can be used");
        assert_eq!((seen.limit, seen.pinned), (Some(7), true), "{suffixes:?}");
        client.close().wait().expect("the file can be used");
    }
}

/// The one promise that a deletion can break, and for how long.
///
/// The holder is stopped, so that it cannot notice. If the file was deleted alone, the holder still has locks
/// on its companions.
#[test]
fn a_holder_that_does_not_fit_into_the_next_file_stops_by_its_deadline() {
    for suffixes in DELETED {
        let fixture = Fixture::new(1, Duration::from_secs(2));
        let mut holder = fixture.worker("holder");
        holder.acquire("first");
        let client = fixture.client();
        fill(&fixture, &client);
        client.close().wait().expect("the file can be used");
        await_closed(fixture.directory());
        holder.pause();
        delete(&fixture, suffixes);
        let mut newcomer = fixture.worker("newcomer");
        newcomer.acquire("second");
        fixture.assert_sound();
        // Too many hold now, and no process can notice.
        let resumed = holder.resume();
        holder.lost("first");
        let until = holder.granted("first").until;
        // A renewal after that would extend it to the end of a whole lease from then. The last one came
        // before the pause, and newcomers are served 0.3 s after the next file was created.
        assert!(until < resumed + 1_800_000, "resumed at {resumed}, it was held until {until}");
        newcomer.release("second");
        for worker in [holder, newcomer] {
            worker.close();
        }
        fixture.assert_at_rest();
    }
}

#[test]
fn without_its_directory_the_store_cannot_be_reached_until_it_is_made_again() {
    let fixture = Fixture::new(1, HOUR);
    let below: PathBuf = fixture.directory().join("below");
    let url = crate::local::fixture::url(&below.join("semaphores.db"));
    let hasty = Client::builder(&url).store_timeout(Duration::from_millis(300));
    let client = hasty.connect().wait().expect("the file can be used");
    let semaphore = client.named(SEMAPHORE, 1);
    let held = semaphore.acquire().wait().expect("it is free");
    fs::remove_dir_all(&below).expect("it is ours");
    match semaphore.try_acquire().wait() {
        Err(AcquireError::Store(StoreError::Unreachable { reason })) => {
            assert!(reason.contains("was deleted, with its directory"), "{reason}");
        }
        other => panic!("there is no directory: {other:?}"),
    }
    assert!(!below.exists(), "it may have been meant");
    fs::create_dir(&below).expect("there is room");
    // On a busy machine a newcomer's time may not be over.
    while let Err(RenewError::RetryLater) = held.renew().wait() {
        assert!(held.is_held(), "it is put back");
    }
    held.release().wait().expect("it is held");
    client.close().wait().expect("the file can be used");
}

#[test]
fn a_holder_whose_directory_is_deleted_stops_by_its_deadline() {
    let fixture = Fixture::new(1, Duration::from_secs(2));
    let below = fixture.directory().join("below");
    let url = crate::local::fixture::url(&below.join("semaphores.db"));
    let mut holder = fixture.start_connected("holder", &url, fixture.settings.lease);
    holder.acquire("first");
    fs::remove_dir_all(&below).expect("it is ours");
    holder.lost("first");
    holder.kill();
    fixture.assert_safe();
}
