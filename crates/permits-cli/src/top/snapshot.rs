//! The queries of the screen, and the snapshots that answer them.

use std::time::Duration;

use permits::{AdminError, Inspection};

/// The counts of one semaphore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) limit: Option<u32>,
    pub(super) held: u64,
    pub(super) waiting: u64,
    pub(super) paused: bool,
    /// The reason for which the line is closed.
    pub(super) closed: Option<String>,
    pub(super) pinned: bool,
    pub(super) recovering: Duration,
    /// Permits granted, requests refused, leases ended and revocations, since the store has the semaphore.
    pub(super) totals: Totals,
}

/// The numbers of events of a semaphore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) grants: u64,
    pub(super) refused: u64,
    pub(super) expired: u64,
    pub(super) revoked: u64,
}

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HolderRow {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) slot: u32,
    pub(super) token: u64,
    pub(super) age: Duration,
    pub(super) lease: Duration,
    /// The holder has gone, and its units stay taken until the end of `lease`.
    pub(super) cooling: bool,
    pub(super) label: String,
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaiterRow {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) position: u64,
    pub(super) age: Duration,
    pub(super) label: String,
}

/// One semaphore with its holders, oldest first, and its waiters in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) counts: Counts,
    pub(super) holders: Vec<HolderRow>,
    pub(super) waiters: Vec<WaiterRow>,
}

impl Detail {
    pub(super) fn len(&self) -> usize {
        self.holders.len() + self.waiters.len()
    }

    /// The name in `row`, holders before waiters, and true if it holds.
    pub(super) fn at(&self, row: usize) -> Option<(&str, bool)> {
        let waiter = || self.waiters.get(row.checked_sub(self.holders.len())?);
        match self.holders.get(row) {
            Some(holder) => Some((&holder.name, true)),
            None => waiter().map(|waiter| (waiter.name.as_str(), false)),
        }
    }
}

impl From<&Inspection> for Counts {
    fn from(inspection: &Inspection) -> Self {
        let Inspection { limit, held, waiting, paused, ref closed, pinned, recovering, .. } = *inspection;
        let Inspection { grants, refused, expired, revoked, .. } = *inspection;
        let totals = Totals { grants, refused, expired, revoked };
        Self { limit, held, waiting, paused, closed: closed.clone(), pinned, recovering, totals }
    }
}

impl From<Inspection> for Detail {
    fn from(inspection: Inspection) -> Self {
        let counts = Counts::from(&inspection);
        let holders = inspection.holders.into_iter().map(|info| HolderRow {
            name: info.holder,
            weight: info.weight,
            slot: info.slot,
            token: info.token,
            age: info.age,
            lease: info.lease_remaining,
            cooling: info.cooling,
            label: info.label.unwrap_or_default(),
        });
        let waiters = inspection.waiters.into_iter();
        let waiters = waiters.map(|info| WaiterRow {
            name: info.holder,
            weight: info.weight,
            position: info.position,
            age: info.age,
            label: info.label.unwrap_or_default(),
        });
        let (mut holders, waiters): (Vec<_>, _) = (holders.collect(), waiters.collect());
        // The store orders them by the end of their leases, which changes with every renewal: rows would jump about.
        holders.sort_by_key(|holder| holder.token);
        Self { counts, holders, waiters }
    }
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
    Rows(Vec<(String, Result<Counts, AdminError>)>),
    Detail(String, Detail),
    Failed(AdminError),
}
