//! Other calls that are dropped leave nothing either.

use std::time::Duration;

use permits::{AdminError, AdoptError, CloseError, Ended, Lost, ReleaseError, RenewError};
use permits_testkit::wait;

use crate::cancellation::fixture::Fixture;
use crate::cancellation::user::{User, poll_once};
use crate::cancellation::{LEASE, Subject};

#[test]
fn a_hand_over_that_is_dropped_releases() {
    let fixture = Fixture::new();
    let user = User::new(&fixture, Subject::Permit);
    let permit = user.block_on(user.semaphore.acquire()).expect("it is free");
    fixture.proxy.delay_replies(Duration::MAX / 4);
    let mut handing_over = Box::pin(permit.hand_over());
    assert!(poll_once(handing_over.as_mut()).is_none(), "it needs the store");
    drop(handing_over);
    fixture.heal();
    fixture.all_units_come_back();
}

#[test]
fn a_release_that_is_dropped_goes_on() {
    let fixture = Fixture::new();
    let user = User::new(&fixture, Subject::Permit);
    for polled in [false, true] {
        let permit = user.block_on(user.semaphore.acquire()).expect("it is free");
        let mut releasing = Box::pin(permit.release());
        if polled {
            // The first poll sends it, whether or not it is ready.
            poll_once(releasing.as_mut());
        }
        drop(releasing);
        fixture.all_units_come_back();
    }
}

#[test]
fn an_adoption_that_is_dropped_releases() {
    let fixture = Fixture::new();
    let user = User::new(&fixture, Subject::Permit);
    let permit = fixture.semaphore().acquire().wait().expect("it is free");
    let handle = permit.hand_over().wait().expect("it is held");
    fixture.proxy.delay_replies(Duration::MAX / 4);
    let mut adopting = Box::pin(user.client.adopt(&handle));
    assert!(poll_once(adopting.as_mut()).is_none(), "it needs the store");
    drop(adopting);
    fixture.heal();
    fixture.all_units_come_back();
}

#[test]
fn a_connect_that_is_dropped_leaves_no_connection() {
    let fixture = Fixture::new();
    let mut connecting = Box::pin(fixture.client(LEASE));
    assert!(poll_once(connecting.as_mut()).is_none(), "it needs the server");
    assert!(wait::until(|| fixture.proxy.connections() > 0));
    drop(connecting);
    assert!(wait::until(|| fixture.proxy.connections() == 0));
    fixture.all_units_come_back();
}

/// It waits some seconds for the store to confirm its releases. Their callers learn that it has not done so.
#[test]
fn calls_without_a_reply_end_with_their_client() {
    let fixture = Fixture::new();
    let user = User::new(&fixture, Subject::Permit);
    let permit = user.block_on(user.semaphore.acquire()).expect("it is free");
    let other = user.block_on(user.first().acquire()).expect("it is free");
    let handle = fixture.semaphore().acquire().wait().expect("it is free").hand_over().wait();
    let handle = handle.expect("it is held");
    fixture.proxy.delay_replies(Duration::MAX / 4);
    let mut releasing = Box::pin(permit.release());
    let mut renewing = Box::pin(other.renew());
    let mut inspecting = Box::pin(user.semaphore.inspect());
    let mut adopting = Box::pin(user.client.adopt(&handle));
    assert!(poll_once(releasing.as_mut()).is_none(), "it needs the store");
    assert!(poll_once(renewing.as_mut()).is_none(), "it needs the store");
    assert!(poll_once(inspecting.as_mut()).is_none(), "it needs the store");
    assert!(poll_once(adopting.as_mut()).is_none(), "it needs the store");
    let closed = user.block_on(user.client.clone().close());
    assert!(matches!(closed, Err(CloseError::NotReleased { .. })), "{closed:?}");
    let released = user.block_on(releasing);
    assert!(matches!(released, Err(ReleaseError::Store(_))), "{released:?}");
    assert_eq!(user.block_on(renewing), Err(RenewError::Lost(Lost::Closed)));
    assert_eq!(user.block_on(inspecting), Err(AdminError::Ended(Ended::Closed)));
    assert_eq!(user.block_on(adopting).map(drop), Err(AdoptError::Ended(Ended::Closed)));
}
