//! Waiters that are killed.

use std::time::Duration;

use permits_testkit::history::now;
use permits_testkit::in_real_time;
use permits_testkit::worker::micros;

use crate::fixture::Fixture;

/// A dead waiter at the head of the queue is granted the permit, because the store cannot know yet, and costs
/// a lease. By then the leases of all waiters that died with it have ended too.
#[test]
fn many_killed_waiters_cost_one_lease_together() {
    in_real_time(|| {
        const DEAD: u64 = 5;
        let fixture = Fixture::new(1, Duration::from_secs(2));
        let mut holder = fixture.worker("holder");
        holder.acquire("first");
        let mut doomed: Vec<_> =
            (0..DEAD).map(|number| fixture.worker(&format!("doomed-{number}"))).collect();
        for (waiter, waiting) in doomed.iter_mut().zip(1..) {
            waiter.ask("never");
            fixture.await_waiting(waiting);
        }
        let mut survivor = fixture.worker("survivor");
        survivor.ask("next");
        fixture.await_waiting(DEAD + 1);
        for waiter in &mut doomed {
            waiter.kill();
        }
        assert_eq!(fixture.inspect().waiting, DEAD + 1, "the dead still stand in line");
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
