//! The queries of the screen, and the snapshots that answer them.

use permits::AdminError;

use crate::detail::{Counts, Detail};

/// A query for the visible rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Query {
    /// The counts of these semaphores.
    Rows(Vec<String>),
    /// The detail of this semaphore.
    Detail(String),
}

/// An answer to a query.
#[derive(Debug)]
pub(super) enum Snapshot {
    Rows(Vec<(String, Result<Counts, AdminError>)>),
    Detail(String, Detail),
    Failed(AdminError),
}
