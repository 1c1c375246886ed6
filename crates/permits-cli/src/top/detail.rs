//! The rows of an opened semaphore: its holders, oldest first, and its waiters, in order.

use permits::Inspection;

/// Orders the holders by age. The store orders them by the end of their leases, which changes with every
/// renewal: rows would jump about.
pub(super) fn ordered(mut inspection: Inspection) -> Inspection {
    inspection.holders.sort_by_key(|info| info.token);
    inspection
}

/// The number of rows.
pub(super) fn len(of: &Inspection) -> usize {
    of.holders.len() + of.waiters.len()
}

/// The holder or waiter in a row.
pub(super) fn at(of: &Inspection, row: usize) -> Option<&str> {
    let waiter = || of.waiters.get(row.checked_sub(of.holders.len())?);
    match of.holders.get(row) {
        Some(info) => Some(&info.holder),
        None => waiter().map(|info| info.holder.as_str()),
    }
}
