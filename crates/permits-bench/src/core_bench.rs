//! `permits-bench core`: `permits` and the lower bounds alone, with the aims that need no other system.
//!
//! The comparison of the laboratory runs the same rounds with other systems between them, and shows these
//! aims with its own.

use permits_testkit::Server;

use crate::Failure;
use crate::aims::Bound::{AtLeast, AtMost};
use crate::aims::{Aim, table};
use crate::modes::{Mode, available};
use crate::results::Results;
use crate::system::{KEEPING, OWN, System};
use crate::workloads::{Bench, Scale};

/// `[--quick] [--into FILE]`: a little of everything; every value of every round to a file, as JSON. Returns
/// the aims that were measured, which are printed, too.
///
/// # Errors
/// If a server or a workload fails, or the file cannot be written.
pub fn run(arguments: &[&str]) -> Result<Vec<Aim>, Failure> {
    let (scale, arguments) = match arguments {
        ["--quick", rest @ ..] => (Scale::QUICK, rest),
        all => (Scale::CORE, all),
    };
    let into = match arguments {
        [] => None,
        ["--into", file] => Some(file),
        _ => return Err(format!("no such options: {arguments:?}").into()),
    };
    let mut bench = Bench::new(scale, Server::start())?;
    let (modes, _) = available(vec![Mode::Quiet, Mode::Awake]);
    let systems: Vec<System> = OWN.iter().chain(&KEEPING).cloned().collect();
    measure(&mut bench, &systems, &modes)?;
    measure(&mut bench, &KEEPING[..1], &[Mode::Delayed])?;
    let mut aims = aims(&bench.results);
    aims.retain(|aim| aim.value.is_some());
    println!("{}", table(&aims));
    if let Some(file) = into {
        std::fs::write(file, serde_json::to_string_pretty(&bench.results.json())? + "\n")?;
    }
    Ok(aims)
}

/// Runs all rounds, each in all modes.
pub(crate) fn measure(bench: &mut Bench, systems: &[System], modes: &[Mode]) -> Result<(), Failure> {
    for round in 0..=bench.scale.rounds {
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

/// The aims that need no other system, each with its figure in each mode in which it is taken.
pub fn aims(results: &Results) -> Vec<Aim> {
    [cycles(results), crowds(results), queues(results), kept(results)].concat()
}

fn ours(results: &Results, mode: Mode, figure: &str) -> Option<f64> {
    results.median(mode, "permits", figure)
}

/// The highest value of all rounds.
fn most(results: &Results, mode: Mode, figure: &str) -> Option<f64> {
    results.get(mode, "permits", figure).map(|spread| spread.high)
}

/// A and B: cycles within the limit.
fn cycles(results: &Results) -> Vec<Aim> {
    let over = |mode| results.ratio(mode, "A.p50_us", "permits", "noop");
    let mut aims =
        Aim::both("A", "cycle awaited / two no-op scripts, p50", [1.3, 1.45].map(AtMost), over).to_vec();
    for (side, bound) in [("server", 7.0), ("client", 5.5)] {
        let (figure, what) = (format!("B64.{side}_us"), format!("{side} µs a cycle, 64 tasks"));
        aims.extend(Aim::both("B", &what, [AtMost(bound); 2], |mode| ours(results, mode, &figure)));
    }
    aims
}

/// C and D: several processes.
fn crowds(results: &Results) -> Vec<Aim> {
    [
        Aim::both("C", "throughput / the ideal", [0.88, 0.9].map(AtLeast), |mode| {
            ours(results, mode, "C.of_ideal")
        }),
        Aim::both("C", "order inversions, most of all rounds", [AtMost(0.0); 2], |mode| {
            most(results, mode, "C.inversions")
        }),
        Aim::both("C", "server calls a grant", [AtMost(2.2); 2], |mode| ours(results, mode, "C.calls")),
        Aim::both("D", "hand-off / PUBLISH to receive, p50", [AtMost(1.4); 2], |mode| {
            results.ratio(mode, "D.p50_us", "permits", "noop")
        }),
    ]
    .concat()
}

/// A to C and K where permits are kept, beside the same without.
fn kept(results: &Results) -> Vec<Aim> {
    const KEPT: &str = "permits-kept";
    let figure = |figure: &'static str| move |mode| results.median(mode, KEPT, figure);
    let over =
        |figure: &'static str, other: &'static str| move |mode| results.ratio(mode, figure, KEPT, other);
    let recall = |mode| Some(figure("K.p50_us")(mode)? / ours(results, mode, "D.p50_us")?);
    let inversions = |mode| results.get(mode, KEPT, "C.inversions").map(|spread| spread.high);
    let per_thousand = |mode| Some(1000.0 * figure("B64.calls")(mode)?);
    let both = |workload, what: &str, bound, value: &dyn Fn(Mode) -> Option<f64>| {
        Aim::both(workload, what, [bound; 2], value)
    };
    let mut aims = [
        both("A", "kept: cycle, p50, µs", AtMost(2.0), &figure("A.p50_us")),
        both("A", "kept: cycle / the same without keeping, p50", AtMost(0.02), &over("A.p50_us", "permits")),
        both("A", "kept: cycle / tokio::sync::Semaphore, p50", AtMost(5.0), &over("A.p50_us", "tokio")),
        both("B", "kept: cycles/s, 64 tasks", AtLeast(1e6), &figure("B64.per_s")),
        both("B", "kept: server calls for 1,000 cycles, 64 tasks", AtMost(1.0), &per_thousand),
        both(
            "C",
            "kept: throughput / the same without keeping",
            AtLeast(0.97),
            &over("C.of_ideal", "permits"),
        ),
        both(
            "C",
            "kept: calls a grant / the same without keeping",
            AtMost(1.05),
            &over("C.calls", "permits"),
        ),
        both("C", "kept: order inversions, most of all rounds", AtMost(0.0), &inversions),
        both("K", "request for a unit that another process keeps / hand-off, p50", AtMost(2.2), &recall),
    ]
    .concat();
    aims.push(Aim {
        workload: "A",
        what: "kept: cycle over a link with a delay of 0.5 ms, p50, µs".to_owned(),
        mode: Mode::Quiet,
        value: figure("A.p50_us")(Mode::Delayed),
        bound: AtMost(2.0),
    });
    aims
}

/// E to I: idle permits, queues, memory, a crash.
fn queues(results: &Results) -> Vec<Aim> {
    let once = |workload, what: &str, value, bound| Aim {
        workload,
        what: what.to_owned(),
        mode: Mode::Quiet,
        value,
        bound: AtMost(bound),
    };
    let quiet = |figure: &str| ours(results, Mode::Quiet, figure);
    let what = "calls for 500 permits and a renewal interval";
    let mut aims = vec![once("E", what, quiet("E.calls_of_aim"), 1.0)];
    for (length, name, bound) in [(10, "10", 70.0), (100_000, "100,000", 95.0)] {
        let (figure, what) = (format!("F{length}.server_us"), format!("server µs a grant out of {name}"));
        aims.extend(Aim::both("F", &what, [AtMost(bound); 2], |mode| ours(results, mode, &figure)));
    }
    let what = "server µs a grant, out of 100,000 / out of 10";
    aims.extend(Aim::both("F", what, [AtMost(1.5); 2], |mode| {
        Some(ours(results, mode, "F100000.server_us")? / ours(results, mode, "F10.server_us")?)
    }));
    for (length, name) in [(10, "10"), (1000, "1,000"), (100_000, "100,000")] {
        let (figure, what) = (format!("F{length}.calls"), format!("server calls a grant out of {name}"));
        aims.extend(Aim::both("F", &what, [AtMost(2.2); 2], |mode| ours(results, mode, &figure)));
    }
    for (workload, name) in [("L", "1,000 lanes"), ("L2", "1,000 lanes, two waiters each")] {
        let (figure, what) =
            (format!("{workload}.server_us"), format!("server µs a grant, out of {name} / out of 1,000"));
        aims.extend(Aim::both("L", &what, [AtMost(1.5); 2], |mode| {
            Some(ours(results, mode, &figure)? / ours(results, mode, "F1000.server_us")?)
        }));
    }
    aims.push(once("G", "bytes a lane, beside its waiter", quiet("G.lane_bytes"), 300.0));
    aims.push(once("G", "bytes a waiter", quiet("G.waiter_bytes"), 350.0));
    aims.push(once("G", "bytes a holder", quiet("G.holder_bytes"), 300.0));
    let what = "grant after the lease's end, ms, latest of all rounds";
    aims.push(once("I", what, most(results, Mode::Quiet, "I.beyond_lease_ms"), 100.0));
    aims
}
