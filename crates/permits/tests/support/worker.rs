//! A worker: a process that acquires, holds and releases as it is told, and tells what happens to it.
//!
//! It is told over standard input, a line a command, and ends with it: no worker outlives its test.
//!
//! What a permit protects is simulated by steps. Before each step the worker asks the permit whether it is
//! held, as a careful program would, and before it listens to the signal of the loss.

use std::collections::HashMap;
use std::env;
use std::future::{Future, poll_fn};
use std::io::BufRead as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use permits::{AcquireOptions, Client, Permit, Recovery, Semaphore};
use permits_testkit::history::{ClientEvent, deadline, record, report, report_at};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// The semaphore of all workers. Each test has a store of its own.
pub(crate) const SEMAPHORE: &str = "faults";

/// The bound of the line: a number that occurs nowhere else, by which a request to acquire is recognized.
pub(crate) const MAX_WAITERS: u32 = 98_765;

/// The test's name under which the harness runs a worker.
pub(crate) const TEST: &str = "worker_process";

pub(crate) const URL: &str = "PERMITS_FAULTS_URL";
pub(crate) const LABEL: &str = "PERMITS_FAULTS_LABEL";
pub(crate) const LEASE_MS: &str = "PERMITS_FAULTS_LEASE_MS";
pub(crate) const LIMIT: &str = "PERMITS_FAULTS_LIMIT";
pub(crate) const RECOVERY: &str = "PERMITS_FAULTS_RECOVERY";

/// How long a step takes.
const STEP: Duration = Duration::from_millis(20);

/// What a worker can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Acquire a permit, and release it after so long, or when told.
    Acquire {
        tag: String,
        hold: Option<Duration>,
    },
    Release {
        tag: String,
    },
    /// Begin so many loops that acquire, hold for at most so long, release, and rest for at most so long.
    Work {
        loops: u32,
        hold: Duration,
    },
    /// End the loops when each has released.
    Stop,
    Inspect,
    Close,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Acquire { tag, hold: None } => write!(f, "acquire {tag}"),
            Self::Acquire { tag, hold: Some(hold) } => write!(f, "acquire {tag} {}", hold.as_micros()),
            Self::Release { tag } => write!(f, "release {tag}"),
            Self::Work { loops, hold } => write!(f, "work {loops} {}", hold.as_micros()),
            Self::Stop => write!(f, "stop"),
            Self::Inspect => write!(f, "inspect"),
            Self::Close => write!(f, "close"),
        }
    }
}

impl Told {
    fn parse(line: &str) -> Option<Self> {
        let micros = |word: &str| word.parse().ok().map(Duration::from_micros);
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["acquire", tag] => Self::Acquire { tag: tag.to_owned(), hold: None },
            ["acquire", tag, hold] => Self::Acquire { tag: tag.to_owned(), hold: Some(micros(hold)?) },
            ["release", tag] => Self::Release { tag: tag.to_owned() },
            ["work", loops, hold] => Self::Work { loops: loops.parse().ok()?, hold: micros(hold)? },
            ["stop"] => Self::Stop,
            ["inspect"] => Self::Inspect,
            ["close"] => Self::Close,
            _ => return None,
        })
    }
}

/// Is a worker if the environment says so.
pub(crate) fn run_if_told() {
    let Ok(url) = env::var(URL) else { return };
    // The harness may have begun a line.
    println!();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has an event queue to give");
    runtime.block_on(serve(&url));
}

/// What a recovery is called in the worker's environment.
pub(crate) fn name_of(recovery: Recovery) -> String {
    format!("{recovery:?}")
}

fn setting(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
}

async fn serve(url: &str) {
    let lease = setting(LEASE_MS).parse().map(Duration::from_millis).expect("the lease is a number");
    let recoveries = [Recovery::Off, Recovery::Interval, Recovery::Strict];
    let recovery = recoveries.into_iter().find(|recovery| name_of(*recovery) == setting(RECOVERY));
    record();
    let client = Client::builder(url)
        .label(setting(LABEL))
        .lease(lease)
        .recovery(recovery.expect("the recovery is one of these"))
        .max_waiters(MAX_WAITERS)
        .connect()
        .await
        .expect("the store can be reached");
    let semaphore = client.semaphore(SEMAPHORE, setting(LIMIT).parse().expect("the limit is a number"));
    report("-", ClientEvent::Connected);
    let mut told = listen();
    let mut releases = HashMap::new();
    let mut loops = JoinSet::new();
    let stopping = Arc::new(AtomicBool::new(false));
    while let Some(command) = told.recv().await {
        match command {
            Told::Acquire { tag, hold } => {
                let release = Arc::new(Notify::new());
                releases.insert(tag.clone(), release.clone());
                drop(acquire(&semaphore, tag, hold, release).await);
            }
            Told::Release { tag } => releases[&tag].notify_one(),
            Told::Work { loops: count, hold } => {
                for number in 0..count {
                    loops.spawn(work(semaphore.clone(), number, hold, stopping.clone()));
                }
            }
            Told::Stop => {
                stopping.store(true, Ordering::Relaxed);
                while loops.join_next().await.is_some() {}
                report("-", ClientEvent::Stopped);
            }
            Told::Inspect => match semaphore.inspect().await {
                Ok(seen) => {
                    let recovering_ms = u64::try_from(seen.recovering.as_millis()).expect("it is short");
                    let (held, waiting) = (seen.held, seen.waiting);
                    report("-", ClientEvent::Inspected { held, waiting, recovering_ms });
                }
                Err(error) => report("-", ClientEvent::Failed(error.to_string())),
            },
            Told::Close => {
                let outcome = client.close().await;
                report(
                    "-",
                    ClientEvent::Closed(outcome.map_or_else(|error| error.to_string(), |()| "ok".to_owned())),
                );
                return;
            }
        }
    }
}

/// The commands, read by a thread of its own: a read of standard input cannot be cancelled.
fn listen() -> mpsc::UnboundedReceiver<Told> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let told = Told::parse(&line).unwrap_or_else(|| panic!("no command: {line:?}"));
            if sender.send(told).is_err() {
                return;
            }
        }
        // The test is over, however it went.
        std::process::exit(0);
    });
    receiver
}

/// Asks for a permit at once, so that what is told in order is asked for in order; then goes on in a task.
async fn acquire(
    semaphore: &Semaphore,
    tag: String,
    hold: Option<Duration>,
    release: Arc<Notify>,
) -> JoinHandle<()> {
    report(&tag, ClientEvent::Asked { weight: 1 });
    let semaphore = semaphore.clone();
    let mut acquiring = Box::pin(async move { semaphore.acquire_with(AcquireOptions::new()).await });
    let first = poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context))).await;
    tokio::spawn(async move {
        let result = match first {
            Poll::Ready(result) => result,
            Poll::Pending => acquiring.await,
        };
        match (result, hold) {
            (Ok(permit), Some(hold)) => use_permit(&tag, permit, sleep(hold)).await,
            (Ok(permit), None) => use_permit(&tag, permit, release.notified()).await,
            (Err(error), _) => report(&tag, ClientEvent::Failed(error.to_string())),
        }
    })
}

/// Acquires and releases, over and over, until told to stop.
async fn work(semaphore: Semaphore, number: u32, hold: Duration, stopping: Arc<AtomicBool>) {
    let mut turn = 0;
    while !stopping.load(Ordering::Relaxed) {
        turn += 1;
        let tag = format!("loop{number}.{turn}");
        report(&tag, ClientEvent::Asked { weight: 1 });
        match semaphore.acquire().await {
            Ok(permit) => use_permit(&tag, permit, sleep(hold.mul_f64(fastrand::f64()))).await,
            Err(error) => report(&tag, ClientEvent::Failed(error.to_string())),
        }
        sleep(hold.mul_f64(fastrand::f64())).await;
    }
}

/// Works step by step until the permit is lost or `done` is ready.
async fn use_permit(tag: &str, permit: Permit, done: impl Future<Output = ()>) {
    let (at, until) = deadline(|| permit.remaining());
    report_at(at, tag, ClientEvent::Acquired { token: permit.token(), slot: permit.slot(), until });
    let mut done = pin!(done);
    let lost = loop {
        tokio::select! {
            biased;
            () = sleep(STEP) => {
                let (at, until) = deadline(|| permit.remaining());
                if permit.is_held() {
                    report_at(at, tag, ClientEvent::Held { until });
                } else {
                    report(tag, ClientEvent::NotHeld);
                }
            }
            reason = permit.lost() => break Some(reason),
            () = &mut done => break None,
        }
    };
    if let Some(reason) = lost {
        // Dropped only now, when the work has stopped.
        return report(tag, ClientEvent::Lost(reason.to_string()));
    }
    report(tag, ClientEvent::Releasing);
    let outcome = permit.release().await;
    report(tag, ClientEvent::Released(outcome.map_or_else(|error| error.to_string(), |()| "ok".to_owned())));
}

#[test]
fn commands_survive_the_line() {
    let tag = || "a".to_owned();
    for told in [
        Told::Acquire { tag: tag(), hold: None },
        Told::Acquire { tag: tag(), hold: Some(Duration::from_micros(5)) },
        Told::Release { tag: tag() },
        Told::Work { loops: 2, hold: Duration::from_millis(3) },
        Told::Stop,
        Told::Inspect,
        Told::Close,
    ] {
        assert_eq!(Told::parse(&told.to_string()), Some(told));
    }
}
