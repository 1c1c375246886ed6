//! The situations of an operator on the pages, most of them of the runbook.

use std::time::Duration;

use crate::support::prepare;
use crate::world::World;

pub(super) fn all_held(world: &mut World) {
    world.job("--limit 2 --holder web-1");
    world.job("--limit 2 --holder web-2 --label nightly");
    world.job("--limit 2 --holder web-3");
}

pub(super) fn paused(world: &mut World) {
    world.job("--limit 2 --holder web-1");
    world.run("permits pause exports --by dana@ops");
    world.job("--limit 2 --holder web-2");
}

pub(super) fn closed(world: &mut World) {
    world.run("permits close exports --by dana@ops --reason 'moved to exports-2'");
}

pub(super) fn pinned_low(world: &mut World) {
    world.job("--limit 4 --holder web-1");
    world.run("permits limit exports 1 --by dana@ops");
    world.job("--limit 4 --holder web-2");
}

/// The window of `strict` is as long as the longest lease.
pub(super) fn recovering(world: &mut World) {
    world.job("--limit 2 --holder web-1 --recovery strict");
    world.kill_server();
    world.restart();
    world.until_counts((1, 0));
    world.job("--limit 2 --holder web-2 --recovery strict");
}

pub(super) fn heavy_request(world: &mut World) {
    for holder in ["web-1", "web-2", "web-3"] {
        world.job(&format!("--limit 4 --holder {holder}"));
    }
    world.job("--limit 4 --weight 4 --holder report");
    world.job("--limit 4 --holder web-4");
}

pub(super) fn hanging_holder(world: &mut World) {
    let hanging = world.job("--limit 1 --label nightly");
    world.is_process(hanging, "3456");
    world.job("--limit 1 --holder web-2");
}

pub(super) fn cooling(world: &mut World) {
    world.run("permits run exports --limit 1 --at-least 10m --holder import-7 --label import true");
    world.job("--limit 1 --holder web-2");
}

/// A program that keeps its permit after its work.
pub(super) fn kept(world: &mut World) {
    world.keep("api");
}

pub(super) fn another_prefix(world: &mut World) {
    world.run("permits limit exports 4 --declare --prefix team-a");
    world.run("permits delete exports; permits limit export 4 --declare");
}

pub(super) fn declared_otherwise(world: &mut World) {
    world.job("--limit 4 --holder web-1 2>web-1.log");
    world.job("--limit 1 --holder web-2 2>web-2.log");
}

pub(super) fn long_waits(world: &mut World) {
    world.job("--limit 1 --holder web-1");
    world.job("--limit 1 --holder web-2");
    world.job("--limit 1 --holder web-3");
}

pub(super) fn many_requests_of_one_client(world: &mut World) {
    world.job("--limit 1 --label web");
    for label in ["import", "import", "import", "web"] {
        world.job(&format!("--limit 1 --label {label}"));
    }
}

/// A program that was suspended for longer than its lease.
pub(super) fn lost(world: &mut World) {
    let stopped = world.job("--limit 1 --lease 2s --holder web-1 2>web-1.log");
    world.pause(stopped);
    // Granted when the lease has ended.
    world.job("--limit 1 --holder web-2 2>web-2.log");
    world.until_counts((1, 0));
    world.resume(stopped);
}

/// A server without faults.
pub(super) fn healthy_store(_: &mut World) {}

pub(super) fn store_down(world: &mut World) {
    world.job("--limit 1 --holder web-1");
    world.kill_server();
}

pub(super) fn store_slow(world: &mut World) {
    // The server executes its commands as fast as ever.
    world.run("redis-cli -u $PERMITS_URL CONFIG SET slowlog-log-slower-than -1");
    world.run("redis-cli -u $PERMITS_URL SLOWLOG RESET");
    world.delay(Duration::from_millis(400));
}

pub(super) fn failover(world: &mut World) {
    world.use_sentinels();
    world.job("--limit 1 --holder web-1");
    world.fail_over();
}

pub(super) fn memory_full(world: &mut World) {
    world.job("--limit 2 --holder web-1");
    world.run("redis-cli -u $PERMITS_URL CONFIG SET maxmemory 1");
}

pub(super) fn evicting(world: &mut World) {
    world.run("redis-cli -u $PERMITS_URL CONFIG SET maxmemory 100mb");
    world.run("redis-cli -u $PERMITS_URL CONFIG SET maxmemory-policy allkeys-lru");
}

pub(super) fn everything_deleted(world: &mut World) {
    world.job("--limit 2 --holder web-1");
    world.run("redis-cli -u $PERMITS_URL FLUSHALL");
}

pub(super) fn revoked(world: &mut World) {
    world.job("--limit 1 --holder web-1 2>web-1.log");
    world.job("--limit 1 --holder web-2");
}

/// The page has an address at which nothing listens any more.
pub(super) fn serve_down(world: &mut World) {
    let server = world.serve("");
    world.end(server);
}

pub(super) fn store_of_serve_down(world: &mut World) {
    world.serve("--interval 100ms");
    world.kill_server();
}

pub(super) fn many_semaphores(world: &mut World) {
    world.run("for n in 1 2 3; do permits limit job-$n 1 --declare; done");
    world.serve("--interval 100ms --max-semaphores 2");
}

pub(super) fn unreadable(world: &mut World) {
    world.run("redis-cli -u $PERMITS_URL HSET 'permits:{reports}:state' \"$(printf '\\tstate')\" abc");
}

pub(super) fn old_metrics(world: &mut World) {
    world.run("echo permits_store_scrape_timestamp_seconds 1795370313.823 >permits.prom");
    world.serve("");
}

pub(super) fn nightly_held(world: &mut World) {
    prepare(world, "nightly");
    world.request("permits run nightly --limit 1 --label 'alice: backup.sh' sleep 1000");
    world.run("printf '#!/bin/sh\n' >backup.sh; chmod +x backup.sh");
}

pub(super) fn two_tenants(world: &mut World) {
    prepare(world, "api/tenant-1");
    world.request("permits run api/tenant-1 --limit 10 --weight 4 sleep 1000");
    world.run("permits limit api/tenant-2 10 --declare");
}
