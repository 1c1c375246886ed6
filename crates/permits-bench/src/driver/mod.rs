//! `driver KIND URL LEASE_MS`: `permits` or a lower bound, as a process with a line protocol.
//!
//! The protocol is the same for all systems of the comparison: a command is a line of words on standard
//! input, its answer one JSON object in a line on standard output. `lab/comparison/peers/README.md` lists the
//! commands. This file has the loops that the drivers share.

mod mix;
mod permits;
mod raw;
mod tokio_semaphore;

use std::io::{self, BufRead as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use self::permits::Use;
use crate::Failure;
use crate::stats::{micros, percentile};

/// Serves one kind until standard input ends.
///
/// # Errors
/// If there is no such kind, the server fails, or a command is malformed.
pub fn run(kind: &str, url: &str, lease_ms: &str) -> Result<(), Failure> {
    let lease = Duration::from_millis(lease_ms.parse()?);
    match kind {
        "permits" => default_runtime()?.block_on(permits::serve(url, lease, Use::Released)),
        "permits-dropped" => default_runtime()?.block_on(permits::serve(url, lease, Use::Dropped)),
        "permits-kept" => default_runtime()?.block_on(permits::serve(url, lease, Use::Kept)),
        "tokio" => default_runtime()?.block_on(tokio_semaphore::serve()),
        "noop" => one_thread()?.block_on(raw::serve(url, raw::NO_OP)),
        "incr" => one_thread()?.block_on(raw::serve(url, raw::INCREMENT)),
        _ => Err(format!("no such kind: {kind}").into()),
    }
}

/// A runtime as `#[tokio::main]` makes it on two processors.
///
/// # Errors
/// If the system has no threads left.
pub fn default_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn one_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// The next command; `None` when there are no more.
///
/// # Errors
/// If standard input fails.
pub fn next_command() -> Result<Option<Vec<String>>, Failure> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0).then(|| line.split_whitespace().map(str::to_owned).collect()))
}

/// Answers a command.
///
/// # Errors
/// If standard output fails.
pub fn answer(value: &Value) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{value}")?;
    Ok(stdout.flush()?)
}

/// Runs `one` in a loop in `tasks` tasks for `seconds`. Returns the number of runs, and the time of each. A
/// single task is the caller's: main, as in a program that does one thing.
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
