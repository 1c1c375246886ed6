//! Mutants: a store or a client with one defect each. A check that finds none of them shows nothing.
//!
//! - [`model`]: the model with a defect around it, each with the property that it breaks.
//! - [`Split`]: clients that use two semaphores for one, for the [fault matrix](crate::faults).

pub mod model;

/// Every other worker uses another semaphore, so that more is held than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split;

impl Split {
    /// The prefix of the other semaphore.
    pub(crate) fn prefix(self) -> &'static str {
        "mutant"
    }
}
