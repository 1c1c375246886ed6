//! Faults of clients, of the network, and of a single server.
//!
//! Each function injects a fault and ends it before it returns.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use permits::Change;

use crate::history::now;
use crate::{Connection, Resp, Server, wait};

use super::Fault;
use super::fixture::{Fixture, LEASE};
use crate::worker::SEMAPHORE;

/// Kills up to three workers (SIGKILL), mostly those that hold, and starts others in their place.
pub(super) fn client_kill(fixture: &mut Fixture) -> Fault {
    let victims = fixture.victims(3);
    kill(fixture, &victims)
}

/// Kills up to three workers that have units, which they mostly keep.
pub(super) fn keeper_kill(fixture: &mut Fixture) -> Fault {
    let victims = fixture.keepers(3);
    kill(fixture, &victims)
}

fn kill(fixture: &mut Fixture, victims: &[usize]) -> Fault {
    let over = now();
    for victim in victims {
        fixture.replace(*victim);
    }
    Fault { over, effects: victims.len() }
}

/// Freezes up to three workers for longer than the lease. Their units are to move on before they do.
pub(super) fn client_pause(fixture: &mut Fixture) -> Fault {
    let victims = fixture.victims(3);
    pause(fixture, &victims)
}

/// Freezes up to three workers that have units, which they mostly keep, for longer than the lease.
pub(super) fn keeper_pause(fixture: &mut Fixture) -> Fault {
    let victims = fixture.keepers(3);
    pause(fixture, &victims)
}

fn pause(fixture: &mut Fixture, victims: &[usize]) -> Fault {
    let over = now();
    for victim in victims {
        fixture.workers[*victim].pause();
    }
    sleep(LEASE + fixture.millis(200..1500));
    for victim in victims {
        fixture.workers[*victim].resume();
    }
    Fault { over, effects: victims.len() }
}

/// Lowers the limit, pauses, or closes the line, and reverts that after a moment.
pub(super) fn operator(fixture: &mut Fixture) -> Fault {
    let (limit, reason) = (fixture.pool.settings.limit, "a test".to_owned());
    let set = |limit| Change::SetLimit { limit, if_version: None };
    let (change, revert) = match fixture.random.u32(0..3) {
        0 => (set(fixture.random.u32(1..=limit)), set(limit)),
        1 => (Change::Pause { time: None, reason }, Change::Resume),
        _ => (Change::CloseLine { reason }, Change::OpenLine),
    };
    let made = fixture.change(change);
    sleep(fixture.millis(50..500));
    let reverted = fixture.change(revert);
    Fault::over_now(usize::from(made && reverted))
}

/// Has up to three workers fork, mostly those that hold. The children try the inherited client, and use one
/// of their own.
pub(super) fn client_fork(fixture: &mut Fixture) -> Fault {
    let victims = fixture.victims(3);
    for victim in &victims {
        fixture.fork(*victim);
    }
    Fault::over_now(victims.len())
}

/// The chunks and messages that did not arrive at workers.
fn swallowed(fixture: &Fixture) -> usize {
    fixture.proxies().iter().map(|proxy| proxy.swallowed()).sum()
}

/// Throws the messages away that recall what workers keep.
pub(super) fn recall_lost(fixture: &mut Fixture) -> Fault {
    let swallow = |fixture: &Fixture, needle| {
        fixture.proxies().iter().for_each(|proxy| proxy.swallow_messages(needle));
    };
    let before = swallowed(fixture);
    swallow(fixture, b":wake:recall:");
    sleep(fixture.millis(500..3000));
    wait::within(LEASE, || swallowed(fixture) > before);
    swallow(fixture, b"");
    Fault::over_now(swallowed(fixture) - before)
}

/// Throws replies away, and cuts the connection: the server has executed the request.
pub(super) fn reply_lost(fixture: &mut Fixture) -> Fault {
    let before = swallowed(fixture);
    for victim in fixture.victims(5) {
        if fixture.random.bool() {
            fixture.proxies()[victim].swallow_next_reply_then_cut();
        } else {
            let pause = fixture.millis(20..400);
            let proxy = &fixture.proxies()[victim];
            proxy.swallow_replies(true);
            sleep(pause);
            // A worker that waits or holds has no reply until it renews.
            wait::within(LEASE, || swallowed(fixture) > before);
            proxy.cut();
            proxy.swallow_replies(false);
        }
    }
    // The next replies trigger the orders that are armed.
    sleep(fixture.millis(50..300));
    wait::within(LEASE, || swallowed(fixture) > before);
    Fault::over_now(swallowed(fixture) - before)
}

/// Holds all replies to half of the workers back for longer than the lease.
pub(super) fn reply_late(fixture: &mut Fixture) -> Fault {
    let victims = fixture.victims(5);
    let delay = LEASE + fixture.millis(100..1000);
    for victim in &victims {
        fixture.proxies()[*victim].delay_replies(delay);
    }
    sleep(delay + fixture.millis(100..1500));
    for victim in &victims {
        fixture.proxies()[*victim].delay_replies(Duration::ZERO);
    }
    Fault::over_now(victims.len())
}

/// Passes nothing on to or from some workers, or all. Then lets the delayed bytes pass, or cuts the
/// connections, or cuts them and refuses new ones for a moment.
pub(super) fn partition(fixture: &mut Fixture) -> Fault {
    let victims = fixture.victims(fixture.proxies().len());
    for victim in &victims {
        fixture.proxies()[*victim].stall(true);
    }
    sleep(fixture.millis(300..4000));
    let (end, refused) = (fixture.random.u32(0..3), fixture.millis(0..150));
    for victim in &victims {
        let proxy = &fixture.proxies()[*victim];
        proxy.refuse(end == 2);
        if end > 0 {
            proxy.cut();
        }
        proxy.stall(false);
    }
    sleep(refused);
    for victim in &victims {
        fixture.proxies()[*victim].refuse(false);
    }
    Fault::over_now(victims.len())
}

/// Kills the connections by which waiters are woken, a few times.
pub(super) fn wakeup_cut(fixture: &mut Fixture) -> Fault {
    let mut killed = 0;
    for _ in 0..fixture.random.u32(1..5) {
        killed += fixture.server().command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
        sleep(fixture.millis(20..200));
    }
    Fault::over_now(usize::try_from(killed).expect("a count"))
}

/// Freezes the server for longer than the lease.
pub(super) fn server_pause(fixture: &mut Fixture) -> Fault {
    fixture.server().pause();
    sleep(LEASE + fixture.millis(200..1500));
    fixture.server().resume();
    Fault::over_now(1)
}

/// Kills the server and starts it again, mostly soon, sometimes after the leases have ended.
pub(super) fn restart(fixture: &mut Fixture) -> Fault {
    fixture.server().kill();
    sleep(down(fixture));
    fixture.server().restart();
    Fault::over_now(1)
}

/// Kills the server, empties its disk, and starts it again.
pub(super) fn restart_emptied(fixture: &mut Fixture) -> Fault {
    fixture.server().kill();
    sleep(down(fixture));
    let files = fixture.server().dir().join("appendonlydir");
    fs::remove_dir_all(&files).expect("the server kept an append-only file");
    fixture.server().restart();
    Fault::over_now(1)
}

/// The time for which a server is down.
fn down(fixture: &mut Fixture) -> Duration {
    if fixture.random.u32(0..4) == 0 { LEASE + fixture.millis(100..1000) } else { fixture.millis(0..700) }
}

/// Has the server forget everything.
pub(super) fn flushall(fixture: &mut Fixture) -> Fault {
    fixture.server().command(&["FLUSHALL"]);
    Fault::over_now(1)
}

/// Deletes some of the semaphore's keys, one after the other in a moment, as eviction does.
pub(super) fn keys_vanish(fixture: &mut Fixture) -> Fault {
    let keys = fixture.server().command(&["KEYS", &format!("*{{{SEMAPHORE}}}*")]);
    let mut keys: Vec<String> = keys.array().iter().map(|key| key.text().to_owned()).collect();
    fixture.random.shuffle(&mut keys);
    keys.truncate(fixture.random.usize(1..=keys.len().max(1)));
    let mut deleted = 0;
    for key in &keys {
        deleted += fixture.server().command(&["DEL", key]).int();
        sleep(fixture.millis(0..5));
    }
    Fault::over_now(usize::try_from(deleted).expect("a count"))
}

/// Has the server forget the scripts, a few times.
pub(super) fn script_flush(fixture: &mut Fixture) -> Fault {
    let before = missed(fixture.server());
    for _ in 0..fixture.random.u32(1..20) {
        fixture.server().command(&["SCRIPT", "FLUSH"]);
        sleep(fixture.millis(1..50));
    }
    Fault::over_now(missed(fixture.server()) - before)
}

/// The number of calls of a script that the server did not know.
fn missed(server: &Server) -> usize {
    let reply = server.command(&["INFO", "errorstats"]);
    let count = reply.text().lines().find_map(|line| line.strip_prefix("errorstat_NOSCRIPT:count="));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Fills the server's memory, which is bounded then, and frees it.
pub(super) fn oom(fixture: &mut Fixture) -> Fault {
    let mut connection = fixture.server().connect().expect("the server is up");
    let used: u64 =
        fixture.server().info("used_memory").and_then(|used| used.parse().ok()).expect("INFO has the field");
    set(&mut connection, "maxmemory-policy", "noeviction");
    set(&mut connection, "maxmemory", &(used + (1 << 20)).to_string());
    let mut fill = |name: &str, size: usize| {
        let value = "x".repeat(size);
        let mut count = 0;
        // Fill the memory until the server refuses, at most 1000 times.
        while count < 1000
            && matches!(connection.call(&["SET", &format!("fill:{name}{count}"), &value]), Ok(Resp::Text(_)))
        {
            count += 1;
        }
        count
    };
    let filled = [("big", fill("big", 50_000)), ("small", fill("small", 500))];
    sleep(fixture.millis(500..3000));
    for (name, count) in filled {
        for number in 0..count {
            connection.call(&["DEL", &format!("fill:{name}{number}")]).expect("the server is up");
        }
    }
    set(&mut connection, "maxmemory", "0");
    Fault::over_now(filled.iter().map(|(_, count)| count).sum())
}

fn set(connection: &mut Connection, setting: &str, value: &str) {
    let reply = connection.call(&["CONFIG", "SET", setting, value]).expect("the server is up");
    assert_eq!(reply, Resp::Text("OK".to_owned()), "{setting}");
}

/// Any of these faults that loses no keys and forks no client.
pub(super) fn mixed(fixture: &mut Fixture) -> Fault {
    let faults = [
        client_kill,
        client_pause,
        reply_lost,
        reply_late,
        partition,
        wakeup_cut,
        server_pause,
        restart,
        restart_emptied,
        script_flush,
        oom,
    ];
    faults[fixture.random.usize(..faults.len())](fixture)
}
