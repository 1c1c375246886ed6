//! [`ListRow`], an inspection without its lists, and the numbers that the verbs derive from an inspection.

use permits::{ChangeInfo, Counts, HolderInfo, Inspection, Waits};
use serde::Serialize;

use crate::clock::milliseconds;
use crate::units::HeldUnits;

/// A semaphore without its holders, waiters and changes: an element of `permits list --json`, and a row of
/// `serve` and `top`. Scripts depend on the JSON: fields may be added, never changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct ListRow {
    pub(crate) name: String,
    pub(crate) limit: Option<u32>,
    /// With those that cool or may be kept.
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) paused: bool,
    pub(crate) pause_remaining_ms: Option<u64>,
    pub(crate) pause_reason: Option<String>,
    pub(crate) paused_by: Option<Author>,
    pub(crate) pinned: bool,
    pub(crate) limit_version: u64,
    pub(crate) recovering_ms: u64,
    pub(crate) oldest_holder_age_ms: Option<u64>,
    /// The label of the holder of this age, or its name if it has none.
    pub(crate) oldest_holder: Option<String>,
    pub(crate) oldest_waiter_age_ms: Option<u64>,
    pub(crate) closed: Option<String>,
    pub(crate) closed_by: Option<Author>,
    #[serde(flatten)]
    pub(crate) units: HeldUnits,
    /// The reason for which the semaphore cannot be read. If there is one, all other fields have their
    /// defaults.
    pub(crate) unreadable: Option<String>,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) waits: Waits,
}

/// The operator that made a change which is in force, and the time since then.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Author {
    pub(crate) by: String,
    pub(crate) age_ms: u64,
}

impl From<&ChangeInfo> for Author {
    fn from(change: &ChangeInfo) -> Self {
        Self { by: change.by.clone(), age_ms: milliseconds(change.age) }
    }
}

impl ListRow {
    /// See [`is_recovering`].
    pub(crate) fn is_recovering(&self) -> bool {
        self.limit.is_some() && self.recovering_ms > 0
    }

    /// The held units that do not cool.
    pub(crate) fn in_use(&self) -> u64 {
        self.units.in_use(self.held)
    }

    /// True if an operator keeps it from granting.
    pub(crate) fn is_stopped(&self) -> bool {
        self.paused || self.closed.is_some()
    }

    /// True if no unit is held and no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting == 0
    }
}

impl From<&Inspection> for ListRow {
    fn from(inspection: &Inspection) -> Self {
        let Inspection { limit, limit_version, held, waiting, paused, pinned, recovering, counts, .. } =
            *inspection;
        Self {
            name: inspection.name.clone(),
            limit,
            held,
            waiting,
            paused,
            pause_remaining_ms: inspection.pause_remaining.map(milliseconds),
            pause_reason: inspection.pause_reason.clone(),
            paused_by: inspection.paused_by().map(Author::from),
            pinned,
            limit_version,
            recovering_ms: milliseconds(recovering),
            oldest_holder_age_ms: inspection.oldest_holder_age().map(milliseconds),
            oldest_holder: inspection.holders.iter().max_by_key(|info| info.age).map(named),
            oldest_waiter_age_ms: inspection.oldest_waiter_age().map(milliseconds),
            closed: inspection.closed.clone(),
            closed_by: inspection.closed_by().map(Author::from),
            units: HeldUnits::of(inspection),
            unreadable: None,
            counts,
            waits: inspection.waits,
        }
    }
}

fn named(info: &HolderInfo) -> String {
    info.label.as_ref().unwrap_or(&info.holder).clone()
}

/// True while free units are not granted. A semaphore without a limit grants nothing in any case.
pub(crate) fn is_recovering(inspection: &Inspection) -> bool {
    inspection.limit.is_some() && !inspection.recovering.is_zero()
}

/// The number of waiters that are not listed.
pub(crate) fn unlisted_waiters(inspection: &Inspection) -> u64 {
    inspection.waiting.saturating_sub(inspection.waiters.len() as u64)
}

/// The counts that are not 0, as texts such as `3 granted`.
pub(crate) fn counted(counts: Counts) -> Vec<String> {
    let Counts { grants, refused, expired, revoked, .. } = counts;
    let counts = [(grants, "granted"), (refused, "refused"), (expired, "expired"), (revoked, "revoked")];
    counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
}
