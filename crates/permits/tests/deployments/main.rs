//! Where servers really run: clusters, sentinels, replicas, TLS. Each test has real processes of its own.
//!
//! That the semaphore does in a cluster all that it does elsewhere is shown by the conformance suite; here is what
//! only such deployments do to it.

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
use permits_testkit::Server;
use permits_testkit::history::{Recorder, merge, record, replay};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// More than anything here should take on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// A client of a store that has just started, and remembers all there was.
fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).recovery(Recovery::Off)
}

async fn connect(url: &str) -> Client {
    builder(url).connect().await.expect("the store is up")
}

/// Listens to what all these servers do for clients that connect from now on.
fn listen(servers: &[Server]) -> Vec<Recorder> {
    record();
    servers.iter().map(Recorder::listen).collect()
}

/// What the servers did, each after the other, is what the model does; and in the end nobody holds or waits. Returns
/// how many of the commands that were answered a failover has lost: replicas lag.
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
    timeout(LIMIT, future).await.expect("it does not hang")
}

/// Stands in line, and has been seen there.
async fn in_line(semaphore: &Semaphore, holder: &str) -> JoinHandle<Result<Permit, AcquireError>> {
    let (asking, options) = (semaphore.clone(), AcquireOptions::new().holder(holder));
    let waiter = tokio::spawn(async move { asking.acquire_with(options).await });
    let seen = async {
        loop {
            let seen = semaphore.inspect().await.expect("the store is up");
            if seen.waiters.iter().any(|waiter| waiter.holder == holder) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(seen).await;
    waiter
}

/// The permit of somebody in line.
async fn granted(waiter: JoinHandle<Result<Permit, AcquireError>>) -> Permit {
    in_time(waiter).await.expect("it does not panic").expect("it is granted")
}

/// At rest: nothing is held, nobody waits.
async fn is_at_rest(semaphore: &Semaphore) {
    let rest = async {
        loop {
            let seen = semaphore.inspect().await.expect("the store is up");
            if (seen.held, seen.waiting) == (0, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(rest).await;
}
