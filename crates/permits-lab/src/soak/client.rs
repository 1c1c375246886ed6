//! A client of the soak: a process with as many tasks as it is told, which acquire, hold and give back, each in its
//! own way, until told to stop. In the end it says how often what happened.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, Permit, Semaphore};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{LIMITS, SEMAPHORES, name};
use crate::Failure;

/// How often what happened, in the order in which it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    /// By the wait limit or by dropping the future.
    pub(crate) given_up: u64,
    pub(crate) revoked: u64,
    pub(crate) lost: u64,
    pub(crate) failed: u64,
}

impl Counts {
    /// As a line, which [`parse`](Self::parse) reads.
    fn line(&self) -> String {
        let Self { asked, granted, given_up, revoked, lost, failed } = self;
        format!("! {asked} {granted} {given_up} {revoked} {lost} {failed}")
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let numbers: Result<Vec<u64>, _> = line.strip_prefix("! ")?.split(' ').map(str::parse).collect();
        let &[asked, granted, given_up, revoked, lost, failed] = &numbers.ok()?[..] else { return None };
        Some(Self { asked, granted, given_up, revoked, lost, failed })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.granted += other.granted;
        self.given_up += other.given_up;
        self.revoked += other.revoked;
        self.lost += other.lost;
        self.failed += other.failed;
    }
}

/// What all tasks share.
#[derive(Default)]
struct Shared {
    semaphores: Vec<Semaphore>,
    stopping: AtomicBool,
    asked: AtomicU64,
    granted: AtomicU64,
    given_up: AtomicU64,
    revoked: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
}

/// Is a client until told to stop.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let &[url, number, tasks, seed] = words else {
        return Err("a client of the soak is started by `permits-lab soak`".into());
    };
    let (tasks, seed): (u64, u64) = (tasks.parse()?, seed.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = listen();
        let client = connect(url, number).await;
        let semaphores = (0..SEMAPHORES).map(|index| client.semaphore(name(index), LIMITS.start)).collect();
        let shared = Arc::new(Shared { semaphores, ..Shared::default() });
        let mut running = JoinSet::new();
        for task in 0..tasks {
            running.spawn(work(shared.clone(), fastrand::Rng::with_seed(seed.wrapping_add(task))));
        }
        stop.notified().await;
        shared.stopping.store(true, Relaxed);
        while let Some(ended) = running.join_next().await {
            ended?;
        }
        println!("{}", shared.counts().line());
        Ok(client.close().await?)
    })
}

/// One that takes the place of a killed one may find the store away.
async fn connect(url: &str, number: &str) -> Client {
    loop {
        let builder = Client::builder(url).label(format!("soak-{number}")).lease(Duration::from_secs(5));
        match builder.connect().await {
            Ok(client) => return client,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Told once, when standard input has a line. With its end the process ends.
fn listen() -> Arc<Notify> {
    let stop = Arc::new(Notify::new());
    let told = stop.clone();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            told.notify_one();
        }
        std::process::exit(0);
    });
    stop
}

impl Shared {
    fn counts(&self) -> Counts {
        Counts {
            asked: self.asked.load(Relaxed),
            granted: self.granted.load(Relaxed),
            given_up: self.given_up.load(Relaxed),
            revoked: self.revoked.load(Relaxed),
            lost: self.lost.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

async fn work(shared: Arc<Shared>, mut random: fastrand::Rng) {
    while !shared.stopping.load(Relaxed) {
        shared.asked.fetch_add(1, Relaxed);
        match acquire(&shared, &mut random).await {
            Ok(permit) => {
                shared.granted.fetch_add(1, Relaxed);
                hold(&shared, &mut random, permit).await;
            }
            Err(AcquireError::Revoked { .. }) => drop(shared.revoked.fetch_add(1, Relaxed)),
            Err(error) if error.is_not_now() => drop(shared.given_up.fetch_add(1, Relaxed)),
            Err(error) => {
                // The first few say enough.
                if shared.failed.fetch_add(1, Relaxed) < 3 {
                    eprintln!("an acquisition failed: {error}");
                }
            }
        }
        sleep(Duration::from_millis(random.u64(0..200))).await;
    }
}

/// Asks some semaphore for some units, with some lease; waits, or for a while, or is dropped after a while.
async fn acquire(shared: &Shared, random: &mut fastrand::Rng) -> Result<Permit, AcquireError> {
    let semaphore = &shared.semaphores[random.usize(..SEMAPHORES)];
    let weight = if random.bool() { 1 } else { random.u32(1..=5) };
    let lease = Duration::from_secs([1, 2, 5, 10, 30][random.usize(..5)]);
    let options = AcquireOptions::new().weight(weight).lease(lease);
    let timeout = Duration::from_millis(random.u64(0..10_000));
    match random.u32(0..10) {
        0 | 1 => semaphore.acquire_with(options.wait(timeout)).await,
        2 => {
            let acquired = tokio::time::timeout(timeout, semaphore.acquire_with(options)).await;
            acquired.unwrap_or(Err(AcquireError::TimedOut { waited: timeout }))
        }
        _ => semaphore.acquire_with(options).await,
    }
}

/// Holds it for a while, and releases or drops it.
async fn hold(shared: &Shared, random: &mut fastrand::Rng, permit: Permit) {
    let work = sleep(Duration::from_millis(random.u64(50..500)));
    let mut lost = permit.run(work).await.is_err();
    if !lost && random.u32(0..4) > 0 {
        lost = permit.release().await.is_err();
    }
    shared.lost.fetch_add(u64::from(lost), Relaxed);
}

#[cfg(test)]
#[test]
fn counts_survive_the_line() {
    let counts = Counts { asked: 1, granted: 2, given_up: 3, revoked: 4, lost: 5, failed: 6 };
    assert_eq!(Counts::parse(&counts.line()), Some(counts));
}
