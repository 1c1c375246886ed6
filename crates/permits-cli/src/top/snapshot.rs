//! The queries of the screen, and the snapshots that answer them.

use std::collections::HashMap;

use permits::{AdminError, Inspection};

use crate::inspected::ListRow;

/// The names of a store.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// In order.
    pub(super) names: Vec<String>,
    /// The counts by name, if the order or the choice of the rows needs them. Those of a semaphore that has
    /// ended since, or that cannot be read, are missing.
    pub(super) counts: Option<HashMap<String, ListRow>>,
}

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
    Rows(Vec<(String, Result<ListRow, AdminError>)>),
    Detail(String, Box<Inspection>),
    Failed(AdminError),
}
