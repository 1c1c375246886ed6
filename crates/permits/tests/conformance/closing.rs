//! The end of a client: its permits are lost, its waiters fail, and nothing stays in the store.

use std::time::Duration;

use permits::{
    AcquireError, AcquireOptions, AdminError, AdoptError, Ended, Lost, PermitStatus, ReleaseError, RenewError,
};
use permits_testkit::HANGS;
use permits_testkit::sound::Succeeds as _;

use crate::fixture::{Fixture, lost_within};

pub(crate) async fn closing_ends_permits_and_waits(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (semaphore, others) = (fixture.semaphore(&client, 1), fixture.semaphore(&other, 1));
    let permit = semaphore.acquire().succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let next = fixture.queued(&others, AcquireOptions::new()).await;
    client.clone().close().succeeds().await;

    assert_eq!(waiter.outcome().await.expect_err("its client is closed"), AcquireError::Ended(Ended::Closed));
    assert_eq!(lost_within(&permit, HANGS).await, Some(Lost::Closed));
    assert_eq!((permit.is_held(), permit.status()), (false, PermitStatus::Lost));
    assert_eq!(permit.renew().await, Err(RenewError::Lost(Lost::Closed)));
    assert_eq!(permit.release().await, Err(ReleaseError::Lost(Lost::Closed)));
    let next = next.permit().await;
    let seen = fixture.inspect(&others).await;
    assert_eq!((seen.held, seen.waiting), (1, 0), "all that the closed one had was given back");

    assert_eq!(semaphore.acquire().await.map(drop), Err(AcquireError::Ended(Ended::Closed)));
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::Ended(Ended::Closed)));
    assert_eq!(semaphore.inspect().await, Err(AdminError::Ended(Ended::Closed)));
    assert_eq!(semaphore.set_limit(9).await, Err(AdminError::Ended(Ended::Closed)));
    let handle = next.hand_over().succeeds().await;
    assert_eq!(client.adopt(&handle).await.map(drop), Err(AdoptError::Ended(Ended::Closed)));
    client.close().await.expect("it is closed already");
    let adopted = other.adopt(&handle).await.expect("the refusal did not touch it");
    adopted.release().succeeds().await;
}

pub(crate) async fn clones_are_one_client(fixture: &Fixture) {
    let client = fixture.client().await;
    let clone = client.clone();
    let semaphore = fixture.semaphore(&client, 1);
    drop(client);
    let permit = semaphore.acquire().await.expect("a clone keeps the client");
    let error = fixture.semaphore(&clone, 1).try_acquire().await.expect_err("it is full for both");
    assert_eq!(error, AcquireError::NoPermits);
    clone.close().succeeds().await;
    assert_eq!(lost_within(&permit, HANGS).await, Some(Lost::Closed), "what one closes is closed for all");
    assert_eq!(semaphore.acquire().await.map(drop), Err(AcquireError::Ended(Ended::Closed)));
}

pub(crate) async fn permits_outlive_the_client_that_was_dropped(fixture: &Fixture) {
    let lease = Duration::from_millis(600);
    let (client, other) = (fixture.connect(fixture.builder().lease(lease)).await, fixture.client().await);
    let others = fixture.semaphore(&other, 1);
    let permit = fixture.semaphore(&client, 1).acquire().succeeds().await;
    drop(client);
    fixture.sees_a_renewal(&others).await;
    assert!(permit.is_held(), "it is renewed as long as it is out");
    permit.renew().succeeds().await;
    let error = others.try_acquire().await.expect_err("it is full");
    assert_eq!(error, AcquireError::NoPermits);
    drop(permit);
    others.acquire().await.expect("it came back").release().succeeds().await;
}
