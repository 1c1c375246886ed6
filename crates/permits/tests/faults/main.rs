//! What real processes see of a semaphore while clients, the network and the server fail.
//!
//! Each test has a server of its own and workers in processes of their own, which use the public API and tell
//! what happens to them, line by line, by the one clock of this host. From that the tests judge from outside:
//!
//! - **Safety** by the recorded intervals alone, however slow the machine was: never more held than the
//!   limit, no slot held twice, tokens that rise (`history`).
//! - **Liveness** by bounds of several leases and more.
//! - **Rest**: at the end nothing is held, nobody waits, no slot is missing (`stage`).
//! - **Coverage**: each test asserts that its fault has happened.
//!
//! Not here: a client's wrong wall clock. A client of a server never reads it (only the memory store does,
//! for it is the server), and the tools that fake it hang a server or need rights that a test does not have.

mod clients;
#[path = "../support/crew.rs"]
mod crew;
mod load;
mod network;
#[path = "../support/packed.rs"]
mod packed;
mod restarts;
mod server;
mod stage;
mod vanished;
#[path = "../support/worker.rs"]
mod worker;

/// Not a test: `crew` starts this executable again with this name, as a worker.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn worker_process() {
    worker::run_if_told();
}
