//! The terms on which a permit is asked for and held.

use std::time::Duration;

use super::names::{Label, LaneName, SupersedeKey};

/// The terms of a request, of its entry and of its permit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct PermitTerms {
    /// Units.
    pub weight: u32,
    /// The lease: the time for which a grant, or a waiter's entry, stands without renewal, in milliseconds.
    pub lease_ms: u64,
    /// The time for which a grant counts, in milliseconds: released or lost earlier, its units stay taken
    /// until then.
    pub at_least_ms: u64,
    /// A note for people.
    pub label: Label,
    /// The session may keep the grant: use it again for requests of its own, without a call. Not together
    /// with `at_least_ms`.
    pub keep: bool,
    /// The lane: while it waits, its order is behind the earlier requests of this lane.
    pub lane: LaneName,
    /// The units of a grant that count as one in the order of lanes: 1 to [`MAX_SHARE`](super::MAX_SHARE).
    pub share: u32,
    /// The most units that the requests of its lane may hold, by this request; 0 if it does not say.
    pub lane_limit: u32,
    /// The units up to which its lane is served before others, by this request; 0 if it does not say.
    pub lane_floor: u32,
    /// The key by which it supersedes: while it waits, no other request waits with this key.
    pub supersede: SupersedeKey,
}

impl PermitTerms {
    /// Plain terms: the grant counts no longer than it is held, and has no label, lane or key.
    pub fn new(weight: u32, lease_ms: u64) -> Self {
        Self {
            weight,
            lease_ms,
            at_least_ms: 0,
            label: Label::default(),
            keep: false,
            lane: LaneName::default(),
            share: 1,
            lane_limit: 0,
            lane_floor: 0,
            supersede: SupersedeKey::default(),
        }
    }

    /// The terms that the text of a handle carries, and so those of a permit that is adopted. Each field is
    /// named, so that a new one does not compile until it is in that text and in the command, or need not be.
    pub fn of_handle(&self) -> Self {
        let Self {
            weight,
            lease_ms,
            at_least_ms,
            label: _,
            keep: _,
            lane: _,
            share: _,
            lane_limit: _,
            lane_floor: _,
            supersede: _,
        } = *self;
        Self { at_least_ms, ..Self::new(weight, lease_ms) }
    }

    /// Returns true if an entry on these terms has to name its lane and share.
    pub fn is_laned(&self) -> bool {
        self.share != 1 || *self.lane.as_str() != *""
    }

    /// Returns true if a request on these terms names a limit or a floor of its lane. A grant on them counts
    /// for these.
    pub fn names_bounds(&self) -> bool {
        self.lane_limit > 0 || self.lane_floor > 0
    }

    /// Returns true if it has a key by which it supersedes.
    pub fn is_keyed(&self) -> bool {
        !self.supersede.as_str().is_empty()
    }

    /// The longest time for which a grant on these terms may count, in milliseconds, if it is not renewed.
    pub fn counts_for_ms(&self) -> u64 {
        self.lease_ms.max(self.at_least_ms)
    }

    /// The lease.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}
