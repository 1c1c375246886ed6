//! `permits-lab core`: the cost of the basic operations, as five ratios, each measured in one run.

use std::time::{Duration, Instant};

use permits::Client;
use permits_testkit::Server;

use crate::Failure;
use crate::compare::{self, Scale};
use crate::meter::Meter;
use crate::raw::{INCREMENT, NO_OP, Raw};
use crate::stats::{median, micros};

/// The repetitions of each pair of measurements; the medians are compared.
const ROUNDS: usize = 7;

pub(crate) fn run() -> Result<(), Failure> {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("what                                                     measured     ratio   aim");
    runtime.block_on(async {
        one_task(&server.url()).await?;
        many_tasks(&server.url()).await
    })?;
    hand_off(&server.url())?;
    runtime.block_on(async {
        calls_per_grant(&server).await?;
        calls_per_renewal(&server).await
    })
}

fn report(what: &str, measured: String, ratio: f64, aim: &str) {
    println!("{what:50} {measured:>14} {ratio:9.2}   {aim}");
}

/// (a) Acquire and release by one task, against two round trips that do nothing.
async fn one_task(url: &str) -> Result<(), Failure> {
    const CYCLES: u32 = 2000;
    let client = Client::connect(url).await?;
    let semaphore = client.semaphore("one", 4).expect("valid");
    let mut raw = Raw::connect(url, NO_OP).await?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..CYCLES {
            semaphore.acquire().await?.release().await?;
        }
        ours.push(micros(began.elapsed()) / f64::from(CYCLES));
        let began = Instant::now();
        for _ in 0..2 * CYCLES {
            raw.call().await?;
        }
        floor.push(micros(began.elapsed()) / f64::from(CYCLES));
    }
    client.close().await?;
    let (ours, floor) = (median(ours), median(floor));
    report(
        "(a) a cycle by one task / two no-op EVALSHA",
        format!("{ours:.0}/{floor:.0} µs"),
        ours / floor,
        "<= 1.5",
    );
    Ok(())
}

/// (b) Cycles a second by 64 tasks within the limit, against half the rate of a script that increments.
async fn many_tasks(url: &str) -> Result<(), Failure> {
    const TASKS: usize = 64;
    const CYCLES: usize = 40_000;
    let client = Client::connect(url).await?;
    let semaphore = client.semaphore("many", TASKS as u32).expect("valid");
    let raw = Raw::connect(url, INCREMENT).await?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..TASKS {
            let semaphore = semaphore.clone();
            running.spawn(async move {
                for _ in 0..CYCLES / TASKS {
                    semaphore.acquire().await?.release().await?;
                }
                Ok::<_, Failure>(())
            });
        }
        while let Some(finished) = running.join_next().await {
            finished??;
        }
        ours.push(CYCLES as f64 / began.elapsed().as_secs_f64());
        floor.push(raw.rate(TASKS, 2 * CYCLES).await? / 2.0);
    }
    client.close().await?;
    let (ours, floor) = (median(ours), median(floor));
    let measured = format!("{:.0}k/{:.0}k /s", ours / 1e3, floor / 1e3);
    report("(b) cycles by 64 tasks / half the EVALSHA INCRs", measured, ours / floor, ">= 1");
    Ok(())
}

/// (c) From the call that releases in one process to the return of the other's acquire, against a published
/// message on its way.
fn hand_off(url: &str) -> Result<(), Failure> {
    let [mut ours, mut floor] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (name, taken) in [("permits", &mut ours), ("noop", &mut floor)] {
            taken.push(median(compare::hand_offs(compare::find(name)?, url, Scale::QUICK, 1.0)?));
        }
    }
    let (ours, floor) = (median(ours), median(floor));
    let measured = format!("{ours:.0}/{floor:.0} µs");
    report("(c) hand-off / PUBLISH to receive", measured, ours / floor, "<= 1.5");
    Ok(())
}

/// (d) Script calls for each grant, with 1,000 waiters and with 10: 10 sessions in turn for 4 units.
async fn calls_per_grant(server: &Server) -> Result<(), Failure> {
    const GRANTS: usize = 6000;
    let mut meter = Meter::new(server)?;
    for waiters in [10, 1000] {
        let mut sessions = Vec::new();
        for _ in 0..10 {
            sessions.push(Client::connect(&server.url()).await?);
        }
        let before = meter.read()?;
        let mut running = tokio::task::JoinSet::new();
        for number in 0..waiters {
            let semaphore =
                sessions[number % sessions.len()].semaphore(format!("line of {waiters}"), 4).expect("valid");
            running.spawn(async move {
                for _ in 0..GRANTS / waiters {
                    let permit = semaphore.acquire().await?;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    permit.release().await?;
                }
                Ok::<_, Failure>(())
            });
        }
        while let Some(finished) = running.join_next().await {
            finished??;
        }
        let calls = meter.since(before)?.calls;
        let ratio = calls / GRANTS as f64;
        report(
            &format!("(d) script calls a grant, {waiters} waiters"),
            format!("{calls}/{GRANTS}"),
            ratio,
            "<= 2.2",
        );
        for session in sessions {
            session.close().await?;
        }
    }
    Ok(())
}

/// (e) Script calls in a renewal interval, with 10,000 permits held by one session.
async fn calls_per_renewal(server: &Server) -> Result<(), Failure> {
    const PERMITS: u32 = 10_000;
    const LEASE: Duration = Duration::from_secs(6);
    const INTERVALS: u32 = 4;
    let client = Client::builder(server.url()).lease(LEASE).connect().await?;
    let semaphore = client.semaphore("idle", PERMITS).expect("valid");
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..PERMITS {
        let semaphore = semaphore.clone();
        asking.spawn(async move { semaphore.acquire().await });
    }
    let mut permits = Vec::new();
    let mut meter = Meter::new(server)?;
    while let Some(permit) = asking.join_next().await {
        permits.push(permit??);
    }
    let before = meter.read()?;
    tokio::time::sleep(LEASE / 3 * INTERVALS).await;
    let calls = meter.since(before)?.calls;
    if let Some(lost) = permits.iter().position(|permit| !permit.is_held()) {
        return Err(format!("permit {lost} was lost").into());
    }
    let ratio = calls / f64::from(INTERVALS);
    report("(e) calls a renewal interval, 10,000 permits", format!("{calls}/{INTERVALS}"), ratio, "<= 20");
    drop(permits);
    client.close().await?;
    Ok(())
}
