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

/// The label of a holder or waiter.
pub(super) fn label<'a>(of: &'a Inspection, name: &str) -> Option<&'a str> {
    let holder = of.holders.iter().find(|info| info.holder == name).map(|info| &info.label);
    let waiter = || of.waiters.iter().find(|info| info.holder == name).map(|info| &info.label);
    holder.or_else(waiter)?.as_deref()
}

/// The name in a row, and true if it holds.
pub(super) fn at(of: &Inspection, row: usize) -> Option<(&str, bool)> {
    let waiter = || of.waiters.get(row.checked_sub(of.holders.len())?);
    match of.holders.get(row) {
        Some(info) => Some((&info.holder, true)),
        None => waiter().map(|info| (info.holder.as_str(), false)),
    }
}
