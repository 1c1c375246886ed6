//! `permits-comparison rates`: limits for a time, `AcquireOptions::at_least`, beside the limiters of rates of
//! other libraries.
//!
//! - **Measures**: the lateness of a grant that time alone makes possible, its cost, the order of grants, and
//!   the most grants in any window. `scripts/lab windows` kills processes meanwhile; no peer has leases.
//! - **Run**: `scripts/lab rates`, which builds the peers first, and takes 5 minutes at most; `--quick` for
//!   a little of everything, to `target/rates.md`.
//! - **Result**: a table in `lab/performance.md`, and the aims in `target/rates-aims.md`.
//!
//! Every system runs every workload once in each round, with clients that always wait and release at once. A
//! token of `permits` is the time of its grant by the server's clock, to the microsecond. For the peers the
//! clock of the clients serves, which is that of the server's machine; their figures contain the time of the
//! reply.

mod driver;
mod lateness;
mod monitor;
mod page;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use permits_bench::Failure;
use permits_bench::aims::table;
use permits_bench::events::{self, Event};
use permits_bench::meter::Meter;
use permits_bench::modes::Mode;
use permits_bench::page::Part;
use permits_bench::results::Results;
use permits_bench::stats::{percentile, server_clock_ahead_us};
use permits_bench::system::{Kind, Process, System, own};
use permits_bench::workloads::all;
use permits_lab::windows::most_in_a_window;
use permits_testkit::Server;

pub(crate) use self::driver::drive;
use self::monitor::Monitor;
use crate::peers::peer;

/// The place of the table, in the page on performance.
const TABLE: Part<'_> =
    Part { begin: "<!-- figures: written by scripts/lab rates -->", end: "<!-- end of figures -->" };

/// The processes of a system, and the clients of each.
const PROCESSES: usize = 5;
const CLIENTS: usize = 10;

/// `permits`, with its driver for this comparison.
pub(crate) const OURS: &str = "permits-rate";

/// The system whose grants `MONITOR` shows.
const REDISSON: &str = "redisson-rate";

/// A rate: at most `limit` grants in a window.
struct Workload {
    name: &'static str,
    limit: usize,
    window_ms: u32,
    /// The time between the making of the limiter and the first request.
    rest: Duration,
    /// Clients always wait, so that each grant but the first is due to time alone.
    is_queued: bool,
}

/// 200 grants a second, in three ways.
const WORKLOADS: [Workload; 3] = [
    Workload { name: "bursts", limit: 20, window_ms: 100, rest: Duration::ZERO, is_queued: true },
    Workload { name: "smooth", limit: 1, window_ms: 5, rest: Duration::ZERO, is_queued: true },
    // Fixed intervals admit two limits in a window whose first requests come late in an interval.
    Workload { name: "long", limit: 1000, window_ms: 5000, rest: Duration::from_secs(3), is_queued: false },
];

/// The rounds, and the lengths in seconds.
struct Scale {
    /// The number of rounds.
    rounds: usize,
    /// The warm-up of a workload in which clients wait.
    warm_up: f64,
    /// The run of such a workload.
    seconds: f64,
    /// The run of the workload with a long window.
    long: f64,
    /// The run in which `MONITOR` shows the grants.
    monitored: f64,
}

const FULL: Scale = Scale { rounds: 2, warm_up: 3.0, seconds: 6.0, long: 7.0, monitored: 3.0 };
const QUICK: Scale = Scale { rounds: 1, warm_up: 0.2, seconds: 1.0, long: 0.5, monitored: 0.5 };

/// `[--quick]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (scale, page) = match arguments {
        [] => (FULL, "lab/performance.md"),
        ["--quick"] => (QUICK, "target/rates.md"),
        _ => return Err(format!("no such options: {arguments:?}").into()),
    };
    let server = Server::start();
    // `permits` grants nothing for a renewal interval after a start of its server.
    sleep(Duration::from_secs(6));
    let mut bench = Bench { meter: Meter::new(&server)?, server, scale, results: Results::default() };
    let systems = systems();
    for round in 1..=bench.scale.rounds {
        for system in systems.iter().filter(|system| system.absent().is_none()) {
            eprintln!("round {round}: {}", system.name);
            bench.run(system, round)?;
        }
    }
    let text = page::table(&bench.results, &systems);
    let aims = table(&page::aims(&bench.results));
    println!("{text}\n{aims}");
    TABLE.put(&text, Path::new(page))?;
    Ok(std::fs::write("target/rates-aims.md", aims)?)
}

/// The systems, in the order in which they are run and shown.
fn systems() -> Vec<System> {
    vec![
        own(OURS, "permits (Rust)", Kind::Ours),
        peer(REDISSON, "Redisson RRateLimiter (Java)"),
        peer("bottleneck", "Bottleneck (Node.js)"),
    ]
}

/// The server, its meter, and the results so far.
struct Bench {
    server: Server,
    meter: Meter,
    scale: Scale,
    results: Results,
}

impl Bench {
    /// Runs all workloads of a round with one system, on an empty server.
    fn run(&mut self, system: &System, round: usize) -> Result<(), Failure> {
        self.meter.empty()?;
        let url = self.server.url();
        let started =
            (0..PROCESSES).map(|_| system.start(&url, Duration::ZERO)).collect::<Result<Vec<_>, _>>();
        let mut processes = started?;
        for workload in &WORKLOADS {
            if round == 1 || workload.is_queued {
                let ended = self.workload(system, workload, &mut processes);
                self.results.settle(Mode::Quiet, system.name, workload.name, ended);
            }
            if round == 1 && system.name == REDISSON {
                sleep(workload.rest);
                let Scale { monitored, long, .. } = self.scale;
                let command = workload.command(if workload.is_queued { monitored } else { long });
                let monitor = Monitor::start(&self.server, workload.name)?;
                all(&mut processes, &command)?;
                self.most(system, workload, &monitor.finish()?);
            }
        }
        Ok(())
    }

    /// Runs one workload, and notes its figures.
    fn workload(
        &mut self,
        system: &System,
        workload: &Workload,
        processes: &mut [Process],
    ) -> Result<(), Failure> {
        let Scale { warm_up, seconds, long, .. } = self.scale;
        let (warm_up, seconds) = if workload.is_queued { (warm_up, seconds) } else { (0.0, long) };
        // Connects the clients and makes the limiter, in any case.
        all(processes, &workload.command(warm_up))?;
        sleep(workload.rest);
        let (ahead, before) = (server_clock_ahead_us(), self.meter.read()?);
        let answers = all(processes, &workload.command(seconds))?;
        let spent = self.meter.since(before)?;
        let ahead = (ahead + server_clock_ahead_us()) / 2.0;
        let events = events::parse(&answers)?;
        let grants = events.len() as f64;
        self.note(system, workload, "calls", spent.calls / grants);
        self.note(system, workload, "commands", spent.commands / grants);
        let waits = events.iter().map(|event| event.got - event.asked).collect();
        self.note_percentiles(system, workload, "wait", waits);
        let mut got: Vec<f64> = events.iter().map(|event| event.got).collect();
        got.sort_by(f64::total_cmp);
        self.note(system, workload, "callers_most", most_in_a_window(&got, workload.window_us()) as f64);
        if system.kind == Kind::Ours {
            self.by_token(system, workload, &events, ahead);
        }
        if workload.is_queued {
            self.note(system, workload, "inversions", events::inversions(&events) as f64);
            self.note(system, workload, "rate", lateness::rate(&got, workload.limit));
            let late = workload.lateness(&got, &got);
            self.note_percentiles(system, workload, "callers_late", late);
        }
        Ok(())
    }

    /// The figures by the tokens, which are the times of the grants by the server's clock, `ahead` of the
    /// clock of the processes.
    fn by_token(&mut self, system: &System, workload: &Workload, events: &[Event], ahead: f64) {
        let tokens: Vec<f64> = events.iter().map(|event| event.order).collect();
        self.most(system, workload, &tokens);
        if workload.is_queued {
            let got: Vec<f64> = events.iter().map(|event| event.got + ahead).collect();
            self.note_percentiles(system, workload, "granted_late", workload.lateness(&tokens, &tokens));
            self.note_percentiles(system, workload, "got_late", workload.lateness(&tokens, &got));
        }
    }

    /// Notes the most grants in a window, by the times of all grants on the server's clock.
    fn most(&mut self, system: &System, workload: &Workload, granted: &[f64]) {
        let most = most_in_a_window(granted, workload.window_us());
        self.note(system, workload, "most", most as f64);
    }

    fn note(&mut self, system: &System, workload: &Workload, figure: &str, value: f64) {
        let figure = format!("{}.{figure}", workload.name);
        self.results.note(Mode::Quiet, system.name, &figure, value);
    }

    /// Notes two percentiles of times in microseconds, as milliseconds.
    fn note_percentiles(&mut self, system: &System, workload: &Workload, figure: &str, mut times: Vec<f64>) {
        if !times.is_empty() {
            for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
                let value = percentile(&mut times, part) / 1e3;
                self.note(system, workload, &format!("{figure}_{name}"), value);
            }
        }
    }
}

impl Workload {
    fn window_us(&self) -> f64 {
        f64::from(self.window_ms) * 1e3
    }

    /// The command to the drivers.
    fn command(&self, seconds: f64) -> String {
        let Self { name, limit, window_ms, .. } = self;
        format!("admit {name} {limit} {window_ms} {CLIENTS} {seconds}")
    }

    /// The times from the moments at which grants became possible until `done`, in the order of the grants.
    fn lateness(&self, granted: &[f64], done: &[f64]) -> Vec<f64> {
        let possible = lateness::possible(granted, self.limit, self.window_us());
        possible.zip(done.iter().skip(self.limit)).map(|(possible, done)| done - possible).collect()
    }
}
