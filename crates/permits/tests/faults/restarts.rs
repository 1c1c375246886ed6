//! A server that dies and restarts, with its data on disk or without data.

use std::thread::sleep;
use std::time::Duration;

use permits::{Client, Inspection, Limit};
use permits_testkit::history::{ClientEvent, now};
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{SEMAPHORE, Worker, micros};
use permits_testkit::{Proxy, Server, in_real_time, wait};

use crate::fixture::Fixture;

/// Kills the server, and starts it again after `down`.
fn restart(fixture: &Fixture, down: Duration) {
    let before = fixture.server.info("run_id");
    fixture.server.kill();
    sleep(down);
    fixture.server.restart();
    assert_ne!(fixture.server.info("run_id"), before, "it is another run");
}

/// Asserts that these holders are renewed after a restart, and report no gap.
fn assert_still_held(holders: &[(Worker, String)]) {
    for (worker, tag) in holders {
        worker.renewed(tag);
    }
}

/// The holders in the queue, in order.
fn queue(seen: Inspection) -> Vec<String> {
    seen.waiters.into_iter().map(|waiter| waiter.holder).collect()
}

/// Restarts with holders and waiters connected, each followed by a release that hands over to a waiter.
/// The observer sees the windows in which a restarted server grants nothing new.
fn survive_restarts(fixture: &Fixture, downs: &[Duration], keeps_order: bool) {
    const HOLDERS: usize = 3;
    const WAITERS: usize = 2;
    let mut holding: Vec<(Worker, String)> = Vec::new();
    for number in 0..HOLDERS {
        let mut worker = fixture.worker(&format!("worker-{number}"));
        worker.acquire("held");
        holding.push((worker, "held".to_owned()));
    }
    let mut waiting: Vec<(Worker, String)> = Vec::new();
    for number in 0..WAITERS {
        let mut worker = fixture.worker(&format!("worker-{}", HOLDERS + number));
        worker.ask("waited-for");
        waiting.push((worker, "waited-for".to_owned()));
        fixture.await_waiting(number as u64 + 1);
    }
    let mut windows = 0;
    for (round, down) in downs.iter().enumerate() {
        let before = queue(fixture.inspect());
        if round % 2 == 1 {
            // Twice: the second comes while sessions are coming back from the first.
            restart(fixture, Duration::ZERO);
        }
        restart(fixture, *down);
        let seen = fixture.inspect();
        windows += usize::from(!seen.recovering.is_zero());
        assert!(seen.held <= HOLDERS as u64 && seen.waiting <= WAITERS as u64, "{seen:?}");
        eprintln!("round {round}, down for {down:?}: {seen:?}");
        assert_still_held(&holding);
        fixture.await_waiting(WAITERS as u64);
        let seen = fixture.inspect();
        assert_eq!((seen.held, seen.holders.len(), seen.waiters.len()), (3, HOLDERS, WAITERS));
        if keeps_order {
            assert_eq!(queue(seen), before, "the line is as it was");
        }
        // The queue moves on: a holder releases and requests again.
        let (mut worker, tag) = holding.remove(0);
        worker.release(&tag);
        let tag = format!("turn{round}");
        worker.ask(&tag);
        let mut found = None;
        let granted = wait::until(|| {
            found = waiting.iter().position(|(worker, tag)| {
                worker.has_reported(tag, |what| matches!(what, ClientEvent::Acquired { .. }))
            });
            found.is_some()
        });
        assert!(granted, "what was released was not handed on");
        holding.push(waiting.remove(found.expect("it was found")));
        waiting.push((worker, tag));
        fixture.await_waiting(WAITERS as u64);
    }
    assert_eq!(windows, downs.len(), "a window was seen after each restart");
    for (mut worker, tag) in holding {
        worker.release(&tag);
        worker.close();
    }
    for (mut worker, tag) in waiting {
        worker.acquired(&tag);
        worker.release(&tag);
        worker.close();
    }
    assert_eq!(
        fixture.count(|what| matches!(
            what,
            ClientEvent::Lost(_) | ClientEvent::NotHeld | ClientEvent::Failed(_)
        )),
        0
    );
    fixture.assert_safe();
    fixture.assert_at_rest();
}

/// The window was once a third of the longest lease that the store knew, which after a loss is the lease of
/// the first client to reconnect: 200 ms for the short lease here. The holder of the long one was still
/// reconnecting then, and the short one was granted its unit.
#[test]
fn a_short_lease_that_comes_first_does_not_take_the_unit_of_a_long_one() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(15));
        let url = fixture.server.url();
        let mut short = fixture.start_connected("short", &url, Duration::from_millis(600));
        short.acquire("before");
        short.release("before");
        let mut long = fixture.worker("long");
        long.acquire("held");
        restart(&fixture, Duration::from_millis(2500));
        short.ask("after");
        fixture.await_waiting(1);
        long.renewed("held");
        long.release("held");
        short.acquired("after");
        short.release("after");
        assert_eq!(
            fixture.count(|what| matches!(
                what,
                ClientEvent::Lost(_) | ClientEvent::NotHeld | ClientEvent::Failed(_)
            )),
            0
        );
        fixture.assert_safe();
        long.close();
        short.close();
        fixture.assert_at_rest();
    });
}

/// A server that takes the place of another one may have run for longer than a window: it was a replica, or
/// had much to load. It then granted what it did not know of before the holder was back.
#[test]
fn a_server_that_takes_the_place_of_another_one_waits_for_the_holders() {
    in_real_time(|| {
        let (fixture, other) = (Fixture::new(1, Duration::from_secs(9)), Server::start());
        let (proxy, lease) = (Proxy::start(fixture.server.address()), fixture.settings.lease);
        let start = |label| fixture.start_connected(label, &proxy.url(), lease);
        let (mut holder, mut newcomer) = (start("holder"), start("newcomer"));
        holder.acquire("held");
        let uptime =
            || other.info("uptime_in_seconds").expect("it has one").parse::<u64>().expect("a number");
        assert!(wait::until(|| uptime() > lease.as_secs() / 3 + 1), "the server does not grow old");

        holder.pause();
        proxy.lead_to(other.address());
        proxy.cut();
        newcomer.ask("new");
        let observed =
            Client::connect(&other.url()).wait().expect("it is up").named(SEMAPHORE, Limit::Stored);
        let has_come = || observed.inspect().wait().is_ok_and(|seen| seen.held + seen.waiting > 0);
        assert!(wait::until(has_come), "the newcomer does not come");
        holder.resume();
        holder.renewed("held");
        holder.release("held");
        newcomer.acquired("new");
        newcomer.release("new");
        holder.close();
        newcomer.close();
        let has_ended = |what: &ClientEvent| matches!(what, ClientEvent::Lost(_) | ClientEvent::NotHeld);
        assert_eq!(fixture.count(has_ended), 0);
        fixture.assert_safe();
    });
}

#[test]
fn restarts_with_nothing_on_disk_lose_no_permit_and_admit_no_other() {
    in_real_time(|| {
        let fixture = Fixture::new(3, Duration::from_secs(3));
        let downs = [0, 300, 0, 1000, 100].map(Duration::from_millis);
        survive_restarts(&fixture, &downs, false);
    });
}

#[test]
fn restarts_with_nothing_on_disk_and_the_strict_window_lose_no_permit() {
    in_real_time(|| {
        let fixture = Fixture::new(3, Duration::from_secs(3)).strict();
        survive_restarts(&fixture, &[Duration::from_millis(200)], false);
    });
}

#[test]
fn restarts_with_an_append_only_file_lose_nothing() {
    in_real_time(|| {
        // `everysec` could lose the last answers: on a busy disk Redis delays more than the sync.
        // A disk that is shared may stall for longer than a lease.
        let server = Server::builder().append_only().arg("appendfsync", "always").in_memory();
        let fixture = Fixture::on(server.start(), 3, Duration::from_secs(5));
        let downs = [0, 800, 100].map(Duration::from_millis);
        survive_restarts(&fixture, &downs, true);
    });
}

/// The server reports its uptime in whole seconds, counted from the second in which it began: a moment after
/// its start that may be 1 already. With a window of a second, the server then granted at once a unit of a
/// holder that was not yet back; the holder, its slot taken, lost its permit.
#[test]
fn a_window_follows_a_restart_at_the_end_of_a_second() {
    in_real_time(|| {
        // The round shows nothing if the machine is so busy that the window is over before the second is.
        assert!((0..5).any(|_| restart_at_the_end_of_a_second()), "in no round the server was young enough");
    });
}

/// Returns whether the server was still within the window when it reported an uptime of a second.
fn restart_at_the_end_of_a_second() -> bool {
    let fixture = Fixture::new(2, Duration::from_secs(3));
    let mut holder = fixture.worker("holder");
    holder.acquire("held");
    let time = fixture.server.command(&["TIME"]);
    let fraction: u64 = time.array()[1].text().parse().expect("microseconds");
    sleep(Duration::from_micros((1_850_000 - fraction) % 1_000_000));
    // The holder is away for a moment, as on a busy machine, so the newcomer is faster.
    holder.pause();
    let restarted = now();
    restart(&fixture, Duration::ZERO);
    let uptime = || fixture.server.info("uptime_in_seconds");
    assert!(wait::until(|| uptime().as_deref() != Some("0")), "the server does not grow old");
    // The newcomer has met no earlier run of the server, and so has only the uptime to go by.
    let mut newcomer = fixture.worker("newcomer");
    newcomer.ask("new");
    let has_come = |seen: Inspection| seen.held + seen.waiting > 0;
    assert!(wait::until(|| has_come(fixture.inspect())), "the newcomer does not come");
    let young = now() - restarted < micros(fixture.settings.lease) / 4;
    holder.resume();
    if !young {
        return false;
    }
    assert_eq!(newcomer.acquired("new").slot, 1, "the holder's slot is not free");
    holder.renewed("held");
    newcomer.release("new");
    holder.release("held");
    holder.close();
    newcomer.close();
    fixture.assert_safe();
    fixture.assert_at_rest();
    true
}

/// The permit belongs to a handle, not to a session. The server started after the grant, so it may have lost
/// the permit.
#[test]
fn a_restart_with_nothing_on_disk_loses_no_handle() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(15));
        let client = Client::connect(&fixture.server.url()).wait().expect("the server is up");
        let semaphore = client.named("handed over", 1);
        let handles = ["renewed", "adopted"].map(|holder| {
            let semaphore = client.named(holder, 1);
            semaphore.acquire().wait().expect("it is free").hand_over().wait().expect("it is held")
        });
        let idle = semaphore.acquire().wait().expect("it is free").hand_over().wait().expect("it is held");
        assert_eq!(client.release(&idle).wait(), Ok(true));
        assert_eq!(semaphore.delete().wait(), Ok(true));
        assert_eq!(client.renew(&idle).wait(), Ok(false), "the server has lost nothing yet");
        // The age of a server is known to two seconds.
        let uptime = || {
            fixture.server.info("uptime_in_seconds").expect("it has one").parse::<u64>().expect("a number")
        };
        let granted_at = uptime();
        assert!(wait::until(|| uptime() > granted_at + 3), "the server does not grow old");
        restart(&fixture, Duration::ZERO);
        assert_eq!(client.renew(&handles[0]).wait(), Ok(true));
        let adopted = client.adopt(&handles[1]).wait().expect("it is put back");
        adopted.release().wait().expect("it is held");
        assert_eq!(client.release(&handles[0]).wait(), Ok(true));
    });
}
