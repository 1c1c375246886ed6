//! Deployments of servers: clusters, sentinels, replicas, TLS. Each test starts real processes of its own.
//!
//! The conformance suite shows that a semaphore in a cluster behaves as elsewhere. Here are the faults that
//! only such deployments have.

mod cluster;
#[path = "../support/packed.rs"]
mod packed;
mod replicas;
mod sentinels;
mod tls;
mod urls;
mod waiting;

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, ClientBuilder, Permit, Recovery, Semaphore};
use permits_testkit::history::{Recorder, merge, record, replay};
use permits_testkit::sound::Succeeds as _;
use permits_testkit::{HANGS, Server};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A client of a store that has just started, and has forgotten nothing.
fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).recovery(Recovery::Off)
}

async fn connect(url: &str) -> Client {
    builder(url).connect().succeeds().await
}

/// Records the commands of clients that connect from now on, on all these servers.
fn record_all(servers: &[Server]) -> Vec<Recorder> {
    record();
    servers.iter().map(Recorder::listen).collect()
}

/// Demands that the servers, one after the other, did the same as the model, and that in the end nothing is
/// held or waits. Returns the number of commands that were answered and then lost by a failover, because
/// replicas lag.
#[track_caller]
fn replayed(recorders: &[Recorder]) -> u64 {
    let records = merge(recorders.iter().map(Recorder::records));
    let replayed = replay(&records).unwrap_or_else(|violation| panic!("{violation}"));
    replayed.check_at_rest().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(replayed.losses.iter().all(|loss| loss.restarted), "{:?}", replayed.losses);
    let servers: std::collections::BTreeSet<&str> = records.iter().map(|record| &*record.run_id).collect();
    assert!(servers.len() > 1, "all {} commands were executed by one server", records.len());
    eprintln!("{} commands of {} servers, {:?}", records.len(), servers.len(), replayed.losses);
    replayed.losses.iter().map(|loss| loss.from - loss.to).sum()
}

/// Fails instead of hanging.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(HANGS, future).await.expect("it does not hang")
}

/// Starts a waiter, and waits until it is in the queue.
async fn in_line(semaphore: &Semaphore, holder: &str) -> JoinHandle<Result<Permit, AcquireError>> {
    let (asking, options) = (semaphore.clone(), AcquireOptions::new().holder(holder));
    let waiter = tokio::spawn(async move { asking.acquire_with(options).await });
    let seen = async {
        loop {
            let seen = semaphore.inspect().succeeds().await;
            if seen.waiters.iter().any(|waiter| waiter.holder == holder) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(seen).await;
    waiter
}

/// The permit of a waiter.
async fn granted(waiter: JoinHandle<Result<Permit, AcquireError>>) -> Permit {
    in_time(waiter).await.expect("it does not panic").expect("it is granted")
}

/// Waits until nothing is held, and nothing waits.
async fn is_at_rest(semaphore: &Semaphore) {
    until(semaphore, 0, 0).await;
}

/// Waits until `held` units are held, and `waiting` requests wait.
async fn until(semaphore: &Semaphore, held: u64, waiting: u64) {
    let reached = async {
        loop {
            let seen = semaphore.inspect().succeeds().await;
            if (seen.held, seen.waiting) == (held, waiting) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(reached).await;
}
