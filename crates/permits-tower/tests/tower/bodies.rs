//! [`permits_tower::PermitBody`]: a permit until the body has ended.

use std::convert::Infallible;
use std::sync::Mutex;

use axum::body::Bytes;
use http::Response;
use http_body::{Body as _, Frame};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt as _, Empty, Full};
use permits::Semaphore;
use permits_testkit::sound::Succeeds as _;
use permits_tower::{PermitBody, PermitError, PermitLayer};
use tower::{Layer as _, ServiceExt as _};

use crate::fixture::{semaphore, settles, within};

/// Puts this body behind the layer.
async fn guarded<B: http_body::Body>(exports: &Semaphore, body: B) -> PermitBody<B> {
    let body = Mutex::new(Some(body));
    let service = tower::service_fn(|(): ()| {
        let body = body.lock().expect("no panic").take().expect("one request");
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    // The service can be called only once, and has no clone, so it is reserved.
    let service = PermitLayer::until_body_end(exports.clone()).reserve().layer(service);
    within(service.oneshot(())).succeeds().await.into_body()
}

/// A body that a test sends by hand.
async fn channel(
    exports: &Semaphore,
) -> (Sender<Bytes, std::io::Error>, PermitBody<Channel<Bytes, std::io::Error>>) {
    let (sender, body) = Channel::new(1);
    (sender, guarded(exports, body).await)
}

#[tokio::test]
async fn a_stream_holds_its_permit_until_it_ends() {
    let (_client, exports) = semaphore("stream", 1).await;
    let (mut sender, mut body) = channel(&exports).await;
    for part in ["one", "two"] {
        within(sender.send_data(part.into())).await.expect("it is received");
        let frame = within(body.frame()).await.expect("it has not ended").expect("it has not failed");
        assert_eq!(frame.into_data().ok(), Some(Bytes::from(part)));
        settles(&exports, 1, 0).await;
    }
    drop(sender);
    assert!(within(body.frame()).await.is_none());
    settles(&exports, 0, 0).await;
    drop(body);
}

#[tokio::test]
async fn the_last_frame_releases() {
    let (_client, exports) = semaphore("last-frame", 1).await;
    let mut body = guarded(&exports, Full::<Bytes>::from("all")).await;
    settles(&exports, 1, 0).await;
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
    let frame = within(body.frame()).await.expect("it has not ended").expect("it has not failed");
    assert_eq!(frame.into_data().ok(), Some(Bytes::from("all")));
    // The body says that it has ended, and then a server does not poll it.
    assert!(body.is_end_stream());
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_body_that_is_empty_holds_nothing() {
    let (_client, exports) = semaphore("empty", 1).await;
    let body = guarded(&exports, Empty::<Bytes>::new()).await;
    assert!(body.is_end_stream());
    settles(&exports, 0, 0).await;
    drop(body);
}

#[tokio::test]
async fn a_body_that_is_dropped_or_fails_releases() {
    let (_client, exports) = semaphore("dropped-body", 1).await;
    let (_sender, body) = channel(&exports).await;
    settles(&exports, 1, 0).await;
    drop(body);
    settles(&exports, 0, 0).await;

    let (sender, mut body) = channel(&exports).await;
    sender.abort(std::io::Error::other("the disk is full"));
    let error = within(body.frame()).await.expect("an error").expect_err("it has failed");
    assert!(
        matches!(&error, PermitError::Service(_)) && error.to_string() == "the disk is full",
        "{error:?}"
    );
    settles(&exports, 0, 0).await;
    drop(body);
}

#[tokio::test]
async fn a_body_whose_permit_is_revoked_ends_with_an_error() {
    let (_client, exports) = semaphore("revoked-body", 1).await;
    let (mut sender, mut body) = channel(&exports).await;
    let holder = exports.inspect().succeeds().await.holders.remove(0).holder;
    let read = tokio::spawn(async move { (body.frame().await, body) });
    assert!(exports.revoke(&holder, "maintenance").succeeds().await);

    let (frame, mut body) = within(read).await.expect("no panic");
    let error = frame.expect("an error").expect_err("its permit was revoked");
    assert!(matches!(&error, PermitError::Lost { semaphore, .. } if semaphore == "exports"), "{error:?}");
    let reason = std::error::Error::source(&error).expect("it has a reason").to_string();
    assert_eq!(reason, "the permit was revoked: maintenance");
    assert!(sender.send(Frame::data("more".into())).await.is_err(), "the inner body is dropped");
    assert!(body.is_end_stream() && within(body.frame()).await.is_none());
    settles(&exports, 0, 0).await;
}
