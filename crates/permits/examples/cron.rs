//! A job that must not overlap itself: a run that finds another in progress is skipped.
//!
//! `cargo run --example cron`. In a crontab the command does the same:
//! `permits run nightly --limit 1 --no-wait -q -E 0 …`.

use std::error::Error;
use std::future::ready;

use permits::{AcquireError, Client};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = format!("local:{}/permits", directory.path().display());

    // A second run starts while the first is in progress, and a third after it.
    let second = async { assert!(!nightly(&url, ready(())).await.expect("a store"), "skipped") };
    assert!(nightly(&url, second).await?);
    assert!(nightly(&url, ready(())).await?);
    Ok(())
}

/// Returns whether this run did the work.
async fn nightly(url: &str, work: impl Future<Output = ()>) -> Result<bool, Box<dyn Error>> {
    let client = Client::connect(url).await?;
    let done = match client.semaphore("nightly", 1)?.try_acquire().await {
        Ok(permit) => {
            println!("backing up");
            permit.run(work).await?;
            permit.release().await?;
            true
        }
        Err(AcquireError::NoPermits) => {
            println!("skipped: another run is in progress");
            false
        }
        Err(error) => return Err(error.into()),
    };
    client.close().await?;
    Ok(done)
}
