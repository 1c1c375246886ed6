//! Histories: what the store did, command by command, and what its clients saw of it; and the two judges of them.
//!
//! A test that fails because something was *seen* to go wrong depends on looking at the right moment. So the whole
//! history is kept, and judged when it is over:
//!
//! - [`replay`] judges what the **store** did. The scripts themselves tell of every command that they execute (see
//!   [`record`]), in the order of execution, also of those whose reply nobody heard; a [`Recorder`] listens. The
//!   commands are replayed through the model, and every reply and every message must be equal. After each step the
//!   properties of the semaphore are checked on the state: P1, P4 to P7, P9 to P11, P13, P15 ([`checks`]).
//! - [`judge`] judges what the **clients** saw, from outside, by one clock of this host: who held when, by which
//!   token, in which slot ([`outside`]). It knows nothing of the store, and trusts nothing that the store says.
//! - [`Replayed::check_deadlines`] holds the two together: no client goes by a grant that the store did not make,
//!   nor by a deadline later than the store's (P3).
//!
//! Each judge is itself tested, on histories with planted violations.
//!
//! # What is allowed to go missing
//!
//! A store may lose state: by `FLUSHALL`, by a restart, by a failover to a replica that lags. The replay follows, as
//! the sequence numbers of the replies say how far the store went back, and lists each [`Loss`]; whoever planned
//! none demands that there is none ([`Replayed::check_kept`]). A command that is missing from the record, or one that
//! stands where it cannot, is a violation.
//!
//! A server answers a client before it tells a listener. So of one that is killed (SIGKILL) and keeps nothing on disk
//! the last commands may be missing; what they did is missing with them. One that keeps its state keeps them, too.
//!
//! # Examples
//!
//! ```
//! use permits::{Client, Recovery};
//! use permits_testkit::history::{self, History, Recorder, Rules, What};
//! use permits_testkit::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start();
//! history::record(); // whatever this process connects from now on is recorded
//! let recorder = Recorder::listen(&server);
//! let mut seen = History::default();
//!
//! let client = Client::builder(server.url()).recovery(Recovery::Off).connect().await?;
//! let exports = client.semaphore("exports", 2);
//! for turn in ["first", "second"] {
//!     seen.note(0, turn, What::Asked { weight: 1 });
//!     let permit = exports.acquire().await?;
//!     let (at, until) = history::deadline(|| permit.remaining());
//!     let (token, slot) = (permit.token(), permit.slot());
//!     seen.note_at(at, 0, turn, What::Acquired { token, slot, until });
//!     seen.note(0, turn, What::Releasing);
//!     permit.release().await?;
//!     seen.note(0, turn, What::Released("ok".to_owned()));
//! }
//!
//! let replayed = history::replay(&recorder.records())?;
//! replayed.check_kept()?;
//! replayed.check_at_rest()?;
//! history::judge(&seen, &Rules::limit(2))?;
//! replayed.check_deadlines(&seen.grants())?;
//! # client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! In a test with processes of its own, each calls [`record`] for itself, and [tells](tell) what it sees by
//! lines on its standard output.

pub mod checks;
pub mod client_checks;
pub mod client_event;
mod recorder;
mod replay;
pub mod step;

use std::error::Error;
use std::fmt;

pub use permits::store::redis::testing::{Record, record};

pub use self::client_checks::{Granted, History, Rules, verify};
pub use self::client_event::{ClientEvent, ClientRecord, deadline, now, report, report_at};
pub use self::recorder::{Recorder, merge};
pub use self::replay::{Loss, Replayed, replay};

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What is violated: a property such as `P2`, or `reply`, `events` or `sequence` where the store did not do
    /// what the model does.
    pub rule: &'static str,
    /// How.
    pub what: String,
}

impl Violation {
    fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

impl Error for Violation {}
