//! The workloads, A to J. Each drives the processes of one system once, and notes its figures.

use std::thread::sleep;
use std::time::Duration;

use permits_testkit::Server;
use serde_json::Value;

use crate::Failure;
use crate::compare::events;
use crate::compare::results::Results;
use crate::compare::system::{Process, System};
use crate::meter::Meter;
use crate::stats::{median, percentile, shared_clock_us};

/// The amounts of everything.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// The number of rounds.
    pub(crate) rounds: usize,
    /// The warm-up of each process, in seconds: a Java machine compiles the code that runs often.
    pub(crate) warm_up: f64,
    /// The seconds for which a rate is measured.
    pub(crate) seconds: f64,
    /// The seconds for which idleness is measured.
    pub(crate) idle: f64,
    /// Permits held idle, waiters for the memory, semaphores in turn.
    pub(crate) many: usize,
    /// Lengths of the queue.
    pub(crate) lines: &'static [usize],
    /// The lease of all workloads but the crash; zero: the default of each system.
    pub(crate) lease: Duration,
    /// The lease in the crash.
    pub(crate) short_lease: Duration,
}

impl Scale {
    pub(crate) const FULL: Self = Self {
        rounds: 3,
        warm_up: 3.0,
        seconds: 2.0,
        idle: 20.0,
        many: 10_000,
        lines: &[10, 1000, 100_000],
        lease: Duration::ZERO,
        short_lease: Duration::from_secs(3),
    };
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        warm_up: 0.1,
        seconds: 0.2,
        idle: 0.5,
        many: 1000,
        lines: &[10, 1000],
        lease: Duration::from_secs(3),
        short_lease: Duration::from_secs(1),
    };

    /// The renewal interval of `permits`: a third of a lease, which is 15 s unless set.
    fn renewal(self) -> Duration {
        if self.lease.is_zero() { Duration::from_secs(5) } else { self.lease / 3 }
    }
}

/// The server, the meter, and the results.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) meter: Meter,
    pub(crate) scale: Scale,
    pub(crate) results: Results,
}

/// The number of first permits, in a process that runs already.
const STARTS: usize = 10;

/// The permits that the design renews by one call in a renewal interval.
const PERMITS_A_CALL: f64 = 500.0;

impl Bench {
    pub(crate) fn new(scale: Scale) -> Result<Self, Failure> {
        let server = Server::start();
        // After a restart of its server `permits` grants nothing for a renewal interval.
        sleep(scale.renewal() + Duration::from_secs(1));
        let meter = Meter::new(&server)?;
        Ok(Self { server, meter, scale, results: Results::default() })
    }

    /// Runs every workload once, with one system.
    pub(crate) fn run(&mut self, system: &System) -> Result<(), Failure> {
        type Workload = fn(&mut Bench, &System) -> Result<(), Failure>;
        const SEMAPHORES: [(&str, Workload); 5] = [
            ("A", Bench::alone),
            ("D", Bench::hand_off),
            ("C", Bench::contended),
            ("E", Bench::idle),
            ("I", Bench::crash),
        ];
        for (letter, workload) in SEMAPHORES.iter().filter(|(letter, _)| system.takes_part(letter)) {
            self.once(system, letter, workload)?;
        }
        if system.takes_part("F") {
            for &length in self.scale.lines {
                self.once(system, &format!("F{length}"), |bench, system| bench.line(system, length))?;
            }
            self.once(system, "G", Bench::waiters_memory)?;
        }
        Ok(())
    }

    /// Runs one workload on an empty server; skips it if it failed before.
    fn once(
        &mut self,
        system: &System,
        workload: &str,
        run: impl FnOnce(&mut Self, &System) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.results.why_not(system.name, workload).is_none() {
            self.meter.empty()?;
            let ended = run(self, system);
            self.results.settle(system.name, workload, ended);
        }
        Ok(())
    }

    /// A, B, H and J: one process.
    fn alone(&mut self, system: &System) -> Result<(), Failure> {
        let mut process = system.start(&self.server.url(), self.scale.lease)?;
        let Scale { seconds, warm_up, many, .. } = self.scale;
        process.ask(&format!("cycle warm-up 4 1 {warm_up}"))?;
        let one = process.ask(&format!("cycle one 4 1 {seconds}"))?;
        for figure in ["p50_us", "p99_us"] {
            self.results.note(system.name, &format!("A.{figure}"), number(&one, figure)?);
        }
        let cycle_us = number(&one, "seconds")? * 1e6 / number(&one, "cycles")?;
        self.results.note(system.name, "A.cycle_us", cycle_us);
        for tasks in [64, 512] {
            process.ask(&format!("cycle warm-up-{tasks} {tasks} {tasks} {warm_up}"))?;
            self.many_tasks(system, &mut process, tasks)?;
        }
        if !system.takes_part("H") {
            return Ok(());
        }
        let before = self.meter.memory()?;
        let in_turn = process.ask(&format!("turn turn {many}"))?;
        let cycle_us = number(&in_turn, "seconds")? * 1e6 / number(&in_turn, "cycles")?;
        self.results.note(system.name, "H.cycle_us", cycle_us);
        self.results.note(system.name, "H.left_bytes", (self.meter.memory()? - before) / many as f64);
        let starts = (0..STARTS).map(|_| number(&process.ask("start first 4")?, "us"));
        let starts = starts.collect::<Result<Vec<_>, _>>()?;
        self.results.note(system.name, "J.ms", median(starts) / 1e3);
        Ok(())
    }

    /// B: the rate, and the processor time of a cycle.
    fn many_tasks(&mut self, system: &System, process: &mut Process, tasks: usize) -> Result<(), Failure> {
        let (client, server) = (process.processor_us()?, self.meter.read()?);
        let many = process.ask(&format!("cycle many-{tasks} {tasks} {tasks} {}", self.scale.seconds))?;
        let spent = self.meter.since(server)?;
        let cycles = number(&many, "cycles")?;
        for (figure, value) in [
            ("per_s", cycles / number(&many, "seconds")?),
            ("client_us", (process.processor_us()? - client) / cycles),
            ("server_us", spent.processor_us / cycles),
            ("commands", spent.commands / cycles),
        ] {
            self.results.note(system.name, &format!("B{tasks}.{figure}"), value);
        }
        Ok(())
    }

    /// C: 4 processes of 16 tasks, limit 4, held for a millisecond.
    fn contended(&mut self, system: &System) -> Result<(), Failure> {
        const LIMIT: usize = 4;
        let Scale { seconds, warm_up, .. } = self.scale;
        let mut processes = system.start_many(4, &self.server.url(), self.scale.lease)?;
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
            ("wait_p99_p50", p99 / p50),
            ("inversions", events::inversions(&events) as f64),
            ("calls", spent.calls / grants),
            ("server_us", spent.processor_us / grants),
            ("per_s", grants / spent.seconds),
        ] {
            self.results.note(system.name, &format!("C.{figure}"), value);
        }
        Ok(())
    }

    /// D: two processes take turns; each holds for two milliseconds, and requests again after one.
    fn hand_off(&mut self, system: &System) -> Result<(), Failure> {
        let seconds = self.scale.seconds;
        let mut taken = hand_offs(system, &self.server.url(), self.scale, 2.0 * seconds)?;
        for (figure, part) in [("p50_us", 0.5), ("p99_us", 0.99)] {
            let value = percentile(&mut taken, part);
            self.results.note(system.name, &format!("D.{figure}"), value);
        }
        Ok(())
    }

    /// E, and G for holders: many permits held by one idle process.
    fn idle(&mut self, system: &System) -> Result<(), Failure> {
        let Scale { idle, many, .. } = self.scale;
        let mut process = system.start(&self.server.url(), self.scale.lease)?;
        process.ask("hoard other 1")?;
        let memory = self.meter.memory()?;
        process.ask(&format!("hoard idle {many}"))?;
        self.results.note(system.name, "G.holder_bytes", (self.meter.memory()? - memory) / many as f64);
        let before = self.meter.read()?;
        sleep(Duration::from_secs_f64(idle));
        let spent = self.meter.since(before)?;
        let minutes = spent.seconds / 60.0;
        // The other semaphore has its renewal, too.
        let calls = many as f64 / PERMITS_A_CALL + 1.0;
        let granted = calls * spent.seconds / self.scale.renewal().as_secs_f64();
        self.results.note(system.name, "E.calls_per_min", spent.calls / minutes);
        self.results.note(system.name, "E.server_ms_per_min", spent.processor_us / 1e3 / minutes);
        self.results.note(system.name, "E.calls_of_aim", spent.calls / granted);
        Ok(())
    }

    /// F: grants out of a queue of `length`, in four processes.
    fn line(&mut self, system: &System, length: usize) -> Result<(), Failure> {
        let mut holder = system.start(&self.server.url(), self.scale.lease)?;
        let mut processes = self.fill_queue(system, &mut holder, length)?;
        holder.ask("free")?;
        sleep(Duration::from_secs_f64(self.scale.warm_up / 2.0));
        let granted = |processes: &mut [Process]| -> Result<f64, Failure> {
            all(processes, "count")?.iter().map(|answer| number(answer, "grants")).sum()
        };
        let (before, at_first) = (self.meter.read()?, granted(&mut processes)?);
        sleep(Duration::from_secs_f64(self.scale.seconds));
        let (spent, at_last) = (self.meter.since(before)?, granted(&mut processes)?);
        let grants = at_last - at_first;
        if grants == 0.0 {
            return Err("no grant".into());
        }
        for (figure, value) in [
            ("server_us", spent.processor_us / grants),
            ("calls", spent.calls / grants),
            ("per_s", grants / spent.seconds),
        ] {
            self.results.note(system.name, &format!("F{length}.{figure}"), value);
        }
        // They are many, and need not be released one by one.
        processes.into_iter().for_each(Process::kill);
        Ok(())
    }

    /// A holder, and `length` waiters in four processes.
    fn fill_queue(
        &self,
        system: &System,
        holder: &mut Process,
        length: usize,
    ) -> Result<Vec<Process>, Failure> {
        // A name of its own, because requests of processes that were killed before may still arrive.
        holder.ask(&format!("hoard line-{length} 1"))?;
        let mut processes = system.start_many(4, &self.server.url(), self.scale.lease)?;
        for (number, process) in processes.iter_mut().enumerate() {
            process.ask(&format!("queue line-{length} {}", (length + number) / 4))?;
        }
        // Until all wait: no observable of the queue is common to all systems.
        sleep(Duration::from_secs_f64(0.5 + length as f64 / 30_000.0));
        Ok(processes)
    }

    /// G for waiters.
    fn waiters_memory(&mut self, system: &System) -> Result<(), Failure> {
        let many = self.scale.many;
        let mut holder = system.start(&self.server.url(), self.scale.lease)?;
        // The cost of a first waiter and its connection is not the cost of a waiter.
        let few = self.fill_queue(system, &mut holder, 40)?;
        let before = self.meter.memory()?;
        few.into_iter().for_each(Process::kill);
        holder.kill();
        self.meter.empty()?;
        let mut holder = system.start(&self.server.url(), self.scale.lease)?;
        let processes = self.fill_queue(system, &mut holder, many)?;
        let bytes = (self.meter.memory()? - before) / (many - 40) as f64;
        self.results.note(system.name, "G.waiter_bytes", bytes);
        processes.into_iter().for_each(Process::kill);
        Ok(())
    }

    /// I: the time from the death of the holder to the grant of the waiter.
    fn crash(&mut self, system: &System) -> Result<(), Failure> {
        let lease = self.scale.short_lease;
        let mut holder = system.start(&self.server.url(), lease)?;
        let mut waiter = system.start(&self.server.url(), lease)?;
        holder.ask("hoard crash 1")?;
        waiter.send("wait crash")?;
        // Until renewals are under way.
        sleep(lease / 2);
        let died = shared_clock_us();
        holder.kill();
        let got = number(&waiter.answer()?, "got")?;
        self.results.note(system.name, "I.after_ms", (got - died) / 1e3);
        self.results.note(system.name, "I.beyond_lease_ms", (got - died) / 1e3 - lease.as_secs_f64() * 1e3);
        Ok(())
    }
}

/// The times of hand-offs between two processes of a system, after a warm-up.
pub(crate) fn hand_offs(system: &System, url: &str, scale: Scale, seconds: f64) -> Result<Vec<f64>, Failure> {
    let mut processes = system.start_many(2, url, scale.lease)?;
    let warm_up = scale.warm_up;
    all(&mut processes, &format!("contend hand-off-warm-up 1 1 2000 1000 {warm_up}"))?;
    let answers = all(&mut processes, &format!("contend hand-off 1 1 2000 1000 {seconds}"))?;
    let taken = events::hand_offs(&events::parse(&answers)?);
    if taken.is_empty() { Err("no hand-off was seen".into()) } else { Ok(taken) }
}

/// Sends the same command to all at once, and collects the answers.
fn all(processes: &mut [Process], command: &str) -> Result<Vec<Value>, Failure> {
    for process in processes.iter_mut() {
        process.send(command)?;
    }
    processes.iter().map(Process::answer).collect()
}

fn number(answer: &Value, field: &str) -> Result<f64, Failure> {
    Ok(answer[field].as_f64().ok_or_else(|| format!("no {field} in {answer}"))?)
}
