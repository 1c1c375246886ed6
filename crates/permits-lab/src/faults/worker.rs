//! A client in a process of its own: it acquires, works, releases, over and over, and tells what happens to it.
//!
//! Before each step of its work it asks the permit whether it is held, as a careful program would, and then writes to
//! the fenced resource. When it has lost a permit it writes once more, on purpose: the late write that a suspended
//! program might make, for the resource to judge.
//!
//! It is told to stop over standard input, and ends with it: no worker outlives who started it.

use std::future::Future as _;
use std::io::{BufRead as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, Permit, Semaphore, blocking};
use permits_testkit::FencedClient;
use permits_testkit::fork::fork;
use permits_testkit::history::{ClientEvent, ClientRecord, deadline, now, report, report_at};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Failure;

/// The semaphore of all workers. Each cell has a store of its own.
pub(crate) const SEMAPHORE: &str = "faults";

/// How many loops a worker runs at once.
const LOOPS: usize = 2;

/// How long a step takes.
const STEP: Duration = Duration::from_millis(20);

/// How long a forked child may take for its one turn.
const CHILD_LIMIT: Duration = Duration::from_secs(20);

/// What the line begins with that tells of a write refused to somebody who held, before and after it.
const REJECTED: &str = "! rejected ";

/// What a worker is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) url: String,
    pub(crate) number: usize,
    pub(crate) limit: u32,
    pub(crate) lease: Duration,
    pub(crate) seed: u64,
    pub(crate) prefix: String,
    /// The socket of the fenced resource.
    pub(crate) fence: String,
}

impl Settings {
    /// As the words of a command line.
    pub(crate) fn words(&self) -> [String; 7] {
        let Self { url, number, limit, lease, seed, prefix, fence } = self.clone();
        let numbers = [number as u64, u64::from(limit), lease.as_millis() as u64, seed];
        let [number, limit, lease, seed] = numbers.map(|number| number.to_string());
        [url, number, limit, lease, seed, prefix, fence]
    }

    fn parse(words: &[&str]) -> Result<Self, Failure> {
        let &[url, number, limit, lease, seed, prefix, fence] = words else {
            return Err("a worker is started by `permits-lab faults`".into());
        };
        Ok(Self {
            url: url.to_owned(),
            number: number.parse()?,
            limit: limit.parse()?,
            lease: Duration::from_millis(lease.parse()?),
            seed: seed.parse()?,
            prefix: prefix.to_owned(),
            fence: fence.to_owned(),
        })
    }
}

/// The holder's name of an acquisition, by which it is found in the line.
fn holder(number: usize, tag: &str) -> String {
    format!("w{number}.{tag}")
}

/// Whose acquisition this holder is.
pub(crate) fn of_holder(holder: &str) -> Option<(usize, String)> {
    let (number, tag) = holder.strip_prefix('w')?.split_once('.')?;
    Some((number.parse().ok()?, tag.to_owned()))
}

/// The tag of the acquisition whose holder was refused a write, if the line says so.
pub(crate) fn rejected(line: &str) -> Option<&str> {
    line.strip_prefix(REJECTED)
}

/// What all loops of a worker share.
struct Shared {
    settings: Settings,
    semaphore: Semaphore,
    fence: Mutex<FencedClient>,
    stopping: AtomicBool,
}

/// Is a worker until told to end.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let settings = Settings::parse(words)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(settings))
}

async fn serve(settings: Settings) -> Result<(), Failure> {
    let mut told = listen();
    let client = connect(&settings).await;
    let shared = Arc::new(Shared {
        semaphore: client.semaphore(SEMAPHORE, settings.limit),
        fence: Mutex::new(FencedClient::connect(Path::new(&settings.fence))?),
        stopping: AtomicBool::new(false),
        settings,
    });
    report("-", ClientEvent::Connected);
    let mut children = Vec::new();
    let mut loops = JoinSet::new();
    for number in 0..LOOPS {
        loops.spawn(work(shared.clone(), number));
    }
    while let Some(word) = told.recv().await {
        match word.as_str() {
            "fork" => children.push(fork(|| be_a_child(&shared))),
            "stop" => {
                shared.stopping.store(true, Ordering::Relaxed);
                for mut child in children.drain(..) {
                    match child.wait(CHILD_LIMIT) {
                        Some(0) => {}
                        ended => {
                            report("-", ClientEvent::Failed(format!("a forked child ended with {ended:?}")))
                        }
                    }
                }
                while let Some(ended) = loops.join_next().await {
                    ended?;
                }
                report("-", ClientEvent::Stopped);
            }
            "close" => {
                let outcome = client.close().await;
                report(
                    "-",
                    ClientEvent::Closed(outcome.map_or_else(|error| error.to_string(), |()| "ok".to_owned())),
                );
                return Ok(());
            }
            other => return Err(format!("a worker does not know {other:?}").into()),
        }
    }
    Ok(())
}

/// A child of this process by fork(2) alone. What it has inherited is refused at once; a client of its own takes a turn
/// in the same line, and the parent goes on.
fn be_a_child(shared: &Shared) {
    let asked = pin!(shared.semaphore.try_acquire()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        matches!(asked, Poll::Ready(Err(AcquireError::Forked))),
        "the parent's client in a child: {asked:?}"
    );

    // The thread that forked is in the parent's runtime, in which nothing may block.
    let settings = shared.settings.clone();
    let turn = std::thread::spawn(move || take_a_childs_turn(&settings));
    turn.join().expect("its turn comes");
}

fn take_a_childs_turn(settings: &Settings) {
    let Settings { url, number, prefix, limit, lease, .. } = settings;
    let builder = Client::builder(url).label(format!("w{number}")).prefix(prefix).lease(*lease);
    let client = blocking::Client::connect_with(builder).expect("the store is up while workers fork");
    let tag = format!("child.{}", std::process::id());
    tell_past_locks(now(), &tag, ClientEvent::Asked { weight: 1 });
    let acquired =
        client.semaphore(SEMAPHORE, *limit).acquire_with(AcquireOptions::new().holder(holder(*number, &tag)));
    let permit = acquired.expect("its turn comes");
    let (at, until) = deadline(|| permit.remaining());
    tell_past_locks(at, &tag, ClientEvent::Acquired { token: permit.token(), slot: permit.slot(), until });
    std::thread::sleep(STEP);
    tell_past_locks(now(), &tag, ClientEvent::Releasing);
    let released = permit.release();
    let outcome = released.map_or_else(|error| error.to_string(), |()| "ok".to_owned());
    tell_past_locks(now(), &tag, ClientEvent::Released(outcome));
    client.close().expect("the store is up while workers fork");
}

/// Tells without the lock of standard output, which a thread of the parent may have held at the fork.
fn tell_past_locks(at: u64, tag: &str, what: ClientEvent) {
    let output = std::io::stdout().as_fd().try_clone_to_owned().expect("standard output is open");
    let event = ClientRecord { at, tag: tag.to_owned(), event: what };
    std::fs::File::from(output).write_all(format!("{event}\n").as_bytes()).expect("the harness reads it");
}

/// A worker that takes the place of a killed one may find the store away.
async fn connect(settings: &Settings) -> Client {
    loop {
        let builder = Client::builder(&settings.url)
            .label(format!("w{}", settings.number))
            .prefix(&settings.prefix)
            .lease(settings.lease);
        match builder.connect().await {
            Ok(client) => return client,
            Err(error) => {
                eprintln!("worker {} cannot connect yet: {error}", settings.number);
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// What it is told, read by a thread of its own: a read of standard input cannot be cancelled.
fn listen() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                return;
            }
        }
        // Nobody is there any more.
        std::process::exit(0);
    });
    receiver
}

/// Takes turns until told to stop.
async fn work(shared: Arc<Shared>, number: usize) {
    let mut random = fastrand::Rng::with_seed(shared.settings.seed.wrapping_add(number as u64));
    let mut turn = 0;
    while !shared.stopping.load(Ordering::Relaxed) {
        turn += 1;
        take_turn(&shared, &mut random, &format!("{number}.{turn}")).await;
        sleep(Duration::from_millis(random.u64(0..20))).await;
    }
}

/// Acquires, holds and releases. Some acquisitions give up after a while, some are cancelled.
async fn take_turn(shared: &Shared, random: &mut fastrand::Rng, tag: &str) {
    let weight = if shared.settings.limit > 1 && random.u32(0..4) == 0 { 2 } else { 1 };
    let options = AcquireOptions::new().weight(weight).holder(holder(shared.settings.number, tag));
    let (way, timeout) = (random.u32(0..10), random.u64(0..1500));
    // Mostly short, so that much happens; some beyond the lease, to be held while it is in doubt.
    let hold = Duration::from_millis(match random.u32(0..20) {
        0 => random.u64(2000..4500),
        1 | 2 => random.u64(500..1500),
        3..9 => random.u64(50..400),
        _ => random.u64(2..30),
    });
    report(tag, ClientEvent::Asked { weight });
    let acquired = match way {
        0 => {
            let limit = Duration::from_millis(50 + timeout);
            shared.semaphore.acquire_with(options.wait(limit)).await
        }
        1 => {
            let limit = Duration::from_millis(timeout / 5);
            let Ok(acquired) = tokio::time::timeout(limit, shared.semaphore.acquire_with(options)).await
            else {
                return report(tag, ClientEvent::Failed("not now: cancelled".to_owned()));
            };
            acquired
        }
        _ => shared.semaphore.acquire_with(options).await,
    };
    match acquired {
        Ok(permit) => use_permit(shared, tag, permit, hold).await,
        Err(error) if error.is_not_now() => report(tag, ClientEvent::Failed(format!("not now: {error}"))),
        Err(error) => report(tag, ClientEvent::Failed(error.to_string())),
    }
}

/// Works step by step until the permit is lost or the work is done.
async fn use_permit(shared: &Shared, tag: &str, permit: Permit, hold: Duration) {
    let (at, until) = deadline(|| permit.remaining());
    report_at(at, tag, ClientEvent::Acquired { token: permit.token(), slot: permit.slot(), until });
    let mut done = pin!(sleep(hold));
    step(shared, tag, &permit);
    let lost = loop {
        tokio::select! {
            biased;
            () = sleep(STEP) => step(shared, tag, &permit),
            reason = permit.lost() => break Some(reason),
            () = &mut done => break None,
        }
    };
    if let Some(reason) = lost {
        write(shared, tag, &permit, "late");
        // Dropped only now, when the work has stopped.
        return report(tag, ClientEvent::Lost(reason.to_string()));
    }
    report(tag, ClientEvent::Releasing);
    let outcome = permit.release().await;
    report(tag, ClientEvent::Released(outcome.map_or_else(|error| error.to_string(), |()| "ok".to_owned())));
}

/// Looks whether the permit is held, and if so works.
fn step(shared: &Shared, tag: &str, permit: &Permit) {
    let (at, until) = deadline(|| permit.remaining());
    if !permit.is_held() {
        return report(tag, ClientEvent::NotHeld);
    }
    report_at(at, tag, ClientEvent::Held { until });
    if !write(shared, tag, permit, "held") && permit.is_held() {
        // One write, as each line of the others, so that lines don't mix.
        let _ = std::io::stdout().lock().write_all(format!("{REJECTED}{tag}\n").as_bytes());
    }
}

/// Writes to the fenced resource; whether that took it.
fn write(shared: &Shared, tag: &str, permit: &Permit, when: &str) -> bool {
    let data = format!("{} {when}", holder(shared.settings.number, tag));
    let mut fence = shared.fence.lock().unwrap_or_else(PoisonError::into_inner);
    let written = fence.write(permit.slot(), permit.token(), &data);
    written.expect("the resource is there as long as its workers").is_ok()
}

#[cfg(test)]
#[test]
fn settings_survive_the_command_line() {
    let settings = Settings {
        url: "redis://127.0.0.1:1/".to_owned(),
        number: 3,
        limit: 5,
        lease: Duration::from_secs(2),
        seed: 7,
        prefix: "permits".to_owned(),
        fence: "/tmp/fence".to_owned(),
    };
    let words = settings.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(Settings::parse(&words).expect("it is whole"), settings);
    assert_eq!(of_holder(&holder(3, "1.20")), Some((3, "1.20".to_owned())));
}
