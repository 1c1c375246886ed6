//! Clients that are killed or paused.

use std::time::Duration;

use permits::Recovery;
use permits_testkit::history::{ClientEvent, now};
use permits_testkit::worker::micros;
use permits_testkit::{HOUR, in_real_time, wait};

use crate::fixture::{Fixture, calls};

/// The waiter is not renewed. Its call is a recheck, at the time that the store named.
#[test]
fn the_permit_of_a_killed_holder_goes_to_the_waiter_when_its_lease_ends() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(2)).recovery(Recovery::Off);
        let mut holder = fixture.worker("holder");
        let mut waiter = fixture.start_connected("waiter", &fixture.server.url(), HOUR);
        holder.acquire("first");
        waiter.ask("next");
        fixture.await_waiting(1);
        let calls_before = calls(&fixture.server, "evalsha");
        holder.kill();
        let killed = now();

        let next = waiter.acquired("next");
        let first = holder.granted("first");
        assert!(killed < next.acquired, "the unit had no release");
        assert!(first.end() <= next.acquired, "not before the dead holder's deadline: {first:?} {next:?}");
        assert!(
            next.acquired < first.until + 4 * micros(fixture.settings.lease),
            "its lease and a moment: {first:?} {next:?}"
        );
        eprintln!("granted {} us after the dead holder's deadline", next.acquired - first.until);
        // One call when the lease ends that the store named, and one when the renewed lease does.
        let calls = calls(&fixture.server, "evalsha") - calls_before;
        assert!(calls <= 8, "{calls} calls in one lease: that is polling");

        waiter.release("next");
        waiter.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

/// A dead waiter at the head of the queue is granted the permit, because the store cannot know yet, and costs
/// a lease. By then the leases of all waiters that died with it have ended too.
#[test]
fn many_killed_waiters_cost_one_lease_together() {
    in_real_time(|| {
        const DEAD: usize = 5;
        let fixture = Fixture::new(1, Duration::from_secs(2));
        let mut holder = fixture.worker("holder");
        holder.acquire("first");
        let mut doomed: Vec<_> =
            (0..DEAD).map(|number| fixture.worker(&format!("doomed-{number}"))).collect();
        for (number, waiter) in doomed.iter_mut().enumerate() {
            waiter.ask("never");
            fixture.await_waiting(number + 1);
        }
        let mut survivor = fixture.worker("survivor");
        survivor.ask("next");
        fixture.await_waiting(DEAD + 1);
        for waiter in &mut doomed {
            waiter.kill();
        }
        assert_eq!(fixture.waiting(), DEAD + 1, "the dead still stand in line");
        holder.release("first");
        let released = now();
        let next = survivor.acquired("next");
        let cost = next.acquired - released;
        eprintln!("{DEAD} dead waiters cost {cost} us");
        assert!(cost > micros(fixture.settings.lease) / 2, "the first of the dead was granted it: {cost} us");
        assert!(cost < 3 * micros(fixture.settings.lease), "one lease and a moment, not {DEAD}: {cost} us");

        survivor.release("next");
        survivor.close();
        holder.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

#[test]
fn a_short_lease_never_shortens_a_long_one() {
    in_real_time(|| {
        let short = Duration::from_millis(500);
        let fixture = Fixture::new(2, HOUR).recovery(Recovery::Off);
        let (mut steady, mut waiter) = (fixture.worker("steady"), fixture.worker("waiter"));
        let mut hasty = fixture.start_connected("hasty", &fixture.server.url(), short);
        let mut doomed = fixture.start_connected("doomed", &fixture.server.url(), short);
        let long = steady.acquire("long");
        doomed.acquire("short");
        waiter.ask("first-in-line");
        fixture.await_waiting(1);
        hasty.ask("behind");
        fixture.await_waiting(2);
        // Neither client with the long lease can renew now, and neither needs to.
        steady.pause();
        waiter.pause();
        doomed.kill();
        let killed = now();

        // The dead holder's unit goes to the first waiter, which is frozen; the waiter with the short lease
        // does not overtake.
        assert!(wait::until(|| fixture.waiting() == 1), "the dead holder's unit did not move on");
        eprintln!("the unit of a killed holder moved on after {} us", now() - killed);
        wait::within(4 * short, || {
            hasty.has_reported("behind", |what| matches!(what, ClientEvent::Acquired { .. }))
        });
        assert_eq!((fixture.state("held"), fixture.waiting()), (2, 1));

        let resumed = steady.resume();
        waiter.resume();
        waiter.acquired("first-in-line");
        assert!(wait::until(|| !steady.records_since("long", resumed).is_empty()), "it does not continue");
        assert!(
            !steady.has_reported("long", |what| matches!(what, ClientEvent::Lost(_) | ClientEvent::NotHeld))
        );
        assert_eq!(steady.granted("long").token, long.token);
        waiter.release("first-in-line");
        hasty.acquired("behind");
        hasty.release("behind");
        steady.release("long");
        for worker in [steady, waiter, hasty] {
            worker.close();
        }
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}
