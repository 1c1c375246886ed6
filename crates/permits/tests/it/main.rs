//! The tests that may share a process.
//!
//! A program of its own has what records (`deployments`, `differential`, `faults`), forks or blocks (`forks`,
//! `stuck`, `ends`), listens to the whole process (`observability`, `refusals`), fills all buffers
//! (`connections`), or is run for mutants (`conformance`, `exhaustive`, `lua`, `properties`).

mod cancellation;
mod clock;
mod debug;
mod diagnostics;
mod layouts;
#[cfg(target_os = "linux")]
mod local;
mod memory;
mod tenants;
