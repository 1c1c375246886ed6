//! Simulates whole sessions: several engines and one store that runs the model, under one clock that a seed
//! drives. Calls, replies and messages come late or never, servers forget, and clients freeze or vanish.
//! After every step, the permits that clients believe they hold must fit the limit (P2, P3). In the end,
//! everything must be released (P9, P10).
//!
//! Nothing here waits, so an hour of trouble takes a moment, and a seed that fails always fails.

mod bounds;
mod checks;
mod client;
mod faults;
mod ideas;
mod network;
#[path = "../../../../../permits-core/tests/support/ideas.rs"]
mod pairs;
mod programs;
mod sets;
mod world;

use self::checks::Seen;
use self::client::Ask;
use self::world::{CLIENTS, World};
use crate::model::{Entry, EntryState};
use crate::protocol::Recovery;
use crate::session::callers::Message;
use crate::session::engine::Engine;
use crate::session::outbox::channel;

const STEPS: usize = 1500;

fn simulate(seed: u64, trouble: u32) -> Seen {
    let mut world = World::new(seed, trouble, Recovery::Strict);
    world.let_some_keep();
    for _ in 0..STEPS {
        let number = world.random.usize(0..CLIENTS);
        if world.chance(30) {
            world.act(number);
        }
        if trouble > 0 {
            world.fault();
        }
        world.advance();
        world.check();
    }
    world.settle();
    world.seen
}

fn cases() -> u64 {
    std::env::var("PERMITS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1)
}

#[test]
fn without_faults_everybody_gets_a_permit_and_nothing_is_lost() {
    for seed in 0..20 * cases() {
        let seen = simulate(seed, 0);
        assert!(seen.granted > 20, "{seen:?} (seed {seed})");
        assert_eq!(seen.lost, 0, "{seen:?} (seed {seed})");
    }
}

#[test]
fn under_every_fault_the_limit_holds_and_everything_comes_back() {
    let mut all = Seen::default();
    for seed in 0..60 * cases() {
        let seen = simulate(seed, 10);
        all.granted += seen.granted;
        all.lost += seen.lost;
        all.reply_lost += seen.reply_lost;
        all.request_lost += seen.request_lost;
        all.message_lost += seen.message_lost;
        all.restarts += seen.restarts;
        all.reclaimed += seen.reclaimed;
        all.crashed += seen.crashed;
        all.frozen += seen.frozen;
        all.cancelled += seen.cancelled;
        all.gathered += seen.gathered;
        all.changed += seen.changed;
        all.held_back += seen.held_back;
        all.granted_again += seen.granted_again;
        all.recalled += seen.recalled;
    }
    println!("{all:?}");
    let Seen { granted, lost, reply_lost, request_lost, message_lost, restarts, reclaimed, .. } = all;
    let counts = [granted, lost, reply_lost, request_lost, message_lost, restarts, reclaimed];
    let more = [
        all.crashed,
        all.frozen,
        all.cancelled,
        all.gathered,
        all.changed,
        all.held_back,
        all.granted_again,
        all.recalled,
    ];
    assert!(counts.iter().chain(&more).all(|count| *count > 0), "P16: something never happened: {all:?}");
}

/// Each grant needs a replica, which is behind now and then. Programs renew some permits themselves. Failures
/// of servers and clients come together with failures of connections.
#[test]
fn grants_that_replicas_confirm_hold_the_limit_under_every_fault() {
    let (mut granted, mut renewed, mut cut_off, mut restarts) = (0, 0, 0, 0);
    for seed in 0..20 * cases() {
        let mut world = World::with_replicas(seed, 5, Recovery::Strict);
        for _ in 0..STEPS {
            let number = world.random.usize(0..CLIENTS);
            match world.random.u32(0..1000) {
                0..300 => world.act(number),
                300..400 if !world.clients[number].held.is_empty() && !world.clients[number].frozen => {
                    world.renew_by_program(number);
                    world.run_tasks(number);
                }
                400..402 => world.silence(),
                402..404 => world.cut_off(number),
                404..500 => world.fault(),
                _ => {}
            }
            world.advance();
            world.check();
        }
        (granted, renewed) = (granted + world.seen.granted, renewed + world.seen.renewed);
        (cut_off, restarts) = (cut_off + world.seen.cut_off, restarts + world.seen.restarts);
        world.settle();
    }
    println!("{granted} granted, {renewed} renewed by programs, {cut_off} cut off, {restarts} restarts");
    assert!(
        granted > 50 && renewed > 50 && cut_off > 20 && restarts > 10,
        "P16: {granted} granted, {renewed} renewed by programs, {cut_off} cut off, {restarts} restarts"
    );
}

/// Hundreds of sessions run, half of which keep permits. Once a recall has had the time to arrive, no waiter
/// waits for a permit that is kept and not used.
#[test]
fn no_waiter_waits_for_what_others_keep() {
    let (mut granted, mut again, mut recalled) = (0, 0, 0);
    for seed in 0..4 * cases() {
        let clients = 200;
        let mut world = World::with_clients(clients, seed, 0, Recovery::Off);
        world.in_order = true;
        world.let_some_keep();
        for step in 0..4_000 {
            // Crowds and calm take turns: in a calm few clients ask, and they keep what they release.
            let number = world.random.usize(0..if step / 500 % 4 == 0 { clients } else { 3 });
            if world.clients[number].pending.is_empty() {
                world.ask(number, Ask::default());
                world.run_tasks(number);
            }
            let holders = (0..clients).filter(|number| !world.clients[*number].held.is_empty());
            for holder in holders.collect::<Vec<_>>() {
                if world.chance(60) {
                    world.release_one(holder);
                    world.run_tasks(holder);
                }
            }
            for _ in 0..world.random.u32(1..4) {
                world.advance();
                world.check_recalled();
            }
            world.check();
        }
        (granted, again) = (granted + world.seen.granted, again + world.seen.granted_again);
        recalled += world.seen.recalled;
        world.settle();
    }
    println!("{granted} granted, {again} of kept permits, {recalled} recalls");
    assert!(granted > 1000 && again > 50 && recalled > 100, "P16: {granted}, {again}, {recalled}");
}

/// A late reply, or a slow clock, may extend a permit. If its holder is cut off next, it must not outlive its
/// lease, because others wait for it.
#[test]
fn holders_with_slow_clocks_that_are_cut_off_after_late_replies_stop_in_time() {
    let (mut cut_off, mut late, mut lost, mut granted) = (0, 0, 0, 0);
    for seed in 0..120 * cases() {
        let mut world = World::new(seed, 0, Recovery::Off);
        world.sluggish = true;
        for _ in 0..STEPS {
            let number = world.random.usize(0..CLIENTS);
            if world.chance(10) {
                world.act(number);
            }
            if world.random.u32(0..100) == 0 {
                world.cut_off(number);
            }
            world.advance();
            world.check();
        }
        (cut_off, late) = (cut_off + world.seen.cut_off, late + world.seen.late);
        (lost, granted) = (lost + world.seen.lost, granted + world.seen.granted);
        world.settle();
    }
    println!("{cut_off} cut off, {late} late replies, {granted} granted, {lost} lost");
    assert!(cut_off > 100 && late > 1000 && lost > 50, "P16: {cut_off} cut off, {late} late, {lost} lost");
}

/// The leases are so long that a window after a restart is over before a holder that stays connected renews.
#[test]
fn what_a_server_forgets_loses_no_permit_of_a_connected_holder() {
    for forget in [World::restart, World::lose_a_key] {
        let mut times = 0;
        for seed in 0..30 * cases() {
            let mut world = World::new(seed, 0, Recovery::Interval);
            for _ in 0..STEPS {
                let number = world.random.usize(0..CLIENTS);
                if world.chance(30) {
                    world.act(number);
                }
                if world.random.u32(0..200) == 0 {
                    forget(&mut world);
                    times += 1;
                }
                world.advance();
                world.check();
            }
            assert_eq!(world.seen.lost, 0, "seed {seed}: {:?}", world.seen);
            world.settle();
        }
        assert!(times > 100, "P16: only {times} times");
    }
}

#[test]
fn a_closing_engine_answers_everybody_and_ends() {
    let mut world = World::new(7, 0, Recovery::Interval);
    for _ in 0..300 {
        let number = world.random.usize(0..CLIENTS);
        world.act(number);
        world.advance();
    }
    for number in 0..CLIENTS {
        let (answer, mut closed) = channel();
        world.clients[number].session.send(Message::Close { answer: Some(answer) });
        world.run_tasks(number);
        let mut result = None;
        for _ in 0..10_000 {
            world.advance();
            world.clients[number].driver.answer_closed();
            if let Ok(arrived) = closed.try_recv() {
                result = Some(arrived);
                break;
            }
        }
        assert_eq!(result, Some(Ok(())), "client {number} closes");
        assert!(world.clients[number].driver.engine(Engine::is_finished));
        assert!(world.clients[number].held.iter().all(|held| held.state.deadline(world.now).is_none()));
    }
    let state = world.state().expect("it has just been used");
    let cools = |entry: &Entry| matches!(entry.place, EntryState::Cooling(_));
    assert!(state.entries.values().all(cools), "nothing is held, and nothing waits: {state:?}");
}
