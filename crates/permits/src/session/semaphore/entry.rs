//! An acquisition with its caller, its permit and its timer; and the calls of its semaphore in flight.

use std::sync::Arc;
use std::time::Duration;

use crate::acquisition::Acquisition;
use crate::clock::{Moment, millis};
use crate::error::AcquireError;
use crate::protocol::RenewRequest;
use crate::session::callers::{PendingRelease, PermitGuard};
use crate::session::outbox::Answer;
use crate::session::outbox::Outbox;
use crate::session::permit_state::PermitState;
use crate::session::spec::AcquireSpec;
use crate::session::timers;
use crate::timing::lease_until;

/// An acquisition, and what belongs to it besides its decisions.
pub(super) struct Entry {
    pub(super) spec: AcquireSpec,
    /// Rises by one with each change of the lease since the delivery, and by two with each claim.
    pub(super) lease_version: u32,
    pub(super) acquisition: Acquisition,
    /// The caller, until it is answered.
    pub(super) answer: Option<Answer<PermitGuard, AcquireError>>,
    /// The permit, once it was delivered.
    pub(super) permit: Option<Arc<PermitState>>,
    /// The key in `unsent`. It stays the same when the request is sent again.
    pub(super) arrival: u64,
    pub(super) arrived_at: Moment,
    /// The program renews this permit itself, and the store may have forgotten it since the session was last
    /// connected. The next renewal of everything claims it for the rest of its lease.
    pub(super) is_claimed: bool,
    /// The timer for the end of the wait, or of the lease.
    pub(super) timer: Option<timers::Key>,
    /// The request does not wait in line, and other sessions have been asked to release what they keep.
    pub(super) recalls: bool,
}

impl Entry {
    pub(super) fn needs_renewal(&self) -> bool {
        self.acquisition.needs_renewal(self.spec.client.auto_renew || self.is_claimed)
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
            by_handle: false,
        }
    }

    /// The request of this permit or waiter in a renewal of everything.
    pub(super) fn to_renewal_or_claim(&self, now: Moment) -> RenewRequest {
        let mut renewal = self.to_renewal();
        if self.is_claimed && !self.spec.client.auto_renew {
            let ends = self.acquisition.extended_at + self.spec.terms.lease();
            // A lease that was made shorter counts from its change on, when the permit's deadline was set.
            let until = self.permit.as_ref().and_then(|permit| permit.held_until());
            let held = until.map_or(Duration::ZERO, |until| lease_until(until.since(now)));
            renewal.terms.lease_ms = millis(ends.since(now).max(held)).max(1);
            // The shortened lease counts as a change of the lease. The next renewal by the program has a
            // later version, and undoes it.
            renewal.lease_version -= 1;
        }
        renewal
    }

    pub(super) fn to_release(&self) -> PendingRelease {
        PendingRelease {
            request: self.spec.key(),
            lease: self.spec.terms.lease(),
            last_token: self.permit.as_ref().and_then(|permit| permit.last_token()),
            // No caller has had the permit, so its grant counts for nothing.
            counted: match &self.permit {
                Some(permit) => permit.counted(),
                None => (self.spec.terms.at_least_ms > 0).then_some(0),
            },
            sent_before: self.acquisition.may_be_stored,
            answer: None,
        }
    }
}

/// The calls in flight.
#[derive(Default)]
pub(super) struct InFlight {
    pub(super) acquiring: usize,
    /// The acquisitions in those calls.
    pub(super) acquisitions: usize,
    pub(super) releasing: usize,
    /// The releases in those calls.
    pub(super) releases: usize,
    pub(super) renewing: usize,
    pub(super) confirming: usize,
    pub(super) inspecting: usize,
    /// The time since which calls have been in flight and nothing has returned. Calls to replicas are left
    /// out.
    pub(super) unanswered_since: Option<Moment>,
}

impl InFlight {
    /// Notes that calls are sent, or that one has returned.
    pub(super) fn note(&mut self, returned: bool, now: Moment) {
        let any = self.acquiring + self.releasing + self.renewing > 0;
        let since = if returned { now } else { self.unanswered_since.unwrap_or(now) };
        self.unanswered_since = any.then_some(since);
    }
}
