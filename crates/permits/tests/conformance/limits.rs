//! The limit: declared and pinned, and the effect of a change on holders and waiters.

use permits::{AcquireError, AcquireOptions, AdminError, Limit};
use permits_testkit::sound::{Named as _, Succeeds as _};

use crate::fixture::Fixture;

pub(crate) async fn a_raised_limit_grants_at_once(fixture: &Fixture) {
    let [semaphore, administered] = fixture.administered(1).await;
    let first = semaphore.acquire().succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    administered.set_limit(fixture.limit(1) + 1).succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.waiting, 0);
    let second = waiter.permit().await;
    assert!(first.is_held() && second.is_held());
    assert_ne!(first.slot(), second.slot());
    administered.unpin().succeeds().await;
}

pub(crate) async fn a_lowered_limit_revokes_no_holder_and_grants_when_it_fits(fixture: &Fixture) {
    let [semaphore, administered] = fixture.administered(2).await;
    let first = semaphore.acquire().succeeds().await;
    let second = semaphore.acquire().succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    administered.set_limit(1).succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.held, 2);

    first.release().await.expect("lowering took nothing away");
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.held, seen.waiting), (1, 1), "1 of 1 is held, so nothing is granted");
    second.renew().await.expect("lowering took nothing away");
    second.release().await.expect("lowering took nothing away");
    let third = waiter.permit().await;
    let error = semaphore.try_acquire().await.expect_err("1 of 1 is held");
    assert_eq!(error, AcquireError::NoPermits);
    third.release().succeeds().await;
    administered.unpin().succeeds().await;
}

pub(crate) async fn waiters_heavier_than_a_lowered_limit_are_refused(fixture: &Fixture) {
    let (client, other, operator) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 3);
    let permit = semaphore.acquire().succeeds().await;
    let heavy = fixture.queued(&fixture.semaphore(&other, 3), AcquireOptions::new().weight(3)).await;
    let light = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let administered = operator.named(fixture.name(), Limit::Stored);
    administered.set_limit(2).succeeds().await;
    let error = heavy.outcome().await.expect_err("it can never fit");
    assert_eq!(error, AcquireError::ExceedsLimit { weight: 3, limit: 2 });
    light.permit().await.release().succeeds().await;
    permit.release().succeeds().await;
    administered.unpin().succeeds().await;
}

pub(crate) async fn the_last_declaration_counts(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let limit = fixture.limit(1);
    let semaphore = client.named(fixture.name(), limit);
    let first = semaphore.acquire().succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.limit, Some(limit));
    // The next version of the program.
    let second = other.named(fixture.name(), limit + 1).try_acquire().succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.limit, Some(limit + 1));
    // The old version does not set it back, because its session has declared its limit already, with another
    // handle.
    second.release().succeeds().await;
    let handle = client.named(fixture.name(), limit);
    let second = handle.try_acquire().await.expect("the new limit is in force");
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.limit, seen.pinned, seen.held), (Some(limit + 1), false, 2));
    first.release().succeeds().await;
    second.release().succeeds().await;
}

pub(crate) async fn a_pinned_limit_ignores_declarations_until_unpinned(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let (limit, administered) = (fixture.limit(1), operator.named(fixture.name(), Limit::Stored));
    let version = administered.set_limit(limit + 1).succeeds().await;
    let semaphore = fixture.semaphore(&client, 1);
    let first = semaphore.try_acquire().succeeds().await;
    let second = semaphore.try_acquire().await.expect("the pinned limit is higher");
    let heavier = semaphore.acquire_many(limit + 2).await.expect_err("it can never fit");
    assert_eq!(heavier, AcquireError::ExceedsLimit { weight: limit + 2, limit: limit + 1 });
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.limit, seen.limit_version, seen.pinned), (Some(limit + 1), version, true));
    drop((first, second));
    fixture.settles(&semaphore, 0, 0).await;

    let version = administered.unpin().succeeds().await;
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.limit, seen.limit_version, seen.pinned), (Some(limit + 1), version, false));
    let permit = semaphore.try_acquire().succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.limit, Some(limit), "a declaration counts again");
    permit.release().succeeds().await;
    administered.set_limit(limit + 1).succeeds().await;
    let permit = semaphore.try_acquire().succeeds().await;
    administered.unpin().succeeds().await;
    permit.release().succeeds().await;
    let permit = semaphore.try_acquire().succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.limit, Some(limit), "also one that has counted before");
    permit.release().succeeds().await;
}

pub(crate) async fn a_limit_changed_meanwhile_is_a_version_mismatch(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let limit = fixture.limit(1);
    semaphore.acquire().succeeds().await.release().succeeds().await;
    let read = fixture.inspect(&semaphore).await.limit_version;
    let version = semaphore.set_limit_if_version(limit + 1, read).await.expect("it is unchanged");
    assert!(version > read);
    let error = semaphore.set_limit_if_version(limit + 2, read).await.expect_err("it was changed");
    assert_eq!(error, AdminError::VersionMismatch { expected: read, version, limit: limit + 1 });
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.limit, seen.limit_version), (Some(limit + 1), version));
    let error = semaphore
        .set_limit_if_version(limit + 1, read)
        .await
        .expect_err("another session may have set the same");
    assert!(matches!(error, AdminError::VersionMismatch { .. }), "{error:?}");
    semaphore.unpin().succeeds().await;
}

pub(crate) async fn of_two_changes_at_one_version_one_is_made(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let limit = fixture.limit(1);
    semaphore.set_limit(limit).succeeds().await;
    let read = fixture.inspect(&semaphore).await.limit_version;
    // The same limit again, and the stored one.
    for wanted in [limit + 1, limit + 1, limit] {
        let version = fixture.inspect(&semaphore).await.limit_version;
        let administered = other.named(fixture.name(), Limit::Stored);
        let made = tokio::join!(
            semaphore.set_limit_if_version(wanted, version),
            administered.set_limit_if_version(wanted, version)
        );
        let count = [&made.0, &made.1].iter().filter(|made| made.is_ok()).count();
        assert_eq!(count, 1, "both wanted {wanted} at {version}: {made:?}");
    }
    assert_eq!(fixture.inspect(&semaphore).await.limit_version, read + 3);
    semaphore.unpin().succeeds().await;
}

pub(crate) async fn changes_of_several_sessions_add_up(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1);
    let limit = fixture.limit(1);
    semaphore.set_limit(limit).succeeds().await;
    let mut sessions = Vec::new();
    for number in 0..10 {
        let administered = fixture.client().await.named(fixture.name(), Limit::Stored);
        sessions.push(tokio::spawn(async move {
            for _ in 0..10 {
                if number % 2 == 0 {
                    administered.adjust_limit(1).await.expect("it stays in its range");
                    continue;
                }
                loop {
                    let seen = administered.inspect_up_to(0).succeeds().await;
                    let wanted = seen.limit.expect("it is set") + 1;
                    match administered.set_limit_if_version(wanted, seen.limit_version).await {
                        Ok(_) => break,
                        Err(AdminError::VersionMismatch { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }));
    }
    for session in sessions {
        session.await.expect("all its changes are made");
    }
    assert_eq!(fixture.inspect(&semaphore).await.limit, Some(limit + 100));
    semaphore.unpin().succeeds().await;
}

pub(crate) async fn a_limit_is_not_adjusted_out_of_its_range(fixture: &Fixture) {
    let client = fixture.client().await;
    let error = client.named("unheard of", Limit::Stored).adjust_limit(1).await.expect_err("there is none");
    assert_eq!(error, AdminError::NoLimit { semaphore: "unheard of".into() });
    let semaphore = client.named(fixture.name(), Limit::Stored);
    let limit = fixture.limit(1);
    semaphore.set_limit(limit).succeeds().await;
    for number in [-i64::from(limit), i64::MIN, i64::from(u32::MAX), i64::MAX] {
        assert_eq!(semaphore.adjust_limit(number).await, Err(AdminError::LimitOutOfRange { limit }));
    }
    assert_eq!(semaphore.adjust_limit(i64::from(u32::MAX - limit)).await, Ok(u32::MAX));
    assert_eq!(semaphore.adjust_limit(i64::from(limit) - i64::from(u32::MAX)).await, Ok(limit));
    semaphore.unpin().succeeds().await;
}

pub(crate) async fn a_refused_request_changes_no_limit(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let limit = fixture.limit(1);
    let permit = client.named(fixture.name(), limit).acquire().succeeds().await;
    let seen = fixture.inspect(&client.named(fixture.name(), Limit::Stored)).await;
    let (lower, higher) = (other.named(fixture.name(), limit), other.named(fixture.name(), limit + 1));
    // All units are held under the same limit. Under a higher limit, the request asks for more units than
    // there are.
    assert_eq!(lower.try_acquire().await.map(drop), Err(AcquireError::NoPermits));
    let heavy = higher.acquire_with(AcquireOptions::new().weight(limit + 2)).await.map(drop);
    assert_eq!(heavy, Err(AcquireError::ExceedsLimit { weight: limit + 2, limit: limit + 1 }));
    let named = AcquireOptions::new().holder(permit.holder());
    let again = other.named(fixture.name(), limit + 2).acquire_with(named).await.map(drop);
    assert_eq!(again, Err(AcquireError::AlreadyHeld { holder: permit.holder().to_owned() }));
    let after = fixture.inspect(&client.named(fixture.name(), Limit::Stored)).await;
    assert_eq!((after.limit, after.limit_version), (seen.limit, seen.limit_version));
    // A granted request changes the limit, also after a refusal.
    let second = higher.try_acquire().await.expect("one is free under the higher limit");
    assert_eq!(fixture.inspect(&client.named(fixture.name(), Limit::Stored)).await.limit, Some(limit + 1));
    for permit in [permit, second] {
        permit.release().succeeds().await;
    }
}

pub(crate) async fn a_required_limit_is_refused_where_another_is_in_force(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let limit = fixture.limit(1);
    let permit = client.named(fixture.name(), Limit::Exactly(limit)).acquire().succeeds().await;
    let demanding = other.named(fixture.name(), Limit::Exactly(limit + 1));
    let error = demanding.acquire().await.expect_err("another limit is in force");
    let semaphore = fixture.name().to_owned();
    assert_eq!(error, AcquireError::LimitMismatch { semaphore, required: limit + 1, stored: limit });
    assert!(!error.is_not_now());
    let seen = fixture.inspect(&demanding).await;
    assert_eq!((seen.limit, seen.held, seen.waiting), (Some(limit), 1, 0), "it changed nothing");
    permit.release().succeeds().await;
}

pub(crate) async fn without_a_limit_nothing_is_granted(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let opened = client.named("unheard of", Limit::Stored);
    for _ in 0..2 {
        let error = opened.acquire().await.expect_err("no limit was given");
        assert_eq!(error, AcquireError::NoLimit { semaphore: "unheard of".into() });
        assert!(!error.is_not_now());
    }
    let permit = other.named("unheard of", 2).acquire().succeeds().await;
    let second = opened.acquire().await.expect("now it has a limit");
    let error = opened.try_acquire().await.expect_err("that is 2");
    assert_eq!(error, AcquireError::NoPermits);
    second.release().succeeds().await;
    permit.release().succeeds().await;
}

pub(crate) async fn a_declared_limit_is_available_before_it_is_used(fixture: &Fixture) {
    let client = fixture.client().await;
    let declared = client.named("unheard of", 3);
    assert_eq!(declared.available().await, Ok(3));
    let without = client.named("unheard of", Limit::Stored).available().await;
    assert_eq!(
        without,
        Err(AdminError::NoLimit { semaphore: "unheard of".into() }),
        "asking has stored none"
    );
    let permit = declared.acquire().succeeds().await;
    assert_eq!(declared.available().await, Ok(2));
    assert_eq!(client.named("unheard of", 5).available().await, Ok(2), "the stored limit counts");
    permit.release().succeeds().await;
}
