//! The fault matrix: a row for each kind of fault, run against real servers with ten worker processes.
//!
//! A [`Cell`] is a row with a limit, for some time, with a store and workers of its own. Faults follow each
//! other, and the workers report their events. When the cell is over, its history is
//! [verified](verdict::Verdict) from outside, by the one clock of this host, and the writes that the fenced
//! resource accepted with it. At the end nothing may be left behind.
//!
//! The test suite `faults` of `permits` runs each row that needs one server for two seconds, and `scripts/lab
//! faults` every row for a minute, with several limits.

mod fixture;
mod groups;
mod queue_watch;
mod single;
mod verdict;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::wait::HANGS;
use permits::Client;
use permits::{AcquireError, AcquireOptions};

use self::fixture::{Deployment, Fixture, Workers};
use self::queue_watch::QueueWatch;
pub use self::verdict::{Excess, Verdict};
use crate::driver::Subject;
use crate::history::{ClientEvent, History, now};
use crate::mutants::Split;
use crate::wait;
use crate::worker::{SEMAPHORE, USED};

/// The least time between two faults, so that workers acquire in between.
const LEAST_GAP: Duration = Duration::from_millis(500);

/// The other semaphore of a set. Sets acquire it first.
const OTHER: &str = "faults/other";

/// A kind of fault.
pub struct Row {
    /// The name by which the row is chosen.
    pub name: &'static str,
    /// The fault, in some words.
    pub fault: &'static str,
    /// The promises of the row.
    pub promise: Promise,
    deployment: fn() -> Deployment,
    inject: fn(&mut Fixture) -> Fault,
}

/// The promises of a row, besides those that every row keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// P2: never more than the limit. Otherwise the excess is measured.
    pub bound: bool,
    /// P6 throughout, and no permit is lost: the store forgets nothing, and no client is away for longer than
    /// the lease.
    pub order: bool,
    /// Every acquisition succeeds in the end, unless it was given up.
    success: bool,
    /// Half of the workers keep permits, and no request waits for longer than this.
    pub keep: Option<Duration>,
    /// The lanes that the requests are divided among; 0: none.
    lanes: u32,
    /// The limit of each lane; 0: none.
    lane_limit: u32,
    /// The floor of every second lane; 0: none.
    lane_floor: u32,
    /// Workers acquire this semaphore and [`OTHER`] at once, or one of them.
    sets: bool,
}

/// The queue may break, because a client is away for longer than the lease.
const BOUND: Promise = Promise {
    bound: true,
    order: false,
    success: true,
    keep: None,
    lanes: 0,
    lane_limit: 0,
    lane_floor: 0,
    sets: false,
};

/// Everything holds, and no connected client loses a permit.
const ALL: Promise = Promise { order: true, ..BOUND };

/// The store loses state, and the excess is measured.
const MEASURED: Promise = Promise { bound: false, ..BOUND };

/// Requests may be refused.
const REFUSING: Promise = Promise { success: false, ..BOUND };

/// Requests may be refused, and everything else holds.
const REFUSING_IN_ORDER: Promise = Promise { success: false, ..ALL };

/// Units that workers keep are free after a lease at the latest. The rest of the wait is for the work in
/// progress, on a busy machine.
const KEEPING: Promise = Promise { keep: Some(Duration::from_secs(10)), ..BOUND };

/// The store loses state, and is away for a while: a failover takes as long as several leases.
const KEEPING_LOSING: Promise = Promise { keep: Some(Duration::from_secs(20)), ..BOUND };

/// As [`ALL`], but the order is judged within each lane, a lane holds at most 2 units, and every second one
/// has a floor.
const ALL_IN_LANES: Promise = Promise { lanes: 4, lane_limit: 2, lane_floor: 1, ..ALL };

/// As [`ALL`], of two semaphores.
const ALL_IN_SETS: Promise = Promise { sets: true, ..ALL };

/// As [`KEEPING_LOSING`], with more lanes than workers.
const KEEPING_LOSING_IN_LANES: Promise = Promise { lanes: 20, ..KEEPING_LOSING };

/// A fault that was injected.
struct Fault {
    /// The time from which recovery is measured: the end of the fault; for a fault without an end, its
    /// beginning.
    over: u64,
    /// The number of its effects. A row in which this is 0 throughout has shown nothing.
    effects: usize,
}

impl Row {
    /// Says why a driver with these lines and options cannot run this row; `None` if it can.
    pub fn outside(&self, has: &BTreeSet<String>) -> Option<String> {
        let Promise { keep, lanes, sets, .. } = self.promise;
        if keep.is_some() {
            return Some("drivers keep no permits".to_owned());
        }
        if self.name == "client-fork" {
            return Some("drivers do not fork".to_owned());
        }
        let in_lanes: &[&str] = if lanes > 0 { &["lane", "share", "lane_limit", "lane_floor"] } else { &[] };
        let in_sets: &[&str] = if sets { &["also"] } else { &[] };
        let all = [&USED, in_lanes, in_sets].concat();
        let missing: Vec<&str> = all.into_iter().filter(|field| !has.contains(*field)).collect();
        (!missing.is_empty()).then(|| format!("the driver is without {}", missing.join(", ")))
    }
}

/// All rows.
pub const ROWS: [Row; 35] = [
    row("client-kill", "clients killed, holding or waiting", Deployment::server, single::client_kill, ALL),
    row(
        "lanes-client-kill",
        "the same, in lanes with limits",
        Deployment::server,
        single::client_kill,
        ALL_IN_LANES,
    ),
    row("sets-client-kill", "the same, with sets", Deployment::server, single::client_kill, ALL_IN_SETS),
    row("client-pause", "clients paused beyond the lease", Deployment::server, single::client_pause, BOUND),
    row("client-fork", "clients forked while they hold", Deployment::server, single::client_fork, ALL),
    row(
        "operator",
        "limit lowered, grants paused, line closed",
        Deployment::server,
        single::operator,
        REFUSING_IN_ORDER,
    ),
    row("reply-lost", "connections cut before the reply", proxied, single::reply_lost, BOUND),
    row("reply-late", "replies delayed beyond the lease", proxied, single::reply_late, BOUND),
    row("partition", "clients cut off, both ways", proxied, single::partition, BOUND),
    row("wakeup-cut", "wake-up connections killed", Deployment::server, single::wakeup_cut, ALL),
    row("server-pause", "server paused beyond the lease", Deployment::server, single::server_pause, BOUND),
    row("restart-aof", "server killed, append-only file, fsync everysec", everysec, single::restart, BOUND),
    row("restart-always", "server killed, append-only file, fsync always", always, single::restart, BOUND),
    row("restart-empty", "server killed, nothing on disk", Deployment::server, single::restart, BOUND),
    row("flushall", "FLUSHALL: excess measured", Deployment::server, single::flushall, MEASURED),
    row(
        "keys-vanish",
        "some of the semaphore's keys deleted: excess measured",
        Deployment::server,
        single::keys_vanish,
        MEASURED,
    ),
    row("script-flush", "SCRIPT FLUSH", Deployment::server, single::script_flush, ALL),
    row("oom", "memory full, noeviction", Deployment::server, single::oom, REFUSING),
    row("sentinel-kill", "primary killed", groups::watched_careful, groups::sentinel_kill, BOUND),
    row("sentinel-pause", "primary paused", groups::watched_careful, groups::sentinel_pause, BOUND),
    row(
        "sentinel-pause-loose",
        "primary paused, without min-replicas-to-write: excess measured",
        groups::watched,
        groups::sentinel_pause,
        MEASURED,
    ),
    row("sentinel-failover", "failover on demand", groups::watched_careful, groups::sentinel_failover, BOUND),
    row(
        "sentinel-split",
        "old primary and half of the clients parted from the rest: excess measured",
        groups::parted_careful,
        groups::sentinel_split,
        MEASURED,
    ),
    row(
        "sentinel-split-loose",
        "the same without min-replicas-to-write: excess measured",
        groups::parted,
        groups::sentinel_split,
        MEASURED,
    ),
    row("cluster-kill", "primary killed", groups::cluster, groups::cluster_kill, BOUND),
    row("cluster-failover", "failover by agreement", groups::cluster, groups::cluster_failover, BOUND),
    row("cluster-migrate", "hash slot moved", groups::cluster_of_primaries, groups::cluster_migrate, BOUND),
    row("keep-recall-lost", "recalls swallowed", proxied, single::recall_lost, KEEPING),
    row("keep-keeper-killed", "keepers killed", Deployment::server, single::keeper_kill, KEEPING),
    row(
        "keep-keeper-stopped",
        "keepers paused beyond the lease",
        Deployment::server,
        single::keeper_pause,
        KEEPING,
    ),
    row(
        "keep-server-restarted",
        "server killed, nothing on disk, while units are kept",
        Deployment::server,
        single::restart,
        KEEPING_LOSING,
    ),
    row(
        "keep-failover",
        "primary killed, while units are kept",
        groups::watched_careful,
        groups::sentinel_kill,
        KEEPING_LOSING,
    ),
    row(
        "keep-lanes-cluster-kill",
        "primary of a cluster killed, while units are kept, with lanes",
        groups::cluster,
        groups::cluster_kill,
        KEEPING_LOSING_IN_LANES,
    ),
    row(
        "keep-lanes-cluster-migrate",
        "hash slot moved, while units are kept, with lanes",
        groups::cluster_of_primaries,
        groups::cluster_migrate,
        Promise { lanes: 20, ..KEEPING },
    ),
    row(
        "mixed",
        "any fault of a single server that loses no keys and forks no client",
        mixed,
        single::mixed,
        REFUSING,
    ),
];

/// A fault that has no row, and the reason.
pub const LEFT_OUT: &str = "\
Left out: client-clock (the wall clock of a client off by an hour). With a Redis store the library reads no wall clock. \
No tool shows that from outside: faketime does not reach the monotonic clock, which the library reads from the kernel; a \
time namespace shifts that clock and not the wall clock; and the clock of the machine is the server's clock, too.";

const fn row(
    name: &'static str,
    fault: &'static str,
    deployment: fn() -> Deployment,
    inject: fn(&mut Fixture) -> Fault,
    promise: Promise,
) -> Row {
    Row { name, fault, deployment, inject, promise }
}

fn proxied() -> Deployment {
    Deployment::server().proxied()
}

fn everysec() -> Deployment {
    Deployment::append_only("everysec")
}

fn always() -> Deployment {
    Deployment::append_only("always")
}

fn mixed() -> Deployment {
    Deployment::append_only("everysec").proxied()
}

/// A row with a limit, for some time.
pub struct Cell {
    /// The row.
    pub row: &'static Row,
    /// The limit of the semaphore.
    pub limit: u32,
    /// The time during which faults are injected.
    pub time: Duration,
    /// The seed of the faults and of the workers. Cells of one seed draw different numbers.
    pub seed: u64,
    /// The command that starts a worker: a program that calls
    /// [`run_if_started`](crate::worker::run_if_started).
    pub worker: fn() -> Command,
    /// A driver, of a client in any language, that the workers use in place of the library.
    pub driver: Option<Subject>,
    /// A mutant of the clients, which the verdict has to find.
    pub mutant: Option<Split>,
    /// Holds are brief, so that much happens.
    pub brief: bool,
}

impl Cell {
    /// Runs the cell. A panic, which is a fault of the harness or of a deployment that did not restart, is
    /// one of the verdict's violations.
    pub fn run(&self) -> Verdict {
        self.run_with_history().0
    }

    /// As [`run`](Self::run), with all that the workers saw; that is empty after a panic.
    pub fn run_with_history(&self) -> (Verdict, History) {
        catch_unwind(AssertUnwindSafe(|| self.attempt())).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
            let violations = vec![format!("harness: {text}")];
            (Verdict { violations, ..Verdict::default() }, History::default())
        })
    }

    fn workers(&self) -> Workers {
        (self.worker, self.driver.clone())
    }

    fn attempt(&self) -> (Verdict, History) {
        let Self { row, limit, .. } = *self;
        let name = row.name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let seed = self.seed ^ name.wrapping_add(u64::from(limit));
        let (prefix, promise) = (self.mutant.map(|mutant| mutant.prefix()), row.promise);
        let mut fixture =
            Fixture::start((row.deployment)(), self.workers(), limit, promise, (self.brief, prefix), seed);
        let watch = row.promise.order.then(|| QueueWatch::start(fixture.server()));
        let mut served = fixture.await_served(0);
        let mut faults = Vec::new();
        let end = Instant::now() + self.time;
        while served.is_ok() && Instant::now() < end {
            // Every 5 to 10 seconds in a minute, and in proportion in less.
            let gap = fixture.millis(5000..10_000).mul_f64(self.time.as_secs_f64().min(60.0) / 60.0);
            sleep(gap.max(LEAST_GAP));
            fixture.pool.history().note(0, "-", ClientEvent::Fault(row.name.to_owned()));
            faults.push((row.inject)(&mut fixture));
        }
        let calm = now();
        served = served.and_then(|()| fixture.await_served(calm));
        let all_served = now() - calm;
        served = served.and_then(|()| fixture.await_kept(calm));
        let closed = fixture.pool.close(std::mem::take(&mut fixture.workers));
        let mut history = std::mem::take(&mut *fixture.pool.history());
        history.events.extend(watch.into_iter().flat_map(QueueWatch::stop));
        history.events.sort_by_key(|(_, record)| record.at);

        let mut verdict = Verdict::of(&history, row.promise, limit, &faults);
        verdict.violations.extend(fixture.pool.complaints());
        verdict.check_writes(fixture.fence.resource(), &history);
        verdict.served = served.is_ok().then(|| Duration::from_micros(all_served));
        verdict.note(served.map_err(|reason| format!("liveness: {reason}")));
        verdict.note(closed.map(drop).map_err(|reason| format!("end: {reason}")));
        verdict.note(at_rest(&fixture.deployment.url(0), limit).map_err(|reason| format!("P10: {reason}")));
        (verdict, history)
    }
}

/// P10: the semaphore of the workers is idle, and all units and slots can be had.
///
/// # Errors
///
/// An error says what is left, or which operation failed.
pub fn at_rest(url: &str, limit: u32) -> Result<(), String> {
    let client = Client::connect(url).wait().map_err(|error| error.to_string())?;
    let semaphore = client.semaphore(SEMAPHORE, limit).expect("valid");
    let mut left = Err("the semaphore was not inspected".to_owned());
    wait::until(|| {
        left = match semaphore.inspect().wait() {
            Ok(seen) if (seen.held, seen.waiting) == (0, 0) => Ok(()),
            Ok(seen) => Err(format!("{} held, {} waiting", seen.held, seen.waiting)),
            Err(error) => Err(error.to_string()),
        };
        left.is_ok()
    });
    left?;
    let refused = |error: AcquireError| format!("not all units can be had: {error}");
    let options = AcquireOptions::new().weight(limit).timeout(HANGS);
    let all = semaphore.acquire_with(options).wait().map_err(refused)?;
    if all.slot() != 0 {
        return Err(format!("the only holder has slot {}", all.slot()));
    }
    all.release().wait().map_err(|error| error.to_string())?;
    let each: Result<Vec<_>, _> = (0..limit).map(|_| semaphore.try_acquire().wait()).collect();
    let mut slots: Vec<u32> = each.map_err(refused)?.iter().map(|permit| permit.slot()).collect();
    slots.sort_unstable();
    if slots != (0..limit).collect::<Vec<u32>>() {
        return Err(format!("the slots are {slots:?}"));
    }
    client.close().wait().map_err(|error| error.to_string())
}
