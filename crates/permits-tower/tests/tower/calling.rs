//! [`permits_tower::PermitService`]: a permit for each call.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_tower::{Keyed, Line, PermitError, PermitLayer};
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _};

use crate::fixture::{inner, next, semaphore, settles, within};

#[tokio::test]
async fn a_call_waits_until_an_earlier_one_has_its_response() {
    let (_client, exports) = semaphore("waits", 1).await;
    let (service, mut handle) = inner();
    let service = PermitLayer::until_response(exports.clone()).layer(service);

    let first = tokio::spawn(service.clone().oneshot(1));
    let (request, respond) = next(&mut handle).await;
    assert_eq!(request, 1);
    let second = tokio::spawn(service.clone().oneshot(2));
    settles(&exports, 1, 1).await;

    respond.send_response(10);
    assert_eq!(within(first).await.expect("no panic").expect("it is served"), 10);
    let (request, respond) = next(&mut handle).await;
    assert_eq!(request, 2);
    settles(&exports, 1, 0).await;
    respond.send_response(20);
    assert_eq!(within(second).await.expect("no panic").expect("it is served"), 20);
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_service_that_is_ready_holds_nothing() {
    let (_client, exports) = semaphore("ready-holds-nothing", 1).await;
    let (service, _handle) = inner();
    let mut service = PermitLayer::until_response(exports.clone()).layer(service);
    within(service.ready()).await.expect("the inner service is ready");
    settles(&exports, 0, 0).await;
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test]
async fn a_cancelled_call_leaves_the_line_or_releases() {
    let (_client, exports) = semaphore("cancelled", 1).await;
    let (service, mut handle) = inner();
    let service = PermitLayer::until_response(exports.clone()).layer(service);
    let served = tokio::spawn(service.clone().oneshot(1));
    let _respond = next(&mut handle).await;
    let waiting = tokio::spawn(service.clone().oneshot(2));
    settles(&exports, 1, 1).await;

    waiting.abort();
    settles(&exports, 1, 0).await;
    served.abort();
    settles(&exports, 0, 0).await;
    assert!(within(served).await.expect_err("it was aborted").is_cancelled());
    assert_eq!(service.in_flight(), 0);
}

/// A service that is called only after it was ready. A clone is not ready.
struct Reserving {
    is_ready: bool,
}

impl Clone for Reserving {
    fn clone(&self) -> Self {
        Self { is_ready: false }
    }
}

impl Service<()> for Reserving {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been ready");
        ready(Ok(()))
    }
}

#[tokio::test]
async fn the_inner_service_that_was_ready_is_the_one_that_is_called() {
    let (_client, exports) = semaphore("inner-ready", 1).await;
    let mut service = PermitLayer::until_response(exports.clone()).layer(Reserving { is_ready: false });
    for _ in 0..2 {
        within(service.ready()).await.expect("it is ready").call(()).succeeds().await;
    }
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn tenants_wait_in_lines_of_their_own() {
    let (client, _) = semaphore("tenants", 1).await;
    let (service, mut handle) = inner();
    // The last digit names the tenant; requests of the operator need no permit.
    let tenants = Keyed::new(&client, 1, |request: &u32| {
        let line = Line::new(format!("tenant-{}", request % 10));
        (*request < 100).then(|| {
            if *request == 7 { line.limit(2).options(AcquireOptions::new().weight(2)) } else { line }
        })
    });
    let service = PermitLayer::until_response(tenants).layer(service);
    let of = |tenant: u32| client.named(format!("tenant-{tenant}"), permits::Limit::Stored);

    let mut calls: Vec<_> = Vec::new();
    let mut responds = Vec::new();
    for request in [1, 2, 101] {
        calls.push(tokio::spawn(service.clone().oneshot(request)));
        let (reached, respond) = next(&mut handle).await;
        assert_eq!(reached, request);
        responds.push(respond);
    }
    calls.push(tokio::spawn(service.clone().oneshot(11)));
    settles(&of(1), 1, 1).await;
    settles(&of(2), 1, 0).await;
    calls.push(tokio::spawn(service.clone().oneshot(7)));
    responds.push(next(&mut handle).await.1);
    settles(&of(7), 2, 0).await;
    assert_eq!(of(7).inspect().succeeds().await.limit, Some(2));

    responds.into_iter().for_each(|respond| respond.send_response(0));
    next(&mut handle).await.1.send_response(0);
    for call in calls {
        within(call).await.expect("no panic").expect("it is served");
    }
    for tenant in [1, 2, 7] {
        settles(&of(tenant), 0, 0).await;
    }
}

#[tokio::test]
async fn lanes_of_one_line_take_turns() {
    let (client, exports) = semaphore("lanes", 1).await;
    let (service, mut handle) = inner();
    // The last digit names the tenant; tenant 3 has paid.
    let lines = Keyed::new(&client, 1, |request: &u32| {
        let tenant = request % 10;
        Some(Line::new("exports").lane(format!("tenant-{tenant}"), if tenant == 3 { 10 } else { 1 }))
    });
    let options = AcquireOptions::new().label("of the layer");
    let service = PermitLayer::until_response(lines).options(options).layer(service);

    let mut calls = vec![tokio::spawn(service.clone().oneshot(0))];
    let mut held = next(&mut handle).await;
    for (waiting, request) in (1..).zip([1, 11, 21, 2, 3, 13]) {
        calls.push(tokio::spawn(service.clone().oneshot(request)));
        settles(&exports, 1, waiting).await;
    }
    let found = exports.inspect().succeeds().await;
    let lanes: Vec<_> =
        found.lanes.iter().map(|info| (info.lane.as_deref().unwrap_or_default(), info.waiting)).collect();
    assert_eq!(lanes, [("tenant-1", 3), ("tenant-3", 2), ("tenant-2", 1), ("tenant-0", 0)]);
    assert!(found.waiters.iter().all(|waiter| waiter.label.as_deref() == Some("of the layer")));
    for expected in [1, 2, 3, 13, 11, 21] {
        held.1.send_response(0);
        held = next(&mut handle).await;
        assert_eq!(held.0, expected);
    }
    held.1.send_response(0);
    for call in calls {
        within(call).await.expect("no panic").expect("it is served");
    }
    settles(&exports, 0, 0).await;

    for (lane, share) in [("l".repeat(121), 1), ("l".to_owned(), 1001)] {
        let lines = Keyed::new(&client, 1, move |_: &u32| Some(Line::new("exports").lane(&lane, share)));
        let (service, _handle) = inner();
        let service = PermitLayer::until_response(lines).layer(service);
        let error = within(service.oneshot(1)).await.expect_err("it is not valid");
        let PermitError::Acquire { source, .. } = error else { panic!("not of the line: {error:?}") };
        assert!(matches!(source, AcquireError::Invalid(_)), "{source:?}");
    }
}

#[tokio::test]
async fn the_limit_of_a_line_is_declared_once() {
    let (client, exports) = semaphore("declared-once", 1).await;
    let lines = Keyed::new(&client, 2, |_: &u32| Some("exports"));
    let service = tower::service_fn(|request: u32| ready(Ok::<_, Infallible>(request)));
    let service = PermitLayer::until_response(lines).layer(service);
    let limit = async || exports.inspect().succeeds().await.limit;

    within(service.clone().oneshot(1)).succeeds().await;
    assert_eq!(limit().await, Some(2));
    // A newer version of the program has another limit.
    client.named("exports", 5).declare().succeeds().await;
    within(service.oneshot(2)).succeeds().await;
    assert_eq!(limit().await, Some(5));
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn errors_of_the_inner_service_pass_unchanged() {
    let (client, exports) = semaphore("errors-pass", 1).await;
    let all = client.named("all", 1);
    let service = ServiceBuilder::new()
        .layer(PermitLayer::until_response(exports.clone()))
        .layer(PermitLayer::until_response(all.clone()).options(AcquireOptions::new().no_wait()))
        .service_fn(|_: u32| ready(Err::<u32, _>(std::io::Error::other("broken"))));

    let error = within(service.clone().oneshot(1)).await.expect_err("it is broken");
    let PermitError::Service(error) = error else { panic!("not of the service: {error:?}") };
    assert_eq!(error.downcast::<std::io::Error>().expect("it is the same").to_string(), "broken");

    // The layer below refuses with the same error as the layer itself.
    let held = all.acquire().succeeds().await;
    let error = within(service.oneshot(1)).await.expect_err("it is held");
    assert!(matches!(&error, PermitError::Acquire { semaphore, .. } if semaphore == "all"), "{error:?}");
    assert!(error.is_not_now());
    held.release().succeeds().await;
    settles(&exports, 0, 0).await;
    settles(&all, 0, 0).await;
}

#[tokio::test]
async fn a_layer_that_keeps_permits_asks_the_store_less_often() {
    const IDLE: Duration = Duration::from_secs(5);
    let (client, exports) = semaphore("keeps", 1).await;
    let lines = Keyed::new(&client, 1, |request: &u32| Some(format!("tenant-{request}")));
    // The inner service awaits, so that the permit is watched for its loss.
    let echo = tower::service_fn(|request: u32| async move {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(request)
    });
    let one_line = PermitLayer::until_response(exports.clone());
    let by_key = PermitLayer::until_response(lines);
    let kept = ServiceBuilder::new()
        .layer(one_line.clone().keep(IDLE))
        .layer(by_key.clone().keep(IDLE))
        .service(echo);
    let (calls, of_tenant) = (30, client.named("tenant-7", permits::Limit::Stored));
    for _ in 0..calls {
        within(kept.clone().oneshot(7)).succeeds().await;
    }
    for line in [&exports, &of_tenant] {
        let seen = line.inspect().succeeds().await;
        assert!(seen.counts.grants < calls, "{seen:?}");
        assert!(seen.holders.iter().all(|holder| holder.may_be_kept), "{seen:?}");
    }

    let plain = ServiceBuilder::new().layer(one_line).layer(by_key.keep(Duration::ZERO)).service(echo);
    within(plain.oneshot(7)).succeeds().await;
    settles(&exports, 0, 0).await;
    settles(&of_tenant, 0, 0).await;
}
