//! Acquiring and releasing: the fields of a permit, refusals, and that units are freed.

use std::collections::BTreeSet;
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, PermitStatus};
use permits_testkit::sound::{Named as _, Succeeds as _};

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

pub(crate) async fn slots_are_distinct_and_the_lowest_free(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(5).await;
    let mut permits = Vec::new();
    for semaphore in [&semaphore, &others, &semaphore, &others, &semaphore] {
        permits.push(semaphore.acquire().succeeds().await);
    }
    let slots: BTreeSet<u32> = permits.iter().map(|permit| permit.slot()).collect();
    assert_eq!(slots, (0..5).collect());

    for freed in [[3, 1], [0, 4]] {
        for slot in freed {
            let at = permits.iter().position(|permit| permit.slot() == slot).expect("it is held");
            permits.swap_remove(at).release().succeeds().await;
        }
        for expected in [freed[0].min(freed[1]), freed[0].max(freed[1])] {
            let permit = others.acquire().succeeds().await;
            assert_eq!(permit.slot(), expected);
            permits.push(permit);
        }
    }
}

pub(crate) async fn weights_are_units(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(4).await;
    let weighing = |weight| AcquireOptions::new().weight(weight).timeout(Duration::ZERO);
    let three = semaphore.acquire_with(weighing(3)).await.expect("4 are free");
    assert_eq!(three.weight(), 3);
    let error = semaphore.acquire_with(weighing(2)).await.expect_err("1 is free");
    assert_eq!(error, AcquireError::NoPermits);
    let one = semaphore.acquire_with(weighing(1)).await.expect("1 is free");
    assert_eq!(fixture.inspect(&semaphore).await.held, 4);
    three.release().succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.held, 1);
    one.release().succeeds().await;
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

pub(crate) async fn semaphores_of_other_names_are_apart(fixture: &Fixture) {
    let client = fixture.client().await;
    let permit = fixture.semaphore(&client, 1).acquire().succeeds().await;
    // Names that could break out of a key, or be confused with another's.
    for name in ["exports:state", "a}b{c%d", "exports%", "ünï çødé ☂", "*", &"x".repeat(200)] {
        let other = client.named(name, 1);
        let here = other.try_acquire().await.expect("it is another semaphore");
        assert_eq!(here.semaphore(), name);
        let error = other.try_acquire().await.expect_err("it is full");
        assert_eq!(error, AcquireError::NoPermits);
        let seen = other.inspect().succeeds().await;
        assert_eq!((seen.name.as_str(), seen.held), (name, 1));
        here.release().succeeds().await;
    }
    assert!(permit.is_held());
}
