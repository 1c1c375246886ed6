//! Benchmarks of `permits`, its fault matrix at length, and its soak, as one program that `scripts/bench` and
//! `scripts/faults` call.
//!
//! Machines are noisy and shared, so every figure is a ratio of two measurements taken in turn in one run, on
//! one server that the program starts. Absolute times are printed for orientation.
//!
//! The public modules are the means of every benchmark: workloads and the processes that they drive, meters,
//! modes, aims and pages. The published recipes (`crates/permits-recipes`) and the comparison with other
//! libraries (`comparison/`) build on them.

pub mod aims;
mod capacity;
pub mod core_bench;
pub mod driver;
pub mod events;
mod faults;
mod hold;
mod local_bench;
pub mod meter;
pub mod modes;
mod observation;
pub mod page;
mod regression;
pub mod results;
mod scale;
mod soak;
mod startup;
pub mod stats;
pub mod system;
pub mod windows;
pub mod workloads;

/// An error of any benchmark: one that cannot run has no result.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The commands that [`run`] takes.
pub const COMMANDS: &str =
    "capacity | core | faults | hold | local | observation | regression | scale | soak | startup | windows";

/// Runs a command of the program; `None` if there is no such command.
pub fn run(words: &[&str]) -> Option<Result<(), Failure>> {
    Some(match words {
        ["core", options @ ..] => core_bench::run(options),
        ["capacity", options @ ..] => capacity::run(options),
        ["regression"] => regression::run(false),
        ["regression", "--store"] => regression::run(true),
        ["scale", options @ ..] => scale::run(options),
        ["startup"] => startup::run(),
        ["hold", options @ ..] => hold::run(options),
        ["local"] => local_bench::run(),
        ["observation", directory] => observation::run(directory),
        ["faults", arguments @ ..] => faults::run(arguments),
        ["soak", arguments @ ..] => soak::run(arguments),
        ["windows", arguments @ ..] => windows::run(arguments),
        // A process of the fault matrix or of the soak.
        ["worker"] => {
            permits_testkit::worker::run_if_started();
            Ok(())
        }
        // The other process of a measurement between two.
        ["driver", kind, url, lease_ms] => driver::run(kind, url, lease_ms),
        ["peer", "turns", url, turns] => local_bench::peer_turns(url, turns),
        ["peer", "idle", url] => local_bench::peer_idle(url),
        ["peer", "busy", url] => local_bench::peer_busy(url),
        _ => return None,
    })
}
