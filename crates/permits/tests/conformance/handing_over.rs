//! Hand-over: a permit that goes from one client to another is never free and never held twice.

use std::time::{Duration, Instant};

use permits::{AcquireError, AcquireOptions, AdoptError, Limit, Lost, PermitHandle};
use permits_testkit::HANGS;
use permits_testkit::sound::{Named as _, Succeeds as _};

use crate::fixture::{Fixture, lost_within};

pub(crate) async fn a_permit_handed_over_goes_on_with_another_client(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let options = AcquireOptions::new().holder("build: step 1").lease(Duration::from_secs(3));
    let permit = semaphore.acquire_with(options).succeeds().await;
    let (token, slot) = (permit.token(), permit.slot());

    let text = permit.hand_over().succeeds().await.to_string();
    let error = semaphore.try_acquire().await.expect_err("it is held, and its holder is not connected");
    assert_eq!(error, AcquireError::NoPermits);
    client.close().await.expect("what was handed over is not the client's any more");

    let handle: PermitHandle = text.parse().expect("it is a handle");
    assert_eq!((handle.semaphore(), handle.holder()), (fixture.name(), "build: step 1"));
    let adopted = other.adopt(&handle).succeeds().await;
    assert_eq!((adopted.token(), adopted.slot(), adopted.weight()), (token, slot, 1));
    assert_eq!((adopted.semaphore(), adopted.holder()), (fixture.name(), "build: step 1"));
    assert!(adopted.is_held());
    adopted.renew().succeeds().await;

    fixture.sees_a_renewal(&other.named(fixture.name(), Limit::Stored)).await;
    assert!(adopted.is_held());
    adopted.release().succeeds().await;
}

pub(crate) async fn what_was_released_cannot_be_adopted(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let permit = semaphore.acquire().succeeds().await;
    let handle = permit.hand_over().succeeds().await;
    other.adopt(&handle).succeeds().await.release().succeeds().await;
    assert_eq!(client.adopt(&handle).await.map(drop), Err(AdoptError::Gone));
    let next = semaphore.acquire().succeeds().await;
    assert_eq!(other.adopt(&handle).await.map(drop), Err(AdoptError::Gone), "another's permit is not taken");
    next.release().succeeds().await;
}

pub(crate) async fn a_handle_is_good_once(fixture: &Fixture) {
    let (client, other, third) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let handle = semaphore.acquire().succeeds().await.hand_over().succeeds().await;
    let adopted = other.adopt(&handle).succeeds().await;
    for late in [&third, &other, &client] {
        assert_eq!(late.adopt(&handle).await.map(drop), Err(AdoptError::Gone));
    }
    adopted.renew().await.expect("no other client has it");
    adopted.release().succeeds().await;
}

pub(crate) async fn a_handle_that_says_more_than_the_store_is_refused(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let options = AcquireOptions::new().lease(Duration::from_secs(20));
    let handle = semaphore.acquire_with(options).succeeds().await.hand_over().succeeds().await;
    let forged = handle.to_string().replace(":20000:", ":86400000:");
    let forged: PermitHandle = forged.parse().expect("it looks like a handle");
    assert_eq!(other.adopt(&forged).await.map(drop), Err(AdoptError::Gone), "a longer lease");
    other.adopt(&handle).await.expect("the true one is still good").release().succeeds().await;
}

pub(crate) async fn a_handle_is_good_for_one_lease(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let options = AcquireOptions::new().lease(Duration::from_secs(2)).auto_renew(false);
    let permit = semaphore.acquire_with(options).succeeds().await;
    let handle = permit.hand_over().succeeds().await;
    fixture.settles(&semaphore, 0, 0).await;
    assert_eq!(other.adopt(&handle).await.map(drop), Err(AdoptError::Gone));
}

pub(crate) async fn an_adopted_permit_can_be_revoked(fixture: &Fixture) {
    let (client, other, operator) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let permit = fixture.semaphore(&client, 1).acquire().succeeds().await;
    let adopted = other.adopt(&permit.hand_over().succeeds().await).succeeds().await;
    assert_eq!(
        operator.named(fixture.name(), Limit::Stored).revoke(adopted.holder(), "enough").await,
        Ok(true)
    );
    assert_eq!(lost_within(&adopted, HANGS).await, Some(Lost::Revoked { reason: "enough".into() }));
}

pub(crate) async fn a_handle_is_renewed_and_released_by_any_client(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let lease = Duration::from_secs(1);
    let options = AcquireOptions::new().holder("build").lease(lease);
    let permit = semaphore.acquire_with(options).succeeds().await;
    let handle = permit.hand_over().succeeds().await;
    client.close().await.expect("the permit is the handle's");

    let began = Instant::now();
    while began.elapsed() < lease * 3 / 2 {
        assert_eq!(other.renew(&handle).await, Ok(true));
        tokio::time::sleep(lease / 10).await;
    }
    let semaphore = fixture.semaphore(&other, 1);
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::NoPermits));
    let next = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    fixture.settles(&semaphore, 1, 1).await;
    assert_eq!(other.release(&handle).await, Ok(true));
    let next = next.await.expect("no panic").expect("the release grants it");
    next.release().succeeds().await;
}

pub(crate) async fn a_handle_without_its_permit_changes_nothing(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let options = || AcquireOptions::new().holder("build");
    let handle = semaphore.acquire_with(options()).succeeds().await.hand_over().await.expect("held");
    let adopted = other.adopt(&handle).succeeds().await;
    assert_eq!(
        (client.renew(&handle).await, client.release(&handle).await),
        (Ok(false), Ok(false)),
        "adopted"
    );
    adopted.renew().await.expect("no other client has it");
    adopted.release().succeeds().await;

    assert_eq!(
        (client.renew(&handle).await, client.release(&handle).await),
        (Ok(false), Ok(false)),
        "released"
    );
    let next = semaphore.acquire_with(options()).succeeds().await;
    assert_eq!(
        (other.renew(&handle).await, other.release(&handle).await),
        (Ok(false), Ok(false)),
        "not its own"
    );
    next.renew().await.expect("another's handle does not end it");
    next.release().succeeds().await;
}

/// The store has then no trace of the permit, nor of its end, and of another one in its slot.
pub(crate) async fn a_handle_stays_gone_when_its_semaphore_is_forgotten(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = client.named("forgotten", 1);
    let lease = Duration::from_secs(60);
    let options = AcquireOptions::new().holder("build").lease(lease);
    let handle = semaphore.acquire_with(options).succeeds().await.hand_over().succeeds().await;
    assert_eq!(semaphore.revoke("build", "").await, Ok(true));
    for forgets in [true, false] {
        if forgets {
            assert_eq!(semaphore.delete().await, Ok(true));
        } else {
            semaphore.acquire().succeeds().await.release().succeeds().await;
        }
        assert_eq!(other.renew(&handle).await, Ok(false));
        assert_eq!(other.adopt(&handle).await.map(drop), Err(AdoptError::Gone));
        assert_eq!(other.release(&handle).await, Ok(false));
    }
}

/// The lease is shorter than the server's age: a younger server may have lost what it does not know.
pub(crate) async fn an_invented_handle_is_refused(fixture: &Fixture) {
    let client = fixture.client().await;
    for used in [false, true] {
        if used {
            client.named("invented", 2).acquire().succeeds().await.release().succeeds().await;
        }
        for token in [5, 1_790_000_000_000_000_u64] {
            let text = format!("permits11:invented:nobody:x.1:1:1000:{token}:1");
            let handle: PermitHandle = text.parse().expect("it looks like a handle");
            assert_eq!(client.renew(&handle).await, Ok(false), "{handle}");
            assert_eq!(client.adopt(&handle).await.map(drop), Err(AdoptError::Gone), "{handle}");
        }
    }
}
