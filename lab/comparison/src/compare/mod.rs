//! `permits-comparison compare`: permits and other libraries through the same workloads, in turn, on one
//! server.
//!
//! - **Measures**: eleven workloads, A to K ([`permits_bench::workloads`]): latency, throughput, hand-off,
//!   idle cost, long queues, memory, crashes, start, a unit that another process keeps. Also the lower bounds
//!   that the same server and client allow.
//! - **Modes**: figures that depend on it are taken with a quiet machine and with cores that stay awake, and
//!   some over a link with a delay ([`permits_bench::modes`]). A ratio compares two figures of one mode.
//! - **Run**: `scripts/lab compare`, which builds the peers of `peers/` first, and takes 50 minutes;
//!   `--quick` for a little of everything. `cargo test` here checks that no figure is missing.
//! - **Result**: `lab/comparison/results/`: the figures of `README.md`, plots, and `results.json` with every
//!   value and the aims.
//! - **In parts**: `--round N --modes M` measures one round in one mode, and takes the others from earlier
//!   parts or from `results.json`, if they are of the same machine and the same versions of everything. Until
//!   no part is missing, they are in `rounds.json`, and the page stays as it is.
//!
//! Every system goes through everything once in each mode of a round, so that other load on the machine meets
//! all of them. The page shows the median of the rounds, with the least and the most. Each system is a
//! process with a line protocol ([`permits_bench::driver`], `peers/README.md`), so that this runner treats
//! all alike.

mod aims;
mod glance;
mod page;
mod plots;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use permits_bench::Failure;
use permits_bench::aims::{Aim, table};
use permits_bench::modes::{Mode, available};
use permits_bench::results::Results;
use permits_bench::system::{KEEPING, Kind, OWN, System};
use permits_bench::workloads::{Bench, Scale};
use permits_testkit::Server;
use serde_json::{Value, json};

use crate::peers::peer;

/// The options of the command line.
struct Plan {
    scale: Scale,
    /// The rounds that are run, if they are not all.
    round: Option<usize>,
    modes: Vec<Mode>,
    /// The reason if the machine lacks the mode awake.
    not_awake: Option<String>,
    systems: Vec<System>,
    into: PathBuf,
}

pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    std::fs::create_dir_all(&plan.into)?;
    let (file, begun) = (plan.into.join("results.json"), plan.into.join("rounds.json"));
    let mut bench = Bench::new(plan.scale, Server::start())?;
    let about = about(&plan, &bench);
    let mut rounds = if plan.round.is_some() { earlier_rounds([&begun, &file], &about) } else { json!({}) };
    for round in plan.round.map_or(0..=plan.scale.rounds, |round| round..=round) {
        for &mode in &plan.modes {
            let began = Instant::now();
            bench.enter(mode)?;
            for system in plan.systems.iter().filter(|system| system.absent().is_none()) {
                eprintln!("round {round}, {}: {}", mode.name(), system.name);
                bench.run(system, round)?;
            }
            let minutes = began.elapsed().as_secs_f64() / 60.0;
            rounds[format!("{} {round}", mode.name())] =
                json!({ "minutes": minutes, "figures": bench.results.take().json() });
        }
    }
    bench.enter(Mode::Quiet)?;
    let missing = if plan.round.is_some() { missing(plan.scale, &rounds) } else { vec![] };
    if !missing.is_empty() {
        write_json(&begun, &json!({ "about": about, "rounds": rounds }))?;
        println!(
            "{} stays as it is until these rounds are measured: {}",
            plan.into.display(),
            missing.join(", ")
        );
        return Ok(());
    }
    let mut results = Results::default();
    for round in rounds.as_object().into_iter().flat_map(|rounds| rounds.values()) {
        results.add(&round["figures"])?;
    }
    let aims = aims::aims(&results, &plan.systems);
    let verdicts: Vec<Value> = aims.iter().map(Aim::json).collect();
    let record = json!({ "about": about, "aims": verdicts, "rounds": rounds });
    write_json(&file, &record)?;
    if plan.round.is_some() && begun.exists() {
        std::fs::remove_file(begun)?;
    }
    plots::draw(&results, &plan.systems, plan.scale.lines, &plan.into)?;
    let page = page::page(&about, &plan.systems, &results, plan.scale);
    page::FIGURES.put(&page, &plan.into.join("README.md"))?;
    println!("{page}\n{}\nin {}", table(&aims), plan.into.display());
    Ok(())
}

fn write_json(file: &Path, value: &Value) -> Result<(), Failure> {
    Ok(std::fs::write(file, serde_json::to_string_pretty(value)? + "\n")?)
}

/// The rounds that were measured before, of the first of these files that is of the same.
fn earlier_rounds(files: [&Path; 2], about: &Value) -> Value {
    let earlier = files.into_iter().filter_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        serde_json::from_str::<Value>(&text).ok()
    });
    let mut same = earlier.filter(|earlier| earlier["about"] == *about);
    same.next().map_or_else(|| json!({}), |mut earlier| earlier["rounds"].take())
}

/// The rounds that the page needs and nothing has measured.
fn missing(scale: Scale, rounds: &Value) -> Vec<String> {
    let (modes, _) = available(Mode::ALL.to_vec());
    let parts = modes.into_iter().flat_map(|mode| (0..=scale.rounds).map(move |round| (mode, round)));
    let needed = parts.filter(|(mode, round)| Bench::is_measured(*mode, *round));
    let names = needed.map(|(mode, round)| format!("{} {round}", mode.name()));
    names.filter(|name| rounds[name].is_null()).collect()
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

/// `[--quick] [--rounds N | --round N] [--only NAME,NAME] [--modes NAME,NAME] [--into DIRECTORY]`
fn plan(arguments: &[&str]) -> Result<Plan, Failure> {
    let mut plan = Plan {
        scale: Scale::FULL,
        round: None,
        modes: Mode::ALL.to_vec(),
        not_awake: None,
        systems: systems(),
        into: "lab/comparison/results".into(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match *word {
            "--quick" => (plan.scale, plan.into) = (Scale::QUICK, "target/comparison".into()),
            "--rounds" => plan.scale.rounds = value()?.parse()?,
            "--round" => plan.round = Some(value()?.parse()?),
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

/// The machine, and the versions of everything.
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
        "code": code(),
        "rounds": plan.scale.rounds,
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

/// The last commit that changed what is measured, if this is run in a clone.
fn code() -> Option<String> {
    let paths = ["crates", "lab/comparison", "lab/Cargo.lock"];
    let log = Command::new("git").args(["log", "-1", "--format=%h", "--"]).args(paths).output().ok()?;
    Some(String::from_utf8(log.stdout).ok()?.trim().to_owned()).filter(|commit| !commit.is_empty())
}
