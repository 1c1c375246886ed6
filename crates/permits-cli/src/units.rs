//! Held units of a semaphore behind which nobody may be at work. Cooling units stay taken until the time of
//! `--at-least` has passed, although their holders have gone. Units that may be kept are possibly unused:
//! their client keeps a permit for its next request, and releases it when another client needs the units.
//!
//! Both count as held in the store, which reports the sum of the cooling units. Units that may be kept are
//! counted in the listed holders: if some holders are not listed, there may be more.

use std::time::Duration;

use permits::{HolderInfo, Inspection};
use serde::Serialize;

use crate::text::duration;

/// A shorter rest of cooling is not shown.
const SHORT: Duration = Duration::from_millis(100);

/// The rest of a holder's lease, as `rest` writes it, or of its cooling.
pub(crate) fn lease(info: &HolderInfo, rest: fn(Duration) -> String) -> String {
    let HolderInfo { lease_remaining: left, cooling, may_be_kept, .. } = *info;
    match (cooling, may_be_kept) {
        (true, _) if left < SHORT => "cooling".to_owned(),
        (true, _) => format!("cooling {}", duration(left)),
        (false, true) => format!("{}, may be kept", rest(left)),
        (false, false) => rest(left),
    }
}

/// The held units of holders that are not listed.
pub(crate) fn unlisted_units(inspection: &Inspection) -> u64 {
    let listed: u64 = inspection.holders.iter().map(|info| u64::from(info.weight)).sum();
    inspection.held.saturating_sub(listed)
}

/// The held units of one semaphore that differ from those at work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct HeldUnits {
    /// Held units that cool.
    pub(crate) cooling: u64,
    /// Held units of listed holders whose sessions may keep them.
    pub(crate) may_be_kept: u64,
    /// True if not all holders are listed.
    #[serde(skip)]
    pub(crate) is_partial: bool,
}

impl HeldUnits {
    pub(crate) fn of(inspection: &Inspection) -> Self {
        Self {
            cooling: inspection.cooling,
            may_be_kept: inspection.may_be_kept(),
            is_partial: unlisted_units(inspection) > 0,
        }
    }

    /// The units of `held` that do not cool.
    pub(crate) fn in_use(self, held: u64) -> u64 {
        held.saturating_sub(self.cooling)
    }

    /// A text such as `cooling 20, 3 may be kept`, with a `+` if there may be more; `None` if neither is
    /// known.
    pub(crate) fn text(self) -> Option<String> {
        let Self { cooling, may_be_kept, is_partial } = self;
        let more = if is_partial { "+" } else { "" };
        let texts = [
            (cooling > 0).then(|| format!("cooling {cooling}")),
            (may_be_kept > 0).then(|| format!("{may_be_kept}{more} may be kept")),
        ];
        texts.into_iter().flatten().reduce(|text, other| format!("{text}, {other}"))
    }
}
