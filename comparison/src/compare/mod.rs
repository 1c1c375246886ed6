//! `permits-comparison compare`: permits and other libraries through the same workloads, in turn, on one
//! server.
//!
//! - **Measures**: eleven workloads, A to K ([`permits_bench::workloads`]): latency, throughput, hand-off,
//! idle cost, long queues, memory, crashes, start, a unit that another process keeps. Also the lower bounds
//! that the same server and client allow.
//! - **Modes**: figures that depend on it are taken with a quiet machine and with cores that stay awake, and
//!   some over a link with a delay ([`permits_bench::modes`]). A ratio compares two figures of one mode.
//! - **Run**: `scripts/bench compare`, which builds the peers of `peers/` first, and takes 50 minutes;
//!   `--quick` for a little of everything. `cargo test` here checks that no figure is missing.
//! - **Result**: `docs/comparison/`: the figures of `README.md`, plots, and `results.json` with every value
//!   and the aims.
//!
//! In each round every system goes through everything once in each mode, so that other load on the machine
//! meets all of them. The page shows the median of the rounds, with the least and the most. Each system is a
//! process with a line protocol ([`permits_bench::driver`], `peers/README.md`), so that this runner treats
//! all alike.

mod aims;
mod glance;
mod page;
mod plots;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use permits_bench::Failure;
use permits_bench::aims::{Aim, table};
use permits_bench::core_bench::measure;
use permits_bench::modes::{Mode, available};
use permits_bench::system::{KEEPING, Kind, OWN, System};
use permits_bench::workloads::{Bench, Scale};
use permits_testkit::Server;
use serde_json::{Value, json};

use crate::peers::peer;

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
    let aims = aims::aims(&bench.results, &plan.systems);
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

/// All systems, in the order in which they are run and shown.
fn systems() -> Vec<System> {
    let peers = [
        peer("redisson-permits", "Redisson RPermitExpirableSemaphore (Java)"),
        peer("redisson-semaphore", "Redisson RSemaphore (Java)"),
        peer("redis-semaphore", "redis-semaphore (Node.js)"),
        peer("rueidislock", "rueidislock (Go)"),
        peer("distributed-lock-redis", "distributed-lock-redis (Rust)"),
    ];
    let own = OWN.iter().chain(&KEEPING).cloned();
    let (ours, floors): (Vec<_>, Vec<_>) = own.partition(|system| system.kind == Kind::Ours);
    ours.into_iter().chain(peers).chain(floors).collect()
}

/// `[--quick] [--rounds N] [--only NAME,NAME] [--modes NAME,NAME] [--into DIRECTORY]`
fn plan(arguments: &[&str]) -> Result<Plan, Failure> {
    let mut plan = Plan {
        scale: Scale::FULL,
        modes: Mode::ALL.to_vec(),
        not_awake: None,
        systems: systems(),
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
