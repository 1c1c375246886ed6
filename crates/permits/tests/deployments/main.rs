//! Deployments of servers: clusters, sentinels, replicas, TLS. Each test starts real processes of its own.
//!
//! The conformance suite shows that a semaphore in a cluster behaves as elsewhere. Here are the faults that
//! only such deployments have.

mod cluster;
mod credentials;
#[path = "../../../permits-redis/tests/support/packed.rs"]
mod packed;
mod replicas;
mod sentinels;
mod tls;
mod urls;
mod waiting;

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, ClientBuilder, Permit, Recovery, RenewError, Semaphore};
use permits_testkit::sound::Succeeds as _;
use permits_testkit::wait::in_time;
use tokio::task::JoinHandle;

/// A client of a store that has just started, and has forgotten nothing.
fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).recovery(Recovery::Off)
}

async fn connect(url: &str) -> Client {
    builder(url).connect().succeeds().await
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
            assert!(!waiter.is_finished(), "it does not wait");
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

/// Renews until the store replies, and fails if it replies that the permit is lost.
async fn renewed(permit: &Permit) {
    let renewing = async {
        loop {
            match permit.renew().await {
                Ok(()) => return,
                Err(RenewError::Store(error)) if error.is_temporary() => {}
                Err(error) => panic!("{error:?}; {:?}", permit.lost_within(Duration::ZERO)),
            }
        }
    };
    in_time(renewing).await;
}

/// Fails, with what it ended with, if the waiter does not wait any more.
async fn still_waits(
    waiter: JoinHandle<Result<Permit, AcquireError>>,
) -> JoinHandle<Result<Permit, AcquireError>> {
    if waiter.is_finished() {
        panic!("it must wait, and ended with {:?}", waiter.await);
    }
    waiter
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
