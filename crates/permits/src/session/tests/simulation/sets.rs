//! Simulates programs that acquire sets of semaphores. No set waits forever, and the cost of the order is
//! measured.
//!
//! Each program is a session with its driver, and acquires by [`AcquireAll`]; the store runs the model. Time
//! passes in rounds. In each round, everything that can be granted is granted, and then the programs that
//! hold their whole sets work. While a program works, time alone lets the others continue. So if no program
//! works, no program ever will: that is a deadlock.
//!
//! The programs also run with an [`Atomic`] store for comparison, which grants a whole set at once. Its lines
//! are strict, as here, or any request that fits overtakes. Overtaking does about the most work that is
//! possible, and starves heavy requests.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::cases;
use crate::clock::{Clock, Moment, SetClock};
use crate::model::{self, ServerClock, State};
use crate::options::{AcquireOptions, Limit};
use crate::protocol::{Name, SessionId};
use crate::semaphore::Semaphore;
use crate::session::Config;
use crate::session::callers::Session;
use crate::session::driver::Driver;
use crate::session::gathering::Sending;
use crate::session::tests::{Silent, config};
use crate::several::{AcquireAll, PermitSet};
use permits_store::{Executed, Report, Request, Sink as _};

/// The number of rounds, of a millisecond each. They are over before a lease ends or is renewed.
const ROUNDS: u32 = 400;
const ROUND: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(3600);
const BEGAN: Moment = Moment::from_micros(1_000_000_000_000);

/// A semaphore: its name and limit.
type Line = (&'static str, u32);

/// A set, as indices of the lines with weights, and how many rounds it is held.
#[derive(Debug, Clone)]
struct Job {
    parts: Vec<(usize, u32)>,
    work: u32,
}

/// The jobs that a program does, one after the other.
type Jobs = Box<dyn FnMut() -> Job>;

/// The order in which the programs acquire the semaphores of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The order of `acquire_all`, which all programs share.
    Shared,
    /// Each program acquires one by one, in the order of its job.
    OfTheJob,
}

/// The result of a simulation.
#[derive(Debug)]
struct Outcome {
    /// How many jobs each program has done.
    done: Vec<u32>,
    /// The units that programs held without having their whole set, summed over the rounds, for each line.
    held_by_waiting: Vec<u64>,
    /// The permits that were granted, by the store or by a session that kept them.
    permits: u64,
    granted_by_the_store: u64,
    deadlocked: bool,
}

struct Program {
    /// The program keeps what it releases.
    keeps: bool,
    id: SessionId,
    driver: Arc<Driver>,
    session: Session,
    store: Arc<Silent>,
    jobs: Jobs,
    job: Job,
    /// The acquisitions that the job still needs, the next one first.
    acquiring: Vec<AcquireAll>,
    held: Vec<PermitSet>,
    /// How many permits the program was granted.
    permits: u64,
}

impl Program {
    fn new(number: usize, mut jobs: Jobs, keeps: bool, clock: SetClock) -> Self {
        let config = Config { clock: Clock::Set(clock), ..config(&format!("program{number}"), LEASE) };
        let (id, (session, driver)) = (config.session.clone(), Driver::new(config));
        let store = Arc::<Silent>::default();
        driver.open(store.clone());
        driver.report(&mut vec![Report::Up]);
        let job = jobs();
        Self {
            keeps,
            id,
            driver,
            session,
            store,
            jobs,
            job,
            acquiring: Vec::new(),
            held: Vec::new(),
            permits: 0,
        }
    }

    /// Begins to acquire the set of the job.
    fn begin(&mut self, lines: &[Line], order: Order) {
        let requests = self.job.parts.iter().map(|(line, weight)| {
            let (name, limit) = lines[*line];
            let semaphore = Semaphore::new(self.session.clone(), name, Limit::Declared(limit));
            let idle = if self.keeps { LEASE } else { Duration::ZERO };
            (semaphore.expect("valid").keep(idle), AcquireOptions::new().weight(*weight))
        });
        self.acquiring = match order {
            Order::Shared => vec![AcquireAll::new(requests)],
            Order::OfTheJob => requests.map(|request| AcquireAll::new([request])).collect(),
        };
    }

    fn report(&self, report: Report) {
        self.driver.report(&mut vec![report]);
    }

    /// Returns true if it holds the whole set.
    fn works(&self) -> bool {
        self.acquiring.is_empty()
    }

    /// Polls the acquisition twice, because the second poll sends what was gathered. Returns true if it is
    /// ready.
    fn poll(&mut self) -> bool {
        let Some(acquire) = self.acquiring.first_mut() else { return false };
        let context = &mut Context::from_waker(Waker::noop());
        let mut polls = (0..2).map(|_| Pin::new(&mut *acquire).poll(context));
        match polls.find(Poll::is_ready).unwrap_or(Poll::Pending) {
            Poll::Ready(set) => {
                let set = set.expect("no set is refused");
                self.permits += set.permits().len() as u64;
                self.held.push(set);
                drop(self.acquiring.remove(0));
                true
            }
            Poll::Pending => false,
        }
    }
}

struct World {
    lines: Vec<Line>,
    order: Order,
    programs: Vec<Program>,
    states: BTreeMap<Name, Option<State>>,
    executed: u64,
    now: Moment,
    clock: SetClock,
    /// The runtime of all sessions. It runs nothing.
    _runtime: Runtime,
}

impl World {
    /// A world in which the first `keepers` programs keep what they release.
    fn new(lines: &[Line], order: Order, jobs: Vec<Jobs>, keepers: usize) -> Self {
        let runtime = Builder::new_current_thread().build().expect("there is memory");
        let entered = runtime.enter();
        let clock = SetClock::new(BEGAN);
        let programs = jobs.into_iter().enumerate();
        let of = |(number, jobs)| Program::new(number, jobs, number < keepers, clock);
        let programs = programs.map(of).collect();
        drop(entered);
        let (lines, states) = (lines.to_vec(), BTreeMap::new());
        Self { lines, order, programs, states, executed: 0, now: BEGAN, clock, _runtime: runtime }
    }

    /// The store executes the calls of a program. Returns true if there was any.
    fn execute(&mut self, number: usize) -> bool {
        self.programs[number].driver.step(Sending::AtOnce, |_, _| ());
        let requests = self.programs[number].store.take();
        let moved = !requests.is_empty();
        for Request { id, command, .. } in requests {
            // Each command has a time of its own, as on a server.
            self.executed += 1;
            let now_us = 1_800_000_000_000_000 + self.now.since(BEGAN).as_micros() as u64 + self.executed;
            let server = ServerClock { now_us, run_id: "simulated", uptime_ms: u64::MAX / 2 };
            let state = self.states.entry(command.semaphore.clone()).or_default();
            let keepable = model::keepable_limit(state.as_ref(), now_us);
            let (reply, events) = model::apply(state, &server, &command);
            let is_recalled = model::recalls(keepable, state.as_ref(), &reply, now_us);
            let result = Ok(Executed { reply, confirmed: 0 });
            self.programs[number].report(Report::Outcome { id, result });
            for event in events {
                let to = self.programs.iter().find(|to| to.id == event.session);
                to.expect("it is to a program").report(Report::Event(event));
            }
            for to in self.programs.iter().filter(|_| is_recalled) {
                to.report(Report::Recall(command.semaphore.clone()));
            }
        }
        moved
    }

    /// Grants everything that can be granted.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for number in 0..self.programs.len() {
                moved |= self.programs[number].poll();
                moved |= self.execute(number);
            }
            if !moved {
                return;
            }
        }
    }

    /// The units of each line that programs hold without having their whole set.
    fn held_by_waiting(&self) -> Vec<u64> {
        let mut held = vec![0; self.lines.len()];
        for (line, (name, limit)) in self.lines.iter().enumerate() {
            let state = self.states.get(&Name::new(name).expect("valid")).and_then(Option::as_ref);
            let all = state.map_or(0, |state| state.held);
            assert!(all <= u64::from(*limit), "{all} units of {name} are held");
            let working = self.programs.iter().filter(|program| program.works());
            let parts = working.flat_map(|program| &program.job.parts).filter(|(of, _)| *of == line);
            held[line] = all - parts.map(|(_, weight)| u64::from(*weight)).sum::<u64>();
        }
        held
    }

    fn run(mut self) -> Outcome {
        let mut outcome = Outcome {
            done: vec![0; self.programs.len()],
            held_by_waiting: vec![0; self.lines.len()],
            permits: 0,
            granted_by_the_store: 0,
            deadlocked: false,
        };
        for program in &mut self.programs {
            program.begin(&self.lines, self.order);
        }
        for _ in 0..ROUNDS {
            self.settle();
            if !self.programs.iter().any(Program::works) {
                outcome.deadlocked = true;
                break;
            }
            for (sum, held) in outcome.held_by_waiting.iter_mut().zip(self.held_by_waiting()) {
                *sum += held;
            }
            for (program, done) in self.programs.iter_mut().zip(&mut outcome.done) {
                if !program.works() {
                    continue;
                }
                program.job.work -= 1;
                if program.job.work == 0 {
                    *done += 1;
                    program.held.clear();
                    program.job = (program.jobs)();
                    program.begin(&self.lines, self.order);
                }
            }
            self.now = self.now + ROUND;
            self.clock.set(self.now);
        }
        outcome.permits = self.programs.iter().map(|program| program.permits).sum();
        let states = self.states.values().flatten();
        outcome.granted_by_the_store = states.map(|state| state.counts.grants).sum();
        self.end();
        outcome
    }

    /// Drops everything. Then nothing must be held, and nothing must wait.
    fn end(&mut self) {
        for program in &mut self.programs {
            program.acquiring.clear();
            program.held.clear();
            for (line, _) in &self.lines {
                program.report(Report::Recall(Name::new(line).expect("valid")));
            }
        }
        self.settle();
        for (name, state) in &self.states {
            let left = state.as_ref().map(|state| (state.held, state.queue.len()));
            assert!(left.is_none_or(|left| left == (0, 0)), "{name}: {left:?} are left");
        }
    }
}

/// A store that grants a whole set at once, if it fits in all of its lines.
struct Atomic {
    /// Grants only to a request that is the first in each of its lines.
    strict: bool,
    free: Vec<u32>,
    /// The programs that wait for their set, by arrival.
    waiting: Vec<usize>,
}

impl Atomic {
    /// The number of jobs done.
    fn run(strict: bool, lines: &[Line], mut jobs: Vec<Jobs>) -> u32 {
        let mut job: Vec<Job> = jobs.iter_mut().map(|jobs| jobs()).collect();
        let free = lines.iter().map(|(_, limit)| *limit).collect();
        let mut store = Self { strict, free, waiting: (0..job.len()).collect() };
        let mut done = 0;
        for _ in 0..ROUNDS {
            store.grant(&job);
            for number in 0..job.len() {
                if store.waiting.contains(&number) {
                    continue;
                }
                job[number].work -= 1;
                if job[number].work == 0 {
                    done += 1;
                    for (line, weight) in &job[number].parts {
                        store.free[*line] += weight;
                    }
                    job[number] = jobs[number]();
                    store.waiting.push(number);
                }
            }
        }
        done
    }

    fn grant(&mut self, jobs: &[Job]) {
        let mut is_passable = vec![true; self.free.len()];
        let (strict, free) = (self.strict, &mut self.free);
        self.waiting.retain(|number| {
            let parts = &jobs[*number].parts;
            let granted = parts.iter().all(|(line, weight)| is_passable[*line] && free[*line] >= *weight);
            for (line, weight) in parts {
                if granted {
                    free[*line] -= weight;
                } else {
                    is_passable[*line] &= !strict;
                }
            }
            !granted
        });
    }
}

/// Wide, narrow and unrelated semaphores.
const MIXED: &[Line] =
    &[("api", 4), ("api/tenant-1", 2), ("api/tenant-2", 2), ("api/tenant-1/job", 1), ("db", 3), ("disk", 1)];

/// Two semaphores with one unit each.
const PAIR: &[Line] = &[("db", 1), ("disk", 1)];

/// A wide semaphore, and four tenants of it.
const TENANTS: &[Line] =
    &[("api", 6), ("api/tenant-1", 2), ("api/tenant-2", 2), ("api/tenant-3", 2), ("api/tenant-4", 2)];

/// Random sets of up to three semaphores, in random orders, with random weights.
fn random_jobs(lines: &'static [Line], programs: usize, seed: u64) -> Vec<Jobs> {
    let of_program = |number: usize| {
        let mut random = fastrand::Rng::with_seed(seed * 1000 + number as u64);
        let jobs: Jobs = Box::new(move || {
            let mut all: Vec<usize> = (0..lines.len()).collect();
            random.shuffle(&mut all);
            all.truncate(random.usize(1..=3));
            let parts = all.into_iter().map(|line| (line, random.u32(1..=lines[line].1))).collect();
            Job { parts, work: random.u32(1..=5) }
        });
        jobs
    };
    (0..programs).map(of_program).collect()
}

/// Jobs of tenants: the first tenant has twelve programs, and each other one has two. Each job takes a unit
/// of `api` and a unit of its tenant.
fn tenants_jobs(seed: u64) -> Vec<Jobs> {
    let tenants = std::iter::repeat_n(1, 12).chain([2, 2, 3, 3, 4, 4]);
    let of_program = |(number, tenant): (usize, usize)| {
        let mut random = fastrand::Rng::with_seed(seed * 1000 + number as u64);
        let jobs: Jobs = Box::new(move || Job { parts: vec![(0, 1), (tenant, 1)], work: random.u32(1..=5) });
        jobs
    };
    tenants.enumerate().map(of_program).collect()
}

/// The outcomes of many seeds, beside the outcomes of the atomic stores.
#[derive(Default)]
struct Comparison {
    done: u32,
    /// The jobs done with strict lines, and with lines that can be overtaken.
    atomic: [u32; 2],
    /// The share of each line's units that programs held without having their whole set, summed over the
    /// seeds.
    waiting: Vec<f64>,
    seeds: u32,
}

impl Comparison {
    /// Runs many seeds. No seed ends in a deadlock.
    fn of(lines: &'static [Line], order: Order, jobs: impl Fn(u64) -> Vec<Jobs>) -> Self {
        let mut compared = Self { waiting: vec![0.0; lines.len()], ..Self::default() };
        for seed in 0..8 * cases() {
            let outcome = World::new(lines, order, jobs(seed), 0).run();
            assert!(!outcome.deadlocked, "no program can ever work again (seed {seed})");
            assert!(outcome.done.iter().all(|done| *done > 0), "{outcome:?} (seed {seed})");
            compared.done += outcome.done.iter().sum::<u32>();
            for (sum, strict) in compared.atomic.iter_mut().zip([true, false]) {
                *sum += Atomic::run(strict, lines, jobs(seed));
            }
            for (line, held) in outcome.held_by_waiting.iter().enumerate() {
                compared.waiting[line] += *held as f64 / f64::from(lines[line].1 * ROUNDS);
            }
            compared.seeds += 1;
        }
        compared
    }

    /// How many jobs were done for each job that an atomic store with strict lines has done.
    fn of_strict(&self) -> f64 {
        f64::from(self.done) / f64::from(self.atomic[0])
    }

    /// The share of a line's units that programs held without having their whole set.
    fn waiting(&self, line: usize) -> f64 {
        self.waiting[line] / f64::from(self.seeds)
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let overtaking = f64::from(self.done) / f64::from(self.atomic[1]);
        write!(
            f,
            "{:.2} of the jobs of strict lines, {overtaking:.2} of those that can be overtaken; ",
            self.of_strict()
        )?;
        write!(f, "held by programs that wait, by line:")?;
        (0..self.waiting.len()).try_for_each(|line| write!(f, " {:.2}", self.waiting(line)))
    }
}

#[test]
fn random_sets_never_wait_forever_and_as_many_are_granted_as_by_an_atomic_store() {
    for (name, lines) in [("mixed", MIXED), ("pair", PAIR)] {
        for programs in [2, 12] {
            let compared = Comparison::of(lines, Order::Shared, |seed| random_jobs(lines, programs, seed));
            println!("{name}, {programs} programs: {compared}");
            assert!(compared.of_strict() > 0.95, "{compared}");
        }
    }
}

/// A program may keep a permit of a later line. Before it comes to that line, others can get the permit.
#[test]
fn programs_that_keep_what_they_release_never_wait_forever() {
    for (name, lines) in [("mixed", MIXED), ("pair", PAIR)] {
        for (programs, keepers) in [(2, 2), (2, 1), (12, 12), (12, 6)] {
            let (mut permits, mut by_the_store) = (0, 0);
            for seed in 0..8 * cases() {
                let jobs = random_jobs(lines, programs, seed);
                let outcome = World::new(lines, Order::Shared, jobs, keepers).run();
                assert!(!outcome.deadlocked, "{name}: no program can ever work again (seed {seed})");
                assert!(outcome.done.iter().all(|done| *done > 0), "{name}: {outcome:?} (seed {seed})");
                permits += outcome.permits;
                by_the_store += outcome.granted_by_the_store;
            }
            println!("{name}, {keepers} of {programs} keep: {permits} permits, {by_the_store} by the store");
            assert!(permits > by_the_store, "{permits}: what is kept is used");
        }
    }
}

/// The first tenant has more programs than units. If the wide semaphore came first, these programs would hold
/// its units while they wait for their own.
#[test]
fn a_tenant_with_a_full_line_holds_nothing_of_the_wide_one() {
    let [shared, wide_first] =
        [Order::Shared, Order::OfTheJob].map(|order| Comparison::of(TENANTS, order, tenants_jobs));
    println!("tenants: {shared}\nwide semaphore first: {wide_first}");
    assert_eq!(shared.waiting(0), 0.0, "{shared}");
    assert!(wide_first.waiting(0) > 0.25, "{wide_first}");
    assert!(f64::from(shared.done) > 1.5 * f64::from(wide_first.done), "{shared}, {wide_first}");
    assert!(shared.of_strict() > 1.0, "{shared}");
}

/// The programs run the same code here, but acquire the semaphores of a set in the order of their job.
#[test]
fn without_the_shared_order_random_sets_block_one_another() {
    let is_blocked =
        |seed: &u64| World::new(MIXED, Order::OfTheJob, random_jobs(MIXED, 6, *seed), 0).run().deadlocked;
    let blocked = (0..15).filter(is_blocked).count();
    println!("{blocked} of 15 seeds end in a deadlock");
    assert!(blocked > 10, "the simulation finds a deadlock where there is one: {blocked}");
}
