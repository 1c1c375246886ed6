//! The `permits run`s around this process. They never end if they hold the units for which this process
//! waits.
//!
//! The environment, which every process between them and this one inherits, has the tokens of their permits.
//! A permit is held if the store still lists its token.

use std::env;

use permits::{HolderInfo, Inspection};

/// The environment variable with the permits of the runs around a process, one a line: token, slot and name.
pub(crate) const OUTER: &str = "PERMITS_OUTER";

/// The tokens of the permits of `name` that the runs around this process had when they started their
/// commands.
pub(super) fn tokens(name: &str) -> Vec<u64> {
    let outer = env::var(OUTER).unwrap_or_default();
    let token = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (token, _slot, of) = (parts.next()?, parts.next()?, parts.next()?);
        token.parse().ok().filter(|_| of == name)
    };
    outer.lines().filter_map(token).collect()
}

/// True if a request of `weight` cannot be granted before a permit with one of these tokens has ended.
pub(super) fn blocks(inspection: &Inspection, tokens: &[u64], weight: u32) -> bool {
    let is_outer = |info: &&HolderInfo| tokens.contains(&info.token) && !info.cooling;
    let weights = inspection.holders.iter().filter(is_outer).map(|info| info.weight);
    let units = weights.fold(0, u32::saturating_add);
    units > 0 && inspection.limit.is_some_and(|limit| units.saturating_add(weight) > limit)
}
