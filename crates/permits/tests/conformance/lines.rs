//! A line as a whole: its limit declared without an acquisition; deleted.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, AdminError, Limit};

use crate::fixture::{Fixture, Waiter};

pub(crate) async fn a_declared_limit_is_shown_before_anything_is_acquired(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let limit = fixture.limit(1);
    assert_eq!(client.semaphore("declared", limit).declare().await, Ok(limit));
    let declared = observer.semaphore("declared", Limit::Stored);
    let seen = declared.inspect().await.expect("the store is up");
    assert_eq!((seen.limit, seen.pinned, seen.held, seen.waiting), (Some(limit), false, 0, 0));
    assert!(observer.list().await.expect("the store is up").contains(&"declared".to_owned()));
    let permit = declared.try_acquire().await.expect("the stored limit counts");
    assert_eq!(client.semaphore("declared", limit + 1).declare().await, Ok(limit + 1), "the last one counts");
    assert_eq!(declared.declare().await, Ok(limit + 1), "the stored one is returned");
    permit.release().await.expect("it is held");
}

pub(crate) async fn a_raised_declaration_grants_at_once(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1);
    let first = semaphore.acquire().await.expect("it is free");
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let raised = fixture.limit(1) + 1;
    assert_eq!(client.semaphore(fixture.name(), raised).declare().await, Ok(raised));
    waiter.permit().await.release().await.expect("it is held");
    first.release().await.expect("it is held");
}

pub(crate) async fn a_declaration_leaves_a_pinned_limit(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let (limit, administered) = (fixture.limit(1), operator.semaphore(fixture.name(), Limit::Stored));
    administered.set_limit(limit).await.expect("the store is up");
    assert_eq!(client.semaphore(fixture.name(), limit + 1).declare().await, Ok(limit), "the pinned one");
    let required = client.semaphore(fixture.name(), Limit::Exactly(limit + 1));
    let mismatch = |error: &AdminError| {
        matches!(error, AdminError::LimitMismatch { required, stored, .. }
            if (*required, *stored) == (limit + 1, limit))
    };
    assert!(required.declare().await.is_err_and(|error| mismatch(&error)));
    let refused = required.try_acquire().await.expect_err("another limit is in force");
    assert!(matches!(refused, AcquireError::LimitMismatch { .. }), "{refused}");
    administered.unpin().await.expect("the store is up");
}

pub(crate) async fn without_a_limit_there_is_nothing_to_declare(fixture: &Fixture) {
    let client = fixture.client().await;
    let error = client.semaphore("unused", Limit::Stored).declare().await.expect_err("none is stored");
    assert_eq!(error, AdminError::NoLimit { semaphore: "unused".into() });
    fixture.has_no_key_of("unused");
    let required = client.semaphore("unused", Limit::Exactly(3));
    assert_eq!(required.declare().await, Ok(3), "where none is stored, the required one is declared");
}

pub(crate) async fn an_idle_line_is_deleted_with_its_pin_and_pause(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let semaphore = client.semaphore("deleted", 1);
    let observed = observer.semaphore("deleted", Limit::Stored);
    let permit = semaphore.acquire().await.expect("it is free");
    let token = permit.token();
    observed.set_limit(2).await.expect("the store is up");
    observed.pause().await.expect("the store is up");
    permit.release().await.expect("it is held");
    assert_eq!(observed.delete().await, Ok(true));
    assert!(!observer.list().await.expect("the store is up").contains(&"deleted".to_owned()));
    fixture.has_no_key_of("deleted");
    assert_eq!(observed.delete().await, Ok(false), "there is none any more");
    let seen = observed.inspect().await.expect("the store is up");
    assert_eq!((seen.limit, seen.limit_version, seen.pinned, seen.paused), (None, 0, false, false));
    let again = semaphore.try_acquire().await.expect("the program's limit counts where none is stored");
    assert!(again.token() > token, "{} after {token}", again.token());
    assert_eq!(observed.inspect().await.expect("the store is up").limit, Some(1));
    again.release().await.expect("it is held");
    fixture.has_no_key_of("unused");
    assert_eq!(client.semaphore("unused", 1).delete().await, Ok(false), "it was never used");
    fixture.has_no_key_of("unused");
}

pub(crate) async fn a_line_in_use_is_not_deleted(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = client.semaphore("used", 1);
    let administered = operator.semaphore("used", Limit::Stored);
    let in_use = |held, waiting| Err(AdminError::InUse { semaphore: "used".into(), held, waiting });
    let permit = semaphore.acquire().await.expect("it is free");
    assert_eq!(administered.delete().await, in_use(1, 0));
    let waiter = Waiter::start(&semaphore, AcquireOptions::new());
    while administered.inspect_up_to(0).await.expect("the store is up").waiting == 0 {
        assert!(!waiter.is_answered());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(administered.delete().await, in_use(1, 1));
    administered.pause().await.expect("the store is up");
    permit.release().await.expect("it is held");
    assert_eq!(administered.delete().await, in_use(0, 1));
    administered.resume().await.expect("the store is up");
    waiter.permit().await.release().await.expect("it is held");
    let hour = AcquireOptions::new().at_least(Duration::from_secs(3_600));
    let rated = semaphore.acquire_with(hour).await.expect("it is free");
    let (holder, token) = (rated.holder().to_owned(), rated.token());
    rated.release().await.expect("it is held");
    assert_eq!(administered.delete().await, in_use(1, 0), "it cools");
    assert_eq!(administered.revoke_cooling(&holder, token).await, Ok(true));
    assert_eq!(administered.delete().await, Ok(true));
}
