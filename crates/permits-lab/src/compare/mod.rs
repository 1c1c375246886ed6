//! `permits-lab compare`: permits and other libraries through the same workloads, in turn, on one server.
//!
//! - **Measures**: ten workloads, A to J ([`workloads`]): latency, throughput, hand-off, idle cost, long queues,
//!   memory, crashes, start. Also the lower bounds that the same server and client allow.
//! - **Run**: `scripts/bench compare`, which builds the peers of `peers/` first, and takes half an hour; `--quick` for a
//!   little of everything. `cargo test -p permits-lab --test compare` checks that no figure is missing.
//! - **Result**: `docs/comparison/`: the figures of `README.md`, plots, and `results.json` with every value; the table
//!   of aims in `docs/performance.md`.
//!
//! In each round every system goes through everything once, so that other load on the machine meets all of them. The
//! page shows the median of the rounds, with the least and the most. Each system is a process with a line protocol
//! ([`driver`]), so that this runner treats all alike.

mod aims;
pub(crate) mod driver;
mod events;
mod page;
mod plots;
mod results;
mod system;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
pub(crate) use aims::{Aim, aims};
pub(crate) use results::Results;
pub(crate) use system::find;
use system::{Kind, SYSTEMS, System};
pub(crate) use workloads::{Bench, Scale, hand_offs};

/// The options of the command line.
struct Plan {
    scale: Scale,
    systems: Vec<System>,
    into: PathBuf,
}

pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    let began = Instant::now();
    let mut bench = Bench::new(plan.scale)?;
    let about = about(&plan, &bench);
    measure(&mut bench, &plan.systems)?;
    let aims = aims(&bench.results);
    std::fs::create_dir_all(&plan.into)?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let verdicts: Vec<Value> = aims.iter().map(Aim::json).collect();
    let record =
        json!({ "about": about, "minutes": minutes, "aims": verdicts, "systems": bench.results.json() });
    std::fs::write(plan.into.join("results.json"), serde_json::to_string_pretty(&record)? + "\n")?;
    plots::draw(&bench.results, &plan.systems, plan.scale.lines, &plan.into)?;
    let page = page::page(&about, &plan.systems, &bench.results, plan.scale);
    page::FIGURES.put(&page, &plan.into.join("README.md"))?;
    let table = page::table_of_aims(&aims);
    // The page on performance lies beside the folder of the comparison.
    let directory = plan.into.parent().unwrap_or(Path::new("."));
    page::AIMS.put(&table, &directory.join("performance.md"))?;
    println!("{page}\n{table}\nin {}, after {minutes:.0} minutes", plan.into.display());
    Ok(())
}

/// `[--quick] [--rounds N] [--only NAME,NAME] [--into DIRECTORY]`
fn plan(arguments: &[&str]) -> Result<Plan, Failure> {
    let mut plan = Plan { scale: Scale::FULL, systems: SYSTEMS.to_vec(), into: "docs/comparison".into() };
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
            "--into" => plan.into = value()?.into(),
            _ => return Err(format!("no such option: {word}").into()),
        }
    }
    Ok(plan)
}

/// Runs all rounds.
pub(crate) fn measure(bench: &mut Bench, systems: &[System]) -> Result<(), Failure> {
    for round in 0..bench.scale.rounds {
        for system in systems {
            if system.absent().is_none() {
                eprintln!("round {}: {}", round + 1, system.name);
                bench.run(system)?;
            }
        }
        if systems.iter().any(|system| system.kind == Kind::Floor) {
            server_alone(bench)?;
        }
    }
    Ok(())
}

/// `permits` and the floors.
pub(crate) fn own() -> Vec<System> {
    SYSTEMS.iter().filter(|system| system.kind != Kind::Peer).cloned().collect()
}

/// The rate of redis-benchmark, which is written in C, with a script that does nothing.
fn server_alone(bench: &mut Bench) -> Result<(), Failure> {
    let hash = bench.server.command(&["SCRIPT", "LOAD", crate::raw::NO_OP]).text().to_owned();
    for (clients, requests) in [(1, 5_000.0), (64, 50_000.0)] {
        // For about as long as the others.
        let requests = (requests * bench.scale.seconds) as usize;
        let output = Command::new("redis-benchmark")
            .args(["-p", &bench.server.port().to_string(), "--csv", "-c", &clients.to_string()])
            .args(["-n", &requests.to_string(), "EVALSHA", &hash, "1", "permits-lab:raw"])
            .output();
        let Ok(output) = output else { return Ok(()) };
        let text = String::from_utf8(output.stdout)?;
        let rate = text
            .lines()
            .last()
            .and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse::<f64>().ok());
        let rate = rate.ok_or_else(|| format!("no rate in {text:?}"))?;
        if clients == 1 {
            bench.results.note("redis-benchmark", "A.cycle_us", 2e6 / rate);
        } else {
            bench.results.note("redis-benchmark", "B64.per_s", rate / 2.0);
        }
    }
    Ok(())
}

/// The machine and the versions.
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
