//! A limit that finds what a service takes: one call more at once while requests wait, half after a refusal.
//! (AIMD, the rule by which TCP shares a network.)
//!
//! `cargo run --example adaptive_limit`. A worker that is refused pauses the line, with the reason `429`. The
//! store remembers that, so the controller reads both of its signals from one inspection. Each host runs a
//! controller, and a semaphore with the limit 1 elects the controller that acts.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use permits::{AdminError, Client, OperatorChange, Semaphore};
use tokio::time::sleep;

/// The bounds of the limit.
const LEAST: u32 = 2;
const MOST: u32 = 64;

/// The interval between two steps: seconds, with a real service.
const STEP: Duration = Duration::from_millis(20);

/// The pause after a refusal. It is longer than a step, so the limit is lower before the line continues.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// The calls at once that the service takes, which no worker knows.
const CAPACITY: usize = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::connect("memory:").await?;
    let (api, in_flight) = (client.semaphore("api", 4)?, AtomicUsize::new(0));

    let workers = futures_util::future::try_join_all((0..40).map(|_| worker(&api, &in_flight)));
    let adapting = tokio::time::timeout(Duration::from_secs(3), async {
        // A second host's controller waits until the first one ends.
        tokio::try_join!(controller(&client, &api), controller(&client, &api))
    });
    let limits = tokio::select! {
        failed = workers => return Err(failed.expect_err("workers work forever")),
        _ = adapting => limits(&api).await?,
    };
    println!("the limits, the last first: {limits:?}");
    assert!(limits.windows(2).any(|limits| limits[0] < limits[1]), "halved after a refusal");
    assert!(limits.windows(2).any(|limits| limits[0] > limits[1]), "raised while requests wait");
    assert!(limits.iter().all(|limit| (LEAST..=MOST).contains(limit)));
    Ok(())
}

/// Calls the service again and again.
async fn worker(api: &Semaphore, in_flight: &AtomicUsize) -> Result<(), Box<dyn Error>> {
    loop {
        let permit = api.acquire().await?;
        if in_flight.fetch_add(1, Ordering::Relaxed) >= CAPACITY {
            api.pause_for(RETRY_AFTER, "429").await?; // A real service says for how long.
        } else {
            sleep(Duration::from_millis(5)).await;
        }
        in_flight.fetch_sub(1, Ordering::Relaxed);
        drop(permit);
    }
}

/// Adapts the limit for as long as this host is the elected one.
async fn controller(client: &Client, api: &Semaphore) -> Result<(), Box<dyn Error>> {
    loop {
        let elected = client.semaphore("api-controller", 1)?.acquire().await?;
        let adapting = async {
            loop {
                sleep(STEP).await;
                adapt(api).await?;
            }
        };
        match elected.run(adapting).await {
            Ok(failed) => return failed,
            Err(lost) => eprintln!("another host is elected: {lost}"),
        }
    }
}

/// Takes one step. A refusal counts if it came after the last change of the limit, so the controller has no
/// state of its own. Changes nothing if an operator has changed the limit since the inspection.
async fn adapt(api: &Semaphore) -> Result<(), Box<dyn Error>> {
    let state = api.inspect().await?;
    let last = state.changes.iter().find_map(|info| match &info.change {
        OperatorChange::Paused { reason, .. } if reason == "429" => Some(Signal::Refused),
        OperatorChange::LimitSet(_) => Some(Signal::Adapted),
        _ => None,
    });
    let next = match (last, state.limit) {
        (Some(Signal::Refused), Some(limit)) => (limit / 2).max(LEAST),
        (_, Some(limit)) if state.waiting > 0 && !state.paused && limit < MOST => limit + 1,
        _ => return Ok(()),
    };
    match api.set_limit_if_version(next, state.limit_version).await {
        Ok(_) | Err(AdminError::VersionMismatch { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The last of the changes that matter here.
enum Signal {
    Refused,
    Adapted,
}

/// The limits that the controller has set, the last first.
async fn limits(api: &Semaphore) -> Result<Vec<u32>, Box<dyn Error>> {
    Ok(api.inspect().await?.changes.iter().filter_map(|info| info.change.limit()).collect())
}
