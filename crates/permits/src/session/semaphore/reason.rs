//! Why acquisitions end without a permit, as their callers learn it.

use std::time::Duration;

use super::{SemaphoreSession, Step};
use crate::acquisition::Input;
use crate::error::AcquireError;
use crate::protocol::{AcquireOutcome, Refusal, RenewOutcome, RequestId};
use crate::session::spec::AcquireSpec;

impl SemaphoreSession {
    /// If `input` ends an acquisition, returns why, for the caller. If it makes a permit unsure, returns why,
    /// for the holder. `None` if the input gives no caller an error.
    pub(super) fn reason(&self, request: &RequestId, input: &Input, step: &Step) -> Option<AcquireError> {
        let spec = || Some(&self.acquisitions.get(request)?.spec);
        Some(match input {
            Input::Acquired(AcquireOutcome::Refused(refusal), _) => self.refused(refusal, spec()?, step),
            Input::Renewed(RenewOutcome::LineClosed(reason), _) => {
                AcquireError::LineClosed { reason: reason.clone() }
            }
            Input::Renewed(RenewOutcome::ExceedsLimit, _) => {
                let limit = self.view.limit.unwrap_or_default();
                AcquireError::ExceedsLimit { weight: spec()?.terms.weight, limit }
            }
            &Input::Confirmed { confirmed, wanted } => AcquireError::NotReplicated { confirmed, wanted },
            Input::AcquireFailed(_) | Input::RenewFailed | Input::ConfirmFailed(_) => {
                AcquireError::Store(self.failure.clone()?)
            }
            _ => return None,
        })
    }

    fn refused(&self, refusal: &Refusal, spec: &AcquireSpec, step: &Step) -> AcquireError {
        let semaphore = self.name.to_string();
        match refusal {
            Refusal::NoPermits => AcquireError::NoPermits,
            Refusal::Recovering => AcquireError::Recovering { remaining: self.view.recovering },
            &Refusal::Cooling { remaining_ms } => {
                AcquireError::Cooling { remaining: Duration::from_millis(remaining_ms) }
            }
            Refusal::Paused { remaining_ms } => {
                AcquireError::Paused { remaining: remaining_ms.map(Duration::from_millis) }
            }
            Refusal::LaneFull { remaining_ms } => {
                let lane = spec.terms.lane.as_str().to_owned();
                AcquireError::LaneFull { lane, remaining: remaining_ms.map(Duration::from_millis) }
            }
            &Refusal::ExceedsLaneLimit(limit) => {
                let (weight, lane) = (spec.terms.weight, spec.terms.lane.as_str().to_owned());
                AcquireError::ExceedsLaneLimit { weight, lane, limit }
            }
            Refusal::LineClosed(reason) => AcquireError::LineClosed { reason: reason.clone() },
            Refusal::ExceedsLimit => {
                let weight = spec.terms.weight;
                let pinned = self.view.is_pinned();
                // The limit to report may be the declared one: a refused request does not store its limit.
                let declared = spec.limit.limit().filter(|declared| !pinned && weight > *declared);
                AcquireError::ExceedsLimit { weight, limit: declared.unwrap_or(self.view.stored) }
            }
            Refusal::AlreadyHeld => AcquireError::AlreadyHeld { holder: spec.holder.to_string() },
            Refusal::Superseded => spec.superseded(),
            Refusal::QueueFull => AcquireError::QueueFull { max: step.config.queue_max, lane: None },
            Refusal::LaneQueueFull => {
                let max = spec.client.lane_waiters.unwrap_or_default();
                AcquireError::QueueFull { max, lane: Some(spec.terms.lane.as_str().to_owned()) }
            }
            Refusal::NoLimit => AcquireError::NoLimit { semaphore },
            Refusal::LimitMismatch => {
                let required = spec.limit.limit().unwrap_or_default();
                AcquireError::LimitMismatch { semaphore, required, stored: self.view.stored }
            }
        }
    }
}
