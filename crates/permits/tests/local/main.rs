//! What real processes see of a semaphore that lives in a file.
//!
//! The stage is as in the suite of faults: workers in processes of their own, judged from outside by one clock.
//! The faults are those of a file: its users die or stop at any moment (`crashes`), the machine restarts or a process has
//! a time of its own (`time`), it is none of ours or damaged (`files`), another user's or not to be written (`rights`), its
//! disk is full (`full`), it is deleted (`deleted`), or its users are very many (`crowd`) or idle (`idle`). Only on
//! Linux does a file know which boot of the machine it was used in.

#![cfg(target_os = "linux")]

mod crashes;
mod crowd;
mod deleted;
mod errand;
mod files;
mod full;
mod idle;
mod rights;
mod stage;
mod time;

/// Not a test: a pool starts this executable again with this name, as a worker.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn worker_process() {
    permits_testkit::worker::run_if_started();
}

/// Not a test: `errand` starts this executable again with this name.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn errand_process() {
    errand::run_if_told();
}
