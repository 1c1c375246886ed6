//! The `permits run` around this process. If it holds the units for which this process waits, neither ever
//! ends.
//!
//! The environment, which every process between the two inherits, has the token of its permit. The permit is
//! held if the store still lists that token.

use std::env;

use permits::Inspection;

/// The token of the permit of `name` that a `permits run` around this process had when it started its
/// command.
pub(super) fn token(name: &str) -> Option<u64> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("PERMITS_NAME") == name {
        return variable("PERMITS_TOKEN").parse().ok();
    }
    let also = variable("PERMITS_ALSO");
    let mut permits = also.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ' ');
        let (token, _slot, of) = (parts.next()?, parts.next()?, parts.next()?);
        Some((token.parse().ok()?, of))
    });
    permits.find(|(_, of)| *of == name).map(|(token, _)| token)
}

/// True if a request of `weight` cannot be granted before the permit with this token has ended.
pub(super) fn blocks(inspection: &Inspection, token: u64, weight: u32) -> bool {
    let outer = inspection.holders.iter().find(|info| info.token == token && !info.cooling);
    outer.zip(inspection.limit).is_some_and(|(outer, limit)| outer.weight.saturating_add(weight) > limit)
}
