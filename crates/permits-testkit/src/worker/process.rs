//! The worker's side: a process that executes commands and reports what happens to its acquisitions.

use std::collections::HashMap;
use std::env;
use std::future::poll_fn;
use std::io::BufRead as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, ClientBuilder, Ended, Permit, Semaphore};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Counts, SEMAPHORE, SETTINGS, Wait, Work, WorkerCommand, WorkerSettings, draw_time};
use crate::FencedClient;
use crate::fork::{Forked, fork};
use crate::history::{ClientEvent, deadline, now, report_at};
use crate::wait::HANGS;

/// Longer than any permit is held: the step of a worker that reports none.
const NO_STEP: Duration = Duration::from_secs(24 * 3600);

/// The time between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(100);

/// The holder of an acquisition: the name by which the store and the fenced resource know it.
pub fn holder(settings: &WorkerSettings, tag: &str) -> String {
    format!("{}.{tag}", label(settings))
}

/// The label of a worker's client.
fn label(settings: &WorkerSettings) -> String {
    format!("{}.{}", settings.label, settings.number)
}

/// The id of the process whose client named this holder; `None` for a holder that a request named.
pub fn parse_unique_holder(holder: &str) -> Option<u32> {
    let (process, _) = holder.split_once('/')?;
    process.rsplit_once(':')?.1.parse().ok()
}

/// The worker and the tag of a holder; `None` for a holder that is not a worker's.
pub fn parse_holder(holder: &str) -> Option<(usize, &str)> {
    let (_, rest) = holder.split_once('.')?;
    let (number, tag) = rest.split_once('.')?;
    Some((number.parse().ok()?, tag))
}

/// Runs this process as a worker until the command to close, if a [`WorkerPool`](super::WorkerPool) started
/// it. Returns at once otherwise.
pub fn run_if_started() {
    let Ok(settings) = env::var(SETTINGS) else { return };
    let settings: WorkerSettings = serde_json::from_str(&settings).expect("a pool writes whole settings");
    // Ends the line that a test harness may have begun.
    println!();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("the system has an event queue to give").block_on(serve(settings));
}

/// The state that all acquisitions of a worker share.
struct Shared {
    settings: WorkerSettings,
    client: Client,
    semaphores: Vec<Semaphore>,
    fence: Option<Mutex<FencedClient>>,
    stopping: AtomicBool,
    counts: Mutex<Counts>,
}

async fn serve(settings: WorkerSettings) {
    let mut commands = read_commands();
    let client = connect(&settings).await;
    let semaphores = settings
        .semaphores
        .iter()
        .map(|name| client.semaphore(name, settings.limit).expect("valid"))
        .map(|semaphore| semaphore.keep(settings.keep.unwrap_or_default()))
        .collect();
    let fence = settings.fence.as_deref().map(|path| {
        let fence = FencedClient::connect(path).expect("the resource outlives its workers");
        Mutex::new(fence)
    });
    let shared = Arc::new(Shared {
        settings,
        client: client.clone(),
        semaphores,
        fence,
        stopping: AtomicBool::new(false),
        counts: Mutex::default(),
    });
    shared.report("-", ClientEvent::Connected);
    let mut releases = HashMap::new();
    let (mut loops, mut children) = (JoinSet::new(), Vec::<Forked>::new());
    while let Some(command) = commands.recv().await {
        match command {
            WorkerCommand::Acquire { tag, hold } => {
                let release = Arc::new(Notify::new());
                releases.insert(tag.clone(), release.clone());
                acquire(&shared, tag, hold, release).await;
            }
            WorkerCommand::Release { tag } => releases[&tag].notify_one(),
            WorkerCommand::Work(work) => {
                let work = Arc::new(work);
                for number in 0..work.loops {
                    loops.spawn(run_loop(shared.clone(), work.clone(), number));
                }
            }
            WorkerCommand::Stop => {
                shared.stopping.store(true, Ordering::Relaxed);
                while let Some(ended) = loops.join_next().await {
                    ended.expect("a loop does not panic");
                }
                // The children are awaited after the loops: the wait blocks the runtime, and a child may need
                // a permit that a loop holds.
                children.drain(..).for_each(|child| shared.await_child(child));
                let counts = lock(&shared.counts).clone();
                shared.report("-", ClientEvent::Stopped(counts));
            }
            WorkerCommand::Fork => children.push(fork(|| run_child(&shared))),
            WorkerCommand::Close => {
                let outcome = client.close().await;
                return shared.report("-", ClientEvent::Closed(outcome.map_err(|error| error.to_string())));
            }
        }
    }
}

fn builder(settings: &WorkerSettings) -> ClientBuilder {
    Client::builder(&settings.url).label(label(settings)).prefix(&settings.prefix).lease(settings.lease)
}

/// Connects, and retries while the store is down: a worker may be started during a fault.
async fn connect(settings: &WorkerSettings) -> Client {
    loop {
        match builder(settings).connect().await {
            Ok(client) => return client,
            Err(error) => {
                eprintln!("worker {} cannot connect yet: {error}", settings.number);
                sleep(RECONNECT).await;
            }
        }
    }
}

/// Commands from standard input, read by a thread because such a read cannot be cancelled.
fn read_commands() -> mpsc::UnboundedReceiver<WorkerCommand> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let command = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
            if sender.send(command).is_err() {
                return;
            }
        }
        // The pool has ended.
        std::process::exit(0);
    });
    receiver
}

/// Sends the request before it returns, so that requests are sent in the order of their commands; a task does
/// the rest.
async fn acquire(shared: &Arc<Shared>, tag: String, hold: Option<Duration>, release: Arc<Notify>) {
    shared.report_asked(&tag, &shared.semaphores[0], 1);
    let (shared, semaphore) = (shared.clone(), shared.semaphores[0].clone());
    let options = options(&shared.settings, &tag);
    let mut acquiring = Box::pin(async move { semaphore.acquire_with(options).await });
    let first = poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context))).await;
    tokio::spawn(async move {
        let result = match first {
            Poll::Ready(result) => result,
            Poll::Pending => acquiring.await,
        };
        let Some(permit) = shared.granted(&tag, result, false) else { return };
        match hold {
            Some(hold) => shared.hold(&tag, permit, sleep(hold), false).await,
            None => shared.hold(&tag, permit, release.notified(), false).await,
        }
    });
}

fn options(settings: &WorkerSettings, tag: &str) -> AcquireOptions {
    let options = AcquireOptions::new();
    if settings.keep.is_some() { options } else { options.holder(holder(settings, tag)) }
}

/// Takes turns until the worker stops.
async fn run_loop(shared: Arc<Shared>, work: Arc<Work>, number: usize) {
    let settings = &shared.settings;
    let seed = settings.seed.wrapping_add((settings.number * 10_000 + number) as u64);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut turn = 0;
    while !shared.stopping.load(Ordering::Relaxed) {
        turn += 1;
        take_turn(&shared, &work, &format!("loop{number}.{turn}"), &mut random).await;
        let rest = work.rest.draw(&mut random);
        sleep(draw_time(&mut random, rest)).await;
    }
}

fn is_outage(error: &AcquireError) -> bool {
    matches!(error, AcquireError::Store(error) if error.is_temporary())
}

/// Acquires all semaphores at once. Each request of the set is an acquisition of its own in the records.
async fn take_set(shared: &Shared, work: &Work, tag: &str, random: &mut fastrand::Rng) {
    let weight = *work.weight.draw(random);
    let held_times = work.hold.draw(random);
    let hold = draw_time(random, held_times);
    let wait = work.wait.draw(random).clone();
    let limit = match &wait {
        Wait::Granted => HANGS,
        Wait::Timeout(times) | Wait::Cancel(times) => draw_time(random, times),
    };
    let tags: Vec<String> = (0..shared.semaphores.len()).map(|number| format!("{tag}.{number}")).collect();
    let requests = shared.semaphores.iter().zip(&tags).map(|(semaphore, tag)| {
        shared.report_asked(tag, semaphore, weight);
        (semaphore.clone(), options(&shared.settings, tag).weight(weight))
    });
    let acquiring = shared.client.acquire_all(requests.collect::<Vec<_>>());
    let told = match timeout(limit, acquiring).await {
        Ok(Ok(set)) => {
            let permits = set.into_permits().into_iter().map(|permit| {
                let number = shared.semaphores.iter().position(|one| one.name() == permit.semaphore());
                (&tags[number.expect("it was asked for")], permit)
            });
            let held = permits.map(|(tag, permit)| {
                let permit = shared.granted(tag, Ok(permit), false).expect("it is granted");
                shared.hold(tag, permit, sleep(hold), false)
            });
            let mut held: Vec<_> = held.collect();
            let (Some(one), Some(other), None) = (held.pop(), held.pop(), held.pop()) else {
                panic!("a set is of two semaphores");
            };
            tokio::join!(one, other);
            return;
        }
        Ok(Err(error)) => ClientEvent::Failed(error.to_string()),
        Err(_) => ClientEvent::GaveUp("it was cancelled".to_owned()),
    };
    tags.iter().for_each(|tag| shared.report(tag, told.clone()));
}

async fn take_turn(shared: &Shared, work: &Work, tag: &str, random: &mut fastrand::Rng) {
    if work.sets && random.bool() {
        return take_set(shared, work, tag, random).await;
    }
    let semaphore = &shared.semaphores[random.usize(..shared.semaphores.len())];
    let weight = *work.weight.draw(random);
    let mut options = options(&shared.settings, tag).weight(weight);
    if let Some(lease) = &work.lease {
        options = options.lease(*lease.draw(random));
    }
    let mut in_lane = None;
    if work.lanes > 0 {
        let lane = random.u32(1..=work.lanes);
        in_lane = Some(format!("lane-{lane}"));
        options = options.lane(format!("lane-{lane}")).share(lane);
        if work.lane_limit > 0 {
            options = options.lane_limit(work.lane_limit);
        }
        if lane.is_multiple_of(2) {
            options = options.lane_floor(work.lane_floor);
        }
    }
    let wait = work.wait.draw(random).clone();
    let held_times = work.hold.draw(random);
    let hold = draw_time(random, held_times);
    let is_dropped = random.f64() < work.dropped;
    shared.report_asked(tag, semaphore, weight);
    if let Some(lane) = in_lane.filter(|_| work.lane_limit > 0) {
        shared.report(tag, ClientEvent::InLane { lane, limit: work.lane_limit });
    }
    let (may_give_up, result) = match wait {
        Wait::Granted => (false, semaphore.acquire_with(options).await),
        Wait::Timeout(times) => {
            let options = options.timeout(draw_time(random, &times));
            (true, semaphore.acquire_with(options).await)
        }
        Wait::Cancel(times) => {
            let waited = draw_time(random, &times);
            let result = timeout(waited, semaphore.acquire_with(options)).await;
            (
                true,
                result.unwrap_or(Err(AcquireError::TimedOut { waited, inspection: None, retry_after: None })),
            )
        }
    };
    if let Some(permit) = shared.granted(tag, result, may_give_up) {
        shared.hold(tag, permit, sleep(hold), is_dropped).await;
    }
}

impl Shared {
    fn report(&self, tag: &str, event: ClientEvent) {
        self.report_at(now(), tag, event);
    }

    fn report_at(&self, at: u64, tag: &str, event: ClientEvent) {
        // The tag of the worker itself.
        if tag == "-" || self.settings.step.is_some() {
            report_at(at, tag, event);
        }
    }

    fn await_child(&self, mut child: Forked) {
        let ended = child.wait(HANGS);
        if ended != Some(0) {
            self.report("-", ClientEvent::Failed(format!("a forked child ended with {ended:?}")));
        }
    }

    fn report_asked(&self, tag: &str, semaphore: &Semaphore, weight: u32) {
        lock(&self.counts).asked += 1;
        self.report(tag, ClientEvent::Asked { weight });
        if semaphore.name() != SEMAPHORE {
            self.report(tag, ClientEvent::InLine(semaphore.name().to_owned()));
        }
    }

    /// Reports the outcome of a request. Returns the permit.
    fn granted(&self, tag: &str, result: Result<Permit, AcquireError>, may_give_up: bool) -> Option<Permit> {
        let mut counts = lock(&self.counts);
        let (count, event) = match result {
            Ok(permit) => {
                counts.granted += 1;
                counts.granted_again += u64::from(permit.is_granted_again());
                drop(counts);
                let (at, until) = deadline(|| permit.remaining());
                self.report_at(at, tag, acquired(&permit, until));
                return Some(permit);
            }
            // The store may be unreachable when the time is up.
            Err(error) if may_give_up && (error.is_not_now() || is_outage(&error)) => {
                (&mut counts.given_up, ClientEvent::GaveUp(error.to_string()))
            }
            Err(AcquireError::Revoked { reason }) => {
                (&mut counts.revoked, ClientEvent::Failed(reason.to_string()))
            }
            Err(error) => (&mut counts.failed, ClientEvent::Failed(error.to_string())),
        };
        *count += 1;
        self.report(tag, event);
        None
    }

    /// Works step by step until the permit is lost or `done` is ready.
    async fn hold(&self, tag: &str, permit: Permit, done: impl Future<Output = ()>, is_dropped: bool) {
        let step = self.settings.step.unwrap_or(NO_STEP);
        let mut done = pin!(done);
        self.step(tag, &permit);
        let lost = loop {
            tokio::select! {
                biased;
                () = sleep(step) => self.step(tag, &permit),
                reason = permit.lost() => break Some(reason),
                () = &mut done => break None,
            }
        };
        if let Some(reason) = lost {
            lock(&self.counts).lost += 1;
            self.write(tag, &permit, "late");
            // The permit is dropped after this report, when the work has stopped.
            return self.report(tag, ClientEvent::Lost(reason.to_string()));
        }
        self.report(tag, ClientEvent::Releasing);
        let outcome = if is_dropped {
            drop(permit);
            Ok(())
        } else {
            permit.release().await.map_err(|error| error.to_string())
        };
        lock(&self.counts).lost += u64::from(outcome.is_err());
        self.report(tag, ClientEvent::Released(outcome));
    }

    /// Does a step of the work, if the permit is held.
    fn step(&self, tag: &str, permit: &Permit) {
        let (at, until) = deadline(|| permit.remaining());
        if !permit.is_held() {
            return self.report(tag, ClientEvent::NotHeld);
        }
        self.report_at(at, tag, ClientEvent::Held { until });
        if !self.write(tag, permit, "held") && permit.is_held() {
            self.report(tag, ClientEvent::Rejected);
        }
    }

    /// Writes to the fenced resource. Returns whether the resource accepted the write; `true` without a
    /// resource.
    fn write(&self, tag: &str, permit: &Permit, when: &str) -> bool {
        // The resource belongs to the workers' semaphore.
        let fence = self.fence.as_ref().filter(|_| permit.semaphore() == SEMAPHORE);
        let Some(fence) = fence else { return true };
        let data = format!("{} {when}", holder(&self.settings, tag));
        let written = lock(fence).write(permit.slot(), permit.token(), &data);
        written.expect("the resource outlives its workers").is_ok()
    }
}

fn acquired(permit: &Permit, until: u64) -> ClientEvent {
    let again = permit.is_granted_again();
    ClientEvent::Acquired { token: permit.token(), slot: permit.slot(), until, again }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child of this process by fork(2) alone. The inherited client refuses at once; a client of the child's
/// own takes a turn in the same queue.
fn run_child(shared: &Shared) {
    let asked = pin!(shared.semaphores[0].try_acquire()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        matches!(asked, Poll::Ready(Err(AcquireError::Ended(Ended::Forked)))),
        "the parent's client in a child: {asked:?}"
    );
    // The thread that forked is in the parent's runtime, in which nothing may block.
    let settings = shared.settings.clone();
    std::thread::spawn(move || take_turn_of_child(&settings)).join().expect("the turn of the child comes");
}

fn take_turn_of_child(settings: &WorkerSettings) {
    let client = builder(settings).connect().wait().expect("the store is up while workers fork");
    let tag = format!("child.{}", std::process::id());
    report_at(now(), &tag, ClientEvent::Asked { weight: 1 });
    let options = AcquireOptions::new().holder(holder(settings, &tag));
    let semaphore = client.semaphore(&settings.semaphores[0], settings.limit).expect("valid");
    let permit = semaphore.acquire_with(options).wait().expect("the turn of the child comes");
    let (at, until) = deadline(|| permit.remaining());
    report_at(at, &tag, acquired(&permit, until));
    std::thread::sleep(settings.step.unwrap_or_default());
    report_at(now(), &tag, ClientEvent::Releasing);
    let outcome = permit.release().wait().map_err(|error| error.to_string());
    report_at(now(), &tag, ClientEvent::Released(outcome));
    client.close().wait().expect("the store is up while workers fork");
}

#[test]
fn a_holder_tells_its_worker() {
    let settings = WorkerSettings { number: 3, ..WorkerSettings::new(1, NO_STEP) };
    assert_eq!(parse_holder(&holder(&settings, "loop1.20")), Some((3, "loop1.20")));
    assert_eq!(parse_holder("web-3"), None);
    assert_eq!(parse_unique_holder("web-3:20098/5e1.7"), Some(20_098));
    assert_eq!(parse_unique_holder("worker.3.loop1.20"), None);
}
