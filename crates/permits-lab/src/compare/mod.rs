//! `permits-lab compare`: permits and other libraries through the same workloads, in turn, on one server.
//!
//! - **Measures**: ten workloads, A to J ([`workloads`]): latency, throughput, hand-off, idle cost, long
//!   queues, memory, crashes, start. Also the lower bounds that the same server and client allow.
//! - **Modes**: figures that depend on it are taken with a quiet machine and with cores that stay awake, and
//!   some over a link with a delay ([`permits_lab::modes`]). A ratio compares two figures of one mode.
//! - **Run**: `scripts/bench compare`, which builds the peers of `peers/` first, and takes 50 minutes;
//!   `--quick` for a little of everything. `cargo test -p permits-lab --test compare` checks that no figure
//!   is missing.
//! - **Result**: `docs/comparison/`: the figures of `README.md`, plots, and `results.json` with every value
//!   and the aims.
//!
//! In each round every system goes through everything once in each mode, so that other load on the machine
//! meets all of them. The page shows the median of the rounds, with the least and the most. Each system is a
//! process with a line protocol ([`driver`]), so that this runner treats all alike.

mod aims;
pub(crate) mod driver;
pub(crate) mod events;
mod page;
mod plots;
mod results;
mod system;
mod workloads;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use permits_lab::aims::{Aim, table};
use permits_lab::modes::{Mode, available};
use permits_testkit::Server;
use serde_json::{Value, json};

use crate::Failure;
pub(crate) use results::Results;
use system::SYSTEMS;
pub(crate) use system::{Kind, Process, System};
pub(crate) use workloads::{Bench, Scale, all};

/// The options of the command line.
struct Plan {
    scale: Scale,
    modes: Vec<Mode>,
    /// The reason if the machine lacks the mode awake.
    not_awake: Option<String>,
    systems: Vec<System>,
    into: PathBuf,
}

pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    let began = Instant::now();
    let mut bench = Bench::new(plan.scale, Server::start())?;
    let about = about(&plan, &bench);
    measure(&mut bench, &plan.systems, &plan.modes)?;
    let aims = aims::aims(&bench.results);
    std::fs::create_dir_all(&plan.into)?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let verdicts: Vec<Value> = aims.iter().map(Aim::json).collect();
    let record = json!({
        "about": about,
        "minutes": minutes,
        "aims": verdicts,
        "modes": bench.results.json(),
    });
    std::fs::write(plan.into.join("results.json"), serde_json::to_string_pretty(&record)? + "\n")?;
    plots::draw(&bench.results, &plan.systems, plan.scale.lines, &plan.into)?;
    let page = page::page(&about, &plan.systems, &bench.results, plan.scale);
    page::FIGURES.put(&page, &plan.into.join("README.md"))?;
    let table = table(&aims);
    println!("{page}\n{table}\nin {}, after {minutes:.0} minutes", plan.into.display());
    Ok(())
}

/// `permits-lab core`: `permits` and the lower bounds alone, with the aims that need no other system.
pub(crate) fn core() -> Result<(), Failure> {
    let mut bench = Bench::new(Scale::CORE, Server::start())?;
    let (modes, _) = available(vec![Mode::Quiet, Mode::Awake]);
    measure(&mut bench, &own(), &modes)?;
    let mut aims = aims::aims(&bench.results);
    aims.retain(|aim| aim.value.is_some());
    println!("{}", table(&aims));
    Ok(())
}

/// `[--quick] [--rounds N] [--only NAME,NAME] [--modes NAME,NAME] [--into DIRECTORY]`
fn plan(arguments: &[&str]) -> Result<Plan, Failure> {
    let mut plan = Plan {
        scale: Scale::FULL,
        modes: Mode::ALL.to_vec(),
        not_awake: None,
        systems: SYSTEMS.to_vec(),
        into: "docs/comparison".into(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match *word {
            "--quick" => (plan.scale, plan.into) = (Scale::QUICK, "target/comparison".into()),
            "--rounds" => plan.scale.rounds = value()?.parse()?,
            "--only" => {
                let names: Vec<&str> = value()?.split(',').collect();
                plan.systems.retain(|system| names.contains(&system.name));
            }
            "--modes" => {
                let names: Vec<&str> = value()?.split(',').collect();
                plan.modes.retain(|mode| names.contains(&mode.name()));
            }
            "--into" => plan.into = value()?.into(),
            _ => return Err(format!("no such option: {word}").into()),
        }
    }
    (plan.modes, plan.not_awake) = available(plan.modes);
    Ok(plan)
}

/// Runs all rounds, each in all modes.
pub(crate) fn measure(bench: &mut Bench, systems: &[System], modes: &[Mode]) -> Result<(), Failure> {
    for round in 1..=bench.scale.rounds {
        for &mode in modes {
            bench.enter(mode)?;
            for system in systems.iter().filter(|system| system.absent().is_none()) {
                eprintln!("round {round}, {}: {}", mode.name(), system.name);
                bench.run(system, round)?;
            }
        }
    }
    bench.enter(Mode::Quiet)
}

/// `permits` and the floors.
pub(crate) fn own() -> Vec<System> {
    SYSTEMS.iter().filter(|system| system.kind != Kind::Peer).cloned().collect()
}

/// `permits` alone.
pub(crate) fn permits() -> &'static System {
    &SYSTEMS[0]
}

/// The machine, the modes and the versions.
fn about(plan: &Plan, bench: &Bench) -> Value {
    let field = |text: String, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.split_once(':').map(|(_, value)| value.trim().to_owned()))
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| field(text, "model name"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut versions = json!({});
    for system in &plan.systems {
        versions[system.name] = json!(system.absent().unwrap_or_else(|| version(system, bench)));
    }
    json!({
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": cpu.unwrap_or_default(),
        "kernel": kernel.trim().split('-').next(),
        "server": bench.server.info("redis_version"),
        "rounds": plan.scale.rounds,
        "modes": plan.modes.iter().map(|mode| mode.name()).collect::<Vec<_>>(),
        "not awake": plan.not_awake,
        "versions": versions,
    })
}

fn version(system: &System, bench: &Bench) -> String {
    let hello =
        || -> Result<Value, Failure> { system.start(&bench.server.url(), Duration::ZERO)?.ask("hello") };
    match hello() {
        Ok(answer) => answer["version"].as_str().unwrap_or_default().to_owned(),
        Err(error) => error.to_string(),
    }
}
