//! `permits-lab observation DIRECTORY`: the cost of events, spans and metrics that no subscriber and no
//! recorder takes.
//!
//! Events, spans and metrics are compiled in or out, so one program cannot have both. `scripts/lab core`
//! builds this program three times into the directory: `bare` has neither, `tracing` has events and spans,
//! `metrics` has the feature of that name, too. Their drivers run cycles in turn, a moment each, in another
//! order each round. Other load on the machine only makes cycles longer, so the figure of a build is the
//! tenth percentile of its turns; and the processor time of its process for a cycle is printed, too.

use std::path::Path;
use std::process::id;
use std::time::Duration;

use permits_testkit::Server;

use permits_bench::Failure;
use permits_bench::aims::{Aim, Bound, figures, part, table};
use permits_bench::modes::{Awake, Mode, available};
use permits_bench::stats::{median, percentile};
use permits_bench::system::{PERMITS, Process, Program, System};

/// The builds, in the order of what they have; the first is the reference of the second, and so on.
const BUILDS: [&str; 3] = ["bare", "tracing", "metrics"];

const ROUNDS: usize = 240;
const WARM_UP: usize = 3;
/// The seconds of a turn.
const TURN: f64 = 0.05;

/// The share of a cycle that observation may cost.
const BOUND: Bound = Bound::AtMost(1.02);

pub(crate) fn run(directory: &str) -> Result<(), Failure> {
    let server = Server::start();
    let mut aims = Vec::new();
    let (modes, _) = available(vec![Mode::Quiet, Mode::Awake]);
    for mode in modes {
        let awake = if mode == Mode::Awake { Some(Awake::start()?) } else { None };
        let builds = BUILDS.map(|build| Driver::start(&Path::new(directory).join(build), &server.url()));
        let mut drivers = builds.into_iter().collect::<Result<Vec<_>, _>>()?;
        if let Some(awake) = &awake {
            awake.pin_server(server.pid())?;
            for driver in &drivers {
                awake.pin_client(driver.process.pid())?;
            }
        }
        aims.extend(compare(&mut drivers, mode)?);
        drop(drivers);
        if let Some(awake) = &awake {
            awake.free(id())?;
        }
    }
    aims.sort_by(|one, other| one.what.cmp(&other.what));
    let table = table(&aims);
    println!("\n{table}");
    part("<!-- aims: figures of scripts/lab core, observation -->")
        .put(&figures(&aims), Path::new("lab/performance.md"))
}

/// Runs all rounds of one mode.
fn compare(drivers: &mut [Driver], mode: Mode) -> Result<Vec<Aim>, Failure> {
    let mut cycles = vec![Vec::new(); drivers.len()];
    for round in 0..WARM_UP + ROUNDS {
        for turn in 0..drivers.len() {
            let number = (turn + round) % drivers.len();
            let taken = drivers[number].cycle()?;
            if round >= WARM_UP {
                cycles[number].push(taken);
            }
        }
    }
    let quick: Vec<f64> = cycles.iter_mut().map(|taken| percentile(taken, 0.1)).collect();
    for (number, build) in BUILDS.iter().enumerate() {
        println!(
            "{}: {build}: a cycle takes {:.1} µs (median of all turns {:.1}), {:.2} µs of them of the client's processor time",
            mode.name(),
            quick[number],
            median(cycles[number].clone()),
            drivers[number].processor_us()?
        );
    }
    let aim = |what: &str, ours: usize, other: usize| {
        let value = Some(quick[ours] / quick[other]);
        Aim { workload: "A", what: what.to_owned(), mode, value, bound: BOUND }
    };
    Ok(vec![
        aim("cycle with events and spans, without a subscriber / compiled without", 1, 0),
        aim("cycle with the feature `metrics`, without a recorder / without the feature", 2, 1),
    ])
}

/// The driver of one build.
struct Driver {
    process: Process,
    cycles: u64,
}

impl Driver {
    fn start(program: &Path, url: &str) -> Result<Self, Failure> {
        let system = System { program: Program::Build(program.to_owned()), ..PERMITS.clone() };
        Ok(Self { process: system.start(url, Duration::ZERO)?, cycles: 0 })
    }

    /// The median of the cycles of a turn, in microseconds.
    fn cycle(&mut self) -> Result<f64, Failure> {
        let answer = self.process.ask(&format!("cycle observation 4 1 {TURN}"))?;
        self.cycles += answer["cycles"].as_u64().ok_or("no cycles")?;
        Ok(answer["p50_us"].as_f64().ok_or("no cycles")?)
    }

    /// The processor time of the process, for each of its cycles.
    fn processor_us(&self) -> Result<f64, Failure> {
        Ok(self.process.processor_us()? / self.cycles as f64)
    }
}
