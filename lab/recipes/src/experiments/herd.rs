//! The cost of many waiters: requests, the server's time, and the grants meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use permits_bench::Failure;

use super::Fixture;
use super::cost::{requests, server_cpu};
use crate::{Kind, Process, Role};

/// The processes of the waiters.
const PROCESSES: usize = 10;

/// The limit, and the time for which each holds.
const LIMIT: u32 = 4;
const HELD: Duration = Duration::from_millis(1);

/// The figures of a herd.
#[derive(Clone, Copy, Debug)]
pub struct Herd {
    /// Requests to the server for each grant; infinitely many if there was none. A script, a transaction, a
    /// blocking command is one.
    pub requests_per_grant: f64,
    /// The server's processor time for each grant, in microseconds.
    pub server_us_per_grant: f64,
    /// Grants a second.
    pub grants_per_second: f64,
}

/// `waiters` clients in ten processes take turns for four places for `during`, and retry every 10 ms where
/// the recipe has no waiting.
///
/// # Errors
/// If a client fails.
pub async fn waiters(
    fixture: &Fixture,
    kind: Kind,
    waiters: usize,
    during: Duration,
) -> Result<Herd, Failure> {
    let mut semaphore = fixture.semaphore(kind);
    (semaphore.limit, semaphore.lease) = (LIMIT, Duration::from_secs(10));
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(&semaphore, &fixture.server.url(), Role::default()).await?);
    }
    let grants = Arc::new(AtomicU64::new(0));
    let mut running = tokio::task::JoinSet::new();
    for number in 0..waiters {
        let mut user = processes[number % PROCESSES].client().await?;
        let grants = grants.clone();
        running.spawn(async move {
            loop {
                user.acquire().await?;
                grants.fetch_add(1, SeqCst);
                tokio::time::sleep(HELD).await;
                user.release().await?;
            }
        });
    }
    // Wait until all have tried.
    tokio::time::sleep(during / 4).await;
    let look = || (grants.load(SeqCst), requests(fixture, &semaphore), server_cpu(fixture), Instant::now());
    let before = look();
    tokio::time::sleep(during).await;
    let after = look();
    running.abort_all();
    while let Some(ended) = running.join_next().await {
        // The clients run until they are stopped. A client that ends by itself has failed.
        if let Ok(Err::<(), Failure>(error)) = ended {
            return Err(error);
        }
    }
    // A measurement without a grant is a result, too: then a grant costs infinitely much.
    let granted = (after.0 - before.0) as f64;
    Ok(Herd {
        requests_per_grant: (after.1 - before.1) as f64 / granted,
        server_us_per_grant: (after.2 - before.2) * 1e6 / granted,
        grants_per_second: granted / (after.3 - before.3).as_secs_f64(),
    })
}
