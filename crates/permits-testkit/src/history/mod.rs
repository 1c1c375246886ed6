//! Histories: what a store did and what its clients saw, and the checks of both.
//!
//! A test that polls for a fault depends on polling at the right moment. So the whole history is kept, and
//! checked when it is over:
//!
//! - [`checks`] of one **command**, given the states before and after it: [`checks::CHECKS`], and P12 of an
//!   inspection. The random histories of the model, those that run on the model and the scripts side by
//!   side, and the exhaustive search make these [steps](step::Step).
//! - [`handles`] checks the answers to renewals and adoptions by **handles**, over a whole history.
//! - [`verify`] checks the **clients**, from outside, by one clock of this host: the times of each permit,
//!   its token and its slot ([`client_checks`]). It uses no information from the store.
//!
//! Each check is itself tested, on histories with a violation and on [mutants](crate::mutants).
//!
//! A test may start processes: each [reports](report) its events by lines on its standard output.

pub mod checks;
pub mod client_checks;
pub mod client_event;
pub mod handles;
mod operators;
pub mod order;
mod rates;
pub mod step;

use std::error::Error;
use std::fmt;

pub use self::client_checks::{Granted, History, verify};
pub use self::client_event::{ClientEvent, ClientRecord, deadline, now, report, report_at};

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The property that is violated, such as `P2`; or `form` if a client reports what cannot be.
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
