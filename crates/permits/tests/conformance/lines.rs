//! A line as a whole: its limit declared without an acquisition; deleted; closed and opened.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, AdminError, Limit};
use permits_testkit::sound::{Named as _, Succeeds as _};

use crate::fixture::{Fixture, Waiter};

pub(crate) async fn a_declared_limit_is_shown_before_anything_is_acquired(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let limit = fixture.limit(1);
    assert_eq!(client.named("declared", limit).declare().await, Ok(limit));
    let declared = observer.named("declared", Limit::Stored);
    let seen = declared.inspect().succeeds().await;
    assert_eq!((seen.limit, seen.pinned, seen.held, seen.waiting), (Some(limit), false, 0, 0));
    assert!(observer.list().succeeds().await.contains(&"declared".to_owned()));
    let permit = declared.try_acquire().await.expect("the stored limit counts");
    assert_eq!(client.named("declared", limit + 1).declare().await, Ok(limit + 1), "the last one counts");
    assert_eq!(declared.declare().await, Ok(limit + 1), "the stored one is returned");
    permit.release().succeeds().await;
}

pub(crate) async fn a_raised_declaration_grants_at_once(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1);
    let first = semaphore.acquire().succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let raised = fixture.limit(1) + 1;
    assert_eq!(client.named(fixture.name(), raised).declare().await, Ok(raised));
    waiter.permit().await.release().succeeds().await;
    first.release().succeeds().await;
}

pub(crate) async fn a_declaration_leaves_a_pinned_limit(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let (limit, administered) = (fixture.limit(1), operator.named(fixture.name(), Limit::Stored));
    administered.set_limit(limit).succeeds().await;
    assert_eq!(client.named(fixture.name(), limit + 1).declare().await, Ok(limit), "the pinned one");
    let required = client.named(fixture.name(), Limit::Exactly(limit + 1));
    let mismatch = |error: &AdminError| {
        matches!(error, AdminError::LimitMismatch { required, stored, .. }
            if (*required, *stored) == (limit + 1, limit))
    };
    assert!(required.declare().await.is_err_and(|error| mismatch(&error)));
    let refused = required.try_acquire().await.expect_err("another limit is in force");
    assert!(matches!(refused, AcquireError::LimitMismatch { .. }), "{refused}");
    administered.unpin().succeeds().await;
}

pub(crate) async fn without_a_limit_there_is_nothing_to_declare(fixture: &Fixture) {
    let client = fixture.client().await;
    let error = client.named("unused", Limit::Stored).declare().await.expect_err("none is stored");
    assert_eq!(error, AdminError::NoLimit { semaphore: "unused".into() });
    fixture.has_no_key_of("unused");
    let required = client.named("unused", Limit::Exactly(3));
    assert_eq!(required.declare().await, Ok(3), "where none is stored, the required one is declared");
}

pub(crate) async fn an_idle_line_is_deleted_with_its_pin_and_pause(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let semaphore = client.named("deleted", 1);
    let observed = observer.named("deleted", Limit::Stored);
    let permit = semaphore.acquire().succeeds().await;
    let token = permit.token();
    observed.set_limit(2).succeeds().await;
    observed.pause("").succeeds().await;
    permit.release().succeeds().await;
    assert_eq!(observed.delete().await, Ok(true));
    assert!(!observer.list().succeeds().await.contains(&"deleted".to_owned()));
    fixture.has_no_key_of("deleted");
    assert_eq!(observed.delete().await, Ok(false), "there is none any more");
    let seen = observed.inspect().succeeds().await;
    assert_eq!((seen.limit, seen.limit_version, seen.pinned, seen.paused), (None, 0, false, false));
    let again = semaphore.try_acquire().await.expect("the program's limit counts where none is stored");
    assert!(again.token() > token, "{} after {token}", again.token());
    assert_eq!(observed.inspect().succeeds().await.limit, Some(1));
    again.release().succeeds().await;
    fixture.has_no_key_of("unused");
    assert_eq!(client.named("unused", 1).delete().await, Ok(false), "it was never used");
    fixture.has_no_key_of("unused");
}

pub(crate) async fn a_line_in_use_is_not_deleted(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = client.named("used", 1);
    let administered = operator.named("used", Limit::Stored);
    let in_use = |held, waiting| Err(AdminError::InUse { semaphore: "used".into(), held, waiting });
    let permit = semaphore.acquire().succeeds().await;
    assert_eq!(administered.delete().await, in_use(1, 0));
    let waiter = Waiter::start(&semaphore, AcquireOptions::new());
    while administered.inspect_up_to(0).succeeds().await.waiting == 0 {
        assert!(!waiter.is_answered());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(administered.delete().await, in_use(1, 1));
    administered.pause("").succeeds().await;
    permit.release().succeeds().await;
    assert_eq!(administered.delete().await, in_use(0, 1));
    administered.resume().succeeds().await;
    waiter.permit().await.release().succeeds().await;
    let hour = AcquireOptions::new().at_least(Duration::from_secs(3_600));
    let rated = semaphore.acquire_with(hour).succeeds().await;
    let (holder, token) = (rated.holder().to_owned(), rated.token());
    rated.release().succeeds().await;
    assert_eq!(administered.delete().await, in_use(1, 0), "it cools");
    assert_eq!(administered.revoke_cooling(&holder, token).await, Ok(true));
    assert_eq!(administered.delete().await, Ok(true));
}

pub(crate) async fn a_closed_line_refuses_waiters_and_newcomers_with_the_reason(fixture: &Fixture) {
    let (client, other, operator) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let (semaphore, others) = (fixture.semaphore(&client, 1), fixture.semaphore(&other, 1));
    let administered = operator.named(fixture.name(), Limit::Stored);
    let permit = semaphore.acquire().succeeds().await;
    let waiters = [
        fixture.queued(&semaphore, AcquireOptions::new()).await,
        fixture.queued(&others, AcquireOptions::new().label("the last")).await,
    ];
    let reason = "moved to \"exports-2\", 100 %s, siehe \u{260e} 112";
    administered.close_line(reason).succeeds().await;
    let closed = AcquireError::LineClosed { reason: reason.into() };
    for waiter in waiters {
        assert_eq!(waiter.outcome().await.expect_err("the line is closed"), closed);
    }
    for refused in [semaphore.acquire().await, others.try_acquire().await] {
        assert_eq!(refused.expect_err("the line is closed"), closed);
    }
    assert!(closed.is_not_now(), "it may be opened");
    let seen = fixture.inspect(&administered).await;
    assert_eq!((seen.closed.as_deref(), seen.held, seen.waiting), (Some(reason), 1, 0));
    permit.renew().await.expect("holders keep what they hold");
    permit.release().await.expect("holders keep what they hold");
    assert_eq!(semaphore.try_acquire().await.expect_err("the line is closed"), closed);

    administered.close_line("").succeeds().await;
    let seen = fixture.inspect(&administered).await;
    assert_eq!(seen.closed.as_deref(), Some(""), "it may have no reason");
    administered.open_line().succeeds().await;
    administered.open_line().await.expect("it is open already");
    assert_eq!(fixture.inspect(&administered).await.closed, None);
    semaphore.try_acquire().await.expect("it is open").release().succeeds().await;
}

pub(crate) async fn a_line_can_be_closed_before_it_is_used(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let administered = operator.named("new", Limit::Stored);
    administered.close_line("not yet").succeeds().await;
    let semaphore = client.named("new", 1);
    let closed = AcquireError::LineClosed { reason: "not yet".into() };
    assert_eq!(semaphore.acquire().await.expect_err("the line is closed"), closed);
    assert!(operator.list().succeeds().await.contains(&"new".to_owned()));
    assert_eq!(semaphore.declare().await, Ok(1), "a closed line has a limit");
    assert_eq!(administered.delete().await, Ok(true), "it is idle");
    fixture.has_no_key_of("new");
    administered.open_line().succeeds().await;
    fixture.has_no_key_of("new");
}

pub(crate) async fn a_closed_line_that_is_paused_refuses_and_stays_paused(fixture: &Fixture) {
    let [semaphore, administered] = fixture.administered(1).await;
    administered.pause("").succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    administered.close_line("out of order").succeeds().await;
    let closed = AcquireError::LineClosed { reason: "out of order".into() };
    assert_eq!(waiter.outcome().await.expect_err("the line is closed"), closed);
    administered.open_line().succeeds().await;
    assert!(fixture.inspect(&semaphore).await.paused);
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    administered.resume().succeeds().await;
    waiter.permit().await.release().succeeds().await;
}

pub(crate) async fn a_reason_of_a_closed_line_is_checked(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    for reason in ["two\nlines".to_owned(), "x".repeat(1_001)] {
        let error = semaphore.close_line(&reason).await.expect_err("it is not valid");
        assert!(matches!(error, AdminError::Invalid(_)), "{error}");
    }
    assert_eq!(fixture.inspect(&semaphore).await.closed, None);
}
