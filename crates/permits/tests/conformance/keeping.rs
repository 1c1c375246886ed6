//! Permits that a client keeps: used again without a call, and released when another request needs them.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, InvalidInput, Limit, Lost, Permit, Semaphore};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, HOUR};

use crate::fixture::Fixture;

/// Longer than any case.
const IDLE: Duration = Duration::from_secs(5);

/// A permit that is kept. Returns its token and slot.
async fn kept(semaphore: &Semaphore) -> (u64, u32) {
    let permit = semaphore.acquire().succeeds().await;
    let seen = (permit.token(), permit.slot());
    drop(permit);
    seen
}

/// Uses permits until one that was kept is used, and kept again.
async fn keeps(semaphore: &Semaphore) {
    while !semaphore.acquire().succeeds().await.is_granted_again() {}
}

pub(crate) async fn a_kept_permit_is_granted_again_without_a_call(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    let (token, slot) = kept(&semaphore).await;
    let seen = fixture.semaphore(&observer, 1).inspect().succeeds().await;
    for number in 1..100 {
        assert_eq!(kept(&semaphore).await, (token + number, slot), "each has a token of its own");
    }
    let mut acquire = semaphore.try_acquire();
    let permit = (&mut acquire).await.expect("it is kept");
    assert!(permit.is_held());
    assert_eq!((acquire.holder(), acquire.position()), (permit.holder(), None));
    permit.release().succeeds().await;
    let after = fixture.semaphore(&observer, 1).inspect().succeeds().await;
    assert_eq!(after.counts, seen.counts, "the store was not asked");
    client.close().succeeds().await;
}

pub(crate) async fn an_acquisition_that_is_not_polled_takes_nothing_that_is_kept(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    kept(&semaphore).await;
    let unpolled = semaphore.acquire();
    let next = fixture.semaphore(&other, 1).acquire();
    let permit = tokio::time::timeout(HANGS, next).await.expect("it was recalled").expect("it is free");
    permit.release().succeeds().await;
    unpolled.await.expect("it is sent now").release().succeeds().await;
    client.close().succeeds().await;
}

pub(crate) async fn a_client_keeps_for_each_semaphore_that_does_not_say_otherwise(fixture: &Fixture) {
    let client = fixture.connect(fixture.builder().keep(IDLE)).await;
    let semaphore = fixture.semaphore(&client, 1);
    let (token, _) = kept(&semaphore).await;
    assert_eq!(kept(&semaphore).await.0, token + 1, "it is kept");
    let plain = semaphore.clone().keep(Duration::ZERO);
    let before = semaphore.inspect().succeeds().await.counts.grants;
    for number in 1..=3 {
        plain.acquire().await.expect("it was recalled").release().succeeds().await;
        assert_eq!(plain.inspect().succeeds().await.counts.grants, before + number, "by the store");
    }
    fixture.settles(&plain, 0, 0).await;
}

pub(crate) async fn a_permit_is_kept_for_a_third_of_its_lease_at_most(fixture: &Fixture) {
    let lease = Duration::from_millis(600);
    let client = fixture.connect(fixture.builder().lease(lease).keep(Duration::MAX)).await;
    let semaphore = fixture.semaphore(&client, 1);
    kept(&semaphore).await;
    fixture.settles(&semaphore, 0, 0).await;
}

pub(crate) async fn what_may_be_kept_is_seen_until_a_request_waits(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (semaphore, others) = (fixture.semaphore(&client, 1).keep(IDLE), fixture.semaphore(&other, 1));
    let seen = async || {
        let holders = fixture.inspect(&others).await.holders;
        holders.iter().map(|holder| holder.may_be_kept).collect::<Vec<_>>()
    };
    let permit = semaphore.acquire().succeeds().await;
    assert_eq!(seen().await, [true], "the store does not know that it is used");
    let waiter = fixture.queued(&others, AcquireOptions::new()).await;
    assert_eq!(seen().await, [false], "it is used: it was recalled");
    drop(permit);
    let permit = waiter.permit().await;
    assert_eq!(seen().await, [false], "its client keeps nothing");
    permit.release().succeeds().await;
}

pub(crate) async fn another_client_gets_what_is_kept(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let semaphore = semaphore.keep(IDLE);
    for _ in 0..3 {
        let (before, slot) = kept(&semaphore).await;
        let (last, _) = kept(&semaphore).await;
        let permit = others.acquire().succeeds().await;
        assert!(permit.token() > last && last > before, "tokens rise: {before} {last} {}", permit.token());
        assert_eq!(permit.slot(), slot);
        assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::NoPermits), "nothing is kept");
        permit.release().succeeds().await;
    }
}

pub(crate) async fn a_try_of_another_client_waits_for_what_is_kept(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    kept(&semaphore).await;
    let permit = fixture.semaphore(&other, 1).try_acquire().await.expect("nobody uses it");
    permit.release().succeeds().await;
}

pub(crate) async fn a_try_is_refused_if_what_may_be_kept_is_used(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    let permit = semaphore.acquire().succeeds().await;
    let others = fixture.semaphore(&other, 1);
    assert_eq!(others.try_acquire().await.map(drop), Err(AcquireError::NoPermits));
    fixture.settles(&others, 1, 0).await;
    permit.release().succeeds().await;
}

pub(crate) async fn what_nobody_uses_is_given_back_in_time(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(Duration::from_millis(50));
    kept(&semaphore).await;
    fixture.settles(&fixture.semaphore(&observer, 1), 0, 0).await;
    kept(&semaphore).await;
}

pub(crate) async fn other_terms_are_not_met_by_what_is_kept(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    for options in [
        AcquireOptions::new().label("night"),
        AcquireOptions::new().holder("web"),
        AcquireOptions::new().lane("tenant-7"),
        AcquireOptions::new().lease(Duration::from_secs(20)),
        AcquireOptions::new().max_hold(HOUR),
        AcquireOptions::new().auto_renew(false),
    ] {
        keeps(&semaphore).await;
        let permit = semaphore.acquire_with(options.clone()).succeeds().await;
        assert!(!permit.is_granted_again(), "{options:?}: by the store");
        permit.release().succeeds().await;
    }
    let laned = AcquireOptions::new().lane("tenant-7");
    while !semaphore.acquire_with(laned.clone()).succeeds().await.is_granted_again() {}
    let permit = semaphore.acquire_with(laned.clone().share(2)).succeeds().await;
    assert!(!permit.is_granted_again(), "another share");
    permit.release().succeeds().await;
    while !semaphore.acquire_with(laned.clone().lane_limit(1)).succeeds().await.is_granted_again() {}
    let permit = semaphore.acquire_with(laned.clone().lane_limit(2)).succeeds().await;
    assert!(!permit.is_granted_again(), "another limit of the lane");
    permit.release().succeeds().await;
    while !semaphore.acquire_with(laned.clone().lane_floor(1)).succeeds().await.is_granted_again() {}
    let permit = semaphore.acquire_with(laned.lane_floor(0)).succeeds().await;
    assert!(!permit.is_granted_again(), "another floor of the lane");
    permit.release().succeeds().await;
    client.close().succeeds().await;
}

pub(crate) async fn what_is_kept_serves_no_request_that_is_not_valid(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    keeps(&semaphore).await;
    for (options, invalid) in [
        (AcquireOptions::new().supersede(""), InvalidInput::Empty { what: "the supersede key", max: 120 }),
        (AcquireOptions::new().share(1), InvalidInput::ShareOfNoLane),
        (AcquireOptions::new().lane(""), InvalidInput::Empty { what: "the lane", max: 120 }),
    ] {
        let refused = semaphore.acquire_with(options).await.map(drop);
        assert_eq!(refused, Err(AcquireError::Invalid(invalid)));
    }
    client.close().succeeds().await;
}

pub(crate) async fn another_weight_is_not_met_by_what_is_kept(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 2).keep(IDLE);
    keeps(&semaphore).await;
    let permit = semaphore.acquire_many(2).succeeds().await;
    assert!(permit.weight() == 2 && !permit.is_granted_again());
    permit.release().succeeds().await;
    client.close().succeeds().await;
}

pub(crate) async fn a_permit_with_other_terms_is_not_kept(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    let permit = semaphore.acquire().succeeds().await;
    let holder = permit.holder().to_owned();
    permit.set_lease(Duration::from_secs(20)).succeeds().await;
    permit.release().succeeds().await;
    let next = semaphore.acquire().succeeds().await;
    assert_ne!(next.holder(), holder, "another permit");
    drop(next);
    client.close().succeeds().await;
}

pub(crate) async fn a_kept_permit_that_is_revoked_is_gone(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    let permit = semaphore.acquire().succeeds().await;
    let holder = permit.holder().to_owned();
    drop(permit);
    assert_eq!(fixture.semaphore(&operator, 1).revoke(&holder, "late").await, Ok(true));
    let granted_anew = async {
        // The client grants what it has kept until the message arrives.
        while semaphore.acquire().succeeds().await.holder() == holder {}
    };
    tokio::time::timeout(HANGS, granted_anew).await.expect("the client is told");
    let next = semaphore.acquire().succeeds().await;
    assert!(next.is_held());
    next.release().succeeds().await;
}

pub(crate) async fn operators_get_back_what_is_kept(fixture: &Fixture) {
    let [semaphore, line] = fixture.two_semaphores(1).await;
    let semaphore = semaphore.keep(IDLE);
    kept(&semaphore).await;
    line.pause("").succeeds().await;
    fixture.settles(&line, 0, 0).await;
    line.resume().succeeds().await;
    kept(&semaphore).await;
    line.close_line("night").succeeds().await;
    fixture.settles(&line, 0, 0).await;
    line.open_line().succeeds().await;
    kept(&semaphore).await;
}

pub(crate) async fn a_client_that_closes_gives_back_what_it_keeps(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    kept(&semaphore).await;
    client.close().succeeds().await;
    let others = fixture.semaphore(&other, 1);
    others.try_acquire().await.expect("it was given back").release().succeeds().await;

    let client = fixture.client().await;
    kept(&fixture.semaphore(&client, 1).keep(IDLE)).await;
    drop((client, semaphore));
    fixture.settles(&others, 0, 0).await;
}

pub(crate) async fn a_permit_that_was_granted_again_can_be_handed_over(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    kept(&semaphore).await;
    let permit = semaphore.acquire().succeeds().await;
    let (token, slot) = (permit.token(), permit.slot());
    let handle = permit.hand_over().succeeds().await;
    assert_eq!(other.renew(&handle).await, Ok(true));
    let adopted = other.adopt(&handle.to_string().parse().expect("it is a handle")).succeeds().await;
    assert_eq!((adopted.token(), adopted.slot()), (token, slot));
    adopted.release().succeeds().await;
    let next = semaphore.acquire().succeeds().await;
    assert!(next.token() > token);
    next.release().succeeds().await;
}

pub(crate) async fn a_permit_whose_loss_was_awaited_is_kept(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    let permit = semaphore.acquire().succeeds().await;
    let holder = permit.holder().to_owned();
    assert_eq!(permit.run(async { 1 }).await, Ok(1));
    let signal = permit.cancellation_token();
    drop(permit);
    let next = semaphore.acquire().succeeds().await;
    assert_eq!(next.holder(), holder, "it was kept");
    assert_eq!(fixture.semaphore(&operator, 1).revoke(&holder, "late").await, Ok(true));
    tokio::time::timeout(HANGS, next.cancellation_token().cancelled()).await.expect("it is told");
    assert!(!signal.is_cancelled(), "the first holder had released it");
}

pub(crate) async fn a_loss_is_told_to_the_holder_of_a_permit_that_was_granted_again(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    kept(&semaphore).await;
    let permit = semaphore.acquire().succeeds().await;
    assert_eq!(fixture.semaphore(&operator, 1).revoke(permit.holder(), "late").await, Ok(true));
    let lost = tokio::time::timeout(HANGS, permit.lost()).await.expect("it is told");
    assert_eq!(lost, Lost::Revoked { reason: "late".into() });
}

/// A permit whose slot is not the lowest, which is free in the store. What has other terms is not kept.
async fn with_a_high_slot(semaphore: &Semaphore) -> Permit {
    let (low, high) = (semaphore.acquire().succeeds().await, semaphore.acquire().succeeds().await);
    assert!(low.slot() < high.slot());
    low.set_lease(Duration::from_secs(20)).succeeds().await;
    low.release().succeeds().await;
    high
}

pub(crate) async fn a_permit_with_a_slot_above_a_lower_limit_is_not_kept(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 2).keep(IDLE);
    let administered = operator.named(fixture.name(), Limit::Stored);
    let lower = fixture.limit(1);
    for is_kept in [true, false] {
        administered.set_limit(fixture.limit(2)).succeeds().await;
        let high = with_a_high_slot(&semaphore).await;
        assert_eq!(high.slot(), lower);
        let mut in_use = Some(high).filter(|_| !is_kept);
        administered.set_limit(lower).succeeds().await;
        if let Some(high) = in_use.take() {
            high.renew().succeeds().await;
            high.release().succeeds().await;
        }
        if is_kept {
            // The recall has arrived.
            fixture.settles(&administered, 0, 0).await;
        }
        let next = semaphore.acquire().succeeds().await;
        assert!(next.slot() < lower, "slot {} of {lower}", next.slot());
        next.renew().succeeds().await;
        next.set_lease(Duration::from_secs(20)).succeeds().await;
        next.release().succeeds().await;
    }
    administered.unpin().succeeds().await;
}

/// The bounds of a lane hold for each grant, and a client that keeps permits does not know them.
pub(crate) async fn nothing_is_kept_while_a_lane_is_pinned(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    kept(&semaphore).await;
    let administered = operator.named(fixture.name(), Limit::Stored);
    administered.set_lane("tenant", Some(1), None).succeeds().await;
    // The recall has arrived.
    fixture.settles(&administered, 0, 0).await;
    for _ in 0..3 {
        let permit = semaphore.acquire().succeeds().await;
        assert!(!permit.is_granted_again(), "it was kept");
        permit.release().succeeds().await;
    }
    administered.unpin_lane("tenant").succeeds().await;
    keeps(&semaphore).await;
}

pub(crate) async fn a_required_limit_that_changes_is_not_served_by_what_is_kept(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let administered = operator.named(fixture.name(), Limit::Stored);
    let required = fixture.limit(2);
    for changed in [fixture.limit(3), fixture.limit(1)] {
        administered.set_limit(required).succeeds().await;
        let semaphore = client.named(fixture.name(), Limit::Exactly(required)).keep(IDLE);
        kept(&semaphore).await;
        administered.set_limit(changed).succeeds().await;
        // The recall has arrived.
        fixture.settles(&administered, 0, 0).await;
        let error = semaphore.acquire().await.expect_err("another limit is required");
        let mismatch =
            matches!(error, AcquireError::LimitMismatch { required: asked, .. } if asked == required);
        assert!(mismatch, "{error:?}");
    }
    administered.unpin().succeeds().await;
}

pub(crate) async fn a_handle_that_declares_another_limit_is_not_served_by_what_is_kept(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1).keep(IDLE);
    for limit in [Limit::Exactly(fixture.limit(1)), Limit::Stored] {
        keeps(&semaphore).await;
        let before = semaphore.inspect().succeeds().await.counts.grants;
        let other = client.named(fixture.name(), limit).keep(IDLE);
        other.acquire().succeeds().await.release().succeeds().await;
        let after = semaphore.inspect().succeeds().await.counts.grants;
        assert_eq!(after, before + 1, "{limit:?}: the store has checked it");
    }
    client.close().succeeds().await;
}
