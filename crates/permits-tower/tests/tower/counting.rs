//! The load of a service: the requests that wait for a permit or hold one.

use http::Response;
use http_body_util::Full;
use permits::AcquireOptions;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_tower::PermitLayer;
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::load::Load as _;
use tower::{Layer as _, Service as _, ServiceExt as _};

use crate::fixture::{inner, next, semaphore, settles, within};

#[tokio::test]
async fn requests_count_from_the_call_until_the_permit_is_released() {
    let (_client, exports) = semaphore("counted", 1).await;
    let service = tower::service_fn(|(): ()| async {
        Ok::<_, std::io::Error>(Response::new(Full::<axum::body::Bytes>::from("done")))
    });
    let service = PermitLayer::until_body_end(exports.clone()).layer(service);
    assert_eq!(service.load(), 0);
    let body = within(service.clone().oneshot(())).succeeds().await.into_body();
    assert_eq!(service.load(), 1, "the body holds it");
    let waiting = tokio::spawn(service.clone().oneshot(()));
    settles(&exports, 1, 1).await;
    assert_eq!(service.load(), 2);

    drop(body);
    drop(within(waiting).await.expect("no panic").expect("it is served"));
    assert_eq!(service.load(), 0);
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_balancer_prefers_the_host_with_fewer_requests_that_wait_or_hold() {
    let (client, busy) = semaphore("balanced", 1).await;
    let idle = client.named("idle", 8);
    let (busy_inner, mut busy_handle) = inner();
    let (idle_inner, mut idle_handle) = inner();
    let of_busy = PermitLayer::until_response(busy.clone()).layer(busy_inner);
    let of_idle = PermitLayer::until_response(idle.clone()).layer(idle_inner);

    // A request holds, and two others wait.
    let calls: Vec<_> = (0..3).map(|request| tokio::spawn(of_busy.clone().oneshot(request))).collect();
    let _respond = next(&mut busy_handle).await;
    settles(&busy, 1, 2).await;

    let mut balance = Balance::new(ServiceList::new([of_busy.clone(), of_idle.clone()]));
    let mut balanced = Vec::new();
    for request in 10..13 {
        balanced.push(tokio::spawn(within(balance.ready()).await.expect("both are ready").call(request)));
        next(&mut idle_handle).await.1.send_response(0);
        within(balanced.pop().expect("it was pushed")).await.expect("no panic").expect("it is served");
    }
    assert_eq!((of_busy.load(), of_idle.load()), (3, 0));
    calls.into_iter().for_each(|call| call.abort());
    settles(&busy, 0, 0).await;
    settles(&idle, 0, 0).await;
}

#[tokio::test]
async fn a_reservation_counts() {
    let (_client, exports) = semaphore("reservation-counts", 1).await;
    let (service, _handle) = inner();
    let layer = PermitLayer::until_response(exports.clone()).options(AcquireOptions::new().no_wait());
    let mut service = layer.reserve().layer(service);
    within(service.ready()).succeeds().await;
    assert_eq!(service.load(), 1);
    assert!(within(service.clone().ready()).await.is_ok(), "its refusal is for the call");
    assert_eq!(service.load(), 1, "a refusal holds nothing");
    drop(service);
    settles(&exports, 0, 0).await;
}
