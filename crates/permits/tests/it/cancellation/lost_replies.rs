//! Calls whose reply is lost with its connection, and a grant whose message is lost.
//!
//! The session sends such a call again. The call has one effect, and its caller gets the answer to the first
//! attempt. A lost reply to an acquisition is a stage of the table.

use std::thread;
use std::time::Duration;

use permits::{AcquireOptions, AdoptError, Client, Limit, Lost, PermitHandle, Recovery};
use permits_testkit::sound::Named as _;
use permits_testkit::{HANGS, wait};

use crate::cancellation::fixture::Fixture;
use crate::cancellation::{LEASE, UNITS};

fn client(fixture: &Fixture, lease: Duration) -> Client {
    let builder = Client::builder(fixture.proxy.url()).recovery(Recovery::Off).lease(lease);
    builder.connect().wait().expect("the server is up")
}

/// Calls, and loses the reply to the request that contains `word`.
#[track_caller]
fn losing<T>(fixture: &Fixture, word: &str, call: impl FnOnce() -> T) -> T {
    let before = fixture.proxy.swallowed();
    fixture.proxy.swallow_reply_to(word.as_bytes());
    let result = call();
    assert_eq!(fixture.proxy.swallowed(), before + 1, "the first reply was lost");
    result
}

#[test]
fn a_lost_reply_to_a_renewal_is_no_loss_and_one_to_a_release_gives_the_units_back_once() {
    let fixture = Fixture::new();
    let semaphore = client(&fixture, LEASE).named("exports", UNITS);
    let other = fixture.semaphore().acquire().wait().expect("it is free");
    let permit = semaphore.acquire().wait().expect("it is free");
    // A word that is in renewals alone: the limit, in case the store forgot it.
    // The renewal reports that, and the permit can be renewed when the session has another connection.
    losing(&fixture, "fallback", || permit.renew().wait()).expect_err("the outcome is unknown");
    assert!(wait::until(|| permit.renew().wait().is_ok()) && permit.is_held());
    fixture.settles(2, 0);
    // A word that is in releases alone.
    assert_eq!(losing(&fixture, "stored", || permit.release().wait()), Ok(()));
    fixture.settles(1, 0);
    assert!(other.is_held());
    drop(other);
    fixture.all_units_come_back();
}

#[test]
fn a_lost_reply_to_a_change_by_an_operator_counts_it_once_and_returns_its_result() {
    let fixture = Fixture::new();
    let (semaphore, operator) =
        (fixture.semaphore(), client(&fixture, LEASE).named("exports", Limit::Stored));
    // So that the server knows the scripts, and a lost reply is the reply of a command.
    operator.set_limit(3).wait().expect("the server is up");
    operator.revoke("none", "").wait().expect("the server is up");

    let options = AcquireOptions::new().holder("web-3");
    let permit = semaphore.acquire_with(options).wait().expect("it is free");
    assert_eq!(losing(&fixture, "web-3", || operator.revoke("web-3", "late").wait()), Ok(true));
    assert_eq!(permit.lost_within(HANGS), Some(Lost::Revoked { reason: "late".into() }));

    let version = operator.inspect().wait().expect("the server is up").limit_version;
    assert_eq!(losing(&fixture, "adjust", || operator.adjust_limit(2).wait()), Ok(5), "once");
    let set = || operator.set_limit_if_version(7, version + 1).wait();
    assert_eq!(losing(&fixture, "set\r\n", set), Ok(version + 2), "the first call set it");
    let seen = semaphore.inspect().wait().expect("the server is up");
    assert_eq!((seen.limit, seen.limit_version, seen.held), (Some(7), version + 2, 0));
}

#[test]
fn a_lost_reply_to_the_release_of_a_handle_or_to_a_deletion_is_no_failure() {
    let fixture = Fixture::new();
    let client = client(&fixture, LEASE);
    let hand_over = || {
        let permit = fixture.semaphore().acquire().wait().expect("it is free");
        permit.hand_over().wait().expect("it is held")
    };
    let release = |handle: &PermitHandle| client.release(handle).wait();
    let delete = || client.named("exports", Limit::Stored).delete().wait();
    // So that the server knows the scripts. Every call has a reply, and the second of each finds nothing.
    let handle = hand_over();
    assert_eq!((release(&handle), release(&handle)), (Ok(true), Ok(false)));
    assert_eq!((delete(), delete()), (Ok(true), Ok(false)));

    let handle = hand_over();
    assert_eq!(losing(&fixture, "exports", || release(&handle)), Ok(true), "the first call released it");
    fixture.settles(0, 0);
    assert_eq!(losing(&fixture, "exports", delete), Ok(true), "the first call deleted it");
    // Nothing of that stays with the client.
    assert_eq!((release(&handle), delete()), (Ok(false), Ok(false)));
}

#[test]
fn a_grant_whose_message_is_lost_is_learned_by_the_next_renewal() {
    let fixture = Fixture::new();
    let semaphore = client(&fixture, Duration::from_secs(3)).named("exports", UNITS);
    fixture.block();
    let waiting = thread::spawn({
        let semaphore = semaphore.clone();
        move || semaphore.acquire().wait()
    });
    fixture.settles(UNITS.into(), 1);
    let before = fixture.proxy.swallowed();
    fixture.proxy.swallow_messages(b":wake:");
    fixture.unblock();
    assert!(wait::until(|| fixture.proxy.swallowed() > before), "no message was lost");
    let permit = waiting.join().expect("it does not panic").expect("it was granted");
    permit.release().wait().expect("it is held");
    fixture.all_units_come_back();
}

/// The adoption is tried until the store timeout, and its unit is given back then. The lease is longer than
/// the test.
#[test]
fn an_adoption_whose_replies_are_all_lost_gives_its_unit_back() {
    let fixture = Fixture::new();
    let builder = Client::builder(fixture.proxy.url()).recovery(Recovery::Off);
    let client = builder.lease(Duration::from_secs(1)).store_timeout(Duration::from_secs(1)).connect();
    let client = client.wait().expect("the server is up");
    let hand_over = || {
        let permit = fixture.semaphore().acquire().wait().expect("it is free");
        permit.hand_over().wait().expect("it is held")
    };
    // So that the server knows the script, and executes the next adoption.
    client.adopt(&hand_over()).wait().expect("it is held").release().wait().expect("it is held");

    let handle = hand_over();
    fixture.proxy.swallow_replies(true);
    let error = client.adopt(&handle).wait().expect_err("no reply arrives");
    assert!(matches!(&error, AdoptError::Store(store) if store.is_temporary()), "{error:?}");
    fixture.proxy.refuse(true);
    fixture.proxy.swallow_replies(false);
    fixture.heal();
    fixture.all_units_come_back();
    assert_eq!(client.adopt(&handle).wait().map(drop), Err(AdoptError::Gone), "it was released");
}
