//! Clients that die or stand still.

use std::time::Duration;

use permits::Recovery;
use permits_testkit::history::{ClientEvent, now};
use permits_testkit::wait;

use crate::stage::{LIMIT, Stage, calls, micros};

/// The waiter renews every 20 s. What comes sooner it has asked for because the store said when to.
#[test]
fn the_permit_of_a_killed_holder_goes_to_the_waiter_when_its_lease_ends() {
    let stage = Stage::new(1, Duration::from_secs(2)).recovery(Recovery::Off);
    let mut holder = stage.worker("holder");
    let mut waiter = stage.worker_at("waiter", &stage.server.url(), Duration::from_secs(60));
    holder.acquire("first");
    waiter.ask("next");
    stage.await_waiting(1);
    let calls_before = calls(&stage.server, "evalsha");
    holder.kill();
    let killed = now();

    let next = waiter.acquired("next");
    let first = holder.granted("first");
    assert!(killed < next.acquired, "nobody released it");
    assert!(first.end() <= next.acquired, "not before the dead holder's deadline: {first:?} {next:?}");
    assert!(
        next.acquired < first.until + 4 * micros(stage.lease),
        "its lease and a moment: {first:?} {next:?}"
    );
    eprintln!("granted {} us after the dead holder's deadline", next.acquired - first.until);
    // When the lease that was told of ends, and when the one does that it was renewed for meanwhile.
    let calls = calls(&stage.server, "evalsha") - calls_before;
    assert!(calls <= 8, "{calls} calls in one lease: that is polling");

    waiter.release("next");
    waiter.close();
    stage.assert_safe();
    stage.assert_at_rest();
}

/// A dead waiter that comes to the head of the line is granted the permit, for nobody can know yet, and costs
/// a lease. By then the leases of all others that died with it have ended too.
#[test]
fn many_killed_waiters_cost_one_lease_together() {
    const DEAD: usize = 5;
    let stage = Stage::new(1, Duration::from_secs(2));
    let mut holder = stage.worker("holder");
    holder.acquire("first");
    let mut doomed: Vec<_> = (0..DEAD).map(|number| stage.worker(&format!("doomed-{number}"))).collect();
    for (number, waiter) in doomed.iter_mut().enumerate() {
        waiter.ask("never");
        stage.await_waiting(number + 1);
    }
    let mut survivor = stage.worker("survivor");
    survivor.ask("next");
    stage.await_waiting(DEAD + 1);
    for waiter in &mut doomed {
        waiter.kill();
    }
    assert_eq!(stage.waiting(), DEAD + 1, "the dead still stand in line");
    holder.release("first");
    let released = now();
    let next = survivor.acquired("next");
    let cost = next.acquired - released;
    eprintln!("{DEAD} dead waiters cost {cost} us");
    assert!(cost > micros(stage.lease) / 2, "the first of the dead was granted it: {cost} us");
    assert!(cost < 3 * micros(stage.lease), "one lease and a moment, not {DEAD}: {cost} us");

    survivor.release("next");
    survivor.close();
    holder.close();
    stage.assert_safe();
    stage.assert_at_rest();
}

/// As before, but the holder outlives the leases of the dead: then they cost nothing at all.
#[test]
fn killed_waiters_whose_lease_has_ended_are_skipped() {
    let stage = Stage::new(1, Duration::from_secs(1));
    let (mut holder, mut doomed) = (stage.worker("holder"), stage.worker("doomed"));
    let mut survivor = stage.worker("survivor");
    holder.acquire("first");
    doomed.ask("never");
    stage.await_waiting(1);
    survivor.ask("next");
    stage.await_waiting(2);
    doomed.kill();
    stage.await_waiting(1);
    let tokens = (stage.state("last_token"), holder.granted("first").token);
    assert_eq!(tokens.0, tokens.1, "the dead waiter was never granted anything");

    holder.release("first");
    survivor.acquired("next");
    survivor.release("next");
    survivor.close();
    holder.close();
    stage.assert_safe();
    stage.assert_at_rest();
}

#[test]
fn a_holder_paused_beyond_its_lease_reports_the_loss_before_its_next_step() {
    let stage = Stage::new(1, Duration::from_millis(1500));
    let (mut paused, mut other) = (stage.worker("paused"), stage.worker("other"));
    paused.acquire("first");
    other.ask("second");
    stage.await_waiting(1);
    paused.pause();

    let second = other.acquired("second");
    let resumed = paused.resume();
    let lost = paused.lost("first");
    assert!(lost.at > resumed, "it could not know before it went on");
    let told = paused.told_since("first", resumed);
    assert!(
        !told.iter().any(|event| matches!(event.event, ClientEvent::Held { .. })),
        "another step: {told:?}"
    );
    assert_eq!(told[0].event, ClientEvent::NotHeld, "its first look says so: {told:?}");

    // What it gives back is not what the other has. In line again, it gets a permit when the other is done.
    paused.ask("third");
    stage.await_waiting(1);
    assert_eq!((stage.state("held"), stage.state("last_token")), (1, second.token));
    other.renewed("second");
    other.release("second");
    let third = paused.acquired("third");
    let first = paused.granted("first");
    assert_eq!((first.slot, second.slot, third.slot), (0, 0, 0));
    assert!(
        first.token < second.token && second.token < third.token,
        "a fenced resource knows the stale one"
    );

    paused.release("third");
    paused.close();
    other.close();
    stage.assert_safe();
    stage.assert_at_rest();
}

#[test]
fn a_waiter_paused_beyond_its_lease_stands_in_line_again() {
    let stage = Stage::new(1, Duration::from_secs(1));
    let (mut holder, mut paused) = (stage.worker("holder"), stage.worker("paused"));
    holder.acquire("first");
    paused.ask("next");
    stage.await_waiting(1);
    paused.pause();
    stage.await_waiting(0);
    paused.resume();
    stage.await_waiting(1);
    holder.release("first");
    paused.acquired("next");

    paused.release("next");
    paused.close();
    holder.close();
    stage.assert_safe();
    stage.assert_at_rest();
}

#[test]
fn a_short_lease_never_shortens_a_long_one() {
    let short = Duration::from_millis(500);
    let stage = Stage::new(2, Duration::from_secs(20)).recovery(Recovery::Off);
    let (mut steady, mut waiter) = (stage.worker("steady"), stage.worker("waiter"));
    let mut hasty = stage.worker_at("hasty", &stage.server.url(), short);
    let mut doomed = stage.worker_at("doomed", &stage.server.url(), short);
    let long = steady.acquire("long");
    doomed.acquire("short");
    waiter.ask("patient");
    stage.await_waiting(1);
    hasty.ask("behind");
    stage.await_waiting(2);
    // Neither of those with the long lease can renew now, and they are not to need it.
    steady.pause();
    waiter.pause();
    doomed.kill();
    let killed = now();

    // The unit of the one goes to the patient waiter, frozen as it is; nobody with a short lease passes it.
    assert!(wait::until(LIMIT, || stage.waiting() == 1), "the dead holder's unit did not move on");
    eprintln!("the unit of a killed holder moved on after {} us", now() - killed);
    wait::until(4 * short, || hasty.has_told("behind", |what| matches!(what, ClientEvent::Acquired { .. })));
    assert_eq!((stage.state("held"), stage.waiting()), (2, 1));

    let resumed = steady.resume();
    waiter.resume();
    waiter.acquired("patient");
    steady.renewed("long");
    assert!(!steady.told_since("long", resumed).is_empty(), "it goes on");
    assert!(!steady.has_told("long", |what| matches!(what, ClientEvent::Lost(_) | ClientEvent::NotHeld)));
    assert_eq!(steady.granted("long").token, long.token);
    waiter.release("patient");
    hasty.acquired("behind");
    hasty.release("behind");
    steady.release("long");
    for worker in [steady, waiter, hasty] {
        worker.close();
    }
    stage.assert_safe();
    stage.assert_at_rest();
}
