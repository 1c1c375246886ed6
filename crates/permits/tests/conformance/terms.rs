//! The terms of a held permit: a part released, another lease, renewal by the caller.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, InvalidInput, Lost, RenewError};
use permits_testkit::HANGS;
use permits_testkit::sound::Succeeds as _;

use crate::fixture::{Fixture, lost_within};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);

pub(crate) async fn a_released_part_goes_to_the_head_of_the_queue(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(4).await;
    let permit = semaphore.acquire_with(AcquireOptions::new().weight(4)).succeeds().await;
    let (token, slot, lease) = (permit.token(), permit.slot(), permit.lease());
    let heavy = fixture.queued(&others, AcquireOptions::new().weight(2)).await;
    let light = fixture.queued(&others, AcquireOptions::new()).await;
    permit.release_part(1).succeeds().await;
    fixture.settles(&semaphore, 3, 2).await;
    permit.release_part(1).succeeds().await;
    let heavy = heavy.permit().await;
    assert!(!light.is_answered());
    permit.release_part(1).succeeds().await;
    let light = light.permit().await;
    assert_eq!((permit.weight(), permit.token(), permit.slot(), permit.lease()), (1, token, slot, lease));
    assert!(permit.is_held());
    for permit in [permit, heavy, light] {
        permit.release().succeeds().await;
    }
}

pub(crate) async fn neither_no_unit_nor_all_are_a_part(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let permit = semaphore.acquire().succeeds().await;
    for units in [0, 1, 2, u32::MAX] {
        let error = permit.release_part(units).await.expect_err("it is no part");
        assert_eq!(error, RenewError::Invalid(InvalidInput::Part { units, weight: 1 }));
    }
    assert_eq!((permit.weight(), fixture.inspect(&semaphore).await.held), (1, 1));
    permit.release().succeeds().await;
}

pub(crate) async fn a_part_that_counts_for_some_time_is_free_after_it(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(2).await;
    let options = AcquireOptions::new().weight(2).at_least(SHORT).lease(Duration::from_secs(3));
    let permit = semaphore.acquire_with(options).succeeds().await;
    permit.release_part(1).succeeds().await;
    let next = semaphore.acquire().await.expect("it comes with a renewal");
    assert!(next.token() - permit.token() >= 1_000_000, "{} {}", permit.token(), next.token());
    assert!(permit.is_held());
    next.release().succeeds().await;
    permit.release().succeeds().await;
}

pub(crate) async fn a_part_can_be_released_before_a_hand_over(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 3);
    let permit = semaphore.acquire_with(AcquireOptions::new().weight(3)).succeeds().await;
    permit.release_part(2).succeeds().await;
    permit.set_lease(LONG).succeeds().await;
    let handle = permit.hand_over().succeeds().await;
    let adopted = other.adopt(&handle).succeeds().await;
    assert_eq!((adopted.weight(), adopted.lease()), (1, LONG));
    adopted.release_part(1).await.expect_err("one is left");
    adopted.set_lease(SHORT).succeeds().await;
    fixture.sees_a_renewal(&semaphore).await;
    adopted.release().succeeds().await;
}

pub(crate) async fn a_longer_lease_holds_at_once(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let options = AcquireOptions::new().lease(SHORT).auto_renew(false);
    let permit = semaphore.acquire_with(options).succeeds().await;
    permit.set_lease(LONG).succeeds().await;
    assert_eq!(permit.lease(), LONG);
    assert!(permit.remaining() > SHORT, "{:?}", permit.remaining());
    let stored = fixture.inspect(&semaphore).await.holders[0].lease_remaining;
    assert!(stored > permit.remaining() && stored <= LONG, "{stored:?}");
    assert_eq!(lost_within(&permit, 2 * SHORT).await, None);
    permit.release().succeeds().await;
}

pub(crate) async fn a_shorter_lease_ends_sooner(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let options = AcquireOptions::new().lease(LONG).auto_renew(false);
    let permit = semaphore.acquire_with(options).succeeds().await;
    let waiter = fixture.queued(&others, AcquireOptions::new()).await;
    permit.set_lease(SHORT).succeeds().await;
    assert!(permit.remaining() <= SHORT);
    assert_eq!(lost_within(&permit, HANGS).await, Some(Lost::Expired));
    waiter.permit().await.release().succeeds().await;
    assert_eq!(permit.set_lease(LONG).await, Err(RenewError::Lost(Lost::Expired)));
}

pub(crate) async fn a_lease_out_of_range_changes_nothing(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let permit = semaphore.acquire().succeeds().await;
    let lease = permit.lease();
    for wrong in [Duration::ZERO, Duration::from_millis(99), Duration::MAX] {
        let error = permit.set_lease(wrong).await.expect_err("it is out of range");
        assert!(matches!(error, RenewError::Invalid(InvalidInput::Lease { .. })), "{error:?}");
    }
    assert_eq!(permit.lease(), lease);
    permit.release().succeeds().await;
}

pub(crate) async fn renewal_can_be_left_to_the_caller_and_taken_back(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let options = AcquireOptions::new().lease(SHORT).auto_renew(false);
    let permit = semaphore.acquire_with(options).succeeds().await;
    permit.auto_renew(true);
    fixture.sees_a_renewal(&semaphore).await;
    assert_eq!(lost_within(&permit, 2 * SHORT).await, None);
    permit.auto_renew(false);
    assert_eq!(lost_within(&permit, HANGS).await, Some(Lost::Expired));
    let error = semaphore.try_acquire().await.map(drop);
    assert!(matches!(error, Ok(()) | Err(AcquireError::NoPermits)), "{error:?}");
}
