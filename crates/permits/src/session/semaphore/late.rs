//! Callers that have timed out, until they learn what has kept their requests out.
//!
//! A request that times out leaves the line at once. Behind its withdrawal the session sends an inspection,
//! and the caller gets its error when the reply has come. So a timeout costs the store one more read, and a
//! request that is granted costs nothing. At most one inspection of a semaphore is in flight: callers that
//! time out meanwhile share the next one.
//!
//! A caller waits for its reason for a moment only ([`patience`]). If the store has not answered by then, or
//! the read has failed, the caller gets its error without a reason.

use std::sync::Arc;
use std::time::Duration;

use crate::error::AcquireError;
use crate::inspection::Inspection;
use crate::protocol::{Holder, LaneName, Operation, RequestId};
use crate::session::Map;
use crate::session::callers::PermitGuard;
use crate::session::outbox::Answer;
use crate::session::spec::AcquireSpec;
use crate::session::timers;

/// How many holders and waiters an inspection lists. An error names a few; the others may tell when units are
/// free.
const LISTED: u32 = 32;

/// How long a caller waits for its reason, at most.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a caller waits for its reason, after it has waited for a permit for `waited`.
pub(super) fn patience(waited: Duration) -> Duration {
    PATIENCE.min(waited / 10)
}

/// See the module.
#[derive(Default)]
pub(super) struct LateCallers(pub(super) Map<RequestId, LateCaller>);

pub(super) struct LateCaller {
    pub(super) answer: Answer<PermitGuard, AcquireError>,
    holder: Holder,
    /// `None` if the request names a limit of its lane, which an inspection may not list.
    weight: Option<u32>,
    lane: LaneName,
    waited: Duration,
    /// The inspection in flight is for this caller, too.
    asked: bool,
    /// Fires when the patience of the caller ends.
    pub(super) timer: timers::Key,
}

/// The result of an inspection: whole, and as errors carry it.
pub(super) struct Found {
    whole: Inspection,
    brief: Arc<Inspection>,
}

impl Found {
    pub(super) fn new(whole: Inspection) -> Self {
        Self { brief: Arc::new(whole.brief()), whole }
    }
}

impl LateCaller {
    pub(super) fn new(
        answer: Answer<PermitGuard, AcquireError>,
        spec: &AcquireSpec,
        waited: Duration,
        timer: timers::Key,
    ) -> Self {
        let weight = (spec.terms.lane_limit == 0).then_some(spec.terms.weight);
        let (holder, lane) = (spec.holder.clone(), spec.terms.lane.clone());
        Self { answer, holder, weight, lane, waited, asked: false, timer }
    }

    /// The caller's error, with the reason if the store has told it.
    pub(super) fn timed_out(&self, found: Option<&Found>) -> AcquireError {
        let granted_in = |inspection: &Inspection| inspection.granted_in(self.weight?, self.lane.as_str());
        let told = found.map(|Found { whole, brief }| match whole.without(self.holder.as_str()) {
            Some(rest) => (Arc::new(rest.brief()), granted_in(&rest)),
            None => (brief.clone(), granted_in(whole)),
        });
        let (inspection, retry_after) = told.unzip();
        AcquireError::TimedOut { waited: self.waited, inspection, retry_after: retry_after.flatten() }
    }
}

impl LateCallers {
    pub(super) fn requests(&self) -> impl Iterator<Item = &RequestId> {
        self.0.keys()
    }

    pub(super) fn has(&self, request: &RequestId) -> bool {
        self.0.contains_key(request)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The inspection that is due, if any, for all callers.
    pub(super) fn ask(&mut self) -> Option<Operation> {
        let is_due = self.0.values().any(|caller| !caller.asked);
        self.0.values_mut().for_each(|caller| caller.asked = true);
        is_due.then_some(Operation::Inspect { max: LISTED })
    }

    /// The requests of the callers that the last inspection was for.
    pub(super) fn asked(&self) -> Vec<RequestId> {
        let asked = self.0.iter().filter(|(_, caller)| caller.asked);
        asked.map(|(request, _)| request.clone()).collect()
    }
}
