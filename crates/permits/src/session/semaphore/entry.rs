//! An acquisition with its caller, its permit and its timer.

use std::sync::Arc;

use crate::acquisition::Acquisition;
use crate::clock::Moment;
use crate::error::AcquireError;
use crate::protocol::RenewRequest;
use crate::session::callers::{PendingRelease, PermitGuard};
use crate::session::outbox::Outbox;
use crate::session::permit_state::PermitState;
use crate::session::reply::Answer;
use crate::session::spec::AcquireSpec;
use crate::session::timers;

/// One acquisition, and what belongs to it outside of its decisions.
pub(super) struct Entry {
    pub(super) spec: AcquireSpec,
    /// The number of changes of the lease since the permit was delivered.
    pub(super) lease_version: u32,
    pub(super) acquisition: Acquisition,
    /// The caller, until it is answered.
    pub(super) answer: Option<Answer<PermitGuard, AcquireError>>,
    /// The permit, once it was delivered.
    pub(super) permit: Option<Arc<PermitState>>,
    /// Its key in `unsent`, also when it is sent again.
    pub(super) arrival: u64,
    pub(super) arrived_at: Moment,
    /// The timer of the end of its wait, or of its lease.
    pub(super) timer: Option<timers::Key>,
}

impl Entry {
    pub(super) fn needs_renewal(&self) -> bool {
        self.acquisition.needs_renewal(self.spec.auto_renew)
    }

    /// Answers the caller, if it still waits.
    pub(super) fn answer(&mut self, result: Result<PermitGuard, AcquireError>, outbox: &mut Outbox) {
        match self.answer.take() {
            Some(answer) => outbox.reply(answer, result),
            None => outbox.discard(result),
        }
    }

    pub(super) fn to_renewal(&self) -> RenewRequest {
        RenewRequest {
            holder: self.spec.holder.clone(),
            request: self.spec.request.clone(),
            terms: self.spec.terms.clone(),
            lease_version: self.lease_version,
            grant: self.acquisition.grant(),
        }
    }

    pub(super) fn to_release(&self) -> PendingRelease {
        PendingRelease {
            request: self.spec.key(),
            lease: self.spec.terms.lease(),
            sent_before: self.acquisition.may_be_stored,
            answer: None,
        }
    }
}
