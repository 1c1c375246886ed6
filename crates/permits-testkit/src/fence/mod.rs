//! A fenced resource: the kind of thing that permits protect, for tests of their tokens.
//!
//! [`FencedResource`] remembers the highest token it saw for each slot and refuses a lower one. That makes a
//! resource safe from a holder that lost its permit and has not noticed: the new holder of the slot has a
//! higher token. Tokens compare within a slot, because of two live holders of one semaphore either may have
//! the lower token.
//!
//! Other processes reach it through a [`FencedServer`], line by line over a Unix socket:
//!
//! | request | reply |
//! |---|---|
//! | `WRITE slot token data` | `OK`, or `STALE highest` |
//! | anything else | `ERROR reason` |

mod service;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use service::{FencedClient, FencedServer};

/// A resource that accepts writes with the highest token of their slot, or a higher one, and refuses stale
/// ones.
#[derive(Debug, Default)]
pub struct FencedResource {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    highest: HashMap<u32, u64>,
    writes: Vec<Write>,
    refused: Vec<Write>,
}

/// A write, as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The slot of the permit under which it was made.
    pub slot: u32,
    /// The token of that permit.
    pub token: u64,
    /// The data.
    pub data: String,
}

/// A write was refused: its slot has been used with a higher token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The slot.
    pub slot: u32,
    /// The token that is stale.
    pub token: u64,
    /// The highest token of the slot.
    pub highest: u64,
}

impl fmt::Display for Stale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, token, highest } = self;
        write!(formatter, "token {token} of slot {slot} is stale: {highest} was seen")
    }
}

impl std::error::Error for Stale {}

impl FencedResource {
    /// A resource without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `data` under a permit with this slot and token.
    ///
    /// # Errors
    ///
    /// If a higher token was seen for the slot; then the data is not written.
    pub fn write(&self, slot: u32, token: u64, data: &str) -> Result<(), Stale> {
        let mut state = self.state();
        let write = Write { slot, token, data: data.to_owned() };
        let highest = state.highest.entry(slot).or_default();
        if token < *highest {
            let stale = Stale { slot, token, highest: *highest };
            state.refused.push(write);
            return Err(stale);
        }
        *highest = token;
        state.writes.push(write);
        Ok(())
    }

    /// The writes that were accepted, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.state().writes.clone()
    }

    /// The writes that were refused, in order.
    pub fn refused(&self) -> Vec<Write> {
        self.state().refused.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is made under one lock, so a panic elsewhere leaves none half made.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
