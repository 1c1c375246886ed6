//! The benchmarks that a change is checked with: `core` measures `permits` beside the least that the same
//! work can cost, and `regression` compares some of these figures with stored ones. `scripts/more/bench`
//! calls them.
//!
//! Machines are noisy and shared, so every figure is a ratio of two measurements taken in turn in one run, on
//! one server that the program starts. Absolute times are printed for orientation.
//!
//! The public modules are the means of every benchmark: workloads and the processes that they drive, meters,
//! modes, aims and pages. The laboratory (`lab/`) builds its own on them.

pub mod aims;
pub mod core_bench;
pub mod driver;
pub mod events;
pub mod meter;
pub mod modes;
pub mod page;
mod regression;
pub mod results;
pub mod stats;
pub mod system;
pub mod workloads;

/// An error of any benchmark: one that cannot run has no result.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The commands that [`run`] takes.
pub const COMMANDS: &str = "core | regression";

/// Runs a command of the program; `None` if there is no such command.
pub fn run(words: &[&str]) -> Option<Result<(), Failure>> {
    Some(match words {
        ["core", options @ ..] => core_bench::run(options).map(drop),
        ["regression"] => regression::run(false),
        ["regression", "--store"] => regression::run(true),
        // The other process of a measurement between two.
        ["driver", kind, url, lease_ms] => driver::run(kind, url, lease_ms),
        _ => return None,
    })
}
