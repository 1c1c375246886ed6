//! The line: first come, first served; nobody overtakes, and who gives up is out of it.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions};

use crate::scene::{LIMIT, Scene};

fn named(holder: &str) -> AcquireOptions {
    AcquireOptions::new().holder(holder)
}

pub(crate) async fn waiters_are_granted_in_order(scene: &Scene) {
    let (client, other) = (scene.client().await, scene.client().await);
    let (semaphore, others) = (scene.semaphore(&client, 1), scene.semaphore(&other, 1));
    let mut holds = semaphore.acquire().await.expect("it is free");
    // Names in an order of their own, from one client and the other in turn.
    let names = ["d", "a", "c", "b", "e"];
    let mut waiters = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let semaphore = if number % 2 == 0 { &others } else { &semaphore };
        waiters.push(scene.in_line(semaphore, named(name)).await);
    }
    for (served, waiter) in waiters.into_iter().enumerate() {
        let seen = scene.inspect(&semaphore).await;
        assert_eq!(seen.waiters.iter().map(|waiter| &*waiter.holder).collect::<Vec<_>>(), names[served..]);
        holds.release().await.expect("it is held");
        holds = waiter.permit().await;
        assert_eq!(holds.holder(), names[served]);
    }
    holds.release().await.expect("it is held");
}

pub(crate) async fn a_release_grants_the_head_and_no_newcomer(scene: &Scene) {
    let (client, other) = (scene.client().await, scene.client().await);
    let (semaphore, others) = (scene.semaphore(&client, 1), scene.semaphore(&other, 1));
    let permit = semaphore.acquire().await.expect("it is free");
    let waiter = scene.in_line(&others, named("head")).await;
    permit.release().await.expect("it is held");
    // Granted in the same moment: no other request finds it free.
    let error = semaphore.try_acquire().await.expect_err("it is the waiter's");
    assert_eq!(error, AcquireError::NoPermits);
    let seen = scene.inspect(&semaphore).await;
    assert_eq!((seen.held, seen.waiting, &*seen.holders[0].holder), (1, 0, "head"));
    waiter.permit().await.release().await.expect("it is held");
}

pub(crate) async fn a_try_does_not_overtake_a_waiter(scene: &Scene) {
    let (client, other) = (scene.client().await, scene.client().await);
    let (semaphore, others) = (scene.semaphore(&client, 3), scene.semaphore(&other, 3));
    let permit = semaphore.acquire_with(AcquireOptions::new().weight(2)).await.expect("it is free");
    let waiter = scene.in_line(&others, AcquireOptions::new().weight(2)).await;
    for semaphore in [&semaphore, &others] {
        let error = semaphore.try_acquire().await.expect_err("1 is free, but somebody waits");
        assert_eq!(error, AcquireError::NoPermits);
    }
    permit.release().await.expect("it is held");
    let two = waiter.permit().await;
    let one = semaphore.try_acquire().await.expect("1 is free, and nobody waits");
    two.release().await.expect("it is held");
    one.release().await.expect("it is held");
}

pub(crate) async fn a_heavy_head_is_not_overtaken_by_a_light_one(scene: &Scene) {
    let (client, other) = (scene.client().await, scene.client().await);
    let (semaphore, others) = (scene.semaphore(&client, 3), scene.semaphore(&other, 3));
    let first = semaphore.acquire().await.expect("it is free");
    let second = semaphore.acquire().await.expect("it is free");
    let heavy = scene.in_line(&others, named("heavy").weight(3)).await;
    let light = scene.in_line(&semaphore, named("light")).await;
    first.release().await.expect("it is held");
    let seen = scene.inspect(&semaphore).await;
    let line: Vec<_> = seen.waiters.iter().map(|waiter| (&*waiter.holder, waiter.weight)).collect();
    assert_eq!((seen.held, line), (1, vec![("heavy", 3), ("light", 1)]), "2 are free, and nobody is granted");
    second.release().await.expect("it is held");
    let heavy = heavy.permit().await;
    assert!(!light.is_answered());
    assert_eq!(scene.inspect(&semaphore).await.waiting, 1);
    heavy.release().await.expect("it is held");
    light.permit().await.release().await.expect("it is held");
}

pub(crate) async fn freed_units_go_to_as_many_as_fit(scene: &Scene) {
    let (client, other) = (scene.client().await, scene.client().await);
    let (semaphore, others) = (scene.semaphore(&client, 3), scene.semaphore(&other, 3));
    let permit = semaphore.acquire_with(AcquireOptions::new().weight(3)).await.expect("it is free");
    let first = scene.in_line(&others, AcquireOptions::new().weight(2)).await;
    let second = scene.in_line(&semaphore, AcquireOptions::new()).await;
    let third = scene.in_line(&others, AcquireOptions::new()).await;
    permit.release().await.expect("it is held");
    let (first, second) = (first.permit().await, second.permit().await);
    let seen = scene.inspect(&semaphore).await;
    assert_eq!((seen.held, seen.waiting), (3, 1));
    second.release().await.expect("it is held");
    let third = third.permit().await;
    assert_ne!(first.slot(), third.slot());
}

pub(crate) async fn a_wait_that_runs_out_leaves_the_line(scene: &Scene) {
    const WAIT: Duration = Duration::from_millis(100);
    let (client, other) = (scene.client().await, scene.client().await);
    let (semaphore, others) = (scene.semaphore(&client, 1), scene.semaphore(&other, 1));
    let permit = semaphore.acquire().await.expect("it is free");
    match others.acquire_with(AcquireOptions::new().wait(WAIT)).await {
        Err(error @ AcquireError::TimedOut { waited }) => {
            assert!(waited >= WAIT, "{waited:?}");
            assert!(error.is_not_now());
        }
        other => panic!("not a wait that ran out: {other:?}"),
    }
    scene.settles(&semaphore, 1, 0).await;
    permit.release().await.expect("it is held");
    let next = others.try_acquire().await.expect("nobody stands before it");
    next.release().await.expect("it is held");
}

pub(crate) async fn those_behind_one_that_gives_up_move_up(scene: &Scene) {
    let (client, other) = (scene.client().await, scene.client().await);
    let (semaphore, others) = (scene.semaphore(&client, 1), scene.semaphore(&other, 1));
    let permit = semaphore.acquire().await.expect("it is free");
    let gives_up = scene.in_line(&others, named("impatient").wait(Duration::from_millis(500))).await;
    let stays = scene.in_line(&semaphore, named("patient").wait(2 * LIMIT)).await;
    assert!(matches!(gives_up.outcome().await, Err(AcquireError::TimedOut { .. })));
    scene.settles(&semaphore, 1, 1).await;
    let seen = scene.inspect(&semaphore).await;
    assert_eq!((&*seen.waiters[0].holder, seen.waiters[0].position), ("patient", 0));
    permit.release().await.expect("it is held");
    stays.permit().await.release().await.expect("it is held");
}

pub(crate) async fn a_waiter_keeps_its_place_beyond_its_lease(scene: &Scene) {
    let lease = Duration::from_millis(600);
    let (client, other) = (scene.client().await, scene.connect(scene.builder().lease(lease)).await);
    let (semaphore, others) = (scene.semaphore(&client, 1), scene.semaphore(&other, 1));
    let permit = semaphore.acquire().await.expect("it is free");
    let first = scene.in_line(&others, named("first")).await;
    let second = scene.in_line(&semaphore, named("second")).await;
    tokio::time::sleep(lease + lease / 10).await;
    permit.release().await.expect("it is held");
    let first = first.permit().await;
    assert_eq!(scene.inspect(&semaphore).await.waiters[0].holder, "second");
    first.release().await.expect("it is held");
    second.permit().await.release().await.expect("it is held");
}

pub(crate) async fn a_full_line_refuses_more(scene: &Scene) {
    let client = scene.connect(scene.builder().max_waiters(2)).await;
    let semaphore = scene.semaphore(&client, 1);
    let permit = semaphore.acquire().await.expect("holders do not count");
    let first = scene.in_line(&semaphore, AcquireOptions::new()).await;
    let second = scene.in_line(&semaphore, AcquireOptions::new()).await;
    let error = semaphore.acquire().await.expect_err("2 wait already");
    assert_eq!(error, AcquireError::QueueFull { max: 2 });
    assert!(error.is_not_now());
    scene.settles(&semaphore, 1, 2).await;
    permit.release().await.expect("it is held");
    let first = first.permit().await;
    let third = scene.in_line(&semaphore, AcquireOptions::new()).await;
    first.release().await.expect("it is held");
    second.permit().await.release().await.expect("it is held");
    third.permit().await.release().await.expect("it is held");
}
