//! The driver of `permits`, over its public API alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use permits::{AcquireOptions, Client, Permit, Semaphore};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{answer, cycles, mix, next_command, pause, summary};
use crate::Failure;
use crate::stats::{micros, server_clock_ahead_us, shared_clock_us};

/// The way in which a program uses its permits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A cycle awaits the release.
    Released,
    /// A cycle drops its permit, which releases it without waiting.
    Dropped,
    /// As released; the client keeps permits.
    Kept,
}

/// The client, and the permits and tasks of its commands.
struct Driver {
    url: String,
    /// Zero: the default of the library.
    lease: Duration,
    client: Client,
    way: Use,
    held: Vec<Permit>,
    queue: JoinSet<Result<(), Failure>>,
    grants: Arc<AtomicU64>,
}

pub(super) async fn serve(url: &str, lease: Duration, way: Use) -> Result<(), Failure> {
    let client = connect(url, lease).await?;
    let mut driver = Driver {
        url: url.to_owned(),
        lease,
        client,
        way,
        held: Vec::new(),
        queue: JoinSet::new(),
        grants: Arc::default(),
    };
    while let Some(command) = next_command()? {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        answer(&driver.execute(&words).await?)?;
    }
    Ok(())
}

async fn connect(url: &str, lease: Duration) -> Result<Client, Failure> {
    let builder = Client::builder(url);
    let builder = if lease.is_zero() { builder } else { builder.lease(lease) };
    Ok(builder.connect().await?)
}

impl Driver {
    async fn execute(&mut self, words: &[&str]) -> Result<Value, Failure> {
        match *words {
            ["hello"] => Ok(json!({ "version": env!("CARGO_PKG_VERSION") })),
            ["start", name, limit] => self.start(name, limit.parse()?).await,
            ["cycle", name, limit, tasks, seconds] => {
                let (semaphore, way) = (self.semaphore(name, limit.parse()?)?, self.way);
                // As long as the process: a program does not clone it for each cycle.
                let semaphore: &'static Semaphore = Box::leak(Box::new(semaphore));
                cycles(tasks.parse()?, seconds.parse()?, move || cycle(semaphore, way)).await
            }
            ["spread", name, count, tasks, seconds] => {
                self.spread(name, count.parse()?, tasks.parse()?, seconds.parse()?).await
            }
            ["turn", name, count] => self.turn(name, count.parse()?).await,
            ["contend", name, limit, tasks, hold_us, pause_us, seconds] => {
                let semaphore = self.semaphore(name, limit.parse()?)?;
                let hold = Duration::from_micros(hold_us.parse()?);
                let pause = Duration::from_micros(pause_us.parse()?);
                contend(&semaphore, tasks.parse()?, hold, pause, seconds.parse()?).await
            }
            ["mix", name, limit, window_ms, lease_ms, count] => {
                let [window, lease] = [window_ms.parse()?, lease_ms.parse()?].map(Duration::from_millis);
                mix::run(&self.url, name, limit.parse()?, window, lease, count.parse()?).await
            }
            ["clients", name, semaphores, limit, count, hold_ms, pause_ms] => {
                let [hold, pause] = [hold_ms.parse()?, pause_ms.parse()?].map(Duration::from_millis);
                self.clients(name, semaphores.parse()?, limit.parse()?, count.parse()?, (hold, pause)).await
            }
            ["hoard", name, count] => self.hold_all(name, count.parse()?).await,
            ["queue", name, count] => self.queue(name, count.parse()?, 0),
            ["queue", name, count, lanes] => self.queue(name, count.parse()?, lanes.parse()?),
            ["count"] => Ok(json!({ "grants": self.grants.load(Ordering::Relaxed) })),
            ["wait", name] => {
                let asked = shared_clock_us();
                let permit = self.client.semaphore(name, 1).expect("valid").acquire().await?;
                let got = shared_clock_us();
                permit.release().await?;
                Ok(json!({ "asked": asked, "got": got }))
            }
            ["free"] => {
                self.held.clear();
                self.queue.shutdown().await;
                Ok(json!({}))
            }
            _ => Err(format!("no such command: {words:?}").into()),
        }
    }

    /// A semaphore, used in this driver's way.
    fn semaphore(&self, name: &str, limit: u32) -> Result<Semaphore, Failure> {
        let semaphore = self.client.semaphore(name, limit)?;
        Ok(if self.way == Use::Kept { semaphore.keep(Duration::MAX) } else { semaphore })
    }

    /// Connects, and takes a first permit.
    async fn start(&self, name: &str, limit: u32) -> Result<Value, Failure> {
        let began = Instant::now();
        let client = connect(&self.url, self.lease).await?;
        let permit = client.semaphore(name, limit).expect("valid").acquire().await?;
        let taken = micros(began.elapsed());
        permit.release().await?;
        client.close().await?;
        Ok(json!({ "us": taken }))
    }

    /// Cycles of tasks that share several semaphores, each task with one of them.
    async fn spread(&self, name: &str, count: usize, tasks: usize, seconds: f64) -> Result<Value, Failure> {
        let (share, way) = (tasks / count, self.way);
        let began = Instant::now();
        let mut running = JoinSet::new();
        for number in 0..count {
            let semaphore = self.semaphore(&format!("{name}:{number}"), share as u32)?;
            let semaphore: &'static Semaphore = Box::leak(Box::new(semaphore));
            running.spawn(cycles(share, seconds, move || cycle(semaphore, way)));
        }
        let mut all = 0;
        while let Some(finished) = running.join_next().await {
            all += finished??["cycles"].as_u64().ok_or("no cycles")?;
        }
        Ok(json!({ "cycles": all, "seconds": began.elapsed().as_secs_f64() }))
    }

    /// A cycle with each of many semaphores, one after the other.
    async fn turn(&self, name: &str, count: usize) -> Result<Value, Failure> {
        let began = Instant::now();
        let mut taken = Vec::new();
        for number in 0..count {
            let one = Instant::now();
            cycle(&self.semaphore(&format!("{name}:{number}"), 4)?, self.way).await?;
            taken.push(micros(one.elapsed()));
        }
        Ok(summary(taken, began.elapsed()))
    }

    /// Takes `count` permits and keeps them.
    async fn hold_all(&mut self, name: &str, count: u32) -> Result<Value, Failure> {
        let semaphore = self.client.semaphore(name, count).expect("valid");
        let mut asking = JoinSet::new();
        for _ in 0..count {
            let semaphore = semaphore.clone();
            asking.spawn(async move { semaphore.acquire().await });
        }
        while let Some(permit) = asking.join_next().await {
            self.held.push(permit??);
        }
        Ok(json!({ "held": self.held.len() }))
    }

    /// Connects `count` clients, divided among several semaphores, each of which acquires, holds, releases
    /// and pauses for half to one and a half of a time, again and again.
    async fn clients(
        &mut self,
        name: &str,
        semaphores: usize,
        limit: u32,
        count: usize,
        (hold, pause): (Duration, Duration),
    ) -> Result<Value, Failure> {
        for number in 0..count {
            let client = connect(&self.url, self.lease).await?;
            let semaphore = client.semaphore(format!("{name}:{}", number % semaphores), limit)?;
            let grants = Arc::clone(&self.grants);
            self.queue.spawn(async move {
                loop {
                    let permit = semaphore.acquire().await?;
                    grants.fetch_add(1, Ordering::Relaxed);
                    // A sleep of nothing lasts until the next millisecond.
                    if !hold.is_zero() {
                        tokio::time::sleep(hold).await;
                    }
                    permit.release().await?;
                    if !pause.is_zero() {
                        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                    }
                }
            });
        }
        Ok(json!({ "clients": count }))
    }

    /// Starts `count` tasks that wait in one queue, again and again; in so many lanes of this process, if
    /// there are any.
    fn queue(&mut self, name: &str, count: usize, lanes: usize) -> Result<Value, Failure> {
        for task in 0..count {
            let lane = task.checked_rem(lanes).map(|lane| format!("{}-{lane}", std::process::id()));
            let options = lane.into_iter().fold(AcquireOptions::new(), AcquireOptions::lane);
            let semaphore = self.client.semaphore(name, 1).expect("valid");
            let grants = Arc::clone(&self.grants);
            self.queue.spawn(async move {
                loop {
                    let permit = semaphore.acquire_with(options.clone()).await?;
                    grants.fetch_add(1, Ordering::Relaxed);
                    permit.release().await?;
                }
            });
        }
        Ok(json!({ "queued": count }))
    }
}

async fn cycle(semaphore: &Semaphore, way: Use) -> Result<(), Failure> {
    let permit = semaphore.acquire().await?;
    if way == Use::Dropped {
        drop(permit);
        return Ok(());
    }
    Ok(permit.release().await?)
}

/// Tasks that acquire, hold and release, and note the times and the order of the grants: the token, which is
/// a time of the server's clock; of a permit that was kept, the time of the local grant by that clock.
async fn contend(
    semaphore: &Semaphore,
    tasks: usize,
    hold: Duration,
    rest: Duration,
    seconds: f64,
) -> Result<Value, Failure> {
    let until = shared_clock_us() + seconds * 1e6;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let semaphore = semaphore.clone();
        running.spawn(async move {
            let mut events = Vec::new();
            loop {
                let asked = shared_clock_us();
                if asked >= until {
                    return Ok::<_, Failure>(events);
                }
                let permit = semaphore.acquire().await?;
                let got = shared_clock_us();
                let is_local = permit.is_granted_again();
                let order = if is_local { got + server_clock_ahead_us() } else { permit.token() as f64 };
                pause(hold).await;
                let freed = shared_clock_us();
                permit.release().await?;
                events.push((asked, got, freed, order));
                pause(rest).await;
            }
        });
    }
    let mut events = Vec::new();
    while let Some(finished) = running.join_next().await {
        events.extend(finished??);
    }
    Ok(json!({ "events": events }))
}
