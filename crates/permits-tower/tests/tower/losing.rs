//! A permit that is lost while its request is in work.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use permits::{AcquireOptions, Lost};
use permits_testkit::sound::Succeeds as _;
use permits_tower::{PermitError, PermitLayer};
use tokio::sync::oneshot;
use tower::{Layer as _, Service as _, ServiceExt as _};

use crate::fixture::{inner, semaphore, settles, within};

/// A request in work: the result of its call, and the ends of its future.
struct InWork {
    call: tokio::task::JoinHandle<Result<(), PermitError>>,
    ended: oneshot::Receiver<Infallible>,
}

async fn in_work(exports: &permits::Semaphore, options: AcquireOptions) -> InWork {
    let (ended, on_end) = oneshot::channel::<Infallible>();
    let (began, on_begin) = oneshot::channel();
    let mut work = Some((began, ended));
    let service = tower::service_fn(move |(): ()| {
        let (began, ended) = work.take().expect("one request");
        async move {
            let _ended = ended;
            began.send(()).expect("the test waits");
            pending::<Result<(), Infallible>>().await
        }
    });
    // The service can be called only once, and has no clone, so it is reserved.
    let layer = PermitLayer::until_response(exports.clone()).options(options.holder("worker"));
    let call = tokio::spawn(layer.reserve().layer(service).oneshot(()));
    within(on_begin).await.expect("it is called");
    InWork { call, ended: on_end }
}

async fn reason(work: InWork) -> Lost {
    assert!(within(work.ended).await.is_err(), "the future of the inner service is dropped");
    match within(work.call).await.expect("no panic") {
        Err(error @ PermitError::Lost { .. }) => {
            let is_not_now = error.is_not_now();
            let PermitError::Lost { reason, .. } = error else { unreachable!() };
            assert_eq!(is_not_now, reason != Lost::Closed);
            reason
        }
        other => panic!("not lost: {other:?}"),
    }
}

#[tokio::test]
async fn a_revoked_request_is_dropped_and_fails() {
    let (_client, exports) = semaphore("revoked", 1).await;
    let work = in_work(&exports, AcquireOptions::new()).await;
    assert!(exports.revoke("worker", "too slow").succeeds().await);
    assert!(matches!(reason(work).await, Lost::Revoked { reason } if &*reason == "too slow"));
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_request_that_takes_longer_than_the_longest_hold_is_dropped() {
    let (_client, exports) = semaphore("long", 1).await;
    let limit = Duration::from_millis(100);
    let work = in_work(&exports, AcquireOptions::new().max_hold(limit)).await;
    assert_eq!(reason(work).await, Lost::HeldTooLong { limit });
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_client_that_is_closed_ends_its_requests() {
    let (client, exports) = semaphore("closed", 1).await;
    let (_other, observer) = semaphore("closed", 1).await;
    let work = in_work(&exports, AcquireOptions::new()).await;
    client.close().await.expect("all is released");
    assert_eq!(reason(work).await, Lost::Closed);
    settles(&observer, 0, 0).await;
}

#[tokio::test]
async fn a_permit_that_is_lost_before_its_call_is_polled_again_calls_nothing() {
    let (_client, exports) = semaphore("late", 1).await;
    let options = AcquireOptions::new().max_hold(Duration::from_millis(100)).lease(Duration::from_secs(1));
    let (service, mut handle) = inner();
    let mut service = PermitLayer::until_response(exports.clone()).options(options).layer(service);
    let taken = exports.acquire().succeeds().await;
    let mut call = pin!(within(service.ready()).succeeds().await.call(1));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    settles(&exports, 1, 1).await;

    taken.release().succeeds().await;
    // The call has got the permit, which nobody renews after the longest hold, so the lease ends.
    settles(&exports, 0, 0).await;
    let failed = within(call).await.expect_err("the permit is lost");
    assert!(matches!(failed, PermitError::Lost { .. }), "{failed:?}");
    assert!(handle.poll_request().is_pending(), "the inner service is not called");
}
