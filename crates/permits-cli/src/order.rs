//! The order of the semaphores in `permits top`, which `--sort` sets.

use clap::ValueEnum;

use crate::inspected::ListRow;

/// An order. Semaphores that are equal in it are in the order of their names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    #[default]
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
            Self::Name => Self::Held,
            Self::Held => Self::Waiting,
            Self::Waiting => Self::Waited,
            Self::Waited => Self::Name,
        }
    }

    /// The order as a part of the title.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Name => "by name",
            Self::Held => "by held",
            Self::Waiting => "by waiting",
            Self::Waited => "by waited",
        }
    }

    /// The number by which semaphores are sorted, the highest first. `None` if it is not known: those come
    /// last.
    pub(crate) fn number(self, row: Option<&ListRow>) -> Option<u64> {
        match self {
            Self::Name => None,
            Self::Held => row.map(ListRow::in_use),
            Self::Waiting => row.map(|row| row.waiting),
            Self::Waited => row?.oldest_waiter_age_ms,
        }
    }
}
