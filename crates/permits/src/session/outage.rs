//! Outages: calls that fail in a way that may pass.

use crate::clock::Moment;
use crate::store::StoreError;

/// Calls that failed in a way that may pass, with none in between that succeeded.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    pub(super) since: Moment,
    /// The last error.
    pub(super) error: StoreError,
}

impl Outage {
    /// Records another failure.
    pub(super) fn record(outage: &mut Option<Self>, error: StoreError, now: Moment) {
        let since = outage.as_ref().map_or(now, |outage| outage.since);
        *outage = Some(Self { since, error });
    }

    /// The outage that has lasted longer, if there is any.
    pub(super) fn older<'a>(one: &'a Option<Self>, other: &'a Option<Self>) -> Option<&'a Self> {
        one.iter().chain(other).min_by_key(|outage| outage.since)
    }
}
