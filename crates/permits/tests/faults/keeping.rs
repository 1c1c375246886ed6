//! Clients that keep permits: their recall is lost, or they are killed or paused.

use std::time::Duration;

use permits_testkit::history::{ClientEvent, now};
use permits_testkit::worker::{Work, Worker, WorkerSettings};
use permits_testkit::{Proxy, in_real_time, wait};

use crate::fixture::Fixture;

/// A worker that keeps permits for as long as it may.
fn keeper(fixture: &Fixture, url: String) -> Worker {
    let (label, keep) = ("keeper".to_owned(), Some(fixture.settings.lease));
    let keeper = fixture.start(WorkerSettings { label, url, keep, ..fixture.settings.clone() });
    keeper.await_event("-", |event| *event == ClientEvent::Connected);
    keeper
}

/// The keeper uses the permit all the time, so that it is never idle.
#[test]
fn a_lost_recall_is_healed_by_the_next_renewal_of_the_keeper() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(3));
        let proxy = Proxy::start(fixture.server.address());
        let mut keeper = keeper(&fixture, proxy.url());
        let mut waiter = fixture.worker("waiter");
        keeper.work(&Work::brief(1, Duration::from_millis(5)));
        let is_again = |event: &ClientEvent| matches!(event, ClientEvent::Acquired { again: true, .. });
        for _ in 0..3 {
            let uses = fixture.count(is_again);
            assert!(wait::until(|| fixture.count(is_again) > uses), "nothing is kept");
            let swallowed = proxy.swallowed();
            proxy.swallow_messages(b":wake:recall:");
            let tag = format!("after {uses}");
            let permit = waiter.acquire(&tag);
            eprintln!("granted after {} us", permit.acquired - permit.asked);
            assert!(proxy.swallowed() > swallowed, "no recall was lost");
            proxy.swallow_messages(b"");
            waiter.release(&tag);
        }

        keeper.stop();
        keeper.close();
        waiter.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

#[test]
fn units_of_a_killed_keeper_are_free_when_its_lease_ends() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(3));
        let mut keeper = keeper(&fixture, fixture.server.url());
        let mut waiter = fixture.worker("waiter");
        let kept = keeper.acquire("first");
        keeper.release("first");
        keeper.kill();
        let killed = now();
        let next = waiter.acquire("next");
        assert!(killed < next.acquired && kept.until <= next.acquired, "{kept:?} {next:?}");
        assert!(kept.token < next.token);

        waiter.release("next");
        waiter.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

#[test]
fn a_keeper_that_was_paused_beyond_its_lease_uses_nothing_of_what_it_kept() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(3));
        let mut keeper = keeper(&fixture, fixture.server.url());
        let mut waiter = fixture.worker("waiter");
        let kept = keeper.acquire("first");
        keeper.release("first");
        keeper.pause();
        let next = waiter.acquire("next");
        assert!(kept.until <= next.acquired, "{kept:?} {next:?}");

        keeper.ask("second");
        keeper.resume();
        fixture.await_waiting(1);
        waiter.release("next");
        let second = keeper.acquired("second");
        assert!(!second.again && second.token > next.token, "{next:?} {second:?}");
        keeper.release("second");

        keeper.close();
        waiter.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}
