//! `permits-bench regression`: compares figures with stored ones.
//!
//! The program measures `permits` and the floors as `core` does, and takes the figures that are the same on
//! any machine: counts of the server's commands, bytes, and ratios of two times of one run. Counts hardly
//! vary, so they may rise by little. Ratios of processor times vary more, because batches depend on how fast
//! requests come: they may double. Ratios of waiting times vary most, with the load of the machine: they may
//! triple. Figures that are better than stored are accepted. `regression --store` stores new figures; run it
//! on a quiet machine.

use permits::Client;
use permits_testkit::Server;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::core_bench::measure;
use crate::modes::Mode;
use crate::results::Results;
use crate::system::OWN;
use crate::workloads::{Bench, Scale};

/// The file with the stored figures.
const STORED: &str = "crates/permits-bench/regression.json";

/// The factors by which a count, a ratio of processor times, and a ratio of waiting times may rise.
const COUNT: f64 = 1.15;
const WORK: f64 = 2.0;
const WAIT: f64 = 3.0;

pub(crate) fn run(store: bool) -> Result<(), Failure> {
    let mut bench = Bench::new(Scale::CORE, Server::start())?;
    measure(&mut bench, &OWN, &[Mode::Quiet])?;
    let first = Figure {
        name: "client work, the first permit of a client / a later one",
        value: first_permit(&Server::start())?,
        may_grow: WORK,
    };
    let figures: Vec<Figure> = figures(&bench.results)?.into_iter().chain([first]).collect();
    if store {
        let stored: Map<String, Value> =
            figures.iter().map(|figure| (figure.name.to_owned(), json!(rounded(figure.value)))).collect();
        return Ok(std::fs::write(STORED, serde_json::to_string_pretty(&stored)? + "\n")?);
    }
    let stored: Value = serde_json::from_str(&std::fs::read_to_string(STORED)?)?;
    let mut worse = Vec::new();
    println!("{:45} {:>10} {:>10} {:>10}", "what", "measured", "stored", "allowed");
    for Figure { name, value, may_grow } in figures {
        let before = stored[name].as_f64().ok_or_else(|| format!("nothing stored for {name:?}"))?;
        let allowed = before * may_grow;
        println!("{name:45} {value:10.2} {before:10.2} {allowed:10.2}");
        if value > allowed {
            worse.push(name);
        }
    }
    if worse.is_empty() { Ok(()) } else { Err(format!("worse than it was: {}", worse.join("; ")).into()) }
}

/// The processor time that this process takes to connect and to get a first permit, divided by the time of a
/// later cycle.
fn first_permit(server: &Server) -> Result<f64, Failure> {
    const CLIENTS: u32 = 30;
    const CYCLES: u32 = 200;
    let now_us = || {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
    };
    let (mut first_us, mut later_us) = (0.0, 0.0);
    for _ in 0..CLIENTS {
        let began = now_us();
        let client = Client::connect(&server.url()).wait()?;
        let semaphore = client.semaphore("first", 1)?;
        semaphore.acquire().wait()?.release().wait()?;
        let granted = now_us();
        for _ in 0..CYCLES {
            semaphore.acquire().wait()?.release().wait()?;
        }
        first_us += granted - began;
        later_us += (now_us() - granted) / f64::from(CYCLES);
    }
    Ok(first_us / later_us)
}

/// A figure that should not grow.
struct Figure {
    name: &'static str,
    value: f64,
    may_grow: f64,
}

fn figures(results: &Results) -> Result<Vec<Figure>, Failure> {
    let get = |system: &str, figure: &str| {
        results
            .median(Mode::Quiet, system, figure)
            .ok_or_else(|| format!("{figure} of {system} was not measured"))
    };
    let ours = |figure: &str| get("permits", figure);
    let over = |figure: &str, floor: &str| Ok::<_, Failure>(ours(figure)? / get(floor, figure)?);
    let figure = |name, value, may_grow| Figure { name, value, may_grow };
    Ok(vec![
        figure("server calls a grant, 64 tasks contending", ours("C.calls")?, COUNT),
        figure("server calls a grant, 10 waiters", ours("F10.calls")?, COUNT),
        figure("server calls a grant, 1,000 waiters", ours("F1000.calls")?, COUNT),
        figure("bytes a holder", ours("G.holder_bytes")?, COUNT),
        figure("bytes a waiter", ours("G.waiter_bytes")?, COUNT),
        figure("server work, 64 tasks / two INCR scripts", over("B64.server_us", "incr")?, WORK),
        figure("client work, 64 tasks / two INCR scripts", over("B64.client_us", "incr")?, WORK),
        figure(
            "server work a grant, 1,000 / 10 waiters",
            ours("F1000.server_us")? / ours("F10.server_us")?,
            WORK,
        ),
        figure("cycle by one task / two no-op scripts", over("A.p50_us", "noop")?, WAIT),
        figure("hand-off / published message", over("D.p50_us", "noop")?, WAIT),
    ])
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
