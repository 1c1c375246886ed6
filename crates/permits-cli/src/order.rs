//! The order of the semaphores in `permits top` and `permits list`, which `--sort` sets, and that in which
//! `permits serve` keeps metrics and history.

use std::cmp::Ordering;

use clap::ValueEnum;

use crate::inspected::{ListRow, Need};

/// An order. Semaphores that are equal in it are in the order of their names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The order of the page of `permits serve`, for an operator.
    #[default]
    Need,
    Name,
    /// The most held units first.
    Held,
    /// The most waiters first.
    Waiting,
    /// The longest wait of a head of the line first.
    Waited,
}

impl Order {
    /// The order after this one.
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Need => Self::Name,
            Self::Name => Self::Held,
            Self::Held => Self::Waiting,
            Self::Waiting => Self::Waited,
            Self::Waited => Self::Need,
        }
    }

    /// The order as a part of the title.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Need => "by need",
            Self::Name => "by name",
            Self::Held => "by held",
            Self::Waiting => "by waiting",
            Self::Waited => "by waited",
        }
    }

    /// Compares two semaphores by their names and their counts, if they are known.
    pub(crate) fn compare(
        self,
        (name, row): (&str, Option<&ListRow>),
        (other_name, other): (&str, Option<&ListRow>),
    ) -> Ordering {
        self.number(other).cmp(&self.number(row)).then_with(|| name.cmp(other_name))
    }

    /// The number by which semaphores are sorted, the highest first. `None` if it is not known: those come
    /// last. By need they have a place of their own, because they may be unreadable.
    fn number(self, row: Option<&ListRow>) -> Option<u64> {
        if let Self::Need = self {
            return Some(row.map_or(Need::Unreadable as u64 * DISTANCE, need));
        }
        let row = row.filter(|row| row.unreadable.is_none());
        match self {
            Self::Need | Self::Name => None,
            Self::Held => row.map(ListRow::in_use),
            Self::Waiting => row.map(|row| row.waiting),
            Self::Waited => row?.oldest_waiter_age_ms,
        }
    }
}

/// The distance between two needs: longer than any wait.
const DISTANCE: u64 = 1 << 60;

/// The place of a semaphore by its need, and among those that wait by the longest wait. The highest comes
/// first.
pub(crate) fn need(row: &ListRow) -> u64 {
    let wait_ms = row.oldest_waiter_age_ms.filter(|_| row.need >= Need::Waits).unwrap_or(0);
    row.need as u64 * DISTANCE + wait_ms.min(DISTANCE - 1)
}
