//! The span of an acquisition.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::wait;
use tracing::Instrument as _;

use crate::collector::{self, Span};
use crate::{connect, page, queued, timeout};

/// The closed span of an acquisition of this semaphore with this outcome.
#[track_caller]
fn span(semaphore: &str, outcome: &str) -> Span {
    let is_it = |span: &Span| {
        let field = |name: &str| span.fields.get(name).map(String::as_str);
        span.name == "acquire"
            && span.closed
            && field("semaphore") == Some(semaphore)
            && field("outcome") == Some(outcome)
    };
    assert!(wait::until(|| collector::spans().iter().any(is_it)), "{:#?}", collector::spans());
    collector::spans().into_iter().find(is_it).expect("it was seen")
}

#[tokio::test]
async fn each_acquisition_has_a_span_from_the_request_to_its_outcome() {
    let _alone = collector::begin();
    let client = connect("memory:spans").await;
    let semaphore = client.named("spans", 1);
    let held = semaphore.acquire().instrument(tracing::info_span!("caller")).succeeds().await;
    semaphore.acquire_with(timeout(1)).await.expect_err("it is held");
    semaphore.try_acquire().await.expect_err("it is held");
    {
        let mut dropped = pin!(semaphore.acquire_with(timeout(60_000)));
        assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        queued(&semaphore, 1).await;
    }
    drop(semaphore.acquire());

    let granted = span("spans", "granted");
    assert_eq!(granted.declared, page::span_fields());
    assert_eq!(granted.parent.as_deref(), Some("caller"));
    assert_eq!((&*granted.fields["weight"], &*granted.fields["wait"]), ("1", "unlimited"));
    assert!(!granted.fields.contains_key("position"), "it was not queued: {granted:?}");
    let timed_out = span("spans", "timed_out");
    assert_eq!((&*timed_out.fields["position"], &*timed_out.fields["wait"]), ("0", "1ms"));
    assert_eq!(span("spans", "no_permits").fields["wait"], "no");
    let cancelled = span("spans", "cancelled");
    assert_eq!((&*cancelled.fields["position"], &*cancelled.fields["wait"]), ("0", "60s"));
    let all = collector::spans();
    let of_semaphore = |span: &&Span| span.fields.get("semaphore").is_some_and(|name| name == "spans");
    assert_eq!(all.iter().filter(of_semaphore).count(), 4, "one that was not polled has none");

    // The events of a request are inside of its span.
    for (target, span) in [
        ("permits::granted", &granted),
        ("permits::timed_out", &timed_out),
        ("permits::cancelled", &cancelled),
    ] {
        assert_eq!(collector::about("spans", target).span, Some(span.id), "{target}");
    }
    drop(held);
}

/// A thread that blocks.
#[test]
fn a_blocking_acquisition_has_a_span() {
    let _alone = collector::begin();
    let client = permits::Client::connect("memory:blocking-span").wait().expect("there is memory");
    let semaphore = client.named("blocking span", 1);
    let held = semaphore.acquire().wait().expect("it is free");
    span("blocking span", "granted");
    semaphore.try_acquire().wait().expect_err("it is held");
    span("blocking span", "no_permits");
    held.release().wait().expect("it is held");
}
