//! The long benchmarks of `permits`, its fault matrix at length, and its soak, as one program that
//! `scripts/lab` calls.
//!
//! The means (workloads, meters, modes, pages) come from `permits-bench`, which measures `core` and
//! `regression` in the product's workspace.

mod capacity;
mod core_page;
mod faults;
mod hold;
mod lanes;
mod local_bench;
mod observation;
mod scale;
mod soak;
mod startup;
pub mod windows;

use permits_bench::{Failure, driver};

/// The commands that [`run`] takes.
pub const COMMANDS: &str =
    "capacity | core | faults | hold | lanes | local | observation | scale | soak | startup | windows";

/// Runs a command of the program; `None` if there is no such command.
pub fn run(words: &[&str]) -> Option<Result<(), Failure>> {
    Some(match words {
        ["core"] => core_page::run(),
        ["capacity", options @ ..] => capacity::run(options),
        ["scale", options @ ..] => scale::run(options),
        ["startup"] => startup::run(),
        ["hold", options @ ..] => hold::run(options),
        ["lanes"] => lanes::run(false),
        ["lanes", "--quick"] => lanes::run(true),
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
