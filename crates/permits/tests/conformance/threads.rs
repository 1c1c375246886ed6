//! Threads without a runtime, which wait for replies.

use std::thread;
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Lost};
use permits_testkit::HANGS;
use permits_testkit::sound::Succeeds as _;

use crate::fixture::Fixture;

/// Runs `calls` on a thread of its own.
async fn on_a_thread<T: Send + 'static>(calls: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| thread::spawn(calls).join()).await.expect("it ends").expect("no panic")
}

pub(crate) async fn a_thread_waits_for_every_operation(fixture: &Fixture) {
    let (builder, name, limit) = (fixture.builder(), fixture.name().to_owned(), fixture.limit(3));
    let others = limit - 3;
    on_a_thread(move || {
        let client = builder.connect().wait()?;
        let semaphore = client.semaphore(&name, limit)?;
        assert_eq!(semaphore.declare().wait()?, limit);
        assert_eq!(semaphore.available().wait()?, 3);
        let heavy = semaphore.acquire_many(3).wait()?;
        assert_eq!(semaphore.try_acquire().wait().err(), Some(AcquireError::NoPermits));
        heavy.release_part(1).wait()?;
        heavy.set_lease(Duration::from_secs(20)).wait()?;
        heavy.renew().wait()?;
        let seen = semaphore.inspect().wait()?;
        assert_eq!((heavy.weight(), seen.held), (2, u64::from(others) + 2));

        let handle = heavy.hand_over().wait()?;
        assert!(client.renew(&handle).wait()?);
        let adopted = client.adopt(&handle).wait()?;
        assert!(!client.release(&handle).wait()?, "it was adopted");
        adopted.release().wait()?;

        let version = semaphore.set_limit(limit + 1).wait()?;
        semaphore.set_limit_if_version(limit + 2, version).wait()?;
        assert_eq!(semaphore.adjust_limit(-1).wait()?, limit + 1);
        semaphore.unpin().wait()?;
        semaphore.pause("").wait()?;
        assert!(semaphore.inspect_up_to(0).wait()?.paused);
        semaphore.resume().wait()?;
        semaphore.close_line("moved").wait()?;
        assert!(matches!(semaphore.acquire().wait(), Err(AcquireError::LineClosed { .. })));
        semaphore.open_line().wait()?;
        assert!(!semaphore.revoke("unknown", "").wait()?);
        assert!(!semaphore.revoke_cooling("unknown", 1).wait()?);

        let other = client.semaphore("another", 1)?;
        let options = AcquireOptions::new();
        let set = client.acquire_all([(semaphore, options.clone()), (other.clone(), options)]).wait()?;
        set.renew().wait()?;
        assert_eq!(set.lost_within(Duration::ZERO).map(|(_, lost)| lost), None);
        set.release().wait()?;
        assert!(client.list().wait()?.contains(&name));
        assert!(other.delete().wait()?);
        assert!(!other.delete_unreadable().wait()?);
        client.close().wait()?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    })
    .await
    .expect("every operation succeeds");
}

pub(crate) async fn threads_are_granted_in_order(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let held = semaphore.acquire().succeeds().await;
    let mut threads = Vec::new();
    for number in 0..5 {
        let waiter = semaphore.clone();
        threads.push(thread::spawn(move || {
            let permit = waiter.acquire().wait().expect("its turn comes");
            let token = permit.token();
            permit.release().wait().expect("it is held");
            token
        }));
        fixture.settles(&semaphore, 1, number + 1).await;
    }
    held.release().succeeds().await;
    let all = || threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>();
    let tokens = on_a_thread(all).await;
    assert!(tokens.is_sorted(), "{tokens:?}");
}

pub(crate) async fn a_blocked_thread_is_cancelled_by_another(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let held = semaphore.acquire().succeeds().await;
    let acquire = semaphore.acquire();
    let canceller = acquire.canceller();
    let blocked = thread::spawn(move || acquire.wait());
    fixture.settles(&semaphore, 1, 1).await;
    canceller.cancel();
    let outcome = on_a_thread(|| blocked.join().expect("no panic")).await;
    assert_eq!(outcome.err(), Some(AcquireError::Cancelled));
    fixture.settles(&semaphore, 1, 0).await;
    held.release().succeeds().await;
}

pub(crate) async fn a_thread_waits_for_a_loss(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let permit = semaphore.acquire().succeeds().await;
    let holder = permit.holder().to_owned();
    let waiting = tokio::spawn(on_a_thread(move || permit.lost_within(HANGS)));
    semaphore.revoke(&holder, "enough").succeeds().await;
    assert_eq!(waiting.await.expect("no panic"), Some(Lost::Revoked { reason: "enough".into() }));
}
