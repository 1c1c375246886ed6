//! `permits-lab soak`: thousands of waiters on many semaphores, for minutes, while limits change, waiters give up and
//! everything fails now and then. In the end nothing may be left, and memory must have been flat.
//!
//! Not judged here is the bound from outside, which `faults` judges: there are too many grants to tell of each. What
//! the store says that is held is looked at all the time.

pub(crate) mod client;
mod fault_injection;
mod memory;

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use permits::blocking::Client;
use permits_testkit::{ChildGuard, Lines, Proxy, Resp, Server, wait};

use self::client::Counts;
use self::fault_injection::{Done, Operator};
use self::memory::Samples;
use crate::Failure;

/// How many semaphores there are.
pub(crate) const SEMAPHORES: usize = 50;

/// The limits: programs declare the lowest, operators set any of them. The heaviest request is for the lowest.
pub(crate) const LIMITS: std::ops::Range<u32> = 5..20;

/// The processes that live through it, and the tasks of each; and one that is killed now and then.
const STEADY: usize = 4;
const TASKS: usize = 1000;
const DOOMED_TASKS: usize = 300;

/// How long all may take to end.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The name of a semaphore.
pub(crate) fn name(index: usize) -> String {
    format!("soak-{index}")
}

/// A process with its tasks.
struct Process {
    guard: ChildGuard,
    stdin: ChildStdin,
    lines: Lines,
}

impl Process {
    fn start(url: &str, number: usize, tasks: usize, seed: u64) -> Self {
        let program = std::env::current_exe().expect("a program knows where it is");
        let words =
            [number.to_string(), tasks.to_string(), seed.wrapping_add(number as u64 * 10_000).to_string()];
        let mut command = Command::new(program);
        command.args(["soak-client", url]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = ChildGuard::spawn(&mut command);
        let (stdin, lines) = (guard.stdin(), guard.lines());
        Self { guard, stdin, lines }
    }

    /// Tells it to end.
    fn tell_to_stop(&mut self) {
        // One that has ended already is found by what it does not say.
        let _ = writeln!(self.stdin, "stop");
    }

    /// Waits for its end, and for what it says that it did.
    fn end(mut self) -> Result<Counts, String> {
        let line = self.lines.next_line(TIMEOUT).ok_or("a client does not stop")?;
        let counts = Counts::parse(&line).ok_or_else(|| format!("a client says {line:?}"))?;
        match self.guard.wait_timeout(TIMEOUT) {
            Some(status) if status.success() => Ok(counts),
            other => Err(format!("a client does not close well: {other:?}")),
        }
    }
}

/// Everything there is.
struct Soak {
    steady: Vec<Process>,
    doomed: Process,
    proxy: Proxy,
    admin: Client,
    server: Server,
    random: fastrand::Rng,
    done: Done,
    seed: u64,
    started: usize,
}

/// Runs for so many minutes.
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
    let mut verdicts = vec![server_memory.judge("the server")];
    for (number, memory) in memories.iter().enumerate() {
        verdicts.push(memory.judge(&format!("client {number}")));
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
        let admin = Client::connect(&server.url())?;
        let steady = (0..STEADY).map(|number| Process::start(&proxy.url(), number, TASKS, seed)).collect();
        let doomed = Process::start(&proxy.url(), STEADY, DOOMED_TASKS, seed);
        let (random, done, started) = (fastrand::Rng::with_seed(seed), Done::default(), STEADY + 1);
        Ok(Self { steady, doomed, proxy, admin, server, random, done, seed, started })
    }

    /// Faults, operators and samples, for so long. Returns the samples of the server and of the clients.
    fn go_on(&mut self, time: Duration) -> Result<(Samples, Vec<Samples>), Failure> {
        let (mut server, mut clients) = (Samples::default(), Vec::new());
        clients.resize_with(STEADY, Samples::default);
        let (mut operator, begin) = (Operator::default(), Instant::now());
        let every = (time / 200).clamp(Duration::from_millis(200), Duration::from_secs(5));
        let (mut next_fault, mut next_sample) = (Duration::from_secs(3), every);
        let mut next_word = Duration::from_secs(60);
        while begin.elapsed() < time {
            sleep(Duration::from_millis(self.random.u64(50..500)));
            operator.act(&self.admin, &mut self.random, &mut self.done);
            if begin.elapsed() >= next_fault {
                if fault_injection::strike(&self.server, &self.proxy, &mut self.random, &mut self.done) {
                    self.doomed = Process::start(&self.proxy.url(), self.started, DOOMED_TASKS, self.seed);
                    self.started += 1;
                }
                next_fault = begin.elapsed() + Duration::from_millis(self.random.u64(2000..6000));
            }
            if begin.elapsed() >= next_sample {
                server.push(memory::of_server(&self.server));
                for (samples, process) in clients.iter_mut().zip(&self.steady) {
                    samples.push(memory::of_process(process.guard.pid()));
                }
                next_sample = begin.elapsed() + every;
            }
            if begin.elapsed() >= next_word {
                let (held, waiting) = self.check_bound()?;
                println!("{} s: {held} units held, {waiting} wait", begin.elapsed().as_secs());
                next_word = begin.elapsed() + Duration::from_secs(60);
            }
        }
        let (held, waiting) = self.check_bound()?;
        println!("in the end: {held} units held, {waiting} wait");
        Ok((server, clients))
    }

    /// How many units are held, and how many wait, in all semaphores; none may hold more than the highest limit.
    fn check_bound(&self) -> Result<(u64, u64), Failure> {
        let (mut held, mut waiting) = (0, 0);
        for index in 0..SEMAPHORES {
            let seen = self.admin.open(name(index)).inspect_up_to(0)?;
            if seen.held >= u64::from(LIMITS.end) {
                return Err(format!("{} units of {} are held", seen.held, seen.name).into());
            }
            held += seen.held;
            waiting += seen.waiting;
        }
        Ok((held, waiting))
    }

    /// Ends all clients, and judges what is left.
    fn end(self, fresh: u64) -> Vec<Result<String, String>> {
        let mut verdicts = vec![
            fault_injection::settle(&self.admin)
                .map_err(|error| error.to_string())
                .map(|()| "all semaphores grant again".to_owned()),
        ];
        let mut counts = Counts::default();
        let mut processes: Vec<Process> = self.steady.into_iter().chain([self.doomed]).collect();
        processes.iter_mut().for_each(Process::tell_to_stop);
        for process in processes {
            match process.end() {
                Ok(more) => counts.add(&more),
                Err(why) => verdicts.push(Err(why)),
            }
        }
        verdicts.push(Ok(format!("of the clients that lived: {counts:?}")));
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

/// P10: nothing is held, nobody waits, in any semaphore; all units can be had.
fn at_rest(admin: &Client) -> Result<String, String> {
    let mut left = Vec::new();
    wait::until(TIMEOUT, || {
        left.clear();
        for index in 0..SEMAPHORES {
            match admin.open(name(index)).inspect_up_to(0) {
                Ok(seen) if (seen.held, seen.waiting) == (0, 0) => {}
                Ok(seen) => left.push(format!("{}: {} held, {} waiting", seen.name, seen.held, seen.waiting)),
                Err(error) => left.push(error.to_string()),
            }
        }
        left.is_empty()
    });
    for index in 0..SEMAPHORES {
        let semaphore = admin.semaphore(name(index), LIMITS.start);
        let options = permits::AcquireOptions::new().weight(LIMITS.start).wait(TIMEOUT);
        let all = semaphore.acquire_with(options).map_err(|error| format!("{}: {error}", name(index)));
        match all.map(|permit| permit.release()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => left.push(error.to_string()),
            Err(error) => left.push(error),
        }
    }
    if left.is_empty() {
        Ok("at rest: nothing is held, nobody waits, all units can be had".to_owned())
    } else {
        Err(format!("not at rest: {left:?}"))
    }
}

/// P12: what idle semaphores leave for a while is their state, and it expires.
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
        Err(format!("left behind for ever: {stray:?}"))
    }
}
