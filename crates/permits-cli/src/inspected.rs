//! [`ListRow`], an inspection without its lists, its [`Need`], and the numbers that the verbs derive from an
//! inspection.

use std::time::Duration;

use permits::{Alert, ChangeInfo, Counts, HolderInfo, Inspection, Waits};
use serde::{Serialize, Serializer};

use crate::clock::milliseconds;
use crate::units::HeldUnits;

/// A semaphore without its holders, waiters and changes: an element of `permits list --json`, and a row of
/// `serve` and `top`. Scripts depend on the JSON: fields may be added, never changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct ListRow {
    pub(crate) name: String,
    pub(crate) limit: Option<u32>,
    /// Held units, including those that cool or may be kept.
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
    pub(crate) alert: Alert,
    pub(crate) need: Need,
    #[serde(flatten)]
    pub(crate) units: HeldUnits,
    /// The reason for which the semaphore cannot be read. If there is one, all other fields have their
    /// defaults.
    pub(crate) unreadable: Option<String>,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) waits: Waits,
}

/// The need of a semaphore for a look: a wait, or a stop by an operator. `list`, `top`, `serve` and its page
/// order by it, and colour by it. In JSON it is its number, so that a reader has no rule of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Need {
    #[default]
    Idle,
    InUse,
    /// Paused or closed, without waiters.
    Stopped,
    /// The state cannot be read. It may be a leftover that nothing uses, so it comes behind requests that
    /// wait.
    Unreadable,
    /// A wait that is noticed, and no reason for a look.
    Waits,
    /// A long wait.
    WaitsLong,
    /// Beyond a threshold: of the semaphore itself, or the default of every semaphore.
    Beyond,
    /// Paused or closed, with waiters.
    StoppedWithWaiters,
}

/// The waits of a semaphore without a longest wait of its own: a shorter one than the first is ordinary work.
const NOTICED: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);
const TOO_LONG: Duration = Duration::from_secs(60);

impl Need {
    fn of(row: &ListRow) -> Self {
        let waits_for = |least| row.counted_wait().is_some_and(|wait| wait >= least);
        let most = row.alert.wait().map_or(TOO_LONG, |_| Duration::ZERO);
        let is_beyond = waits_for(most) || row.alert.waiting().is_some_and(|most| row.waiting > most.into());
        match row {
            _ if row.unreadable.is_some() => Self::Unreadable,
            _ if row.is_stopped() && row.waiting > 0 => Self::StoppedWithWaiters,
            _ if is_beyond => Self::Beyond,
            _ if waits_for(LONG) => Self::WaitsLong,
            _ if waits_for(NOTICED) => Self::Waits,
            _ if row.is_stopped() => Self::Stopped,
            _ if row.is_idle() => Self::Idle,
            _ => Self::InUse,
        }
    }

    /// True if an operator is to look.
    pub(crate) fn is_urgent(self) -> bool {
        self >= Self::WaitsLong
    }
}

impl Serialize for Need {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
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
    /// The row with the need that its other fields have.
    pub(crate) fn ranked(self) -> Self {
        Self { need: Need::of(&self), ..self }
    }

    /// The longest wait, unless the semaphore has a longest wait of its own that it does not exceed.
    pub(crate) fn counted_wait(&self) -> Option<Duration> {
        let wait = Duration::from_millis(self.oldest_waiter_age_ms?);
        self.alert.wait().is_none_or(|most| wait > most).then_some(wait)
    }

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
        let holding = inspection.holders.iter().filter(|info| !info.cooling);
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
            oldest_holder: holding.max_by_key(|info| info.age).map(named),
            oldest_waiter_age_ms: inspection.oldest_waiter_age().map(milliseconds),
            closed: inspection.closed.clone(),
            closed_by: inspection.closed_by().map(Author::from),
            alert: inspection.alert,
            need: Need::default(),
            units: HeldUnits::of(inspection),
            unreadable: None,
            counts,
            waits: inspection.waits,
        }
        .ranked()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_semaphore_is_healthy_and_a_long_wait_is_not() {
        let idle = ListRow { limit: Some(4), ..ListRow::default() };
        let full = ListRow { held: 4, ..idle.clone() };
        let wait = |wait_ms| ListRow { waiting: 3, oldest_waiter_age_ms: Some(wait_ms), ..full.clone() };
        let paused = |row| ListRow { paused: true, ..row };
        let alert = |wait_ms, waiting, row| ListRow {
            alert: Alert::new(wait_ms, waiting).expect("it is in range"),
            ..row
        };
        let own = |seconds, row| alert(Some(Duration::from_secs(seconds)), None, row);
        for (row, need) in [
            (idle.clone(), Need::Idle),
            (full.clone(), Need::InUse),
            (wait(999), Need::InUse),
            (paused(idle.clone()), Need::Stopped),
            (ListRow { closed: Some(String::new()), ..full.clone() }, Need::Stopped),
            (ListRow { unreadable: Some("damaged".to_owned()), ..idle }, Need::Unreadable),
            (wait(1_000), Need::Waits),
            (wait(10_000), Need::WaitsLong),
            (wait(60_000), Need::Beyond),
            (paused(wait(5)), Need::StoppedWithWaiters),
            // Thresholds of its own.
            (own(30, wait(30_000)), Need::InUse),
            (own(30, wait(30_001)), Need::Beyond),
            (own(3_600, wait(3_599_000)), Need::InUse),
            (own(3_600, paused(wait(5))), Need::StoppedWithWaiters),
            (alert(None, Some(3), wait(5)), Need::InUse),
            (alert(None, Some(2), wait(5)), Need::Beyond),
            (alert(None, Some(3), wait(10_000)), Need::WaitsLong),
        ] {
            let ranked = row.ranked();
            assert_eq!(ranked.need, need, "{ranked:?}");
        }
    }
}
