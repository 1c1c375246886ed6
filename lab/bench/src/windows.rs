//! `permits-lab windows [SECONDS]`: limits for a time, `AcquireOptions::at_least`, under crashes.
//!
//! Processes have clients that release, drop, hold, cancel and let leases end, and are killed one after the
//! other. No window may have more grants than the limit (P17); 15 seconds unless set.
//!
//! A process reports each token as soon as it has the permit. A token is the time of its grant by the
//! server's clock, to the microsecond. A grant to a process that was killed may be in the store alone, and
//! stays there until its lease ends. So the holders are read from the store several times in a lease, too.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use permits::Client;
use permits_testkit::Server;

use permits_bench::Failure;
use permits_bench::system::{PERMITS, Process};

/// The limit.
const LIMIT: u32 = 20;

/// The window in which grants count, and the lease.
const WINDOW: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(1);

/// The processes, and the clients of each.
const PROCESSES: usize = 5;
const CLIENTS: usize = 10;

/// The interval between two crashes, and between two reads of the holders.
const CRASH_EVERY: Duration = Duration::from_millis(1100);
const READ_EVERY: Duration = Duration::from_millis(100);

/// The grants of a run.
struct Crashed {
    grants: usize,
    /// The grants that no process reported.
    in_store_alone: usize,
    /// The processes that were killed.
    killed: usize,
    /// The most grants in any window.
    most: usize,
}

/// `[SECONDS]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let seconds: f64 = match arguments {
        [] => 15.0,
        [seconds] => seconds.parse()?,
        _ => return Err("usage: windows [SECONDS]".into()),
    };
    let Crashed { grants, in_store_alone, killed, most } = crashes(Duration::from_secs_f64(seconds))?;
    println!(
        "{LIMIT} in {} ms: {grants} grants to {PROCESSES} processes of {CLIENTS} clients that release, drop, hold, \
         cancel and let leases end; {killed} processes were killed, and {in_store_alone} of the grants were seen \
         in the store alone. The most grants in any window: {most}.",
        WINDOW.as_millis()
    );
    if grants <= LIMIT as usize || killed == 0 {
        return Err("too short for a second window or a crash".into());
    }
    if most > LIMIT as usize {
        return Err(format!("P17: {most} grants in a window, with a limit of {LIMIT}").into());
    }
    Ok(())
}

/// Runs the processes for `length`; kills one after the other, and starts another for each.
fn crashes(length: Duration) -> Result<Crashed, Failure> {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Client::connect(&server.url()))?;
    // `permits` grants nothing for a renewal interval after a start of its server.
    drop(runtime.block_on(client.semaphore("first", 1)?.acquire())?);
    let semaphore = client.semaphore("crashes", LIMIT)?;
    // Each with the number of its grants.
    let mut working =
        (0..PROCESSES).map(|_| Ok((start(&server)?, 0))).collect::<Result<Vec<_>, Failure>>()?;
    let (mut reported, mut stored) = (BTreeSet::new(), BTreeSet::new());
    let began = Instant::now();
    let mut killed = 0;
    while began.elapsed() < length {
        std::thread::sleep(READ_EVERY);
        stored.extend(runtime.block_on(semaphore.inspect())?.holders.iter().map(|holder| holder.token));
        for (process, grants) in &mut working {
            let before = reported.len();
            reported.extend(process.arrived()?.iter().filter_map(|answer| answer["granted"].as_u64()));
            *grants += reported.len() - before;
        }
        if began.elapsed() > CRASH_EVERY * (killed + 1) {
            killed += 1;
            let (oldest, grants) = working.remove(0);
            if grants == 0 {
                return Err("a process has reported no grant until it was killed".into());
            }
            reported.extend(oldest.crash()?.iter().filter_map(|answer| answer["granted"].as_u64()));
            working.push((start(&server)?, 0));
        }
    }
    stored.extend(runtime.block_on(semaphore.inspect())?.holders.iter().map(|holder| holder.token));
    for (process, _) in working {
        reported.extend(process.crash()?.iter().filter_map(|answer| answer["granted"].as_u64()));
    }
    let all: Vec<f64> = reported.union(&stored).map(|token| *token as f64).collect();
    Ok(Crashed {
        grants: all.len(),
        in_store_alone: stored.difference(&reported).count(),
        killed: killed as usize,
        most: most_in_a_window(&all, WINDOW.as_micros() as f64),
    })
}

fn start(server: &Server) -> Result<Process, Failure> {
    let mut process = PERMITS.start(&server.url(), Duration::ZERO)?;
    let (window, lease) = (WINDOW.as_millis(), LEASE.as_millis());
    process.send(&format!("mix crashes {LIMIT} {window} {lease} {CLIENTS}"))?;
    Ok(process)
}

/// The most grants in any window, by their times in ascending order. A window begins with a grant and ends
/// before the moment that lies its whole length later: grants that are exactly the length apart are never in
/// one window.
pub fn most_in_a_window(times: &[f64], length: f64) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, time) in times.iter().enumerate() {
        while times[first] + length <= *time {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_exactly_a_window_apart_are_allowed() {
        assert_eq!(most_in_a_window(&[0.0, 100.0, 200.0], 100.0), 1);
        assert_eq!(most_in_a_window(&[0.0, 99.0, 199.0], 100.0), 2);
        // Numbers as large as a clock in microseconds stay exact.
        let now = 1_800_000_000_000_000.0;
        assert_eq!(most_in_a_window(&[now, now + 100.0], 100.0), 1);
        assert_eq!(most_in_a_window(&[now, now + 99.0], 100.0), 2);
    }

    #[test]
    fn a_window_may_begin_with_any_grant() {
        // Two in a window that begins with the first, three in one that begins later.
        assert_eq!(most_in_a_window(&[0.0, 90.0, 110.0, 189.0], 100.0), 3);
        assert_eq!(most_in_a_window(&[5.0, 5.0, 5.0], 100.0), 3);
        assert_eq!(most_in_a_window(&[], 100.0), 0);
    }
}
