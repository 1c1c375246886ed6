//! What comes from outside is refused or understood, never a panic: names and URLs from users, handles from other
//! processes, bytes from a server, and what is stored in a file.
//!
//! Random input of two kinds: of any form, which mostly shows that the first check holds, and valid input that was
//! damaged a little, which gets far. `PERMITS_CASES` multiplies the number of cases; `scripts/fuzz` goes on for as
//! long as one likes.

mod damage;
#[expect(dead_code, reason = "what asks a server is for other tests")]
#[path = "../support/dump.rs"]
mod dump;
mod dumps;
mod fake;
mod names;
#[path = "../support/packed.rs"]
mod packed;
mod replies;
#[expect(dead_code, reason = "nothing rare must be met here")]
#[path = "../support/run.rs"]
mod run;
mod sockets;
mod stored;
mod urls;

/// Where the seeds of failed cases are kept.
const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz.regressions");
