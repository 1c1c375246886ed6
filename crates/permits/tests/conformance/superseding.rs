//! Requests with a key: at most one of them waits for each key, the newest.

use std::time::Duration;

use permits::{AcquireAllError, AcquireError, AcquireOptions, Semaphore};
use permits_testkit::HANGS;
use permits_testkit::sound::{Named as _, Succeeds as _};
use tokio::time::timeout;

use crate::fixture::{Fixture, Waiter};

fn of(key: &str) -> AcquireOptions {
    AcquireOptions::new().supersede(key)
}

/// The holders that wait, in order.
async fn waiting(fixture: &Fixture, semaphore: &Semaphore) -> Vec<String> {
    fixture.inspect(semaphore).await.waiters.into_iter().map(|waiter| waiter.holder).collect()
}

async fn is_superseded(waiter: Waiter, key: &str) {
    let error = waiter.outcome().await.expect_err("a newer one has come");
    assert_eq!(error, AcquireError::Superseded { key: key.into() });
    assert!(error.is_not_now() && error.retry_after().is_none());
}

/// Three pushes to a branch while the first one is built, by two clients.
pub(crate) async fn the_newest_request_of_a_key_waits(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (semaphore, others) = (fixture.semaphore(&client, 1), fixture.semaphore(&other, 1));
    let first = semaphore.acquire_with(of("main")).succeeds().await;
    let second = fixture.queued(&semaphore, of("main").holder("second")).await;
    let last = fixture.queued(&semaphore, AcquireOptions::new().holder("last")).await;
    let third = Waiter::start(&others, of("main").holder("third"));
    is_superseded(second, "main").await;
    assert_eq!(waiting(fixture, &semaphore).await, ["third", "last"]);
    // A request of the same client is superseded, too.
    let fourth = Waiter::start(&others, of("main").holder("fourth"));
    is_superseded(third, "main").await;
    assert_eq!(waiting(fixture, &semaphore).await, ["fourth", "last"]);
    let again = semaphore.acquire_with(of("main").holder("fourth")).await;
    assert_eq!(again.expect_err("one waits"), AcquireError::AlreadyHeld { holder: "fourth".into() });
    assert!(first.is_held());
    first.release().succeeds().await;
    fourth.permit().await.release().succeeds().await;
    last.permit().await.release().succeeds().await;
}

pub(crate) async fn requests_of_other_keys_stay(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let held = semaphore.acquire().succeeds().await;
    let one = fixture.queued(&semaphore, of("one").holder("1")).await;
    let two = fixture.queued(&semaphore, of("two").holder("2")).await;
    let plain = fixture.queued(&semaphore, AcquireOptions::new().holder("3")).await;
    let newest = Waiter::start(&semaphore, of("two").holder("4"));
    is_superseded(two, "two").await;
    assert_eq!(waiting(fixture, &semaphore).await, ["1", "4", "3"]);
    held.release().succeeds().await;
    for waiter in [one, newest, plain] {
        waiter.permit().await.release().succeeds().await;
    }
}

pub(crate) async fn a_request_in_another_lane_joins_its_own(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let held = semaphore.acquire().succeeds().await;
    let first = fixture.queued(&semaphore, of("main").lane("a").holder("first")).await;
    let behind = fixture.queued(&semaphore, AcquireOptions::new().lane("b").holder("behind")).await;
    let second = Waiter::start(&semaphore, of("main").lane("b").holder("second"));
    is_superseded(first, "main").await;
    assert_eq!(waiting(fixture, &semaphore).await, ["behind", "second"]);
    let last = fixture.queued(&semaphore, AcquireOptions::new().lane("b").holder("last")).await;
    let third = Waiter::start(&semaphore, of("main").lane("b").holder("third"));
    is_superseded(second, "main").await;
    assert_eq!(waiting(fixture, &semaphore).await, ["behind", "third", "last"]);
    held.release().succeeds().await;
    for waiter in [behind, third, last] {
        waiter.permit().await.release().succeeds().await;
    }
}

pub(crate) async fn a_lighter_request_that_takes_a_place_is_granted(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(4).await;
    let held = semaphore.acquire_many(2).succeeds().await;
    let heavy = fixture.queued(&semaphore, of("main").weight(3)).await;
    let behind = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let refused = semaphore.acquire_with(of("main").weight(5)).await.expect_err("it never fits");
    assert_eq!(refused, AcquireError::ExceedsLimit { weight: 5, limit: 4 });
    let light = semaphore.acquire_with(of("main")).succeeds().await;
    is_superseded(heavy, "main").await;
    for permit in [held, light, behind.permit().await] {
        permit.release().succeeds().await;
    }
}

pub(crate) async fn a_heavier_request_that_takes_a_place_is_not_overtaken(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(2).await;
    let held = [semaphore.acquire().succeeds().await, semaphore.acquire().succeeds().await];
    let light = fixture.queued(&semaphore, of("main")).await;
    let behind = fixture.queued(&semaphore, AcquireOptions::new().holder("behind")).await;
    let heavy = Waiter::start(&semaphore, of("main").weight(2).holder("heavy"));
    is_superseded(light, "main").await;
    let [first, second] = held;
    first.release().succeeds().await;
    assert_eq!(waiting(fixture, &semaphore).await, ["heavy", "behind"]);
    second.release().succeeds().await;
    heavy.permit().await.release().succeeds().await;
    behind.permit().await.release().succeeds().await;
}

pub(crate) async fn a_place_is_taken_in_a_full_queue(fixture: &Fixture) {
    let client = fixture.connect(fixture.builder().max_waiters(1)).await;
    let semaphore = fixture.semaphore(&client, 1);
    let held = semaphore.acquire().succeeds().await;
    let first = fixture.queued(&semaphore, of("main")).await;
    let refused = semaphore.acquire_with(of("other")).await.expect_err("1 waits");
    assert_eq!(refused, AcquireError::QueueFull { max: 1, lane: None });
    let second = Waiter::start(&semaphore, of("main"));
    is_superseded(first, "main").await;
    held.release().succeeds().await;
    second.permit().await.release().succeeds().await;
}

pub(crate) async fn a_waiter_that_has_left_has_no_key(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let held = semaphore.acquire().succeeds().await;
    let mut gone = Box::pin(semaphore.acquire_with(of("main").holder("gone")));
    let last = tokio::select! {
        biased;
        _ = &mut gone => panic!("it is held"),
        last = fixture.queued(&semaphore, AcquireOptions::new().holder("last")) => last,
    };
    drop(gone);
    fixture.settles(&semaphore, 1, 1).await;
    let next = fixture.queued(&semaphore, of("main").holder("next")).await;
    assert_eq!(waiting(fixture, &semaphore).await, ["last", "next"]);
    held.release().succeeds().await;
    last.permit().await.release().succeeds().await;
    // A granted request gives its key up: no waiter has it any more.
    let granted = next.permit().await;
    let newer = fixture.queued(&semaphore, of("main")).await;
    assert!(granted.is_held());
    granted.release().succeeds().await;
    newer.permit().await.release().succeeds().await;
}

pub(crate) async fn a_place_is_taken_in_a_pause_and_not_in_a_closed_line(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let held = semaphore.acquire().succeeds().await;
    semaphore.pause("").succeeds().await;
    let first = fixture.queued(&semaphore, of("main")).await;
    held.release().succeeds().await;
    let second = Waiter::start(&semaphore, of("main"));
    is_superseded(first, "main").await;
    fixture.settles(&semaphore, 0, 1).await;
    semaphore.close_line("moving").succeeds().await;
    let closed = AcquireError::LineClosed { reason: "moving".into() };
    assert_eq!(second.outcome().await.expect_err("it is closed"), closed);
    assert_eq!(semaphore.acquire_with(of("main")).await.expect_err("it is closed"), closed);
    semaphore.open_line().succeeds().await;
    semaphore.resume().succeeds().await;
    semaphore.acquire_with(of("main")).succeeds().await.release().succeeds().await;
}

pub(crate) async fn a_place_is_taken_while_units_cool(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let counting = || of("main").at_least(Duration::from_millis(400));
    semaphore.acquire_with(counting()).succeeds().await.release().succeeds().await;
    let first = Waiter::start(&semaphore, counting());
    let second = Waiter::start(&semaphore, counting());
    is_superseded(first, "main").await;
    second.permit().await.release().succeeds().await;
}

/// The request waits for the kept permit, and its own permit may be kept.
pub(crate) async fn a_request_with_a_key_is_not_served_by_what_is_kept(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1).keep(HANGS);
    semaphore.acquire().succeeds().await.release().succeeds().await;
    let granted = semaphore.acquire_with(of("main")).succeeds().await;
    assert!(!granted.is_granted_again());
    let first = fixture.queued(&semaphore, of("main")).await;
    let second = Waiter::start(&semaphore, of("main"));
    is_superseded(first, "main").await;
    granted.release().succeeds().await;
    second.permit().await.release().succeeds().await;
    client.close().succeeds().await;
}

pub(crate) async fn a_set_is_superseded_in_any_of_its_lines(fixture: &Fixture) {
    let client = fixture.client().await;
    let (wide, narrow) = (fixture.semaphore(&client, 1), client.named("exports/main", 1));
    let held = wide.acquire().succeeds().await;
    let both = [(wide.clone(), of("main")), (narrow.clone(), AcquireOptions::new())];
    let session = client.clone();
    let acquiring = tokio::spawn(async move { session.acquire_all(both).await.map(drop) });
    fixture.settles(&wide, 1, 1).await;
    let newer = Waiter::start(&wide, of("main"));
    let superseded = timeout(HANGS, acquiring).await.expect("it is answered").expect("no panic");
    let source = AcquireError::Superseded { key: "main".into() };
    assert_eq!(superseded, Err(AcquireAllError::Acquire { semaphore: fixture.name().into(), source }));
    fixture.settles(&narrow, 0, 0).await;
    held.release().succeeds().await;
    newer.permit().await.release().succeeds().await;
    client.close().succeeds().await;
}
