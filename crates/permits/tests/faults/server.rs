//! A server that is paused, or loses its state while it runs.

use std::time::Duration;

use permits_testkit::history::{
    ClientEvent,
    client_checks::{check_order, most_at_once},
    now,
};
use permits_testkit::real_time::always_counts;
use permits_testkit::worker::micros;
use permits_testkit::{in_real_time, wait};

use crate::fixture::{Fixture, calls};

#[test]
fn holders_stop_at_their_deadline_when_the_server_stands_still() {
    in_real_time(|| {
        let fixture = Fixture::new(2, Duration::from_millis(1500));
        let (mut holder, mut second) = (fixture.worker("holder"), fixture.worker("second"));
        let mut waiter = fixture.worker("waiter");
        holder.acquire("h");
        second.acquire("s");
        for (number, tag) in ["w1", "w2", "w3"].into_iter().enumerate() {
            waiter.ask(tag);
            fixture.await_waiting(number + 1);
        }
        // Its reply follows those to the requests: without one of them the session would retry that request
        // alone, before it learns that the others have left the queue.
        waiter.inspect();
        fixture.server.pause();
        let paused = now();
        for (worker, tag) in [(&holder, "h"), (&second, "s")] {
            let lost = worker.lost(tag);
            let granted = worker.granted(tag);
            let latest = paused + micros(fixture.settings.lease);
            let text = "it holds a lease from its last renewal, no more";
            always_counts(|| assert!(granted.until <= latest, "{text}"));
            eprintln!("{tag}: loss reported {} us after the deadline", lost.at.saturating_sub(granted.until));
            assert!(granted.end() <= lost.at);
        }
        assert!(
            !waiter.has_reported("w1", |what| matches!(what, ClientEvent::Acquired { .. })),
            "the paused server cannot grant"
        );
        // A holder's deadline is before the end of its lease in the store, and the waiters' leases began
        // last.
        std::thread::sleep(fixture.settings.lease / 10);
        fixture.server.resume();

        // Within one session the order of the queue survives, though all leases have ended.
        let granted: Vec<_> = ["w1", "w2"].map(|tag| waiter.acquired(tag)).into();
        check_order(&granted).unwrap_or_else(|violation| panic!("{violation}"));
        // A later request is queued behind the earlier ones.
        fixture.await_waiting(1);
        holder.ask("late");
        fixture.await_waiting(2);
        waiter.release("w1");
        let third = waiter.acquired("w3");
        assert!(granted[1].token < third.token);
        waiter.release("w2");
        let late = holder.acquired("late");
        assert!(third.token < late.token);

        waiter.release("w3");
        holder.release("late");
        for worker in [holder, second, waiter] {
            worker.close();
        }
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

#[test]
fn holders_that_were_flushed_are_put_back_at_their_next_renewal() {
    in_real_time(|| {
        let fixture = Fixture::new(2, Duration::from_secs(2));
        let (mut one, mut two, mut later) =
            (fixture.worker("one"), fixture.worker("two"), fixture.worker("later"));
        let first = one.acquire("first");
        let second = two.acquire("second");
        for _ in 0..2 {
            fixture.server.command(&["FLUSHALL"]);
            let reclaimed = wait::until(|| fixture.entries() == 2);
            assert!(reclaimed, "{} of 2 holders are back", fixture.entries());
            one.renewed("first");
            two.renewed("second");
            assert_eq!((fixture.state("held"), fixture.state("last_token")), (2, second.token));
        }
        assert!(calls(&fixture.server, "flushall") == 2);
        assert_eq!((one.granted("first").slot, two.granted("second").slot), (first.slot, second.slot));
        later.ask("third");
        fixture.await_waiting(1);
        assert_eq!(fixture.state("held"), 2, "there is no room for a third");
        one.release("first");
        let third = later.acquired("third");
        assert!(third.token > second.token && third.slot == first.slot);
        two.release("second");
        later.release("third");
        assert_eq!(fixture.count(|what| matches!(what, ClientEvent::Lost(_) | ClientEvent::NotHeld)), 0);
        for worker in [one, two, later] {
            worker.close();
        }
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

/// FLUSHALL forgets a holder, and a newcomer is faster than its renewal. Both hold then, until the forgotten
/// holder's deadline and no longer.
#[test]
fn a_flushed_holder_whose_units_were_granted_again_is_lost_within_its_lease() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(3));
        let (mut old, mut new) = (fixture.worker("old"), fixture.worker("new"));
        // On a young server without state free units are held back, for a third of the lease.
        let uptime = || fixture.server.info("uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
        let grown = wait::until(|| uptime().unwrap_or(0) > 2);
        assert!(grown, "the server does not grow old");
        let first = old.acquire("first");
        old.renewed("first");
        fixture.server.command(&["FLUSHALL"]);
        let flushed = now();
        let second = new.acquire("second");
        let lost = old.lost("first");
        assert!(old.granted("first").end() <= flushed + micros(fixture.settings.lease), "it was not renewed");
        assert!(second.token > first.token);
        eprintln!("lost {} us after the flush", lost.at - flushed);
        assert_eq!(
            most_at_once(&fixture.grants()).len(),
            2,
            "the newcomer came first: otherwise nothing is shown"
        );
        new.renewed("second");
        assert_eq!(fixture.state("held"), 1);

        old.ask("third");
        fixture.await_waiting(1);
        new.release("second");
        assert!(old.acquired("third").token > second.token);
        old.release("third");
        old.close();
        new.close();
        fixture.assert_at_rest();
    });
}
