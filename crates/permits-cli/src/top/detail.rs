//! [`Detail`]: the opened semaphore.

use permits::Inspection;

use crate::inspected::ListRow;

/// One semaphore with its holders, oldest first, and its waiters, in order.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) row: ListRow,
    pub(super) inspection: Inspection,
}

impl Detail {
    /// The number of listed holders and waiters.
    pub(super) fn len(&self) -> usize {
        self.inspection.holders.len() + self.inspection.waiters.len()
    }

    /// The label of a holder or waiter.
    pub(super) fn label_of(&self, name: &str) -> Option<&str> {
        let Inspection { holders, waiters, .. } = &self.inspection;
        let holder = holders.iter().find(|info| info.holder == name).map(|info| &info.label);
        let waiter = || waiters.iter().find(|info| info.holder == name).map(|info| &info.label);
        holder.or_else(waiter)?.as_deref()
    }

    /// The name in `row`, holders before waiters, and true if it holds.
    pub(super) fn at(&self, row: usize) -> Option<(&str, bool)> {
        let Inspection { holders, waiters, .. } = &self.inspection;
        let waiter = || waiters.get(row.checked_sub(holders.len())?);
        match holders.get(row) {
            Some(info) => Some((&info.holder, true)),
            None => waiter().map(|info| (info.holder.as_str(), false)),
        }
    }
}

impl From<Inspection> for Detail {
    fn from(mut inspection: Inspection) -> Self {
        // The store orders them by the end of their leases, which changes with every renewal: rows would jump
        // about.
        inspection.holders.sort_by_key(|info| info.token);
        Self { row: ListRow::from(&inspection), inspection }
    }
}
