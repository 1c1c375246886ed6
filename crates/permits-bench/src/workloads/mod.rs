//! The workloads, A to L. The workloads of queues are in `queues`. Each drives the processes of one system
//! once, in one mode, and notes its figures.

mod queues;

use std::thread::sleep;
use std::time::Duration;

use permits_testkit::{Proxy, Server};
use serde_json::Value;

use crate::Failure;
use crate::events;
use crate::meter::Meter;
use crate::modes::{Awake, LINK_DELAY, Mode};
use crate::results::Results;
use crate::stats::{median, percentile, shared_clock_us};
use crate::system::{PERMITS, Process, System};

/// The amounts of everything.
#[derive(Clone, Copy)]
pub struct Scale {
    /// The number of rounds.
    pub rounds: usize,
    /// The warm-up of each process, in seconds: a Java machine compiles the code that runs often.
    pub warm_up: f64,
    /// The seconds for which a rate is measured.
    pub seconds: f64,
    /// The seconds for which idleness is measured.
    pub idle: f64,
    /// Permits held idle, waiters for the memory, semaphores in turn.
    pub many: usize,
    /// The times that a kept unit is requested elsewhere.
    pub recalls: usize,
    /// Lengths of the queue.
    pub lines: &'static [usize],
    /// The lease of all workloads but the crash; zero: the default of each system.
    pub lease: Duration,
    /// The lease in the crash.
    pub short_lease: Duration,
}

impl Scale {
    /// The scale of the published figures.
    pub const FULL: Self = Self {
        rounds: 3,
        warm_up: 3.0,
        seconds: 2.0,
        idle: 20.0,
        many: 10_000,
        recalls: 200,
        lines: &[10, 1000, 100_000],
        lease: Duration::ZERO,
        short_lease: Duration::from_secs(3),
    };
    /// Medians of some rounds, without the long queues: for the lower bounds and `permits` alone.
    pub const CORE: Self = Self { rounds: 3, seconds: 1.0, idle: 6.0, recalls: 200, ..Self::QUICK };
    /// A little of everything.
    pub const QUICK: Self = Self {
        rounds: 1,
        warm_up: 0.1,
        seconds: 0.2,
        idle: 0.5,
        many: 1000,
        recalls: 20,
        lines: &[10, 1000],
        lease: Duration::from_secs(3),
        short_lease: Duration::from_secs(1),
    };

    /// The renewal interval of `permits`: a third of a lease, which is 15 s unless set.
    pub fn renewal(self) -> Duration {
        if self.lease.is_zero() { Duration::from_secs(5) } else { self.lease / 3 }
    }
}

/// The server, the link to it, the meter, the mode, and the results.
pub struct Bench {
    /// The server.
    pub server: Server,
    link: Proxy,
    /// The meter of the server.
    pub meter: Meter,
    /// The amounts.
    pub scale: Scale,
    /// The mode of what is measured now.
    pub mode: Mode,
    awake: Option<Awake>,
    /// The results so far.
    pub results: Results,
}

/// The number of first permits, in a process that runs already.
const STARTS: usize = 10;

/// The time for which two processes are idle before a kept unit is requested, as before a hand-off.
const IDLE: Duration = Duration::from_millis(1);

/// The permits that the design renews by one call in a renewal interval.
const PERMITS_A_CALL: f64 = 500.0;

impl Bench {
    /// A bench on `server`, in the mode quiet.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn new(scale: Scale, server: Server) -> Result<Self, Failure> {
        let link = Proxy::start(server.address());
        link.delay_requests(LINK_DELAY);
        link.delay_replies(LINK_DELAY);
        // `permits` grants nothing for a renewal interval after a restart of its server.
        sleep(scale.renewal() + Duration::from_secs(1));
        let meter = Meter::new(&server)?;
        let results = Results::default();
        Ok(Self { server, link, meter, scale, mode: Mode::Quiet, awake: None, results })
    }

    /// Runs what follows in this mode.
    ///
    /// # Errors
    /// If the machine lacks it.
    pub fn enter(&mut self, mode: Mode) -> Result<(), Failure> {
        if let Some(awake) = self.awake.take() {
            awake.free(self.server.pid())?;
        }
        if mode == Mode::Awake {
            let awake = Awake::start()?;
            awake.pin_server(self.server.pid())?;
            self.awake = Some(awake);
        }
        self.mode = mode;
        Ok(())
    }

    /// True if the mode has workloads in this round: the one of round 0 does not depend on waking cores.
    pub fn is_measured(mode: Mode, round: usize) -> bool {
        round > 0 || mode != Mode::Awake
    }

    /// Runs the workloads of the mode once, with one system. Round 0 has the one that is run once, and the
    /// others have the rest.
    ///
    /// # Errors
    /// If the server fails. The failure of the system is kept in the results.
    pub fn run(&mut self, system: &System, round: usize) -> Result<(), Failure> {
        if !Self::is_measured(self.mode, round) {
            return Ok(());
        }
        if round == 0 {
            return self.once(system, "E", Self::idle);
        }
        self.once(system, "A", Self::alone)?;
        self.once(system, "D", Self::hand_off)?;
        if self.mode != Mode::Delayed {
            self.once(system, "C", Self::contended)?;
            self.once(system, "K", Self::kept_elsewhere)?;
            for &length in self.scale.lines {
                self.once(system, &format!("F{length}"), |bench, system| bench.line(system, length))?;
            }
            self.once(system, "L", Self::lanes)?;
        }
        // Nor do these.
        if self.mode == Mode::Quiet {
            self.once(system, "I", Self::crash)?;
            self.once(system, "G", Self::waiters_memory)?;
        }
        Ok(())
    }

    /// Runs one workload on an empty server, if it applies to the system and the system is made for it.
    fn once(
        &mut self,
        system: &System,
        workload: &str,
        run: impl FnOnce(&mut Self, &System) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if system.takes_part(workload) && !self.results.cannot(system.name, workload) {
            self.meter.empty()?;
            let ended = run(self, system);
            self.results.settle(self.mode, system.name, workload, ended);
        }
        Ok(())
    }

    /// Adds the value of a figure, in the mode of the bench.
    pub fn note(&mut self, system: &str, figure: &str, value: f64) {
        self.results.note(self.mode, system, figure, value);
    }

    /// Starts a process with the lease of the scale.
    pub fn start(&self, system: &System) -> Result<Process, Failure> {
        let mut processes = self.start_many(system, 1, self.scale.lease)?;
        Ok(processes.pop().ok_or("one was started")?)
    }

    /// Starts several processes, in the mode of the bench.
    pub fn start_many(
        &self,
        system: &System,
        count: usize,
        lease: Duration,
    ) -> Result<Vec<Process>, Failure> {
        let url = if self.mode == Mode::Delayed { self.link.url() } else { self.server.url() };
        self.start_at(system, count, &url, lease)
    }

    /// Starts several processes that use the server at `url`.
    pub fn start_at(
        &self,
        system: &System,
        count: usize,
        url: &str,
        lease: Duration,
    ) -> Result<Vec<Process>, Failure> {
        let started = (0..count).map(|_| system.start(url, lease)).collect::<Result<Vec<_>, _>>();
        let mut processes = started?;
        if let Some(awake) = &self.awake {
            // A process that answers has started its threads; later ones are started by these, on the same
            // core.
            all(&mut processes, "hello")?;
            for process in &processes {
                awake.pin_client(process.pid())?;
            }
        }
        Ok(processes)
    }

    /// A and B, and in the mode quiet H and J: one process.
    fn alone(&mut self, system: &System) -> Result<(), Failure> {
        let mut process = self.start(system)?;
        self.one_task(system.name, &mut process)?;
        let tasks: &[usize] = if self.mode == Mode::Delayed { &[64] } else { &[64, 512] };
        for &tasks in tasks {
            self.many_tasks(system.name, &mut process, tasks)?;
        }
        if self.mode != Mode::Quiet || !system.takes_part("H") {
            return Ok(());
        }
        let many = self.scale.many;
        let before = self.meter.memory()?;
        let in_turn = process.ask(&format!("turn turn {many}"))?;
        let cycle_us = number(&in_turn, "seconds")? * 1e6 / number(&in_turn, "cycles")?;
        self.note(system.name, "H.cycle_us", cycle_us);
        let left = (self.meter.memory()? - before) / many as f64;
        self.note(system.name, "H.left_bytes", left);
        let starts = (0..STARTS).map(|_| number(&process.ask("start first 4")?, "us"));
        let starts = starts.collect::<Result<Vec<_>, _>>()?;
        self.note(system.name, "J.ms", median(starts) / 1e3);
        Ok(())
    }

    /// A: the time of a cycle by one task.
    pub fn one_task(&mut self, name: &str, process: &mut Process) -> Result<(), Failure> {
        let Scale { seconds, warm_up, .. } = self.scale;
        process.ask(&format!("cycle warm-up 4 1 {warm_up}"))?;
        let one = process.ask(&format!("cycle one 4 1 {seconds}"))?;
        for figure in ["p50_us", "p99_us"] {
            self.note(name, &format!("A.{figure}"), number(&one, figure)?);
        }
        let cycle_us = number(&one, "seconds")? * 1e6 / number(&one, "cycles")?;
        self.note(name, "A.cycle_us", cycle_us);
        Ok(())
    }

    /// B: the rate, and the processor time of a cycle.
    pub fn many_tasks(&mut self, name: &str, process: &mut Process, tasks: usize) -> Result<(), Failure> {
        let Scale { seconds, warm_up, .. } = self.scale;
        // The code that many tasks run has been compiled by the first of them.
        let warm_up = if tasks > 64 { warm_up / 3.0 } else { warm_up };
        process.ask(&format!("cycle warm-up-{tasks} {tasks} {tasks} {warm_up}"))?;
        let command = format!("cycle many-{tasks} {tasks} {tasks} {seconds}");
        self.rate(name, process, &format!("B{tasks}"), &command)
    }

    /// The rate of a command that runs cycles, and the processor time of a cycle.
    pub fn rate(
        &mut self,
        name: &str,
        process: &mut Process,
        workload: &str,
        command: &str,
    ) -> Result<(), Failure> {
        let (client, server) = (process.processor_us()?, self.meter.read()?);
        let many = process.ask(command)?;
        let spent = self.meter.since(server)?;
        let cycles = number(&many, "cycles")?;
        for (figure, value) in [
            ("per_s", cycles / number(&many, "seconds")?),
            ("client_us", (process.processor_us()? - client) / cycles),
            ("server_us", spent.processor_us / cycles),
            ("calls", spent.calls / cycles),
            ("commands", spent.commands / cycles),
        ] {
            self.note(name, &format!("{workload}.{figure}"), value);
        }
        Ok(())
    }

    /// C: 4 processes of 16 tasks, limit 4, held for a millisecond.
    fn contended(&mut self, system: &System) -> Result<(), Failure> {
        const LIMIT: usize = 4;
        let Scale { seconds, warm_up, .. } = self.scale;
        let mut processes = self.start_many(system, 4, self.scale.lease)?;
        all(&mut processes, &format!("contend warm-up {LIMIT} 16 1000 0 {warm_up}"))?;
        let before = self.meter.read()?;
        let answers = all(&mut processes, &format!("contend crowd {LIMIT} 16 1000 0 {}", 2.0 * seconds))?;
        let spent = self.meter.since(before)?;
        let events = events::parse(&answers)?;
        let grants = events.len() as f64;
        let mut waits: Vec<f64> = events.iter().map(|event| event.got - event.asked).collect();
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| percentile(&mut waits, part));
        let held = events.iter().map(|event| event.freed - event.got).sum::<f64>() / grants;
        for (figure, value) in [
            ("of_ideal", events::occupied(&events) / LIMIT as f64),
            ("hold_us", held),
            ("wait_p50_ms", p50 / 1e3),
            ("wait_p99_ms", p99 / 1e3),
            ("wait_max_ms", max / 1e3),
            ("inversions", events::inversions(&events) as f64),
            ("calls", spent.calls / grants),
            ("server_us", spent.processor_us / grants),
            ("per_s", grants / spent.seconds),
        ] {
            self.note(system.name, &format!("C.{figure}"), value);
        }
        Ok(())
    }

    /// D: two processes take turns; each holds for two milliseconds, and requests again after one.
    fn hand_off(&mut self, system: &System) -> Result<(), Failure> {
        let Scale { seconds, warm_up, .. } = self.scale;
        let mut processes = self.start_many(system, 2, self.scale.lease)?;
        all(&mut processes, &format!("contend hand-off-warm-up 1 1 2000 1000 {warm_up}"))?;
        let mut taken = Vec::new();
        // Repeat, because on a busy machine one of the two may stand still for all of a quick measurement.
        for _ in 0..10 {
            let answers = all(&mut processes, &format!("contend hand-off 1 1 2000 1000 {}", 2.0 * seconds))?;
            taken = events::hand_offs(&events::parse(&answers)?);
            if !taken.is_empty() {
                break;
            }
        }
        if taken.is_empty() {
            return Err("no hand-off was seen".into());
        }
        for (figure, part) in [("p50_us", 0.5), ("p99_us", 0.99)] {
            let value = percentile(&mut taken, part);
            self.note(system.name, &format!("D.{figure}"), value);
        }
        Ok(())
    }

    /// K: another process requests the unit that an idle one keeps.
    fn kept_elsewhere(&mut self, system: &System) -> Result<(), Failure> {
        let (mut keeper, mut other) = (self.start(system)?, self.start(PERMITS)?);
        let mut taken = Vec::new();
        for _ in 0..self.scale.recalls {
            keeper.ask("cycle recall 1 1 0.001")?;
            sleep(IDLE);
            let waited = other.ask("wait recall")?;
            taken.push(number(&waited, "got")? - number(&waited, "asked")?);
            sleep(IDLE);
        }
        for (figure, part) in [("p50_us", 0.5), ("p99_us", 0.99)] {
            let value = percentile(&mut taken, part);
            self.note(system.name, &format!("K.{figure}"), value);
        }
        Ok(())
    }

    /// E, and in the mode quiet G for holders: many permits held by one idle process.
    fn idle(&mut self, system: &System) -> Result<(), Failure> {
        let Scale { idle, many, .. } = self.scale;
        let mut process = self.start(system)?;
        process.ask("hoard other 1")?;
        let memory = self.meter.memory()?;
        process.ask(&format!("hoard idle {many}"))?;
        if self.mode == Mode::Quiet {
            let bytes = (self.meter.memory()? - memory) / many as f64;
            self.note(system.name, "G.holder_bytes", bytes);
        }
        let (client, before) = (process.processor_us()?, self.meter.read()?);
        sleep(Duration::from_secs_f64(idle));
        let spent = self.meter.since(before)?;
        let client_us = process.processor_us()? - client;
        let minutes = spent.seconds / 60.0;
        // The other semaphore has its renewal, too.
        let calls = many as f64 / PERMITS_A_CALL + 1.0;
        let granted = calls * spent.seconds / self.scale.renewal().as_secs_f64();
        for (figure, value) in [
            ("calls_per_min", spent.calls / minutes),
            ("server_ms_per_min", spent.processor_us / 1e3 / minutes),
            ("client_ms_per_min", client_us / 1e3 / minutes),
            ("calls_of_aim", spent.calls / granted),
        ] {
            self.note(system.name, &format!("E.{figure}"), value);
        }
        Ok(())
    }

    /// I: the time from the death of the holder to the grant of the waiter.
    fn crash(&mut self, system: &System) -> Result<(), Failure> {
        let lease = self.scale.short_lease;
        let mut processes = self.start_many(system, 2, lease)?;
        let (mut waiter, mut holder) = processes.pop().zip(processes.pop()).ok_or("two were started")?;
        holder.ask("hoard crash 1")?;
        let granted = shared_clock_us();
        waiter.send("wait crash")?;
        // Before the first renewal, so that the lease ends its whole length after the grant.
        sleep(lease / 4);
        let died = shared_clock_us();
        holder.kill();
        let got = number(&waiter.answer()?, "got")?;
        self.note(system.name, "I.after_ms", (got - died) / 1e3);
        self.note(system.name, "I.beyond_lease_ms", (got - granted) / 1e3 - lease.as_secs_f64() * 1e3);
        Ok(())
    }
}

/// Sends the same command to all at once, and collects the answers.
///
/// # Errors
/// If a process does not answer, or its system cannot do it.
pub fn all(processes: &mut [Process], command: &str) -> Result<Vec<Value>, Failure> {
    for process in processes.iter_mut() {
        process.send(command)?;
    }
    // All are read, also after one that the system cannot do, so that none is taken for the answer to a later
    // command.
    let answers: Vec<_> = processes.iter().map(Process::answer).collect();
    answers.into_iter().collect()
}

/// A number of an answer.
pub fn number(answer: &Value, field: &str) -> Result<f64, Failure> {
    Ok(answer[field].as_f64().ok_or_else(|| format!("no {field} in {answer}"))?)
}
