//! Requests for permits of one semaphore: made from options, or served by a permit that the client keeps.

use std::fmt;
use std::sync::Arc;

use crate::clock::millis;
use crate::error::AcquireError;
use crate::observe::meters::SemaphoreMeters;
use crate::options::AcquireOptions;
use crate::protocol::{Declaration, InvalidInput, Name, PermitTerms};
use crate::session::callers::{PermitGuard, Session};
use crate::session::pending_acquire::PendingAcquire;
use crate::session::shelf::Keep;
use crate::session::spec::{AcquireSpec, LimitDeclaration};

/// The terms that all requests of a [`Semaphore`](crate::Semaphore) have in common.
pub(crate) struct Requests {
    pub(crate) session: Session,
    pub(crate) semaphore: Name,
    pub(crate) limit: Arc<LimitDeclaration>,
    pub(crate) meters: SemaphoreMeters,
    pub(crate) keep: Option<Keep>,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("semaphore", &self.semaphore.as_str()).finish_non_exhaustive()
    }
}

impl Requests {
    /// Returns true if a kept permit may serve a request with these options.
    pub(crate) fn may_be_served(&self, options: &AcquireOptions) -> bool {
        self.keep.is_some() && options.may_be_served()
    }

    /// Takes a permit that the client keeps, if these options allow it. There is no request, and so no memory
    /// is needed. Call this at the first poll, not in the call that makes the acquisition: a permit that a
    /// caller has and does not use could not be recalled.
    pub(crate) fn take_kept(&self, options: &AcquireOptions) -> Option<PermitGuard> {
        let keep = self.keep.as_ref().filter(|_| !self.session.is_forked())?;
        // Each option is named, so that a new option does not compile until somebody has decided about it.
        // `AcquireOptions::may_be_served` has decided about the last four.
        let AcquireOptions {
            weight,
            lease,
            label,
            lane,
            share,
            lane_limit,
            lane_floor,
            holder: _,
            at_least: _,
            supersede: _,
            client: _,
        } = options;
        let lease_ms = millis(lease.unwrap_or(self.session.lease()));
        let label = label.as_deref().unwrap_or(self.session.label().as_str());
        let wanted = (*weight, lease_ms, label, lane.as_deref().unwrap_or_default());
        let of_lane = (share.unwrap_or(1), lane_limit.unwrap_or(0), lane_floor.unwrap_or(0));
        let fits = |terms: &PermitTerms| {
            let PermitTerms {
                weight,
                lease_ms,
                label,
                lane,
                share,
                lane_limit,
                lane_floor,
                at_least_ms: _,
                keep: _,
                supersede: _,
            } = terms;
            (*weight, *lease_ms, label.as_str(), lane.as_str()) == wanted
                && (*share, *lane_limit, *lane_floor) == of_lane
        };
        let permit = keep.shelf.take(keep.declaration, fits, || self.session.now())?;
        permit.observe_local_grant();
        let keep = keep.within(permit.lease());
        Some(PermitGuard::new(permit, self.session.clone(), Some(keep)))
    }

    /// Checks that a lane may hold as much as its floor under the limit that the program declares.
    fn check_floor(&self, options: &AcquireOptions) -> Result<(), InvalidInput> {
        match (self.limit.first(), options.lane_floor) {
            (Declaration::Declare(limit) | Declaration::Require(limit), Some(floor)) if floor > limit => {
                Err(InvalidInput::FloorAboveLimit { floor, limit, what: "the limit of the semaphore" })
            }
            _ => Ok(()),
        }
    }

    /// Checks the options, and makes a request from them, which is sent at its first poll.
    pub(crate) fn start(&self, options: AcquireOptions) -> Result<PendingAcquire, AcquireError> {
        let keep = self.keep.is_some() && options.may_be_kept();
        self.check_floor(&options)?;
        let terms = PermitTerms { keep, ..options.terms(self.session.lease(), self.session.label())? };
        let keep = self.keep.as_ref().filter(|_| keep).map(|keep| keep.within(terms.lease()));
        let names = self.session.new_names(options.named_holder()?);
        let spec = AcquireSpec {
            client: options.client,
            keep,
            meters: self.meters.clone(),
            ..AcquireSpec::new(self.semaphore.clone(), names, terms, self.limit.clone())
        };
        Ok(PendingAcquire::new(&self.session, spec))
    }
}
