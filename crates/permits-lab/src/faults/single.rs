//! What goes wrong with clients, with the network, and with a single server.
//!
//! Each is one fault, begun and ended: when it returns, all is as before, but for its traces.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use permits_testkit::history::now;
use permits_testkit::{Connection, Resp, Server};

use super::stage::{Fault, LEASE, Stage};
use super::worker::SEMAPHORE;

/// Kills up to three workers (SIGKILL), mostly those that hold. Others take their places.
pub(crate) fn client_kill(stage: &mut Stage) -> Fault {
    let over = now();
    let victims = stage.victims(3);
    for victim in &victims {
        stage.crew.replace(*victim, &stage.place.url(*victim));
    }
    Fault { over, effects: victims.len() }
}

/// Freezes up to three workers for longer than the lease. Their units are to move on before they do.
pub(crate) fn client_pause(stage: &mut Stage) -> Fault {
    let over = now();
    let victims = stage.victims(3);
    for victim in &victims {
        stage.crew.pause(*victim);
    }
    sleep(LEASE + stage.millis(200..1500));
    for victim in &victims {
        stage.crew.resume(*victim);
    }
    Fault { over, effects: victims.len() }
}

/// Has up to three workers fork, mostly those that hold. The children use what they inherited, and clients of their own.
pub(crate) fn client_fork(stage: &mut Stage) -> Fault {
    let victims = stage.victims(3);
    for victim in &victims {
        stage.crew.fork(*victim);
    }
    Fault::over_now(victims.len())
}

/// Throws replies away, and cuts the connection: the request has been carried out.
pub(crate) fn reply_lost(stage: &mut Stage) -> Fault {
    let swallowed = |stage: &Stage| stage.proxies().iter().map(|proxy| proxy.swallowed()).sum::<usize>();
    let before = swallowed(stage);
    for victim in stage.victims(5) {
        if stage.random.bool() {
            stage.proxies()[victim].swallow_next_reply_then_cut();
        } else {
            let pause = stage.millis(20..400);
            let proxy = &stage.proxies()[victim];
            proxy.swallow_replies(true);
            sleep(pause);
            proxy.cut();
            proxy.swallow_replies(false);
        }
    }
    // Orders that are armed are carried out by what comes next.
    sleep(stage.millis(50..300));
    Fault::over_now(swallowed(stage) - before)
}

/// Holds all replies to half of the workers back for longer than the lease.
pub(crate) fn reply_late(stage: &mut Stage) -> Fault {
    let victims = stage.victims(5);
    let delay = LEASE + stage.millis(100..1000);
    for victim in &victims {
        stage.proxies()[*victim].delay_replies(delay);
    }
    sleep(delay + stage.millis(100..1500));
    for victim in &victims {
        stage.proxies()[*victim].delay_replies(Duration::ZERO);
    }
    Fault::over_now(victims.len())
}

/// Passes nothing on to or from some workers, or all; then lets what came pass, or cuts.
pub(crate) fn partition(stage: &mut Stage) -> Fault {
    let victims = stage.victims(stage.proxies().len());
    for victim in &victims {
        stage.proxies()[*victim].stall(true);
    }
    sleep(stage.millis(300..4000));
    let cuts = stage.random.bool();
    for victim in &victims {
        let proxy = &stage.proxies()[*victim];
        if cuts {
            proxy.cut();
        }
        proxy.stall(false);
    }
    Fault::over_now(victims.len())
}

/// Kills the connections by which waiters are woken, a few times.
pub(crate) fn wakeup_cut(stage: &mut Stage) -> Fault {
    let mut killed = 0;
    for _ in 0..stage.random.u32(1..5) {
        killed += stage.server().command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
        sleep(stage.millis(20..200));
    }
    Fault::over_now(usize::try_from(killed).expect("a count"))
}

/// Freezes the server for longer than the lease.
pub(crate) fn server_pause(stage: &mut Stage) -> Fault {
    stage.server().pause();
    sleep(LEASE + stage.millis(200..1500));
    stage.server().resume();
    Fault::over_now(1)
}

/// Kills the server and starts it again, mostly soon, sometimes after the leases have ended.
pub(crate) fn restart(stage: &mut Stage) -> Fault {
    stage.server().kill();
    sleep(down(stage));
    stage.server().restart();
    Fault::over_now(1)
}

/// The same, and what was on disk is gone.
pub(crate) fn restart_emptied(stage: &mut Stage) -> Fault {
    stage.server().kill();
    sleep(down(stage));
    let files = stage.server().dir().join("appendonlydir");
    fs::remove_dir_all(&files).expect("the server kept an append-only file");
    stage.server().restart();
    Fault::over_now(1)
}

/// For how long a server is down.
fn down(stage: &mut Stage) -> Duration {
    if stage.random.u32(0..4) == 0 { LEASE + stage.millis(100..1000) } else { stage.millis(0..700) }
}

/// Has the server forget everything.
pub(crate) fn flushall(stage: &mut Stage) -> Fault {
    stage.server().command(&["FLUSHALL"]);
    Fault::over_now(1)
}

/// Deletes some of the semaphore's keys, one after the other in a moment, as eviction does.
pub(crate) fn keys_vanish(stage: &mut Stage) -> Fault {
    let keys = stage.server().command(&["KEYS", &format!("*{{{SEMAPHORE}}}*")]);
    let mut keys: Vec<String> = keys.array().iter().map(|key| key.text().to_owned()).collect();
    stage.random.shuffle(&mut keys);
    keys.truncate(stage.random.usize(1..=keys.len().max(1)));
    let mut deleted = 0;
    for key in &keys {
        deleted += stage.server().command(&["DEL", key]).int();
        sleep(stage.millis(0..5));
    }
    Fault::over_now(usize::try_from(deleted).expect("a count"))
}

/// Has the server forget the scripts, a few times.
pub(crate) fn script_flush(stage: &mut Stage) -> Fault {
    let before = missed(stage.server());
    for _ in 0..stage.random.u32(1..20) {
        stage.server().command(&["SCRIPT", "FLUSH"]);
        sleep(stage.millis(1..50));
    }
    Fault::over_now(missed(stage.server()) - before)
}

/// How often a script was asked for that the server did not know.
fn missed(server: &Server) -> usize {
    let reply = server.command(&["INFO", "errorstats"]);
    let count = reply.text().lines().find_map(|line| line.strip_prefix("errorstat_NOSCRIPT:count="));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Fills the server's memory, which is bounded then, and frees it.
pub(crate) fn oom(stage: &mut Stage) -> Fault {
    let mut connection = stage.server().connect().expect("the server is up");
    let used: u64 =
        stage.server().info("used_memory").and_then(|used| used.parse().ok()).expect("it is told");
    set(&mut connection, "maxmemory-policy", "noeviction");
    set(&mut connection, "maxmemory", &(used + (1 << 20)).to_string());
    let mut fill = |name: &str, size: usize| {
        let value = "x".repeat(size);
        let mut count = 0;
        // Until it is refused, and not for ever.
        while count < 1000
            && matches!(connection.call(&["SET", &format!("fill:{name}{count}"), &value]), Ok(Resp::Text(_)))
        {
            count += 1;
        }
        count
    };
    let filled = [("big", fill("big", 50_000)), ("small", fill("small", 500))];
    sleep(stage.millis(500..3000));
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

/// One of all of these that lose no keys and fork no client.
pub(crate) fn mixed(stage: &mut Stage) -> Fault {
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
    faults[stage.random.usize(..faults.len())](stage)
}
