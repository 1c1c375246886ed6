//! Leases: a permit ends without renewal and stays with it, and its holder learns of a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use permits::{
    AcquireError, AcquireOptions, InvalidInput, Lost, Permit, PermitStatus, ReleaseError, RenewError,
    Semaphore,
};
use permits_testkit::HANGS;
use permits_testkit::sound::Succeeds as _;
use tokio::time::sleep;

use crate::fixture::{Fixture, lost_within};

const SHORT: Duration = Duration::from_millis(600);

/// Options for a permit that ends with its lease.
async fn unrenewed(semaphore: &Semaphore, lease: Duration) -> Permit {
    let options = AcquireOptions::new().lease(lease).auto_renew(false);
    semaphore.acquire_with(options).succeeds().await
}

pub(crate) async fn without_renewal_a_permit_ends_with_its_lease(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (semaphore, others) = (fixture.semaphore(&client, 1), fixture.semaphore(&other, 1));
    let permit = unrenewed(&semaphore, SHORT).await;
    assert_eq!(permit.lease(), SHORT);
    assert_eq!(lost_within(&permit, HANGS).await, Some(Lost::Expired));
    assert_eq!((permit.is_held(), permit.status()), (false, PermitStatus::Lost));
    assert!(permit.remaining().is_zero());
    assert_eq!(permit.renew().await, Err(RenewError::Lost(Lost::Expired)));
    let next = others.acquire().await.expect("its units come back");
    assert_eq!(permit.release().await, Err(ReleaseError::Lost(Lost::Expired)));
    let error = semaphore.try_acquire().await.expect_err("a late release frees no other permit");
    assert_eq!(error, AcquireError::NoPermits);
    next.release().succeeds().await;
}

pub(crate) async fn a_late_drop_frees_no_other_permit(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (semaphore, others) = (fixture.semaphore(&client, 1), fixture.semaphore(&other, 1));
    // The same holder, so that only the request ids differ.
    let named = || AcquireOptions::new().holder("web-3");
    let permit = semaphore.acquire_with(named().lease(SHORT).auto_renew(false)).succeeds().await;
    let next = loop {
        match others.acquire_with(named().no_wait()).await {
            Ok(next) => break next,
            Err(error) => assert_eq!(error, AcquireError::AlreadyHeld { holder: "web-3".into() }),
        }
        sleep(Duration::from_millis(5)).await;
    };
    drop(permit);
    // The store executes a client's inspection after its releases.
    assert_eq!(fixture.inspect(&semaphore).await.held, 1);
    next.release().succeeds().await;
}

pub(crate) async fn renewal_keeps_a_permit_for_many_leases(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let lease = Duration::from_millis(600);
    let options = AcquireOptions::new().lease(lease);
    let permit = semaphore.acquire_with(options).succeeds().await;
    let token = permit.token();
    sleep(2 * lease).await;
    assert!(permit.is_held());
    assert!(permit.remaining() < lease);
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.held, seen.holders[0].token), (1, token));
    permit.release().succeeds().await;
}

pub(crate) async fn an_explicit_renewal_extends(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let permit = unrenewed(&semaphore, Duration::from_secs(60)).await;
    let fresh = permit.remaining();
    while permit.remaining() > fresh - Duration::from_millis(100) {
        sleep(Duration::from_millis(5)).await;
    }
    let before = permit.remaining();
    let ends = Instant::now() + before;
    permit.renew().succeeds().await;
    let now = Instant::now();
    assert!(now + permit.remaining() > ends, "{:?} after {before:?}", permit.remaining());
    assert_eq!(permit.status(), PermitStatus::Held);
    permit.release().succeeds().await;
}

pub(crate) async fn a_lost_permit_stops_the_work_it_runs(fixture: &Fixture) {
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let semaphore = fixture.new_semaphore(1).await;
    let permit = unrenewed(&semaphore, SHORT).await;
    let dropped = Arc::new(AtomicBool::new(false));
    let on_drop = OnDrop(dropped.clone());
    let work = async move {
        let _on_drop = on_drop;
        std::future::pending::<()>().await;
    };
    let ran = tokio::time::timeout(HANGS, permit.run(work)).await.expect("the lease ends");
    assert_eq!(ran, Err(Lost::Expired));
    assert!(dropped.load(Ordering::SeqCst), "the work is dropped where it stood");
    assert_eq!(permit.run(async { 7 }).await, Err(Lost::Expired), "and none is begun");
}

pub(crate) async fn work_that_ends_in_time_has_its_result(fixture: &Fixture) {
    let client = fixture.client().await;
    let permit = fixture.semaphore(&client, 1).acquire().succeeds().await;
    assert_eq!(permit.run(async { 7 }).await, Ok(7));
    assert!(permit.is_held());
    permit.release().succeeds().await;
}

pub(crate) async fn a_cancellation_token_is_cancelled_by_the_loss(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let permit = unrenewed(&semaphore, SHORT).await;
    let (token, own) = (permit.cancellation_token(), permit.cancellation_token());
    own.cancel();
    assert!(permit.is_held() && !token.is_cancelled(), "cancelling one's own token does nothing else");
    tokio::time::timeout(HANGS, token.cancelled()).await.expect("the lease ends");
    assert!(!permit.is_held());
}

pub(crate) async fn a_release_is_no_loss(fixture: &Fixture) {
    let client = fixture.client().await;
    let permit = fixture.semaphore(&client, 1).acquire().succeeds().await;
    let token = permit.cancellation_token();
    permit.release().succeeds().await;
    assert!(!token.is_cancelled());
}

pub(crate) async fn a_permit_is_held_no_longer_than_asked(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let limit = Duration::from_millis(400);
    let short = AcquireOptions::new().max_hold(Duration::from_millis(99));
    let refused = semaphore.acquire_with(short).await.expect_err("it is too short");
    assert!(matches!(refused, AcquireError::Invalid(InvalidInput::MaxHold { .. })), "{refused}");
    let permit = semaphore.acquire_with(AcquireOptions::new().max_hold(limit)).succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    assert!(permit.remaining() <= limit);
    permit.renew().succeeds().await;
    assert_eq!(lost_within(&permit, HANGS).await, Some(Lost::HeldTooLong { limit }));
    // The holder's work may still be stopping: nobody else gets the units until the permit is dropped.
    assert!(!permit.is_held() && !waiter.is_answered());
    drop(permit);
    waiter.permit().await.release().succeeds().await;
}
