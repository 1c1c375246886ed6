//! `permits-lab`: benchmarks of `permits`, run by `scripts/bench`.
//!
//! Machines are noisy and shared, so every figure is a ratio of two measurements taken in turn in one run, on
//! one server that the lab starts. Absolute times are printed for orientation.

mod compare;
mod faults;
mod local_bench;
mod meter;
mod observation;
mod rates;
mod regression;
mod scale;
mod soak;
mod startup;

use std::process::ExitCode;

use permits_lab::{Failure, stats};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["core"] => compare::core(),
        ["recipes"] => permits_lab::recipes::report::run(),
        ["compare", options @ ..] => compare::run(options),
        ["regression"] => regression::run(false),
        ["regression", "--store"] => regression::run(true),
        ["scale", options @ ..] => scale::run(options),
        ["rates", options @ ..] => rates::run(options),
        ["startup"] => startup::run(),
        ["local"] => local_bench::run(),
        ["observation", directory] => observation::run(directory),
        ["faults", arguments @ ..] => faults::run(arguments),
        ["soak", arguments @ ..] => soak::run(arguments),
        // A process of the fault matrix or of the soak.
        ["worker"] => {
            permits_testkit::worker::run_if_started();
            Ok(())
        }
        // The other process of a measurement between two.
        ["driver", kind, url, lease_ms] => compare::driver::run(kind, url, lease_ms),
        ["peer", "turns", url, turns] => local_bench::peer_turns(url, turns),
        ["peer", "idle", url, task] => local_bench::peer_idle(url, task),
        ["peer", "busy", url, number] => local_bench::peer_busy(url, number),
        _ => {
            eprintln!(
                "usage: permits-lab compare | core | faults | local | observation | rates | recipes | regression | scale | soak | startup"
            );
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("permits-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
