//! The recipes work in the quiet case, and break where their headers say that they break.
//!
//! Each failure that lab/recipes/README.md names is asserted here, so that its tables cannot rot, and so is
//! that `permits` does not have it. Measured figures, such as speed, are not.

use permits_testkit::sound::Succeeds as _;
use permits_testkit::wait::in_time;
use std::fmt::Debug;

use permits_bench::Failure;
use permits_recipes::experiments::clocks::{mixed_leases, over_admission};
use permits_recipes::experiments::crash::{self, Fate};
use permits_recipes::experiments::initialise::{cleared, crowd, first_client_dies};
use permits_recipes::experiments::race::{stalled_in_the_lock, two_for_one_place};
use permits_recipes::experiments::{Capacity, Fixture, LIMIT, lost, on_each, order};
use permits_recipes::{Kind, Role};

/// Compares the outcomes with those expected, in the order of [`Kind::ALL`].
#[track_caller]
fn assert_each<T: PartialEq + Debug>(outcomes: Outcomes<T>, expected: [T; 8]) {
    let outcomes = outcomes.expect("every experiment can be made");
    let found: Vec<_> = Kind::ALL.iter().zip(outcomes).collect();
    let expected: Vec<_> = Kind::ALL.iter().zip(expected).collect();
    assert_eq!(found, expected);
}

/// The outcomes of an experiment on all of them.
type Outcomes<T> = Result<Vec<T>, Failure>;

fn room(admitted: u32, slots: u32) -> Capacity {
    Capacity { admitted, slots }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_quiet_each_admits_up_to_its_limit_and_takes_back_a_released_place() {
    let quiet = on_each(|fixture, kind| async move {
        let semaphore = fixture.semaphore(kind);
        let mut users = fixture.users(&semaphore, LIMIT + 1).await?;
        let mut last = users.pop().ok_or("there are six")?;
        for user in &mut users {
            assert!(user.try_acquire().await?, "{kind}: one of five is refused");
        }
        assert!(!last.try_acquire().await?, "{kind}: a sixth gets in");
        users[0].release().await?;
        last.acquire().await?;
        assert!(!users[0].try_acquire().await?, "{kind}: the first gets in beside the sixth");
        for user in users[1..].iter_mut().chain([&mut last]) {
            assert_ne!(user.refresh().await?, Some(false), "{kind}: a permit is lost");
            user.release().await?;
        }
        fixture.capacity(&semaphore).await
    });
    let (plain, numbered) = (room(LIMIT, 0), room(LIMIT, LIMIT));
    assert_each(quiet.await, [numbered, plain, plain, plain, plain, plain, numbered, numbered]);
}

#[tokio::test]
async fn a_waiter_gets_a_released_place() {
    let waited = on_each(|fixture, kind| async move {
        let mut semaphore = fixture.semaphore(kind);
        semaphore.limit = 1;
        let mut holder = fixture.user(&semaphore, Role::default()).await?;
        let mut waiter = fixture.user(&semaphore, Role::default()).await?;
        holder.acquire().await?;
        let waiting = tokio::spawn(async move {
            waiter.acquire().await?;
            waiter.release().await
        });
        holder.release().await?;
        in_time(waiting).await?
    });
    waited.await.expect("all who wait are served");
}

#[tokio::test]
async fn a_holder_that_refreshes_learns_that_its_lease_is_over() {
    let fixture = Fixture::start();
    for kind in [Kind::FairZset, Kind::LockedFairZset] {
        let mut semaphore = fixture.semaphore(kind);
        semaphore.limit = 1;
        semaphore.time = permits_recipes::Time::manual();
        let mut holder = fixture.user(&semaphore, Role::default()).succeeds().await;
        assert!(holder.try_acquire().succeeds().await);
        semaphore.time.pass(2 * semaphore.lease);
        let mut other = fixture.user(&semaphore, Role::default()).succeeds().await;
        assert!(other.try_acquire().succeeds().await, "{kind}: the lease is over");
        assert_eq!(holder.refresh().succeeds().await, Some(false), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_10_ms_apart_break_the_time_zset_alone() {
    let extra = on_each(|fixture, kind| async move { over_admission(&fixture, kind, 10).await });
    assert_each(extra.await, [0, LIMIT, 0, 0, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_a_minute_apart_break_all_that_use_them() {
    let extra = on_each(|fixture, kind| async move { over_admission(&fixture, kind, 60_000).await });
    assert_each(extra.await, [0, LIMIT, LIMIT, LIMIT, LIMIT, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_lease_throws_out_the_holders_of_all_that_store_start_times() {
    let extra = on_each(|fixture, kind| async move { mixed_leases(&fixture, kind).await });
    assert_each(extra.await, [0, LIMIT, LIMIT, LIMIT, LIMIT, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_get_one_place_where_a_step_comes_between() {
    let both = on_each(|fixture, kind| async move { Ok(two_for_one_place(&fixture, kind).await?.both > 0) });
    assert_each(both.await, [false, true, true, false, false, false, false, false]);
}

#[tokio::test]
async fn a_lock_that_expires_gives_the_race_back() {
    assert!(stalled_in_the_lock(&Fixture::start()).await.expect("all are asked"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_holder_blocks_the_list_the_counter_and_the_hosts_for_ever() {
    let back = on_each(|fixture, kind| async move { Ok(crash::holder(&fixture, kind).await?.is_some()) });
    assert_each(back.await, [false, true, true, true, true, false, false, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn left_alone_the_fuse_of_the_counter_blows() {
    let room = on_each(|fixture, kind| async move { crash::holder_left_alone(&fixture, kind).await });
    assert_each(room.await, [0, LIMIT, LIMIT, LIMIT, LIMIT, LIMIT, 0, LIMIT]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_dies_in_vain_takes_a_place_of_the_counter_along() {
    let served =
        on_each(
            |fixture, kind| async move { Ok(crash::waiter(&fixture, kind, Fate::Dies).await?.is_some()) },
        );
    assert_each(served.await, [true, true, true, true, true, false, true, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_vanishes_in_line_takes_a_token_of_the_list_along() {
    let served =
        on_each(
            |fixture, kind| async move { Ok(crash::waiter(&fixture, kind, Fate::Vanishes).await?.is_some()) },
        );
    assert_each(served.await, [false, true, true, true, true, false, true, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_longer_than_a_lease_is_not_covered_without_renewal() {
    let extra = on_each(|fixture, kind| async move { crash::long_work(&fixture, kind).await });
    assert_each(extra.await, [0, LIMIT, 0, 0, 0, LIMIT, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_never_make_more_places() {
    let crowds =
        on_each(|fixture, kind| async move { crowd(&fixture, kind).await }).await.expect("they come");
    for (kind, crowd) in Kind::ALL.into_iter().zip(crowds) {
        assert_eq!(crowd.afterwards.admitted, LIMIT, "{kind}: {crowd:?}");
        // Recipes that may fill fewer places at once are the subject of a table, not of a test. The two that
        // two clients can pass are asserted above; they may be passed here, too.
        if !matches!(kind, Kind::TimeZset | Kind::FairZset) {
            assert!(crowd.admitted <= LIMIT, "{kind}: {crowd:?}");
        }
        if matches!(kind, Kind::LuaFairZset | Kind::HostSlots | Kind::Permits) {
            assert_eq!(crowd.admitted, LIMIT, "{kind}: {crowd:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_client_can_leave_a_list_without_tokens() {
    let room = on_each(|fixture, kind| async move { first_client_dies(&fixture, kind).await });
    assert_each(room.await, [0, LIMIT, LIMIT, LIMIT, LIMIT, LIMIT, LIMIT - 1, LIMIT]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_cleared_in_mid_use_admits_as_many_again_and_some_keep_it() {
    let outcomes =
        on_each(|fixture, kind| async move { cleared(&fixture, kind).await }).await.expect("cleared");
    for (kind, outcome) in Kind::ALL.into_iter().zip(&outcomes) {
        assert_eq!(outcome.beside, LIMIT, "{kind}: nothing shows that there are holders");
    }
    let afterwards = Ok(outcomes.into_iter().map(|outcome| outcome.afterwards).collect());
    let (plain, numbered) = (room(LIMIT, 0), room(LIMIT, LIMIT));
    let tokens_twice = room(2 * LIMIT, LIMIT);
    let below_zero = room(2 * LIMIT, 0);
    assert_each(afterwards, [tokens_twice, plain, plain, plain, plain, below_zero, numbered, numbered]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_sent_twice_makes_a_place_or_a_number_too_many() {
    let room_left = on_each(|fixture, kind| async move { lost::release(&fixture, kind).await });
    let (plain, numbered) = (room(LIMIT, 0), room(LIMIT, LIMIT));
    let tokens_twice = room(2 * LIMIT, LIMIT);
    let below_zero = room(2 * LIMIT, 0);
    let numbers_twice = room(LIMIT, 3);
    assert_each(
        room_left.await,
        [tokens_twice, plain, plain, plain, plain, below_zero, numbers_twice, numbered],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_sent_twice_loses_a_place_of_those_without_owners() {
    let room_left =
        on_each(|fixture, kind| async move { Ok(lost::acquisition(&fixture, kind).await?.admitted) });
    // A host that lost a reply is refused once, because it holds.
    assert_each(room_left.await, [0, LIMIT, LIMIT, LIMIT, LIMIT, 0, LIMIT - 1, LIMIT]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomers_overtake_where_there_is_no_queue_or_waiters_retry() {
    let overtaken = on_each(|fixture, kind| async move { order::newcomer_overtakes(&fixture, kind).await });
    assert_each(overtaken.await, [false, true, true, true, true, true, true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_and_ours_serve_a_line_in_its_order() {
    for kind in [Kind::List, Kind::Permits] {
        let line = order::line(&Fixture::start(), kind).await.expect("all are served");
        assert_eq!(line, order::Order { inversions: 0, overtaken: 0 }, "{kind}");
    }
}
