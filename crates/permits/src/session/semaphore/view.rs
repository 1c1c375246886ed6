//! A semaphore as the session knows it from replies, and the events that report its changes.

use std::time::Duration;

use crate::observe::events;
use crate::protocol::{LanePin, Name, Reply};

/// A semaphore as the last reply reported it.
#[derive(Debug, Default)]
pub(in crate::session) struct View {
    /// The limit that was last in force.
    pub(super) limit: Option<u32>,
    /// Whether the limit is pinned; `None` before the first reply.
    pinned: Option<bool>,
    /// The limit in force; 0 if the store no longer has a limit.
    pub(super) stored: u32,
    /// The rest of the recovery window.
    pub(super) recovering: Duration,
    /// The limit that the last warning was about.
    warned_limit: Option<u32>,
}

impl View {
    /// Notes a reply, and reports the changes.
    pub(super) fn note(&mut self, semaphore: &Name, reply: &Reply) {
        if let Some(from) = reply.replaced_limit {
            events::limit_replaced(semaphore, from.into(), reply.limit.into());
        }
        if let Some((lane, LanePin { limit, floor })) = &reply.replaced_bounds {
            events::lane_bounds_replaced(semaphore, &lane.as_str(), (*limit).into(), (*floor).into());
        }
        if reply.limit > 0 {
            let before = self.limit.replace(reply.limit).filter(|before| *before != reply.limit);
            if let (Some(from), None) = (before, reply.replaced_limit) {
                events::limit_changed(semaphore, from.into(), reply.limit.into());
            }
            match (self.pinned.replace(reply.pinned), reply.pinned) {
                (Some(false), true) => events::limit_pinned(semaphore, reply.limit.into()),
                (Some(true), false) => events::limit_unpinned(semaphore, reply.limit.into()),
                _ => {}
            }
        }
        self.stored = reply.limit;
        let recovering = Duration::from_millis(reply.recovering_ms);
        let before = std::mem::replace(&mut self.recovering, recovering);
        match (!before.is_zero(), !recovering.is_zero()) {
            (false, true) => events::recovery_begun(semaphore, reply.recovering_ms),
            (true, false) => events::recovery_ended(semaphore),
            _ => {}
        }
    }

    /// Returns true if the limit in force is pinned.
    pub(super) fn is_pinned(&self) -> bool {
        self.stored > 0 && self.pinned == Some(true)
    }

    /// Warns, once for each limit, that the limit in force is not the one that this program declared.
    pub(super) fn warn_of_limit(&mut self, semaphore: &Name, declared: u32) {
        let limit = self.stored;
        if declared != limit && limit != 0 && self.warned_limit.replace(limit) != Some(limit) {
            events::limit_differs(semaphore, declared.into(), limit.into());
        }
    }

    /// The part that a session remembers of a semaphore that it no longer uses, so that it does not repeat
    /// its warnings. The limit is forgotten, because another one may be in force when the semaphore is used
    /// next. `None` if there is nothing to remember.
    pub(in crate::session) fn remembered(self) -> Option<Self> {
        (self.warned_limit.is_some() || !self.recovering.is_zero()).then_some(Self {
            limit: None,
            pinned: None,
            ..self
        })
    }
}
