//! Files are deleted while they are in use: a semaphore's, a session's FIFO, or all with their directory.
//!
//! A semaphore's file is its state. So it is as if a server had lost the keys: holders are put back at their
//! next renewal, and newcomers may be admitted before.

use std::fs;
use std::time::Duration;

use permits::{AcquireError, Client, StoreError};
use permits_testkit::sound::Named as _;
use permits_testkit::worker::SEMAPHORE;
use permits_testkit::{HOUR, wait};

use crate::local::fixture::Fixture;

/// Has its renewals after a third of it.
const LEASE: Duration = Duration::from_secs(2);

#[test]
fn holders_and_waiters_of_a_deleted_file_are_put_back() {
    let fixture = Fixture::new(1, LEASE);
    let client = fixture.client();
    let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
    let mut waiter = fixture.worker("waiter");
    waiter.ask("next");
    fixture.await_waiting(1);
    // Otherwise it might come before the holder, and find its unit free.
    waiter.pause();
    fs::remove_file(fixture.state()).expect("it is there");
    held.renew().wait().expect("it is put back");
    waiter.resume();
    fixture.await_waiting(1);
    let seen = fixture.semaphore(&client).inspect().wait().expect("the directory can be used");
    assert_eq!((seen.held, seen.holders[0].token), (1, held.token()), "it is the same permit");
    held.release().wait().expect("it is held");
    waiter.acquired("next");
    waiter.release("next");
    waiter.close();
    client.close().wait().expect("the directory can be used");
    fixture.assert_at_rest();
}

/// The one promise that a deletion can break, and for how long.
#[test]
fn a_holder_that_does_not_fit_any_more_stops_by_its_deadline() {
    let fixture = Fixture::new(1, LEASE);
    let mut holder = fixture.worker("holder");
    holder.acquire("first");
    holder.pause();
    fs::remove_file(fixture.state()).expect("it is there");
    let mut newcomer = fixture.worker("newcomer");
    newcomer.acquire("second");
    // Too many hold now, and no process can notice.
    holder.resume();
    holder.lost("first");
    newcomer.release("second");
    newcomer.close();
    holder.close();
    fixture.assert_at_rest();
}

#[test]
fn what_an_operator_has_set_outlasts_the_file_of_the_state() {
    let fixture = Fixture::small();
    let client = fixture.client();
    let semaphore = fixture.semaphore(&client);
    semaphore.set_limit(7).wait().expect("the directory can be used");
    fs::remove_file(fixture.state()).expect("it is there");
    let seen = semaphore.inspect().wait().expect("the directory can be used");
    assert_eq!((seen.limit, seen.pinned), (Some(7), true));
    assert_eq!(client.list().wait().expect("the directory can be used"), [SEMAPHORE]);
    assert_eq!(semaphore.delete().wait(), Ok(true));
    assert_eq!(client.list().wait().expect("the directory can be used"), [""; 0]);
    client.close().wait().expect("the directory can be used");
}

#[test]
fn without_its_directory_the_store_cannot_be_reached_until_it_is_made_again() {
    let fixture = Fixture::new(1, HOUR);
    // Long enough for the steps that must succeed, on a busy machine, too.
    let hasty = Client::builder(fixture.url()).store_timeout(Duration::from_secs(3)).lease(HOUR);
    let client = hasty.connect().wait().expect("the directory can be made");
    let semaphore = client.named(SEMAPHORE, 1);
    let held = semaphore.acquire().wait().expect("it is free");
    fs::remove_dir_all(fixture.path()).expect("it is ours");
    match semaphore.try_acquire().wait() {
        Err(AcquireError::Store(StoreError::Unreachable { reason })) => {
            assert!(reason.contains("its directory was deleted"), "{reason}");
        }
        other => panic!("there is no directory: {other:?}"),
    }
    assert!(!fixture.path().exists(), "it may have been meant");
    let other = fixture.client();
    held.renew().wait().expect("it is put back");
    assert!(matches!(fixture.semaphore(&other).try_acquire().wait(), Err(AcquireError::NoPermits)));
    // The FIFO of the first client was deleted, too; it has another one since the renewal.
    let waiter = semaphore.acquire();
    let waiter = std::thread::spawn(move || waiter.wait());
    fixture.await_waiting(1);
    fixture.semaphore(&other).revoke(held.holder(), "moved").wait().expect("the directory can be used");
    drop(waiter.join().expect("it ends").expect("it is free"));
    other.close().wait().expect("the directory can be used");
    client.close().wait().expect("the directory can be used");
    fixture.assert_at_rest();
}

#[test]
fn a_holder_whose_directory_is_deleted_stops_by_its_deadline() {
    let fixture = Fixture::new(1, LEASE);
    let mut holder = fixture.worker("holder");
    holder.acquire("first");
    fs::remove_dir_all(fixture.path()).expect("it is ours");
    holder.lost("first");
    holder.kill();
    fixture.assert_safe();
}

#[test]
fn a_deleted_fifo_is_made_again_by_the_next_renewal() {
    let fixture = Fixture::new(1, LEASE);
    let (mut holder, mut waiter) = (fixture.worker("holder"), fixture.worker("waiter"));
    holder.acquire("first");
    waiter.ask("second");
    fixture.await_waiting(1);
    let fifos = || {
        let entries = fs::read_dir(fixture.path()).expect("it is there").flatten();
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("/.to-")).collect()
    };
    let before: Vec<_> = fifos();
    assert_eq!(before.len(), 2);
    for path in &before {
        fs::remove_file(path).expect("it is there");
    }
    assert!(wait::until(|| fifos().len() == 2), "{:?}", fifos());
    holder.release("first");
    waiter.acquired("second");
    waiter.release("second");
    waiter.close();
    holder.close();
    assert!(wait::until(|| fifos().is_empty()), "a session that closes removes its own: {:?}", fifos());
    fixture.assert_safe();
    fixture.assert_at_rest();
}
