//! Messages that do not arrive: the FIFO of a session is full, its reader is stopped or gone, or something
//! else has its name.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use permits_testkit::{HOUR, wait};

use crate::local::fixture::Fixture;

/// Has its renewals after a third of it.
const LEASE: Duration = Duration::from_secs(2);

/// The FIFOs in the directory.
fn fifos(fixture: &Fixture) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture.path()).expect("it is there").flatten();
    let is_fifo = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_fifo());
    entries.filter(is_fifo).map(|entry| entry.path()).collect()
}

/// A holder in this process and a waiter in another. `between` comes before the release, and gets the
/// waiter's FIFO.
fn assert_waiter_is_granted(lease: Duration, between: impl FnOnce(PathBuf)) {
    let fixture = Fixture::new(1, lease);
    let mut waiter = fixture.worker("waiter");
    let [fifo] = fifos(&fixture).try_into().expect("one client is open");
    let client = fixture.client();
    let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
    waiter.ask("next");
    fixture.await_waiting(1);
    between(fifo);
    held.release().wait().expect("it is held");
    waiter.acquired("next");
    waiter.release("next");
    waiter.close();
    client.close().wait().expect("the directory can be used");
    fixture.assert_safe();
    fixture.assert_at_rest();
}

fn write(fifo: &PathBuf, bytes: &[u8]) -> bool {
    let mut options = OpenOptions::new();
    let file = options.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(fifo);
    file.and_then(|mut file| file.write_all(bytes)).is_ok()
}

#[test]
fn a_waiter_is_woken_by_a_message() {
    assert_waiter_is_granted(HOUR, |_| ());
}

/// A line that is no message makes its session renew everything.
#[test]
fn lines_of_others_do_no_harm() {
    assert_waiter_is_granted(HOUR, |fifo| {
        assert!(write(&fifo, b"hello\n{\"Event\":{}}\n\n\n{\"Recall\":\"exports\"}\n\xFF\xFE\n"));
        assert!(write(&fifo, &[b'x'; 10_000]) && write(&fifo, b"\n"));
    });
}

/// Its reader finds it full when it continues, and renews everything.
#[test]
fn a_waiter_that_was_stopped_until_its_fifo_was_full_is_granted() {
    let fixture = Fixture::new(1, HOUR);
    let mut waiter = fixture.worker("waiter");
    let [fifo] = fifos(&fixture).try_into().expect("one client is open");
    let client = fixture.client();
    let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
    waiter.ask("next");
    fixture.await_waiting(1);
    waiter.pause();
    while write(&fifo, b"{\"Recall\":\"exports\"}\n") {}
    held.release().wait().expect("a full FIFO does not delay it");
    waiter.resume();
    waiter.acquired("next");
    waiter.release("next");
    waiter.close();
    client.close().wait().expect("the directory can be used");
    fixture.assert_safe();
    fixture.assert_at_rest();
}

/// Without a message, a renewal gets the same answer.
#[test]
fn a_waiter_whose_fifo_was_replaced_is_granted_by_its_renewal() {
    assert_waiter_is_granted(LEASE, |fifo| {
        fs::remove_file(&fifo).expect("it is there");
        fs::write(&fifo, "").expect("there is room");
    });
    assert_waiter_is_granted(LEASE, |fifo| {
        fs::remove_file(&fifo).expect("it is there");
        fs::create_dir(&fifo).expect("there is room");
    });
}

#[test]
fn the_fifo_of_a_killed_waiter_is_removed_by_whoever_grants_it() {
    let fixture = Fixture::new(1, HOUR);
    let mut waiter = fixture.worker("waiter");
    let [fifo] = fifos(&fixture).try_into().expect("one client is open");
    let client = fixture.client();
    let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
    waiter.ask("next");
    fixture.await_waiting(1);
    waiter.kill();
    held.release().wait().expect("it is held");
    assert!(wait::until(|| !fifo.exists()));
    client.close().wait().expect("the directory can be used");
}
