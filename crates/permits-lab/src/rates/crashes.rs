//! Windows under crashes: processes whose clients release, drop, hold, cancel and let leases end, and that
//! are killed.
//!
//! A process reports each token as soon as it has the permit. A grant to a process that was killed may be in
//! the store alone, and stays there until its lease ends. So the holders are read from the store several
//! times in a lease, too.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use permits::Client;
use permits_testkit::Server;

use super::windows::most_in_a_window;
use super::{CLIENTS, PROCESSES};
use crate::Failure;
use crate::compare::{Process, permits};

/// The limit, its window, and the lease.
pub(super) const LIMIT: u32 = 20;
pub(super) const WINDOW: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(1);

/// The interval between two crashes, and between two reads of the holders.
const CRASH_EVERY: Duration = Duration::from_millis(1100);
const READ_EVERY: Duration = Duration::from_millis(100);

/// The grants of a run.
pub(super) struct Crashed {
    pub(super) grants: usize,
    /// The grants that no process reported.
    pub(super) in_store_alone: usize,
    /// The processes that were killed.
    pub(super) processes: usize,
    /// The most grants in any window.
    pub(super) most: usize,
}

/// Runs the processes for `length`; kills one after the other, and starts another for each.
pub(super) fn run(server: &Server, length: Duration) -> Result<Crashed, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Client::connect(&server.url()))?;
    let semaphore = client.semaphore("crashes", LIMIT)?;
    let mut working = (0..PROCESSES).map(|_| start(server)).collect::<Result<Vec<_>, _>>()?;
    let (mut reported, mut stored) = (BTreeSet::new(), BTreeSet::new());
    let began = Instant::now();
    let mut crashed = 0;
    while began.elapsed() < length {
        std::thread::sleep(READ_EVERY);
        stored.extend(runtime.block_on(semaphore.inspect())?.holders.iter().map(|holder| holder.token));
        for process in &working {
            reported.extend(process.arrived()?.iter().filter_map(|answer| answer["granted"].as_u64()));
        }
        if began.elapsed() > CRASH_EVERY * (crashed + 1) {
            crashed += 1;
            let oldest = working.remove(0);
            reported.extend(oldest.crash()?.iter().filter_map(|answer| answer["granted"].as_u64()));
            working.push(start(server)?);
        }
    }
    stored.extend(runtime.block_on(semaphore.inspect())?.holders.iter().map(|holder| holder.token));
    for process in working {
        reported.extend(process.crash()?.iter().filter_map(|answer| answer["granted"].as_u64()));
    }
    let all: Vec<f64> = reported.union(&stored).map(|token| *token as f64).collect();
    Ok(Crashed {
        grants: all.len(),
        in_store_alone: stored.difference(&reported).count(),
        processes: crashed as usize,
        most: most_in_a_window(&all, WINDOW.as_micros() as f64),
    })
}

fn start(server: &Server) -> Result<Process, Failure> {
    let mut process = permits().start(&server.url(), Duration::ZERO)?;
    let (window, lease) = (WINDOW.as_millis(), LEASE.as_millis());
    process.send(&format!("mix crashes {LIMIT} {window} {lease} {CLIENTS}"))?;
    Ok(process)
}
