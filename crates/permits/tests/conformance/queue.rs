//! The queue: first come, first served; no request overtakes another, and a waiter that gives up leaves it.

use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Inspection, Semaphore, Waits};
use permits_testkit::sound::Succeeds as _;
use permits_testkit::{HANGS, HOUR};

use crate::fixture::Fixture;

fn named(holder: &str) -> AcquireOptions {
    AcquireOptions::new().holder(holder)
}

pub(crate) async fn waiters_are_granted_in_order(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let mut holds = semaphore.acquire().succeeds().await;
    // The names are not in order, and the two clients take turns.
    let names = ["d", "a", "c", "b", "e"];
    let mut waiters = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let semaphore = if number % 2 == 0 { &others } else { &semaphore };
        waiters.push(fixture.queued(semaphore, named(name)).await);
    }
    for (served, waiter) in waiters.into_iter().enumerate() {
        let seen = fixture.inspect(&semaphore).await;
        assert_eq!(seen.waiters.iter().map(|waiter| &*waiter.holder).collect::<Vec<_>>(), names[served..]);
        holds.release().succeeds().await;
        holds = waiter.permit().await;
        assert_eq!(holds.holder(), names[served]);
    }
    holds.release().succeeds().await;
}

pub(crate) async fn a_release_grants_the_head_and_no_newcomer(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let permit = semaphore.acquire().succeeds().await;
    let waiter = fixture.queued(&others, named("head")).await;
    permit.release().succeeds().await;
    // The release grants it at once, so another request never finds it free.
    let error = semaphore.try_acquire().await.expect_err("it is the waiter's");
    assert_eq!(error, AcquireError::NoPermits);
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.held, seen.waiting, &*seen.holders[0].holder), (1, 0, "head"));
    waiter.permit().await.release().succeeds().await;
}

pub(crate) async fn a_wait_that_times_out_leaves_the_queue(fixture: &Fixture) {
    const WAIT: Duration = Duration::from_millis(100);
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (semaphore, others) = (fixture.semaphore(&client, 1), fixture.semaphore(&other, 1));
    let permit = semaphore.acquire().succeeds().await;
    match others.acquire_with(AcquireOptions::new().timeout(WAIT)).await {
        Err(error @ AcquireError::TimedOut { waited, .. }) => {
            assert!(waited >= WAIT, "{waited:?}");
            assert!(error.is_not_now());
        }
        other => panic!("not a wait that ran out: {other:?}"),
    }
    fixture.settles(&semaphore, 1, 0).await;
    permit.release().succeeds().await;
    let next = others.try_acquire().await.expect("the queue is empty");
    next.release().succeeds().await;
}

/// The error of a request whose time is up, with its reason. On a busy machine a store may be too slow to say
/// so: then once more.
async fn told(semaphore: &Semaphore) -> (Arc<Inspection>, AcquireError) {
    for _ in 0..30 {
        let options = AcquireOptions::new().timeout(Duration::from_millis(500));
        let error = semaphore.acquire_with(options).await.expect_err("nothing is granted");
        let AcquireError::TimedOut { inspection, .. } = &error else { panic!("{error:?}") };
        if let Some(inspection) = inspection {
            return (inspection.clone(), error);
        }
    }
    panic!("the store does not say why");
}

pub(crate) async fn a_timeout_says_why(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let options = AcquireOptions::new().holder("web-3").label("nightly");
    let permit = semaphore.acquire_with(options).succeeds().await;
    let (inspection, error) = told(&others).await;
    assert_eq!((inspection.held, inspection.waiting, inspection.holders.len()), (1, 0, 1), "{inspection:?}");
    assert_eq!((error.retry_after(), error.stands_still()), (None, false), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("no permit within 500ms: 1 of 1 held by \"nightly\" (web-3) for "), "{text}");
    assert!(text.ends_with(" s, 0 waiting"), "{text}");
    permit.release().succeeds().await;

    others.pause_for(HOUR, "deploy").succeeds().await;
    let (inspection, error) = told(&others).await;
    assert!(inspection.paused && error.stands_still(), "{error:?}");
    let retry_after = error.retry_after().expect("the pause has an end");
    assert!(retry_after <= HOUR && retry_after > HOUR - HANGS, "{retry_after:?}");
    let text = error.to_string();
    assert!(text.starts_with("no permit within 500ms: paused for another 5"), "{text}");
    assert!(text.ends_with(" m (deploy), 0 of 1 held, 0 waiting"), "{text}");
    others.resume().succeeds().await;
    fixture.settles(&semaphore, 0, 0).await;
}

pub(crate) async fn a_full_queue_refuses_more(fixture: &Fixture) {
    let client = fixture.connect(fixture.builder().max_waiters(2)).await;
    let semaphore = fixture.semaphore(&client, 1);
    let permit = semaphore.acquire().await.expect("holders do not count");
    let first = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let second = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let error = semaphore.acquire().await.expect_err("2 wait already");
    assert_eq!(error, AcquireError::QueueFull { max: 2, lane: None });
    assert!(error.is_not_now());
    fixture.settles(&semaphore, 1, 2).await;
    permit.release().succeeds().await;
    let first = first.permit().await;
    let third = fixture.queued(&semaphore, AcquireOptions::new()).await;
    first.release().succeeds().await;
    second.permit().await.release().succeeds().await;
    third.permit().await.release().succeeds().await;
}

/// The heavy request does not fit, and is still on its way when it ends. The next try of the session fits,
/// and would wait behind the heavy one.
async fn nothing_of_the_heavy_request_is_met(fixture: &Fixture, semaphore: &Semaphore) {
    let seen = fixture.inspect(semaphore).await;
    assert_eq!((seen.held, seen.waiting), (4, 0), "{seen:?}");
    let fits = AcquireOptions::new().weight(6).timeout(Duration::ZERO);
    semaphore.acquire_with(fits).await.expect("6 are free").release().succeeds().await;
}

fn heavy() -> AcquireOptions {
    AcquireOptions::new().weight(8)
}

pub(crate) async fn a_request_that_times_out_in_flight_is_gone_for_the_next(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(10).await;
    let four = semaphore.acquire_with(AcquireOptions::new().weight(4)).succeeds().await;
    for _ in 0..50 {
        let limit = Duration::from_nanos(1);
        let error = semaphore.acquire_with(heavy().timeout(limit)).await.expect_err("4 are held");
        assert!(matches!(error, AcquireError::TimedOut { waited, .. } if waited == limit), "{error:?}");
        nothing_of_the_heavy_request_is_met(fixture, &semaphore).await;
    }
    four.release().succeeds().await;
}

pub(crate) async fn a_request_that_is_dropped_in_flight_is_gone_for_the_next(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(10).await;
    let four = semaphore.acquire_with(AcquireOptions::new().weight(4)).succeeds().await;
    for round in 0..60 {
        let mut dropped = Box::pin(semaphore.acquire_with(heavy()));
        for _ in 0..=round % 3 {
            let polled = poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context))).await;
            assert!(polled.is_pending(), "4 are held");
        }
        drop(dropped);
        nothing_of_the_heavy_request_is_met(fixture, &semaphore).await;
    }
    four.release().succeeds().await;
}

pub(crate) async fn waits_are_counted(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let held = semaphore.acquire().succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.waits, Waits::default());
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let shortest = Duration::from_millis(120);
    tokio::time::sleep(shortest).await;
    held.release().succeeds().await;
    waiter.permit().await.release().succeeds().await;
    let waits = fixture.inspect(&semaphore).await.waits;
    assert_eq!(
        (waits.numbers.iter().sum::<u32>(), waits.numbers[0], waits.numbers[1]),
        (1, 0, 0),
        "{waits:?}"
    );
    assert!(Duration::from_micros(waits.total_us) >= shortest, "{waits:?}");
}
