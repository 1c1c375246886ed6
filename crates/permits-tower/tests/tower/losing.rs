//! A permit that is lost while its request is in work.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use permits::{AcquireOptions, Lost};
use permits_testkit::sound::Succeeds as _;
use permits_tower::{PermitError, PermitLayer};
use tokio::sync::oneshot;
use tower::{Layer as _, ServiceExt as _};

use crate::fixture::{semaphore, settles, within};

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
