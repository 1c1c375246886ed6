//! The state of a semaphore at one time, as `top` shows it and `watch` compares it: plain data that a test
//! can make.

use std::time::{Duration, SystemTime};

use permits::{ChangeInfo, Inspection, OperatorChange};
use serde::Serialize;

use crate::cooling::Cooling;

/// The counts of one semaphore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) limit: Option<u32>,
    pub(crate) limit_version: u64,
    /// With those that cool.
    pub(crate) held: u64,
    pub(crate) cooling: Cooling,
    pub(crate) waiting: u64,
    pub(crate) paused: bool,
    /// The reason for which the line is closed.
    pub(crate) closed: Option<String>,
    pub(crate) pinned: bool,
    pub(crate) recovering: Duration,
    /// The time for which the head of the line has waited, if the inspection listed it.
    pub(crate) oldest_waiter: Option<Duration>,
    pub(crate) totals: Totals,
}

/// The numbers of events since the store has the semaphore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Totals {
    pub(crate) grants: u64,
    pub(crate) refused: u64,
    pub(crate) expired: u64,
    pub(crate) revoked: u64,
}

impl Totals {
    /// Those that are not 0, as texts such as `3 granted`.
    pub(crate) fn texts(self) -> Vec<String> {
        let Self { grants, refused, expired, revoked } = self;
        let totals = [(grants, "granted"), (refused, "refused"), (expired, "expired"), (revoked, "revoked")];
        totals.iter().filter(|(total, _)| *total > 0).map(|(total, what)| format!("{total} {what}")).collect()
    }
}

impl From<&Inspection> for Totals {
    fn from(inspection: &Inspection) -> Self {
        let permits::Counts { grants, refused, expired, revoked, .. } = inspection.counts;
        Self { grants, refused, expired, revoked }
    }
}

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderRow {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) slot: u32,
    pub(crate) token: u64,
    pub(crate) age: Duration,
    pub(crate) lease: Duration,
    /// The holder has gone, and its units stay taken until the end of `lease`.
    pub(crate) cooling: bool,
    pub(crate) label: String,
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaiterRow {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) position: u64,
    pub(crate) age: Duration,
    pub(crate) label: String,
}

/// A change by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeRow {
    pub(crate) change: OperatorChange,
    pub(crate) by: String,
    pub(crate) at: SystemTime,
    pub(crate) age: Duration,
}

/// One semaphore with its holders, oldest first, its waiters in order, and the changes by operators, newest
/// first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Detail {
    pub(crate) counts: Counts,
    pub(crate) holders: Vec<HolderRow>,
    pub(crate) waiters: Vec<WaiterRow>,
    pub(crate) changes: Vec<ChangeRow>,
    /// The last one of each kind.
    pub(crate) last_changes: Vec<ChangeRow>,
}

impl Detail {
    pub(crate) fn len(&self) -> usize {
        self.holders.len() + self.waiters.len()
    }

    /// The label of a holder or waiter.
    pub(crate) fn label_of(&self, name: &str) -> Option<&str> {
        let holder = self.holders.iter().find(|holder| holder.name == name).map(|holder| &holder.label);
        let waiter = || self.waiters.iter().find(|waiter| waiter.name == name).map(|waiter| &waiter.label);
        holder.or_else(waiter).map(String::as_str)
    }

    /// The held units of holders that are not listed.
    pub(crate) fn unlisted_units(&self) -> u64 {
        let listed: u64 = self.holders.iter().map(|holder| u64::from(holder.weight)).sum();
        self.counts.held.saturating_sub(listed)
    }

    /// The number of waiters that are not listed.
    pub(crate) fn unlisted_waiters(&self) -> u64 {
        self.counts.waiting.saturating_sub(self.waiters.len() as u64)
    }

    /// The name in `row`, holders before waiters, and true if it holds.
    pub(crate) fn at(&self, row: usize) -> Option<(&str, bool)> {
        let waiter = || self.waiters.get(row.checked_sub(self.holders.len())?);
        match self.holders.get(row) {
            Some(holder) => Some((&holder.name, true)),
            None => waiter().map(|waiter| (waiter.name.as_str(), false)),
        }
    }
}

impl Counts {
    /// True while free units are not granted. A semaphore without a limit grants nothing in any case.
    pub(crate) fn is_recovering(&self) -> bool {
        self.limit.is_some() && !self.recovering.is_zero()
    }

    /// The held units that do not cool.
    pub(crate) fn in_use(&self) -> u64 {
        self.cooling.in_use(self.held)
    }

    /// True if no unit is held and no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting == 0
    }
}

impl From<&Inspection> for Counts {
    fn from(inspection: &Inspection) -> Self {
        let Inspection { limit, limit_version, held, waiting, paused, pinned, recovering, .. } = *inspection;
        let closed = inspection.closed.clone();
        let oldest_waiter = inspection.waiters.first().map(|info| info.age);
        Self {
            limit,
            limit_version,
            held,
            cooling: Cooling::of(inspection),
            waiting,
            paused,
            closed,
            pinned,
            recovering,
            oldest_waiter,
            totals: inspection.into(),
        }
    }
}

impl From<&ChangeInfo> for ChangeRow {
    fn from(info: &ChangeInfo) -> Self {
        let ChangeInfo { change, by, at, age, .. } = info;
        Self { change: change.clone(), by: by.clone(), at: *at, age: *age }
    }
}

impl From<Inspection> for Detail {
    fn from(inspection: Inspection) -> Self {
        let counts = Counts::from(&inspection);
        let changes = inspection.changes.iter().map(ChangeRow::from).collect();
        let last_changes = inspection.last_changes().map(ChangeRow::from).collect();
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
        // The store orders them by the end of their leases, which changes with every renewal: rows would jump
        // about.
        holders.sort_by_key(|holder| holder.token);
        Self { counts, holders, waiters, changes, last_changes }
    }
}
