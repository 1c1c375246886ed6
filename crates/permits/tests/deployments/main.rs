//! Where servers really run: clusters, sentinels, replicas, TLS. Each test has real processes of its own.
//!
//! That the semaphore does in a cluster all that it does elsewhere is shown by the conformance suite; here is what
//! only such deployments do to it.

mod cluster;
mod replicas;
mod sentinels;
mod tls;

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, ClientBuilder, Permit, Recovery, Semaphore};
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
