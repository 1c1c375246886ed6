//! Observation: the events, spans and metrics of programs that use the library, beside the tables of
//! `docs/reference/metrics.md`.
//!
//! A process has one subscriber and one recorder, so the tests share them, and run one after the other where
//! one disturbs another.

mod collector;
mod events;
mod metering;
mod page;
mod recorder;
mod spans;

use std::time::Duration;

use permits::{AcquireOptions, Client, ClientBuilder, Recovery, Semaphore};
use permits_testkit::sound::Succeeds as _;
use permits_testkit::wait::in_time;

/// A client of a store that has just started, and has forgotten nothing.
fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).recovery(Recovery::Off)
}

async fn connect(url: &str) -> Client {
    in_time(builder(url).connect()).succeeds().await
}

fn timeout(milliseconds: u64) -> AcquireOptions {
    AcquireOptions::new().timeout(Duration::from_millis(milliseconds))
}

/// Waits until the queue has as many waiters.
async fn queued(semaphore: &Semaphore, waiting: u64) {
    in_time(async {
        while semaphore.inspect().succeeds().await.waiting != waiting {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
