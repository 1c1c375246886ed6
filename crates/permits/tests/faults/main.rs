//! Faults of clients, the network and the server, seen by real processes.
//!
//! Each test has a server of its own and workers in processes of their own (`permits_testkit::worker`), which
//! use the public API and report what happens to them by the one clock of this host. From these reports the
//! tests verify:
//!
//! - **Safety** by the recorded intervals alone, however slow the machine is: never more held than the limit,
//!   no slot held twice, rising tokens (`permits_testkit::history`).
//! - **Liveness** by bounds of several leases and more.
//! - **Rest**: at the end the semaphore is idle, and all its slots are free (`fixture`).
//! - **Coverage**: each test asserts that its fault has happened.
//!
//! `rows` runs every row of the fault matrix for a moment: random load, random victims. The other tests show
//! what random load does not: what dead waiters cost together, the line across restarts, the calls that a
//! loss of keys costs. A call whose connection fails at one of its stages is a case of `it cancellation`.
//!
//! A wrong wall clock of a client is left out (`permits_testkit::faults::LEFT_OUT`).

mod clients;
mod fixture;
mod restarts;
mod rows;
mod vanished;

/// A pool starts this executable again with this name, as a worker.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn worker_process() {
    permits_testkit::worker::run_if_started();
}
