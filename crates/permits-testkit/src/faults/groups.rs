//! Faults of deployments of many servers: failovers, and hash slots that move.
//!
//! Each fault ends when all servers are back and agree, so that the next one finds a whole deployment.

use std::thread::sleep;
use std::time::Duration;

use crate::history::now;
use crate::{Cluster, Sentinels};

use super::Fault;
use super::fixture::{Deployment, Fixture};

/// A primary, two replicas and three sentinels.
pub(super) fn watched() -> Deployment {
    Deployment::Sentinels(Sentinels::start())
}

/// A primary that accepts writes only while a replica is connected, two replicas and three sentinels.
pub(super) fn watched_careful() -> Deployment {
    Deployment::Sentinels(Sentinels::builder().min_replicas_to_write(1).start())
}

/// As [`watched`]; not all workers know the same sentinels.
pub(super) fn parted() -> Deployment {
    Deployment::Parted(Sentinels::start())
}

/// As [`watched_careful`]; not all workers know the same sentinels.
pub(super) fn parted_careful() -> Deployment {
    Deployment::Parted(Sentinels::builder().min_replicas_to_write(1).start())
}

/// Three primaries, each with a replica.
pub(super) fn cluster() -> Deployment {
    Deployment::Cluster(Cluster::start())
}

/// Three primaries without replicas.
pub(super) fn cluster_of_primaries() -> Deployment {
    Deployment::Cluster(Cluster::builder().replicas(0).start())
}

/// Kills the primary; it restarts as a replica when another has taken over.
pub(super) fn sentinel_kill(fixture: &mut Fixture) -> Fault {
    let set = fixture.sentinels();
    let old = set.primary();
    let over = now();
    set.servers()[old].kill();
    set.wait_for_switch(old);
    set.servers()[old].restart();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Freezes the primary, and lets it continue as a primary when another has taken over.
pub(super) fn sentinel_pause(fixture: &mut Fixture) -> Fault {
    let more = fixture.millis(0..1000);
    let set = fixture.sentinels();
    let old = set.primary();
    let over = now();
    set.servers()[old].pause();
    set.wait_for_switch(old);
    sleep(more);
    set.servers()[old].resume();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Has the sentinels replace a healthy primary.
pub(super) fn sentinel_failover(fixture: &mut Fixture) -> Fault {
    let set = fixture.sentinels();
    let over = now();
    set.failover();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Parts the old primary, and the workers that know only a stopped sentinel, from all others. One side
/// continues with the old primary, the other with a new one, until the two sides meet again.
pub(super) fn sentinel_split(fixture: &mut Fixture) -> Fault {
    let apart = fixture.millis(3000..6000);
    let set = fixture.sentinels();
    let old = set.primary();
    let over = now();
    set.sentinels()[0].kill();
    // The other sentinels cannot make the old primary a replica, as if they could not reach it.
    let server = &set.servers()[old];
    server.command(&["ACL", "SETUSER", "default", "-replicaof", "-slaveof"]);
    set.failover();
    sleep(apart);
    server.command(&["ACL", "SETUSER", "default", "+@all"]);
    set.sentinels()[0].restart();
    set.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Kills the primary of the semaphore's hash slot; it restarts as a replica when its replica has taken over.
pub(super) fn cluster_kill(fixture: &mut Fixture) -> Fault {
    let cluster = fixture.cluster();
    let old = cluster.primary_of(Fixture::hash_slot());
    let over = now();
    cluster.nodes()[old].kill();
    cluster.wait_for_new_primary(Fixture::hash_slot(), old);
    cluster.nodes()[old].restart();
    cluster.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Has the replica of the semaphore's hash slot take over from a healthy primary.
pub(super) fn cluster_failover(fixture: &mut Fixture) -> Fault {
    let cluster = fixture.cluster();
    let over = now();
    cluster.failover(cluster.primary_of(Fixture::hash_slot()));
    cluster.wait_until_ok();
    Fault { over, effects: 1 }
}

/// Moves the semaphore's hash slot to another node, key by key.
pub(super) fn cluster_migrate(fixture: &mut Fixture) -> Fault {
    let (step, pause) = (fixture.random.usize(1..3), fixture.millis(0..150));
    let others = fixture.random.usize(1..fixture.cluster().nodes().len());
    let cluster = fixture.cluster();
    let from = cluster.primary_of(Fixture::hash_slot());
    let migration = cluster.begin_migration(Fixture::hash_slot(), (from + others) % cluster.nodes().len());
    let mut moved = 0;
    // The semaphore has four keys or five, and is on two nodes for a while.
    while moved < 5 && migration.move_keys(step) > 0 {
        moved += step;
        sleep(pause.max(Duration::from_millis(1)));
    }
    migration.finish();
    Fault::over_now(1)
}
