//! Requests on their way to a store, and its reports to the session.

use std::time::Duration;

use super::error::StoreError;
use crate::protocol::{Command, Event, Reply};

/// A command on its way to the store.
#[derive(Debug)]
pub struct Request {
    /// Chosen by the session, unique among its requests in flight.
    pub id: u64,
    /// The command.
    pub command: Command,
    /// The time after which it has failed.
    pub timeout: Duration,
    /// The replicas that should confirm it; 0: none.
    pub replicas: u32,
}

/// A command that the store has executed.
#[derive(Debug)]
pub struct Executed {
    /// The reply.
    pub reply: Reply,
    /// The number of replicas that confirmed it, if any should.
    pub confirmed: u32,
}

/// A report of a store to its session.
#[derive(Debug)]
pub enum Report {
    /// The outcome of a request.
    Outcome {
        /// The request.
        id: u64,
        /// Its outcome.
        result: Result<Executed, StoreError>,
    },
    /// An entry of the session has changed.
    Event(Event),
    /// The store can be reached (again), or events may have been lost: the session must renew everything.
    Up,
    /// The store cannot be reached; it reconnects.
    Down(StoreError),
    /// The store takes requests again.
    Writable,
}

/// The session, as its store sees it.
pub trait Sink: Send + Sync {
    /// Takes all of `reports`.
    fn report(&self, reports: &mut Vec<Report>);
}
