//! The cost of a cycle of acquiring and releasing, and the cycles in a second.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use permits_bench::Failure;
use permits_bench::stats::micros;

use super::{Fixture, LIMIT};
use crate::{Client, Kind, Process, Role, Semaphore};

/// Requests so far: of a recipe those that its clients counted, of `permits` the scripts that the server ran.
pub(super) fn requests(fixture: &Fixture, semaphore: &Semaphore) -> u64 {
    if semaphore.kind != Kind::Permits {
        return semaphore.requests.load(SeqCst);
    }
    let stats = fixture.server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let line = line.strip_prefix("cmdstat_evalsha:").or_else(|| line.strip_prefix("cmdstat_eval:"))?;
        line.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()
    };
    stats.text().lines().filter_map(calls).sum()
}

/// The server's processor time so far, in seconds.
pub(super) fn server_cpu(fixture: &Fixture) -> f64 {
    let field = |name| fixture.server.info(name).and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
    field("used_cpu_user") + field("used_cpu_sys")
}

/// The cost of one client's cycle.
#[derive(Clone, Copy, Debug)]
pub struct Cycle {
    /// Round trips.
    pub round_trips: f64,
    /// Microseconds from start to end.
    pub us: f64,
    /// The server's processor time, in microseconds.
    pub server_us: f64,
}

/// `count` cycles by one client, one after the other, without other clients.
///
/// # Errors
/// If the client fails.
pub async fn alone(fixture: &Fixture, kind: Kind, cycles: u32) -> Result<Cycle, Failure> {
    let semaphore = fixture.semaphore(kind);
    let user = fixture.user(&semaphore, Role::default()).await?;
    // As a task among the runtime's others: outside of it each reply would come from another thread.
    let user = tokio::spawn(go_round(user, cycles / 10)).await??;
    let look = || (requests(fixture, &semaphore), server_cpu(fixture), Instant::now());
    let before = look();
    tokio::spawn(go_round(user, cycles)).await??;
    let us = micros(before.2.elapsed());
    let after = look();
    let cycles = f64::from(cycles);
    Ok(Cycle {
        round_trips: (after.0 - before.0) as f64 / cycles,
        us: us / cycles,
        server_us: (after.1 - before.1) * 1e6 / cycles,
    })
}

async fn go_round(mut user: Box<dyn Client>, cycles: u32) -> Result<Box<dyn Client>, Failure> {
    for _ in 0..cycles {
        user.acquire().await?;
        user.release().await?;
    }
    Ok(user)
}

/// Clients that acquire and release in a loop.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Processes, that is, connections.
    pub processes: u32,
    /// Tasks in each process.
    pub tasks: u32,
    /// The limit.
    pub limit: u32,
    /// The time before a retry, where the recipe has no waiting.
    pub poll: Duration,
    /// The sessions of `permits` keep what their users release.
    pub keeps: bool,
}

/// Cycles a second of a crowd, counted for `during`.
///
/// # Errors
/// If a client fails.
pub async fn throughput(
    fixture: &Fixture,
    kind: Kind,
    crowd: Crowd,
    during: Duration,
) -> Result<f64, Failure> {
    let mut semaphore = fixture.semaphore(kind);
    (semaphore.limit, semaphore.poll, semaphore.keeps) = (crowd.limit, crowd.poll, crowd.keeps);
    semaphore.lease = Duration::from_secs(10);
    let mut running = tokio::task::JoinSet::new();
    let mut users = Vec::new();
    for _ in 0..crowd.processes {
        let process = Process::start(&semaphore, &fixture.server.url(), Role::default()).await?;
        for _ in 0..crowd.tasks {
            users.push(process.client().await?);
        }
    }
    let began = Instant::now();
    for mut user in users {
        running.spawn(async move {
            let mut cycles = 0_u32;
            while began.elapsed() < during {
                user.acquire().await?;
                user.release().await?;
                cycles += 1;
            }
            Ok::<_, Failure>(cycles)
        });
    }
    let mut cycles = 0;
    while let Some(ended) = running.join_next().await {
        cycles += ended??;
    }
    Ok(f64::from(cycles) / began.elapsed().as_secs_f64())
}

/// Refusals a second: all places are held, and 64 tasks of one process try.
///
/// # Errors
/// If a client fails.
pub async fn refusals(fixture: &Fixture, kind: Kind, during: Duration) -> Result<f64, Failure> {
    const TASKS: u32 = 64;
    let semaphore = fixture.semaphore(kind);
    let mut holders = fixture.users(&semaphore, LIMIT).await?;
    super::admitted(&mut holders).await?;
    let process = Process::start(&semaphore, &fixture.server.url(), Role::default()).await?;
    let mut running = tokio::task::JoinSet::new();
    let began = Instant::now();
    for _ in 0..TASKS {
        let mut user = process.client().await?;
        running.spawn(async move {
            let mut refused = 0_u32;
            while began.elapsed() < during {
                refused += u32::from(!user.try_acquire().await?);
            }
            Ok::<_, Failure>(refused)
        });
    }
    let mut refused = 0;
    while let Some(ended) = running.join_next().await {
        refused += ended??;
    }
    Ok(f64::from(refused) / began.elapsed().as_secs_f64())
}
