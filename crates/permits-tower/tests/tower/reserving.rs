//! [`permits_tower::ReserveService`]: a permit that is reserved when the service is ready.

use std::task::{Context, Waker};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Lost};
use permits_testkit::sound::Succeeds as _;
use permits_tower::{PermitError, PermitLayer};
use tower::{Layer as _, Service as _, ServiceExt as _};

use crate::fixture::{inner, next, semaphore, settles, within};

#[tokio::test]
async fn the_reserved_permit_is_held_until_the_response() {
    let (_client, exports) = semaphore("reserved", 1).await;
    let (service, mut handle) = inner();
    let mut service = PermitLayer::until_response(exports.clone()).reserve().layer(service);
    let call = within(service.ready()).succeeds().await.call(1);
    settles(&exports, 1, 0).await;
    next(&mut handle).await.1.send_response(10);
    settles(&exports, 1, 0).await;
    assert_eq!(within(call).succeeds().await, 10);
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_clone_has_no_reservation_and_a_drop_releases_it() {
    let (_client, exports) = semaphore("clone", 2).await;
    let (service, _handle) = inner();
    let mut service = PermitLayer::until_response(exports.clone()).reserve().layer(service);
    within(service.ready()).succeeds().await;
    within(service.ready()).await.expect("it is ready");
    settles(&exports, 1, 0).await;

    let mut clone = service.clone();
    settles(&exports, 1, 0).await;
    within(clone.ready()).succeeds().await;
    settles(&exports, 2, 0).await;
    assert_eq!(service.in_flight(), 2);

    drop(clone);
    settles(&exports, 1, 0).await;
    drop(service.into_inner());
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_service_that_is_not_ready_waits_in_line_and_leaves_it_when_dropped() {
    let (_client, exports) = semaphore("not-ready", 1).await;
    let (service, _handle) = inner();
    let mut first = PermitLayer::until_response(exports.clone()).reserve().layer(service);
    let mut second = first.clone();
    within(first.ready()).succeeds().await;

    assert!(second.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
    settles(&exports, 1, 1).await;
    drop(second);
    settles(&exports, 1, 0).await;
    drop(first);
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_refusal_is_the_result_of_the_next_call_alone() {
    let (_client, exports) = semaphore("refusal", 1).await;
    let (service, mut handle) = inner();
    let layer = PermitLayer::until_response(exports.clone()).options(AcquireOptions::new().no_wait());
    let mut service = layer.reserve().layer(service);
    let held = exports.acquire().succeeds().await;

    let refused = within(service.ready()).await.expect("a refusal is no failure of the service").call(1);
    let error = within(refused).await.expect_err("it is held");
    assert!(matches!(error, PermitError::Acquire { source: AcquireError::NoPermits, .. }), "{error:?}");

    held.release().succeeds().await;
    let served = within(service.ready()).succeeds().await.call(2);
    let (request, respond) = next(&mut handle).await;
    respond.send_response(20);
    assert_eq!((request, within(served).succeeds().await), (2, 20));
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_reservation_that_was_lost_fails_the_call_before_it_reaches_the_service() {
    let (_client, exports) = semaphore("lost-reservation", 1).await;
    let (service, mut handle) = inner();
    let short = AcquireOptions::new().lease(Duration::from_millis(100)).auto_renew(false);
    let mut service = PermitLayer::until_response(exports.clone()).options(short).reserve().layer(service);
    let ready = within(service.ready()).succeeds().await;
    // The permit ends by the clock of its holder before it ends in the store.
    settles(&exports, 0, 0).await;

    let error = within(ready.call(1)).await.expect_err("its lease has ended");
    assert!(matches!(error, PermitError::Lost { reason: Lost::Expired, .. }), "{error:?}");
    let served = within(service.ready()).succeeds().await.call(2);
    assert_eq!(next(&mut handle).await.0, 2, "the first request did not reach the service");
    drop(served);
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_service_that_fails_releases_its_reservation() {
    let (_client, exports) = semaphore("fails", 1).await;
    let (service, mut handle) = inner();
    let mut service = PermitLayer::until_response(exports.clone()).reserve().layer(service);
    within(service.ready()).succeeds().await;
    settles(&exports, 1, 0).await;
    handle.send_error("gone");
    let error = within(service.ready()).await.expect_err("it has failed");
    assert!(matches!(&error, PermitError::Service(error) if error.to_string() == "gone"), "{error:?}");
    settles(&exports, 0, 0).await;
}

#[tokio::test]
#[should_panic(expected = "call poll_ready first")]
async fn a_call_without_having_been_ready_panics() {
    let (_client, exports) = semaphore("panics", 1).await;
    let (service, _handle) = inner();
    let mut service = PermitLayer::until_response(exports).reserve().layer(service);
    drop(service.call(1));
}
