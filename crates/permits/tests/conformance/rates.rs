//! Grants that count for at least some time: so many of them in any window of that length.

use std::time::Duration;

use permits::{
    AcquireAllError, AcquireError, AcquireOptions, InvalidInput, Lost, PermitSet, ReleaseError, Semaphore,
};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, HOUR};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixture::{Fixture, lost_within};

const WINDOW: Duration = Duration::from_millis(300);

/// Long enough to inspect what cools.
const LONGER: Duration = Duration::from_millis(1200);

/// A semaphore that limits a rate. A set acquires it before the semaphore of the case.
const RATE: &str = "exports/a-minute";

fn counted() -> AcquireOptions {
    AcquireOptions::new().at_least(WINDOW)
}

/// The time between two grants: a token is the time of its grant in microseconds, except that the store
/// rounds the end of a grant up to a millisecond.
fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_micros(later - earlier)
}

pub(crate) async fn a_released_grant_counts_for_as_long_as_asked(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let long = AcquireOptions::new().at_least(LONGER);
    let permit = semaphore.acquire_with(long.holder("web-3")).succeeds().await;
    let (token, slot) = (permit.token(), permit.slot());
    permit.release().succeeds().await;

    let seen = fixture.inspect(&semaphore).await;
    let [cooling] = &seen.holders[..] else { panic!("not one: {seen:?}") };
    assert!(cooling.cooling, "{seen:?}");
    assert_eq!((cooling.holder.as_str(), cooling.token, cooling.slot), ("web-3", token, slot));
    // The end is rounded up to a millisecond of the store's clock.
    assert!(cooling.lease_remaining <= LONGER + Duration::from_millis(1), "{seen:?}");
    let refused = others.try_acquire().await.expect_err("it counts");
    let AcquireError::Cooling { remaining } = refused else { panic!("{refused}") };
    assert!(remaining > Duration::ZERO && remaining <= LONGER + Duration::from_millis(1), "{remaining:?}");
    assert_eq!((refused.retry_after(), refused.is_not_now()), (Some(remaining), true));
    // The holder has gone: its name is free for the next acquisition, which waits in line.
    let next = semaphore.acquire_with(AcquireOptions::new().holder("web-3")).await.expect("it comes");
    assert!(between(token, next.token()) >= LONGER, "after {token}: {}", next.token());
    assert_eq!(next.slot(), slot);
    next.release().succeeds().await;
}

/// A try once heard that the semaphore is paused for as long as the units count.
pub(crate) async fn a_try_in_a_pause_hears_of_what_keeps_it_out_longest(fixture: &Fixture) {
    for (pause, is_longer) in [(HOUR / 2, false), (2 * HOUR, true)] {
        let [semaphore, others] = fixture.two_semaphores(1).await;
        let permit = semaphore.acquire_with(AcquireOptions::new().at_least(HOUR)).succeeds().await;
        permit.release().succeeds().await;
        others.pause_for(pause, "429").succeeds().await;
        let refused = others.try_acquire().await.expect_err("it is paused, and the unit counts");
        let again = refused.retry_after().expect("time alone lets it in");
        match &refused {
            AcquireError::Paused { .. } if is_longer => assert!(again > HOUR, "{refused}"),
            AcquireError::Cooling { .. } if !is_longer => assert!(again > pause, "{refused}"),
            _ => panic!("a pause of {pause:?}: {refused}"),
        }
        others.resume().succeeds().await;
        fixture.frees_what_cools(&others).await;
    }
}

/// Two of three units must be free, and the last of those that cool for the shorter time is awaited.
pub(crate) async fn a_try_succeeds_when_it_was_told_to(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(3).await;
    for at_least in [4 * LONGER, LONGER / 2, LONGER] {
        let counted = AcquireOptions::new().at_least(at_least);
        semaphore.acquire_with(counted).succeeds().await.release().succeeds().await;
    }
    let two = AcquireOptions::new().weight(2).no_wait();
    let refused = others.acquire_with(two.clone()).await.expect_err("they count");
    let until = refused.retry_after().unwrap_or_else(|| panic!("{refused}"));
    assert!(until <= LONGER + Duration::from_millis(1), "{until:?}");
    tokio::time::sleep(until).await;
    others.acquire_with(two).succeeds().await.release().succeeds().await;
    // A held permit has no known end.
    let held = semaphore.acquire().succeeds().await;
    let refused =
        others.acquire_with(AcquireOptions::new().weight(3).no_wait()).await.expect_err("it is held");
    assert_eq!((&refused, refused.retry_after()), (&AcquireError::NoPermits, None));
    held.release().succeeds().await;
}

pub(crate) async fn a_grant_counts_for_what_it_really_cost(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(10).await;
    let estimated = |units| AcquireOptions::new().weight(units).at_least(LONGER);
    // Less: the rest is free at once, and nothing at all leaves nothing that cools.
    let permit = semaphore.acquire_with(estimated(8)).succeeds().await;
    permit.count(3).expect("it counts");
    assert_eq!((permit.weight(), semaphore.available().succeeds().await), (8, 2));
    permit.release().succeeds().await;
    assert_eq!(semaphore.available().succeeds().await, 7);
    let failed = semaphore.acquire_with(estimated(4)).succeeds().await;
    failed.count(0).expect("it counts");
    failed.release().succeeds().await;
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.held, seen.holders.len(), seen.holders[0].weight), (3, 1, 3));
    // More: the line waits until it has cooled. The last correction counts.
    let permit = semaphore.acquire_with(estimated(2)).succeeds().await;
    let token = permit.token();
    permit.count(1).and_then(|()| permit.count(9)).expect("it counts");
    permit.release().succeeds().await;
    assert_eq!((fixture.inspect(&semaphore).await.held, semaphore.available().succeeds().await), (12, 0));
    let next = semaphore.acquire_with(AcquireOptions::new().weight(8)).await.expect("it comes");
    assert!(between(token, next.token()) >= LONGER, "after {token}: {}", next.token());
    next.release().succeeds().await;
}

pub(crate) async fn a_grant_that_was_lost_counts_for_what_it_really_cost(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let limit = Duration::from_millis(100);
    let permit =
        semaphore.acquire_with(AcquireOptions::new().at_least(HOUR).max_hold(limit)).succeeds().await;
    permit.count(0).expect("it counts");
    let lost = Lost::HeldTooLong { limit };
    assert_eq!(lost_within(&permit, HANGS).await, Some(lost.clone()));
    assert_eq!(permit.release().await, Err(ReleaseError::Lost(lost)));
    assert_eq!(fixture.inspect(&semaphore).await.held, 0);
}

pub(crate) async fn a_grant_of_a_client_that_closes_counts_for_what_it_really_cost(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let permit = semaphore.acquire_with(AcquireOptions::new().at_least(HOUR)).succeeds().await;
    permit.count(0).expect("it counts");
    client.close().succeeds().await;
    assert_eq!(fixture.inspect(&fixture.semaphore(&other, 1)).await.held, 0);
    assert_eq!(permit.release().await, Err(ReleaseError::Lost(Lost::Closed)));
}

pub(crate) async fn a_grant_counts_for_the_limit_at_most(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 4);
    let permit = semaphore.acquire_with(counted()).succeeds().await;
    permit.count(u32::MAX).expect("it counts");
    permit.release().succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.held, 4);
    semaphore.acquire().await.expect("it comes").release().succeeds().await;
    // A handle can do it, too.
    let mut handle = semaphore.acquire_with(counted()).succeeds().await.hand_over().succeeds().await;
    handle.count(3).expect("it counts");
    assert!(client.release(&handle).succeeds().await);
    assert_eq!(fixture.inspect(&semaphore).await.held, 3);
}

pub(crate) async fn what_does_not_count_is_not_counted(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1);
    let permit = semaphore.acquire().succeeds().await;
    assert_eq!(permit.count(1), Err(InvalidInput::NothingCounts));
    let mut handle = permit.hand_over().succeeds().await;
    assert_eq!(handle.count(1), Err(InvalidInput::NothingCounts));
    assert!(client.release(&handle).succeeds().await);
    // Released later than it was to count, all of it is free.
    let permit = semaphore.acquire_with(counted()).succeeds().await;
    tokio::time::sleep(WINDOW + Duration::from_millis(2)).await;
    permit.count(7).expect("it counted");
    permit.release().succeeds().await;
    semaphore.try_acquire().succeeds().await.release().succeeds().await;
}

pub(crate) async fn a_permit_held_for_longer_is_free_at_once(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let permit = semaphore.acquire_with(counted()).succeeds().await;
    tokio::time::sleep(WINDOW + Duration::from_millis(2)).await;
    permit.release().succeeds().await;
    let next = semaphore.try_acquire().await.expect("it no longer counts");
    next.release().succeeds().await;
}

pub(crate) async fn a_lost_grant_counts_for_as_long_as_asked(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let lease = Duration::from_millis(100);
    let expiring = counted().lease(lease).auto_renew(false);
    let permit = semaphore.acquire_with(expiring).succeeds().await;
    assert_eq!(lost_within(&permit, HANGS).await, Some(Lost::Expired));
    let revoked = semaphore.acquire_with(counted().holder("revoked")).await.expect("it comes");
    assert!(between(permit.token(), revoked.token()) >= WINDOW);
    assert!(semaphore.revoke("revoked", "maintenance").succeeds().await);
    let next = semaphore.acquire().await.expect("it comes");
    assert!(between(revoked.token(), next.token()) >= WINDOW);
    next.release().succeeds().await;
}

pub(crate) async fn what_cools_can_be_freed_by_an_operator(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let hour = AcquireOptions::new().at_least(Duration::from_secs(3600)).holder("web-3");
    let permit = semaphore.acquire_with(hour).succeeds().await;
    let token = permit.token();
    assert!(!semaphore.revoke_cooling("web-3", token).succeeds().await, "it is held");
    permit.release().succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    assert!(!semaphore.revoke_cooling("web-3", token + 1).succeeds().await, "another grant");
    assert!(!semaphore.revoke("web-3", "").succeeds().await, "the holder has gone");
    assert!(semaphore.revoke_cooling("web-3", token).succeeds().await);
    assert!(!semaphore.revoke_cooling("web-3", token).succeeds().await, "it is free");
    waiter.permit().await.release().succeeds().await;
}

pub(crate) async fn a_grant_that_counts_is_not_served_by_what_is_kept(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 1).keep(HOUR);
    while !semaphore.acquire().succeeds().await.is_granted_again() {}
    let permit = semaphore.acquire_with(counted()).succeeds().await;
    assert!(!permit.is_granted_again());
    let token = permit.token();
    drop(permit);
    let next = semaphore.acquire().await.expect("it comes");
    assert!(between(token, next.token()) >= WINDOW, "it was not kept");
    next.release().succeeds().await;
    client.close().succeeds().await;
}

/// Nothing that cools is kept, so no recall frees any of it: the try is refused with the time at which one
/// succeeds.
pub(crate) async fn a_try_knows_when_although_permits_were_kept_before(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(1).await;
    let semaphore = semaphore.keep(WINDOW);
    drop(semaphore.acquire().succeeds().await);
    let long = AcquireOptions::new().at_least(HOUR).holder("web-3");
    let permit = semaphore.acquire_with(long).succeeds().await;
    let token = permit.token();
    permit.release().succeeds().await;
    let refused = others.try_acquire().await.expect_err("it counts");
    assert!(matches!(refused, AcquireError::Cooling { .. }), "{refused}");
    assert!(semaphore.revoke_cooling("web-3", token).succeeds().await);
}

pub(crate) async fn no_window_has_more_grants_than_the_limit(fixture: &Fixture) {
    const UNITS: usize = 3;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let mut requests = JoinSet::new();
    for client in clients.iter().cycle().take(3 * UNITS) {
        let semaphore = fixture.semaphore(client, 3);
        requests.spawn(async move {
            let permit = semaphore.acquire_with(counted()).await.expect("it comes");
            let token = permit.token();
            permit.release().succeeds().await;
            token
        });
    }
    let mut tokens = requests.join_all().await;
    tokens.sort_unstable();
    for window in tokens.windows(UNITS + 1) {
        assert!(between(window[0], window[UNITS]) >= WINDOW, "{window:?}");
    }
}

pub(crate) async fn a_grant_that_was_handed_over_counts_as_long(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let permit = semaphore.acquire_with(counted()).succeeds().await;
    let token = permit.token();
    let handle = permit.hand_over().succeeds().await;
    other.adopt(&handle).succeeds().await.release().succeeds().await;
    let next = semaphore.acquire().await.expect("it comes");
    assert!(between(token, next.token()) >= WINDOW);
    next.release().succeeds().await;
}

pub(crate) async fn a_time_above_a_day_is_refused(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    let day = Duration::from_secs(24 * 3600);
    let refused =
        semaphore.acquire_with(AcquireOptions::new().at_least(day + Duration::from_millis(1))).await;
    let error = refused.expect_err("it is too long");
    assert!(matches!(error, AcquireError::Invalid(InvalidInput::AtLeast { .. })), "{error:?}");
}

/// A set of a unit of [`RATE`] and one of the semaphore of the case, which another client holds for
/// [`WINDOW`] after the set has the unit of the rate. Returns the semaphore of the rate, too.
async fn set_that_has_waited(
    fixture: &Fixture,
    counted: AcquireOptions,
    keep: Duration,
) -> (Semaphore, PermitSet) {
    let (client, other) = (fixture.client().await, fixture.new_semaphore(1).await);
    let (rate, places) = (client.named(RATE, 1).keep(keep), fixture.semaphore(&client, 1).keep(keep));
    let full = other.acquire().succeeds().await;
    let acquiring =
        tokio::spawn(client.acquire_all([(places, AcquireOptions::new()), (rate.clone(), counted)]));
    fixture.settles(&other, 1, 1).await;
    tokio::time::sleep(WINDOW).await;
    full.release().succeeds().await;
    let set = timeout(HANGS, acquiring).await.expect("it is its turn").expect("it does not panic");
    (rate, set.expect("both are free"))
}

/// The token of the last permit that the set was granted: it was held from then on.
fn held_since(set: &PermitSet) -> u64 {
    let [first, last] = set.permits() else { panic!("not two: {set:?}") };
    assert_eq!(first.semaphore(), RATE);
    last.token()
}

/// Acquires the rate, whose last grant was of a set that was held from `since` on.
async fn assert_counted_from(since: u64, rate: &Semaphore) {
    let next = rate.acquire().await.expect("it comes");
    assert!(between(since, next.token()) >= WINDOW, "after {since}: {}", next.token());
    next.release().succeeds().await;
}

pub(crate) async fn a_grant_of_a_set_counts_from_when_the_whole_set_is_held(fixture: &Fixture) {
    for (options, keep) in
        [(counted(), Duration::ZERO), (counted().lane("web").share(2), Duration::ZERO), (counted(), HOUR)]
    {
        let (rate, set) = set_that_has_waited(fixture, options, keep).await;
        let since = held_since(&set);
        set.release().succeeds().await;
        assert_counted_from(since, &rate).await;
    }
}

/// As after a crash: the store alone knows how long the grant counts.
pub(crate) async fn a_grant_of_a_set_that_is_lost_counts_from_when_the_set_was_held(fixture: &Fixture) {
    let (rate, set) = set_that_has_waited(fixture, counted().auto_renew(false), Duration::ZERO).await;
    let since = held_since(&set);
    let permit = set.get(RATE).expect("it is one of them");
    permit.set_lease(Duration::from_millis(100)).succeeds().await;
    assert_eq!(lost_within(permit, HANGS).await, Some(Lost::Expired));
    drop(set);
    assert_counted_from(since, &rate).await;

    let (rate, set) = set_that_has_waited(fixture, counted().holder("web-3"), Duration::ZERO).await;
    assert!(rate.revoke("web-3", "maintenance").succeeds().await);
    assert_counted_from(held_since(&set), &rate).await;
}

pub(crate) async fn a_grant_of_a_set_that_was_handed_over_counts_as_long(fixture: &Fixture) {
    let (rate, set) = set_that_has_waited(fixture, counted(), Duration::ZERO).await;
    let (since, other) = (held_since(&set), fixture.client().await);
    let permit = set.into_permits().remove(0);
    let handle = permit.hand_over().succeeds().await.to_string().parse().expect("it is a handle");
    other.adopt(&handle).succeeds().await.release().succeeds().await;
    assert_counted_from(since, &rate).await;
}

/// The set fails or is given up before any program has worked under the grant.
pub(crate) async fn a_grant_of_a_set_that_is_never_held_counts_for_nothing(fixture: &Fixture) {
    let (client, other) = (fixture.client().await, fixture.new_semaphore(1).await);
    let (rate, places) = (client.named(RATE, 1), fixture.semaphore(&client, 1));
    let full = other.acquire().succeeds().await;
    let hour = AcquireOptions::new().at_least(HOUR);
    let set = |places_wait: AcquireOptions| {
        client.acquire_all([(places.clone(), places_wait), (rate.clone(), hour.clone())])
    };
    let refused = set(AcquireOptions::new().no_wait()).await.expect_err("the places are full");
    let source = AcquireError::NoPermits;
    assert_eq!(refused, AcquireAllError::Acquire { semaphore: fixture.name().to_owned(), source });
    rate.try_acquire().succeeds().await.release().succeeds().await;

    let cancelled = tokio::spawn(set(AcquireOptions::new()));
    fixture.settles(&other, 1, 1).await;
    cancelled.abort();
    fixture.settles(&rate, 0, 0).await;
    fixture.settles(&other, 1, 0).await;

    // A lost permit counts as any other: the store does not know what its holder has done.
    let named = counted().holder("web-3");
    let lost = tokio::spawn(client.acquire_all([(places, AcquireOptions::new()), (rate.clone(), named)]));
    fixture.settles(&other, 1, 1).await;
    assert!(rate.revoke("web-3", "maintenance").succeeds().await);
    let error = timeout(HANGS, lost).await.expect("it is lost").expect("it does not panic");
    assert!(matches!(error, Err(AcquireAllError::Lost { .. })), "{error:?}");
    let refused = rate.try_acquire().await.expect_err("it counts");
    assert!(matches!(refused, AcquireError::Cooling { .. }), "{refused}");
    full.release().succeeds().await;
}
