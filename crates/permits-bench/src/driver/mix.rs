//! Permits that end in every way, for the check of limits for a time under crashes.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, Semaphore};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::answer;
use crate::Failure;

/// Clients with a connection each that end their permits in every way, until this process is killed. Answers
/// with the token of each grant.
pub(super) async fn run(
    url: &str,
    name: &str,
    limit: u32,
    window: Duration,
    lease: Duration,
    count: usize,
) -> Result<Value, Failure> {
    let mut running = JoinSet::new();
    for _ in 0..count {
        let semaphore = Client::connect(url).await?.semaphore(name, limit)?;
        running.spawn(async move {
            loop {
                one(&semaphore, window, lease).await?;
            }
        });
    }
    // A task ends by an error alone.
    running.join_next().await.ok_or("no clients")??
}

/// A request that ends in one of the ways in which requests and permits end.
async fn one(semaphore: &Semaphore, window: Duration, lease: Duration) -> Result<(), Failure> {
    let way = fastrand::u8(0..10);
    let options = AcquireOptions::new().at_least(window).lease(lease);
    let options = match way {
        0 => options.timeout(window / 4),
        1 => options.auto_renew(false),
        _ => options,
    };
    let permit = match semaphore.acquire_with(options).await {
        Ok(permit) => permit,
        Err(AcquireError::TimedOut { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    answer(&json!({ "granted": permit.token() }))?;
    match way {
        // Longer than its lease, which nothing renews: the store ends it.
        1 => tokio::time::sleep(lease + lease / 4).await,
        2 => tokio::time::sleep(window + window / 2).await,
        3 | 4 => drop(permit),
        _ => permit.release().await?,
    }
    Ok(())
}
