//! Measures the breaches that are not excluded: by how much, and for how long. docs/inside/guarantees.md has
//! the figures.

use std::time::Duration;

use super::world::{Coming, LEASE, LIMIT, World};
use crate::clock::Moment;
use crate::protocol::{Command, Declaration, Name, Operation, Recovery, SessionId};

/// A world in which client 0 holds all units, and client 1 waits for them.
fn held_and_awaited() -> World {
    let mut world = World::new(1, 0, Recovery::Off);
    for number in [0, 1] {
        world.acquire(number);
        world.run_tasks(number);
        let until = world.now + Duration::from_millis(100);
        run_until(&mut world, until);
    }
    assert_eq!((world.clients[0].held.len(), world.clients[1].pending.len()), (1, 1));
    world
}

/// Runs until `end`, and inspects the store every 50 ms, so that time takes effect there. Returns how long
/// clients believed they held more than the limit.
fn run_until(world: &mut World, end: Moment) -> Duration {
    let (mut above, mut since) = (Duration::ZERO, None);
    let mut at = world.now;
    while at < end {
        at = end.min(at + Duration::from_millis(50));
        world.made += 1;
        world.coming.insert((at, world.made), Coming::ArrivesLate(look()));
    }
    while world.now < end {
        world.advance();
        match (world.believed() > LIMIT, since) {
            (true, None) => since = Some(world.now),
            (false, Some(began)) => {
                above += world.now.since(began);
                since = None;
            }
            _ => {}
        }
    }
    assert!(since.is_none(), "it ends");
    above
}

/// A command that changes nothing.
fn look() -> Command {
    Command {
        semaphore: Name::new("simulated").expect("valid"),
        session: SessionId::new("look").expect("valid"),
        lease_ms: 0,
        recovery: Recovery::Off,
        declaration: Declaration::Stored,
        operation: Operation::Inspect { max: 0 },
    }
}

/// The store's clock jumps forward right after the holder was renewed. Returns how long two holders held.
fn jump(by: Duration, cut_off: bool) -> Duration {
    let mut world = held_and_awaited();
    world.epoch_us += by.as_micros() as u64;
    if cut_off {
        world.cut_off(0);
    }
    let end = world.now + 2 * LEASE;
    run_until(&mut world, end)
}

#[test]
fn a_store_whose_clock_jumps_lets_two_hold_for_less_than_the_jump() {
    let margin = LEASE / 100;
    println!("lease {LEASE:?}, two held after a jump of the store's clock:");
    for by in [margin, LEASE / 6, LEASE / 3, LEASE / 2, LEASE * 5 / 6, LEASE * 2] {
        let (connected, cut_off) = (jump(by, false), jump(by, true));
        println!("  by {by:?}: {connected:?} with a connected holder, {cut_off:?} with one that is cut off");
        assert!(cut_off <= by.min(LEASE).saturating_sub(margin), "cut off: {cut_off:?} by {by:?}");
        assert!(connected <= LEASE / 3 + Duration::from_millis(100), "connected: {connected:?} by {by:?}");
        if by <= LEASE * 3 / 5 {
            assert_eq!(connected, Duration::ZERO, "it is renewed before its lease ends, by {by:?}");
        }
        if by >= LEASE / 6 {
            assert!(cut_off >= (by / 2).min(LEASE / 2), "this shows nothing: {cut_off:?} by {by:?}");
        }
    }
}

#[test]
fn an_acquisition_that_arrives_again_after_its_release_takes_units_for_a_lease() {
    let mut world = World::new(1, 0, Recovery::Off);
    let connected = world.now + Duration::from_millis(100);
    run_until(&mut world, connected);
    world.acquire(0);
    world.run_tasks(0);
    let sent = world.coming.values().find_map(|coming| match coming {
        Coming::Arrives(0, call) => Some(call.command.clone()),
        _ => None,
    });
    let sent = sent.expect("it is on its way");
    let soon = world.now + Duration::from_millis(100);
    run_until(&mut world, soon);
    world.clients[0].held.clear();
    world.run_tasks(0);
    let soon = world.now + Duration::from_millis(100);
    run_until(&mut world, soon);
    assert_eq!(world.state().expect("it was just used").held, 0, "released");

    world.execute(&sent);
    assert_eq!(world.state().expect("it was just used").held, u64::from(LIMIT), "granted to no caller");
    let began = world.now;
    world.acquire(1);
    world.run_tasks(1);
    while world.clients[1].held.is_empty() {
        world.advance();
        assert!(world.now < began + 2 * LEASE, "for a lease");
    }
    let waited = world.now.since(began);
    println!("lease {LEASE:?}: the next was granted {waited:?} after the late arrival");
    assert!(waited >= LEASE, "the units are taken for the whole lease");
}
