//! The driver of distributed-lock-redis; the commands are described in ../README.md. Default settings.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distributed_lock_core::traits::{DistributedSemaphore as _, LockHandle as _, SemaphoreProvider as _};
use distributed_lock_redis::{RedisDistributedSemaphore, RedisLockProvider};
use serde_json::{Value, json};
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Handle = <RedisDistributedSemaphore as distributed_lock_core::traits::DistributedSemaphore>::Handle;

struct Driver {
    url: String,
    lease: Duration,
    provider: RedisLockProvider,
    hoard: Vec<Handle>,
    queue: JoinSet<Result<(), Failure>>,
    grants: Arc<AtomicU64>,
}

async fn connect(url: &str, lease: Duration) -> Result<RedisLockProvider, Failure> {
    let mut builder = RedisLockProvider::builder().url(url);
    if !lease.is_zero() {
        builder = builder.expiry(lease).extension_cadence(lease / 3);
    }
    Ok(builder.build().await?)
}

/// The time by the clock that all processes share.
fn now_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// As exactly as the system can: the timer of the runtime has steps of a millisecond.
async fn pause(length: Duration) {
    if !length.is_zero() {
        let _ = tokio::task::spawn_blocking(move || std::thread::sleep(length)).await;
    }
}

fn summary(mut taken: Vec<f64>, began: f64) -> Value {
    taken.sort_by(f64::total_cmp);
    let at = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize];
    json!({
        "cycles": taken.len(),
        "seconds": (now_us() - began) / 1e6,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "max_us": at(1.0),
    })
}

async fn joined<T: 'static>(mut running: JoinSet<Result<Vec<T>, Failure>>) -> Result<Vec<T>, Failure> {
    let mut all = Vec::new();
    while let Some(finished) = running.join_next().await {
        all.extend(finished??);
    }
    Ok(all)
}

impl Driver {
    fn open(&self, name: &str, limit: u32) -> Arc<RedisDistributedSemaphore> {
        Arc::new(self.provider.create_semaphore(name, limit))
    }

    async fn execute(&mut self, words: &[&str]) -> Result<Value, Failure> {
        match *words {
            ["hello"] => Ok(json!({ "version": "0.2.0" })),
            ["start", name, limit] => self.start(name, limit.parse()?).await,
            ["cycle", name, limit, tasks, seconds] => {
                self.cycle(name, limit.parse()?, tasks.parse()?, seconds.parse()?).await
            }
            ["turn", name, count] => self.turn(name, count.parse()?).await,
            ["contend", name, limit, tasks, hold_us, pause_us, seconds] => {
                let semaphore = self.open(name, limit.parse()?);
                let hold = Duration::from_micros(hold_us.parse()?);
                let rest = Duration::from_micros(pause_us.parse()?);
                contend(&semaphore, tasks.parse()?, hold, rest, seconds.parse()?).await
            }
            ["hoard", name, count] => {
                let semaphore = self.open(name, count.parse()?);
                let mut asking = JoinSet::new();
                for _ in 0..count.parse()? {
                    let semaphore = semaphore.clone();
                    asking.spawn(async move { Ok(vec![semaphore.acquire(None).await?]) });
                }
                self.hoard = joined(asking).await?;
                Ok(json!({ "held": self.hoard.len() }))
            }
            ["queue", name, count] => self.queue(name, count.parse()?),
            ["count"] => Ok(json!({ "grants": self.grants.load(Ordering::Relaxed) })),
            ["wait", name] => {
                let asked = now_us();
                let handle = self.open(name, 1).acquire(None).await?;
                let got = now_us();
                handle.release().await?;
                Ok(json!({ "asked": asked, "got": got }))
            }
            ["free"] => {
                self.queue.shutdown().await;
                for handle in self.hoard.drain(..) {
                    handle.release().await?;
                }
                Ok(json!({}))
            }
            _ => Err(format!("no such command: {words:?}").into()),
        }
    }

    async fn start(&self, name: &str, limit: u32) -> Result<Value, Failure> {
        let began = Instant::now();
        let provider = connect(&self.url, self.lease).await?;
        let handle = provider.create_semaphore(name, limit).acquire(None).await?;
        let taken = began.elapsed().as_secs_f64() * 1e6;
        handle.release().await?;
        Ok(json!({ "us": taken }))
    }

    async fn cycle(&self, name: &str, limit: u32, tasks: usize, seconds: f64) -> Result<Value, Failure> {
        let semaphore = self.open(name, limit);
        let began = now_us();
        let until = began + seconds * 1e6;
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let semaphore = semaphore.clone();
            running.spawn(async move {
                let mut taken = Vec::new();
                let mut last = began;
                while last < until {
                    semaphore.acquire(None).await?.release().await?;
                    let now = now_us();
                    taken.push(now - last);
                    last = now;
                }
                Ok(taken)
            });
        }
        Ok(summary(joined(running).await?, began))
    }

    async fn turn(&self, name: &str, count: usize) -> Result<Value, Failure> {
        let began = now_us();
        let mut taken = Vec::new();
        for number in 0..count {
            let one = now_us();
            self.open(&format!("{name}:{number}"), 4).acquire(None).await?.release().await?;
            taken.push(now_us() - one);
        }
        Ok(summary(taken, began))
    }

    fn queue(&mut self, name: &str, count: usize) -> Result<Value, Failure> {
        if count > 1000 {
            return Ok(json!({ "cannot": "each waiter asks every 10 to 200 ms" }));
        }
        for _ in 0..count {
            let semaphore = self.open(name, 1);
            let grants = Arc::clone(&self.grants);
            self.queue.spawn(async move {
                loop {
                    let handle = semaphore.acquire(None).await?;
                    grants.fetch_add(1, Ordering::Relaxed);
                    handle.release().await?;
                }
            });
        }
        Ok(json!({ "queued": count }))
    }
}

async fn contend(
    semaphore: &Arc<RedisDistributedSemaphore>,
    tasks: usize,
    hold: Duration,
    rest: Duration,
    seconds: f64,
) -> Result<Value, Failure> {
    let until = now_us() + seconds * 1e6;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let semaphore = semaphore.clone();
        running.spawn(async move {
            let mut events = Vec::new();
            loop {
                let asked = now_us();
                if asked >= until {
                    return Ok(events);
                }
                let handle = semaphore.acquire(None).await?;
                let got = now_us();
                pause(hold).await;
                let freed = now_us();
                handle.release().await?;
                events.push((asked, got, freed));
                pause(rest).await;
            }
        });
    }
    Ok(json!({ "events": joined(running).await? }))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let lease = Duration::from_millis(arguments[2].parse()?);
    let mut driver = Driver {
        url: arguments[1].clone(),
        lease,
        provider: connect(&arguments[1], lease).await?,
        hoard: Vec::new(),
        queue: JoinSet::new(),
        grants: Arc::default(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        println!("{}", driver.execute(&words).await?);
    }
    Ok(())
}
