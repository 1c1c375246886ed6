//! `permits-lab driver KIND URL [LEASE_MS]`: a system of the comparison, as a process with the line protocol of
//! `peers/`.
//!
//! The protocol is the same for all systems: a command is a line of words on standard input, its answer one JSON
//! object in a line on standard output. `peers/README.md` lists the commands. This file has the loops that the drivers
//! written in Rust share.

mod permits;
mod raw;

use std::io::{BufRead as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
use crate::raw::{INCREMENT, NO_OP};
use crate::stats::{micros, percentile};

/// Serves one kind until standard input ends.
pub(crate) fn run(kind: &str, url: &str, lease_ms: &str) -> Result<(), Failure> {
    // A runtime as `#[tokio::main]` makes it on two processors.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let lease_ms: u64 = lease_ms.parse()?;
    runtime.block_on(async {
        match kind {
            "permits" => permits::serve(url, Duration::from_millis(lease_ms), false).await,
            "permits-dropped" => permits::serve(url, Duration::from_millis(lease_ms), true).await,
            "noop" => raw::serve(url, NO_OP).await,
            "incr" => raw::serve(url, INCREMENT).await,
            // The main task hands every request to a thread of the runtime. A spawned task often shares a thread with
            // the task of the connection, which saves the hand-over and gives a lower floor.
            "noop-worker" => {
                let url = url.to_owned();
                tokio::spawn(async move { raw::serve(&url, NO_OP).await }).await?
            }
            _ => Err(format!("no such kind: {kind}").into()),
        }
    })
}

/// The next command; `None` when there are no more.
fn next_command() -> Result<Option<Vec<String>>, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0).then(|| line.split_whitespace().map(str::to_owned).collect()))
}

fn answer(value: &Value) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{value}")?;
    Ok(stdout.flush()?)
}

/// Runs `one` in a loop in `tasks` tasks for `seconds`. Returns the number of runs, and the time of each. A single
/// task is the caller's: main, as in a program that does one thing.
async fn cycles<F, Fut>(tasks: usize, seconds: f64, one: F) -> Result<Value, Failure>
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let began = Instant::now();
    let limit = Duration::from_secs_f64(seconds);
    if tasks == 1 {
        return Ok(summary(repeat(began, limit, one).await?, began.elapsed()));
    }
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        running.spawn(repeat(began, limit, one.clone()));
    }
    let mut taken = Vec::new();
    while let Some(finished) = running.join_next().await {
        taken.extend(finished??);
    }
    Ok(summary(taken, began.elapsed()))
}

async fn repeat<F, Fut>(began: Instant, limit: Duration, one: F) -> Result<Vec<f64>, Failure>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    let mut taken = Vec::new();
    let mut last = began.elapsed();
    while last < limit {
        one().await?;
        let now = began.elapsed();
        taken.push(micros(now - last));
        last = now;
    }
    Ok(taken)
}

fn summary(mut taken: Vec<f64>, elapsed: Duration) -> Value {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| percentile(&mut taken, part));
    json!({
        "cycles": taken.len(),
        "seconds": elapsed.as_secs_f64(),
        "p50_us": p50,
        "p99_us": p99,
        "max_us": max,
    })
}

/// Waits for `duration`, as exactly as the system can: the timer of the runtime has steps of a millisecond.
async fn pause(length: Duration) {
    if !length.is_zero() {
        // Fails only when the runtime ends.
        let _ = tokio::task::spawn_blocking(move || std::thread::sleep(length)).await;
    }
}
