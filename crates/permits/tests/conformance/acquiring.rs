//! Acquiring and releasing: the fields of a permit, refusals, and that units are freed.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, PermitStatus};
use permits_testkit::sound::Succeeds as _;

use crate::fixture::Fixture;

pub(crate) async fn a_permit_says_what_it_is(fixture: &Fixture) {
    let client = fixture.connect(fixture.builder().label("exporter-7").lease(Duration::from_secs(30))).await;
    let semaphore = fixture.semaphore(&client, 1);
    let permit = semaphore.acquire().succeeds().await;
    assert_eq!(permit.semaphore(), fixture.name());
    let process = format!(":{}/", std::process::id());
    assert!(permit.holder().contains(&process), "holders are named after the process: {permit:?}");
    assert_eq!((permit.weight(), permit.lease()), (1, Duration::from_secs(30)));
    assert!(permit.slot() < fixture.limit(1), "{permit:?}");
    assert!(permit.is_held());
    assert_eq!(permit.status(), PermitStatus::Held);
    let remaining = permit.remaining();
    assert!(!remaining.is_zero() && remaining < permit.lease(), "{remaining:?}");
    permit.release().succeeds().await;
}

pub(crate) async fn a_try_on_a_full_one_is_refused_for_now(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let permit = fixture.semaphore(&client, 1).acquire().succeeds().await;
    for semaphore in [fixture.semaphore(&client, 1), fixture.semaphore(&other, 1)] {
        let error = semaphore.try_acquire().await.expect_err("it is full");
        assert_eq!(error, AcquireError::NoPermits);
        assert!(error.is_not_now());
        let no_wait = AcquireOptions::new().timeout(Duration::ZERO);
        let error = semaphore.acquire_with(no_wait).await.expect_err("it is full");
        assert_eq!(error, AcquireError::NoPermits, "a wait of zero is a try");
    }
    permit.release().succeeds().await;
    drop(fixture.semaphore(&other, 1).try_acquire().succeeds().await);
}

/// A session sends its requests in their order.
pub(crate) async fn a_dropped_permit_is_free_for_the_next_try(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    for _ in 0..20 {
        drop(semaphore.try_acquire().await.expect("the release of the one before was sent first"));
    }
}

pub(crate) async fn dropped_permits_are_free_for_the_next_tries_of_many_tasks(fixture: &Fixture) {
    const TASKS: u32 = 64;
    let client = fixture.client().await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let semaphore = fixture.semaphore(&client, TASKS);
            tokio::spawn(async move {
                for _ in 0..5 {
                    drop(semaphore.try_acquire().await.expect("each task has one unit at most"));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
}

pub(crate) async fn a_holder_has_one_permit_at_a_time(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let named = |holder: &str| AcquireOptions::new().holder(holder);

    let permit = semaphore.acquire_with(named("web-3")).succeeds().await;
    assert_eq!(permit.holder(), "web-3");
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!(seen.holders.iter().map(|holder| holder.holder.as_str()).collect::<Vec<_>>(), ["web-3"]);

    let waiter = fixture.queued(&others, named("web-4")).await;
    for (semaphore, holder) in
        [(&semaphore, "web-3"), (&others, "web-3"), (&semaphore, "web-4"), (&others, "web-4")]
    {
        let error = semaphore.acquire_with(named(holder)).await.expect_err("it holds or waits already");
        assert_eq!(error, AcquireError::AlreadyHeld { holder: holder.into() });
        assert!(error.is_not_now());
    }

    permit.release().await.expect("the refusals did not touch it");
    waiter.permit().await.release().await.expect("the refusals did not touch it");
    let again = others.try_acquire().await.expect("all is free");
    again.release().succeeds().await;
    let again = others.acquire_with(named("web-3")).await.expect("the name is free again");
    again.release().succeeds().await;
}

pub(crate) async fn tokens_strictly_increase(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        for semaphore in [&semaphore, &others] {
            let permit = semaphore.acquire().succeeds().await;
            tokens.push(permit.token());
            let waiter = fixture.queued(semaphore, AcquireOptions::new()).await;
            permit.release().succeeds().await;
            let permit = waiter.permit().await;
            tokens.push(permit.token());
            permit.release().succeeds().await;
        }
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

pub(crate) async fn a_weight_above_the_limit_is_refused_for_good(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let limit = fixture.limit(1);
    for options in [AcquireOptions::new(), AcquireOptions::new().timeout(Duration::ZERO)] {
        let error = semaphore.acquire_with(options.weight(limit + 1)).await.expect_err("it can never fit");
        assert_eq!(error, AcquireError::ExceedsLimit { weight: limit + 1, limit });
        assert!(!error.is_not_now());
    }
    fixture.settles(&semaphore, 0, 0).await;
}
