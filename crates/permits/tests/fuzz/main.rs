//! Input from outside is accepted or refused, and never causes a panic: names and URLs from users, handles
//! from other processes, bytes from a server, and the contents of a file.
//!
//! Random input of two kinds: of any form, which mostly tests the first check, and valid input that was
//! damaged a little, which passes most checks. `PERMITS_CASES` multiplies the number of cases; `scripts/lab
//! fuzz` runs until it is stopped.

mod damage;
mod names;
#[expect(dead_code, reason = "some are for the scripts alone")]
#[path = "../../../permits-redis/tests/support/operations.rs"]
mod operations;
mod replies;
#[expect(dead_code, reason = "no case must be met here")]
#[path = "../../../permits-core/tests/support/run.rs"]
mod run;
mod sockets;
mod stored;
mod urls;

/// The file with the seeds of failed cases.
const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz.regressions");
