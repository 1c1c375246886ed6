//! What goes wrong where many servers belong together: failovers, and slots that move.
//!
//! Each fault ends when all servers are back and agree, so that the next one finds a whole deployment.

use std::thread::sleep;
use std::time::Duration;

use permits_testkit::history::now;
use permits_testkit::{Cluster, Sentinels};

use super::stage::{Fault, Place, Stage};

/// A primary, two replicas and three sentinels.
pub(crate) fn watched() -> Place {
    Place::Sentinels(Sentinels::start())
}

/// The same; the primary writes only while a replica listens.
pub(crate) fn watched_careful() -> Place {
    Place::Sentinels(Sentinels::builder().min_replicas_to_write(1).start())
}

/// As [`watched`]; not all workers know the same sentinels.
pub(crate) fn parted() -> Place {
    Place::Parted(Sentinels::start())
}

/// As [`watched_careful`]; not all workers know the same sentinels.
pub(crate) fn parted_careful() -> Place {
    Place::Parted(Sentinels::builder().min_replicas_to_write(1).start())
}

/// Three primaries, each with a replica.
pub(crate) fn cluster() -> Place {
    Place::Cluster(Cluster::start())
}

/// Three primaries without replicas.
pub(crate) fn cluster_of_primaries() -> Place {
    Place::Cluster(Cluster::builder().replicas(0).start())
}

/// Kills the primary; it comes back as a replica when another has taken over.
pub(crate) fn sentinel_kill(stage: &mut Stage) -> Fault {
    let set = stage.sentinels();
    let old = set.primary();
    let over = now();
    set.servers()[old].kill();
    set.wait_for_switch(old);
    set.servers()[old].restart();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Freezes the primary; it goes on, taking itself for the primary still, when another has taken over.
pub(crate) fn sentinel_pause(stage: &mut Stage) -> Fault {
    let more = stage.millis(0..1000);
    let set = stage.sentinels();
    let old = set.primary();
    let over = now();
    set.servers()[old].pause();
    set.wait_for_switch(old);
    sleep(more);
    set.servers()[old].resume();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Has the sentinels replace a primary that is well.
pub(crate) fn sentinel_failover(stage: &mut Stage) -> Fault {
    let set = stage.sentinels();
    let over = now();
    set.failover();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Parts the old primary, and those workers that only know a sentinel which is away, from all others: these go on
/// with a new primary, those with the old one, until the two sides meet again.
pub(crate) fn sentinel_split(stage: &mut Stage) -> Fault {
    let apart = stage.millis(3000..6000);
    let set = stage.sentinels();
    let old = set.primary();
    let over = now();
    set.sentinels()[0].kill();
    // The others cannot tell the old primary that it is a replica now, as if they could not reach it.
    let server = &set.servers()[old];
    server.command(&["ACL", "SETUSER", "default", "-replicaof", "-slaveof"]);
    set.failover();
    sleep(apart);
    server.command(&["ACL", "SETUSER", "default", "+@all"]);
    set.sentinels()[0].restart();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Kills the primary of the semaphore's slot; it comes back as a replica when that has taken over.
pub(crate) fn cluster_kill(stage: &mut Stage) -> Fault {
    let cluster = stage.cluster();
    let old = cluster.primary_of(Stage::slot());
    let over = now();
    cluster.nodes()[old].kill();
    cluster.wait_for_new_primary(Stage::slot(), old);
    cluster.nodes()[old].restart();
    cluster.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Has the replica of the semaphore's slot take over from a primary that is well.
pub(crate) fn cluster_failover(stage: &mut Stage) -> Fault {
    let cluster = stage.cluster();
    let over = now();
    cluster.failover(cluster.primary_of(Stage::slot()));
    cluster.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Moves the semaphore's slot to another node, key by key.
pub(crate) fn cluster_migrate(stage: &mut Stage) -> Fault {
    let (step, pause) = (stage.random.usize(1..3), stage.millis(0..150));
    let others = stage.random.usize(1..stage.cluster().nodes().len());
    let cluster = stage.cluster();
    let from = cluster.primary_of(Stage::slot());
    let migration = cluster.begin_migration(Stage::slot(), (from + others) % cluster.nodes().len());
    let mut moved = 0;
    // The semaphore has five keys: it is in two places for a while.
    while moved < 5 && migration.move_keys(step) > 0 {
        moved += step;
        sleep(pause.max(Duration::from_millis(1)));
    }
    migration.finish();
    Fault::over_now(1)
}
