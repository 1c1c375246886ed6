//! Histories: the commands of a store and the events of its clients, recorded, and the checks of both.
//!
//! A test that polls for a fault of the store depends on polling at the right moment. So the whole history is
//! kept, and checked when it is over:
//!
//! - [`replay`] checks the **store**. The scripts publish every command that they execute (see [`record`]),
//!   in the order of execution, those with a lost reply included; a [`Recorder`] listens. The commands are
//!   replayed through the model, and every reply and every event must be equal. After each step the
//!   properties of the semaphore are checked on the state: P1, P4 to P7, P9 to P11, P13, P15, P17, P20 to
//!   P22 ([`checks`]).
//! - [`verify`] checks the **clients**, from outside, by one clock of this host: the times of each permit,
//!   its token and its slot ([`client_checks`]). It uses no information from the store.
//! - [`Replayed::check_deadlines`] compares the two: no client uses a grant that the store did not make, or a
//!   deadline later than the store's (P3).
//!
//! Each check is itself tested, on histories with a violation and on [mutants](crate::mutants).
//!
//! # Losses that are allowed
//!
//! A store may lose state: by `FLUSHALL`, by a restart, by a failover to a replica that lags. The replay
//! follows, because the sequence numbers of the replies show how far the store went back, and lists each
//! [`Loss`]. A test that plans none demands that there is none ([`Replayed::check_kept`]). A command that is
//! missing from the record, or out of order, is a violation.
//!
//! A server answers a client before it publishes to a listener. So the last commands of a server that is
//! killed (SIGKILL) and keeps nothing on disk may be missing, with their effects. The last commands of a
//! server that keeps its state are in the record, too.
//!
//! # Examples
//!
//! ```
//! use permits::{Client, Recovery};
//! use permits_testkit::history::{self, History, Recorder, Rules, ClientEvent};
//! use permits_testkit::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start();
//! history::record(); // all connections of this process are recorded from now on
//! let recorder = Recorder::listen(&server);
//! let mut seen = History::default();
//!
//! let client = Client::builder(server.url()).recovery(Recovery::Off).connect().await?;
//! let exports = client.semaphore("exports", 2).expect("valid");
//! for turn in ["first", "second"] {
//!     seen.note(0, turn, ClientEvent::Asked { weight: 1 });
//!     let permit = exports.acquire().await?;
//!     let (at, until) = history::deadline(|| permit.remaining());
//!     let (token, slot) = (permit.token(), permit.slot());
//!     seen.note_at(at, 0, turn, ClientEvent::Acquired { token, slot, until, again: false });
//!     seen.note(0, turn, ClientEvent::Releasing);
//!     permit.release().await?;
//!     seen.note(0, turn, ClientEvent::Released(Ok(())));
//! }
//!
//! let replayed = history::replay(&recorder.records())?;
//! replayed.check_kept()?;
//! replayed.check_at_rest()?;
//! history::verify(&seen, &Rules::limit(2))?;
//! replayed.check_deadlines(&seen.grants())?;
//! # client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! In a test with processes of its own, each calls [`record`] for itself, and [reports](report) its events by
//! lines on its standard output.

pub mod checks;
pub mod client_checks;
pub mod client_event;
mod operators;
mod order;
mod rates;
mod recorder;
mod replay;
pub mod step;

use std::error::Error;
use std::fmt;

pub use permits::store::redis::testing::{Record, record};

pub use self::client_checks::{Granted, History, Rules, verify};
pub use self::client_event::{ClientEvent, ClientRecord, deadline, now, report, report_at};
pub use self::recorder::{Recorder, merge};
pub use self::replay::{Loss, Replayed, StoredPermit, replay};

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The property that is violated, such as `P2`; or `reply`, `events` or `sequence` if the store differs
    /// from the model.
    pub rule: &'static str,
    /// The details.
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
