//! The units of a semaphore that cool: their holders have gone, and the units stay taken until the time of
//! `--at-least` has passed. They count as held in the store, and are no work.
//!
//! They are counted in the list of an inspection. If that is not whole, there may be more.

use std::time::Duration;

use permits::Inspection;
use serde::Serialize;

use crate::text::duration;

/// A rest that is shown as none.
const SHORT: Duration = Duration::from_millis(100);

/// The rest of a cooling, in the column of leases.
pub(crate) fn left(remaining: Duration) -> String {
    if remaining < SHORT { "cooling".to_owned() } else { format!("cooling {}", duration(remaining)) }
}

/// The cooling units of one semaphore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Cooling {
    /// Those that are listed.
    #[serde(rename = "cooling")]
    pub(crate) units: u64,
    /// Not all holders are listed.
    #[serde(skip)]
    pub(crate) is_partial: bool,
}

impl Cooling {
    pub(crate) fn of(inspection: &Inspection) -> Self {
        let units = |cooling: bool| -> u64 {
            let listed = inspection.holders.iter().filter(|info| info.cooling || !cooling);
            listed.map(|info| u64::from(info.weight)).sum()
        };
        Self { units: units(true), is_partial: units(false) < inspection.held }
    }

    /// The units of `held` that are in use.
    pub(crate) fn in_use(self, held: u64) -> u64 {
        held.saturating_sub(self.units)
    }

    /// Such as `cooling 20`, with a `+` if there may be more; `None` if none is known.
    pub(crate) fn text(self) -> Option<String> {
        let more = if self.is_partial { "+" } else { "" };
        (self.units > 0).then(|| format!("cooling {}{more}", self.units))
    }
}
