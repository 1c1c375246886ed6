//! A line as a whole: its limit declared without an acquisition.

use permits::{AcquireError, AcquireOptions, AdminError, Limit};

use crate::fixture::Fixture;

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
