//! The rows of the fault matrix: where the semaphore lives, what goes wrong, and what is promised then.

use super::stage::{Fault, Place, Stage};
use super::{groups, single};

/// A row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) place: fn() -> Place,
    pub(crate) fault: fn(&mut Stage) -> Fault,
    pub(crate) promise: Promise,
}

/// What a row is judged by, besides what holds always.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    /// P2: never more than the limit. Otherwise the excess is measured.
    pub(crate) bound: bool,
    /// P6 throughout: the store forgets nobody in line, and nobody is away for longer than the lease.
    pub(crate) order: bool,
    /// Every acquisition succeeds in the end, unless it was given up.
    pub(crate) success: bool,
}

/// The line may break: somebody is away for longer than the lease, or the store forgets.
const BOUND: Promise = Promise { bound: true, order: false, success: true };

/// Everything holds.
const ALL: Promise = Promise { order: true, ..BOUND };

/// The excess is measured.
const MEASURED: Promise = Promise { bound: false, ..BOUND };

/// Acquiring may be refused.
const REFUSING: Promise = Promise { success: false, ..BOUND };

/// All rows.
pub(crate) const ROWS: [Row; 25] = [
    row("client-kill", "clients killed, holding or in line", Place::server, single::client_kill, ALL),
    row("client-pause", "clients paused beyond the lease", Place::server, single::client_pause, BOUND),
    row("client-fork", "clients forked, with all that they hold", Place::server, single::client_fork, ALL),
    row("reply-lost", "connections cut before the reply", proxied, single::reply_lost, BOUND),
    row("reply-late", "replies delayed beyond the lease", proxied, single::reply_late, BOUND),
    row("partition", "clients cut off, both ways", proxied, single::partition, BOUND),
    row("wakeup-cut", "wake-up connections killed", Place::server, single::wakeup_cut, ALL),
    row("server-pause", "server paused beyond the lease", Place::server, single::server_pause, BOUND),
    row("restart-aof", "server killed, append-only file, fsync everysec", everysec, single::restart, BOUND),
    row("restart-always", "server killed, append-only file, fsync always", always, single::restart, BOUND),
    row("restart-empty", "server killed, nothing on disk", Place::server, single::restart, BOUND),
    row("flushall", "FLUSHALL: excess measured", Place::server, single::flushall, MEASURED),
    row(
        "keys-vanish",
        "some of the five keys deleted: excess measured",
        Place::server,
        single::keys_vanish,
        MEASURED,
    ),
    row("script-flush", "SCRIPT FLUSH", Place::server, single::script_flush, ALL),
    row("oom", "memory full, noeviction", Place::server, single::oom, REFUSING),
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
    row("cluster-migrate", "slot moved", groups::cluster_of_primaries, groups::cluster_migrate, BOUND),
    row(
        "mixed",
        "any of those for a single server that lose no keys and fork no client",
        mixed_place,
        single::mixed,
        REFUSING,
    ),
];

const fn row(
    name: &'static str,
    what: &'static str,
    place: fn() -> Place,
    fault: fn(&mut Stage) -> Fault,
    promise: Promise,
) -> Row {
    Row { name, what, place, fault, promise }
}

/// What cannot be run here, and why.
pub(crate) const LEFT_OUT: &str = "\
Left out: client-clock (a client's wall clock off by an hour). With a Redis store the library reads no wall clock, so \
there is nothing to go wrong; and there is no way to show that from outside: it asks the kernel for the monotonic clock \
directly, which faketime does not see, a time namespace shifts that clock but not the wall clock, and setting the \
machine's clock would shift the server's too.";

fn proxied() -> Place {
    Place::server().proxied()
}

fn everysec() -> Place {
    Place::append_only("everysec")
}

fn always() -> Place {
    Place::append_only("always")
}

fn mixed_place() -> Place {
    Place::append_only("everysec").proxied()
}
