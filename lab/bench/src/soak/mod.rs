//! `permits-lab soak`: thousands of waiters on many semaphores, for minutes, while limits change, requests
//! are given up and everything fails now and then. At the end nothing may be left, and memory must have been
//! flat.
//!
//! The soak does not verify the bound from outside, because there are too many grants to report each; the
//! fault matrix does. The soak polls the units that the store reports as held.

mod fault_injection;
mod memory;

use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use permits::Client;
use permits_testkit::worker::{Mix, Wait, Work, Worker, WorkerPool, WorkerSettings};
use permits_testkit::{HANGS, Proxy, Resp, Server, wait};

use self::fault_injection::{Done, Operator};
use self::memory::Samples;
use permits_bench::Failure;

use crate::faults;

/// The number of semaphores: the first ones have long queues, the others are mostly free.
pub(crate) const SEMAPHORES: usize = 100;
const CROWDED: usize = 50;

/// The limits: programs declare the lowest, operators set any of them. The heaviest request fits the lowest.
pub(crate) const LIMITS: Range<u32> = 5..20;

/// The processes that live through the soak, and the tasks of each: on crowded semaphores, and on others.
const STEADY: usize = 4;
const TASKS: usize = 1000;
const FEW_TASKS: usize = 50;

/// The tasks of the process that is killed now and then.
const DOOMED_TASKS: usize = 300;

/// The time for which every other process keeps what it releases.
const KEEP: Duration = Duration::from_secs(1);

/// The name of a semaphore.
pub(crate) fn name(index: usize) -> String {
    format!("soak-{index}")
}

fn settings(url: &str, seed: u64) -> WorkerSettings {
    WorkerSettings {
        url: url.to_owned(),
        label: "soak".to_owned(),
        seed,
        step: None,
        ..WorkerSettings::new(LIMITS.start, Duration::from_secs(5))
    }
}

/// The work on crowded semaphores.
fn work(tasks: usize) -> Work {
    let millis = |from, to| Duration::from_millis(from)..Duration::from_millis(to);
    let leases = [1, 2, 5, 10, 30].map(|seconds| (1, Duration::from_secs(seconds)));
    Work {
        loops: tasks,
        weight: Mix(vec![(6, 1), (1, 2), (1, 3), (1, 4), (1, 5)]),
        lease: Some(Mix(leases.into())),
        lanes: 0,
        lane_limit: 0,
        lane_floor: 0,
        sets: false,
        wait: Mix(vec![
            (7, Wait::Granted),
            (2, Wait::Timeout(millis(0, 10_000))),
            (1, Wait::Cancel(millis(0, 10_000))),
        ]),
        hold: Mix::all(millis(50, 500)),
        rest: Mix::all(millis(0, 200)),
        dropped: 0.25,
    }
}

/// The work on semaphores that are mostly free. Few terms, so that a kept permit mostly fits.
fn light_work() -> Work {
    Work {
        weight: Mix(vec![(4, 1), (1, 2)]),
        lease: None,
        rest: Mix::all(Duration::ZERO..Duration::from_secs(2)),
        ..work(FEW_TASKS)
    }
}

/// Starts a process on these semaphores. If `keeps`, its client keeps permits.
fn start(pool: &WorkerPool, semaphores: Range<usize>, keeps: bool, work: &Work) -> Worker {
    let (semaphores, keep) = (semaphores.map(name).collect(), keeps.then_some(KEEP));
    let mut worker = pool.start(WorkerSettings { semaphores, keep, ..pool.settings.clone() });
    worker.work(work);
    worker
}

/// Starts the process that is killed in the end.
fn start_doomed(pool: &WorkerPool) -> Worker {
    start(pool, 0..SEMAPHORES, true, &work(DOOMED_TASKS))
}

/// A server, its clients, and the faults that they meet.
struct Soak {
    steady: Vec<Worker>,
    doomed: Worker,
    pool: WorkerPool,
    proxy: Proxy,
    admin: Client,
    server: Server,
    random: fastrand::Rng,
    done: Done,
}

/// Runs for the minutes that are given.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let (minutes, seed): (f64, u64) = match words {
        [minutes] => (minutes.parse()?, fastrand::u64(..1 << 32)),
        [minutes, "--seed", seed] => (minutes.parse()?, seed.parse()?),
        _ => return Err("usage: soak MINUTES [--seed S]".into()),
    };
    println!("{minutes} minutes, --seed {seed}");
    let server = Server::builder().append_only().start();
    let fresh = memory::of_server(&server).unwrap_or(0);
    let mut soak = Soak::start(server, seed)?;
    let (server_memory, memories) = soak.go_on(Duration::from_secs_f64(minutes * 60.0))?;
    let mut verdicts = vec![server_memory.verdict("the server")];
    for (number, memory) in memories.iter().enumerate() {
        verdicts.push(memory.verdict(&format!("client {number}")));
    }
    println!("{:?}", soak.done);
    verdicts.extend(soak.end(fresh));
    let mut failures = 0;
    for verdict in &verdicts {
        failures += usize::from(verdict.is_err());
        let (Ok(line) | Err(line)) = verdict;
        println!("{line}");
    }
    if failures == 0 { Ok(()) } else { Err(format!("{failures} failures, --seed {seed}").into()) }
}

impl Soak {
    fn start(server: Server, seed: u64) -> Result<Self, Failure> {
        let proxy = Proxy::start(server.address());
        let admin = Client::connect(&server.url()).wait()?;
        let pool = WorkerPool::new(faults::worker, settings(&proxy.url(), seed));
        let steady = (0..STEADY).flat_map(|number| {
            let keeps = number % 2 == 1;
            [
                start(&pool, 0..CROWDED, keeps, &work(TASKS)),
                start(&pool, CROWDED..SEMAPHORES, keeps, &light_work()),
            ]
        });
        let (steady, doomed) = (steady.collect(), start_doomed(&pool));
        let (random, done) = (fastrand::Rng::with_seed(seed), Done::default());
        Ok(Self { steady, doomed, pool, proxy, admin, server, random, done })
    }

    /// Injects faults, acts as an operator, and samples memory for `time`. Returns the samples of the server
    /// and of the clients.
    fn go_on(&mut self, time: Duration) -> Result<(Samples, Vec<Samples>), Failure> {
        let (mut server, mut clients) = (Samples::default(), Vec::new());
        clients.resize_with(self.steady.len(), Samples::default);
        let (mut operator, begin) = (Operator::default(), Instant::now());
        let every = (time / 200).clamp(Duration::from_millis(200), Duration::from_secs(5));
        let (mut next_fault, mut next_sample) = (Duration::from_secs(3), every);
        let mut next_line = Duration::from_secs(60);
        while begin.elapsed() < time {
            sleep(Duration::from_millis(self.random.u64(50..500)));
            operator.act(&self.admin, &mut self.random, &mut self.done);
            if begin.elapsed() >= next_fault {
                if fault_injection::strike(&self.server, &self.proxy, &mut self.random, &mut self.done) {
                    self.doomed = start_doomed(&self.pool);
                }
                next_fault = begin.elapsed() + Duration::from_millis(self.random.u64(2000..6000));
            }
            if begin.elapsed() >= next_sample {
                server.push(memory::of_server(&self.server));
                for (samples, worker) in clients.iter_mut().zip(&self.steady) {
                    samples.push(memory::of_process(worker.pid()));
                }
                next_sample = begin.elapsed() + every;
            }
            if begin.elapsed() >= next_line {
                let (held, waiting) = self.check_bound()?;
                println!("{} s: {held} units held, {waiting} waiting", begin.elapsed().as_secs());
                next_line = begin.elapsed() + Duration::from_secs(60);
            }
        }
        let (held, waiting) = self.check_bound()?;
        println!("in the end: {held} units held, {waiting} waiting");
        Ok((server, clients))
    }

    /// The units held and the waiters of all semaphores. No semaphore may hold more than the highest limit.
    fn check_bound(&self) -> Result<(u64, u64), Failure> {
        let (mut held, mut waiting) = (0, 0);
        for index in 0..SEMAPHORES {
            let seen = self.admin.semaphore(name(index), permits::Limit::Stored)?.inspect_up_to(0).wait()?;
            if seen.held >= u64::from(LIMITS.end) {
                return Err(format!("{} units of {} are held", seen.held, seen.name).into());
            }
            held += seen.held;
            waiting += seen.waiting;
        }
        Ok((held, waiting))
    }

    /// Ends all clients, and verifies what is left.
    fn end(self, fresh: u64) -> Vec<Result<String, String>> {
        let mut verdicts = vec![
            fault_injection::settle(&self.admin)
                .map_err(|error| error.to_string())
                .map(|()| "all semaphores grant again".to_owned()),
        ];
        let workers = self.steady.into_iter().chain([self.doomed]).collect();
        let counts = self.pool.close(workers);
        verdicts.push(counts.map(|counts| format!("of the clients that lived: {counts:?}")));
        verdicts.push(at_rest(&self.admin));
        verdicts.push(only_states_are_left(&self.server));
        let now = memory::of_server(&self.server).unwrap_or(0);
        verdicts.push(Ok(format!(
            "the server at rest: {} KiB more than when it was empty",
            now.saturating_sub(fresh) >> 10
        )));
        verdicts
    }
}

/// P10: all semaphores are idle, and all units can be had.
fn at_rest(admin: &Client) -> Result<String, String> {
    let mut left = Vec::new();
    wait::until(|| {
        left.clear();
        for index in 0..SEMAPHORES {
            match admin.semaphore(name(index), permits::Limit::Stored).expect("valid").inspect_up_to(0).wait()
            {
                Ok(seen) if (seen.held, seen.waiting) == (0, 0) => {}
                Ok(seen) => left.push(format!("{}: {} held, {} waiting", seen.name, seen.held, seen.waiting)),
                Err(error) => left.push(error.to_string()),
            }
        }
        left.is_empty()
    });
    for index in 0..SEMAPHORES {
        let semaphore = admin.semaphore(name(index), LIMITS.start).expect("valid");
        let options = permits::AcquireOptions::new().weight(LIMITS.start).timeout(HANGS);
        let all = semaphore.acquire_with(options).wait().map_err(|error| format!("{}: {error}", name(index)));
        match all.map(|permit| permit.release().wait()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => left.push(error.to_string()),
            Err(error) => left.push(error),
        }
    }
    if left.is_empty() {
        Ok("at rest: all semaphores are idle, all units can be had".to_owned())
    } else {
        Err(format!("not at rest: {left:?}"))
    }
}

/// P12: idle semaphores leave only their state, which expires.
fn only_states_are_left(server: &Server) -> Result<String, String> {
    let keys = server.command(&["KEYS", "*"]);
    let stray = |key: &&str| {
        let expires = matches!(server.command(&["PTTL", key]), Resp::Int(left) if left != -1);
        !key.ends_with(":state") || !expires
    };
    let stray: Vec<&str> = keys.array().iter().map(Resp::text).filter(stray).collect();
    if stray.is_empty() {
        Ok(format!("{} keys, all of them states that expire", keys.array().len()))
    } else {
        Err(format!("left behind without an expiry: {stray:?}"))
    }
}
