//! Permits that callers hold and that change: adopted from another process, handed over to one, or held on
//! other terms than before.
//!
//! A call that was sent before the lease changed may arrive after the change, and so may its reply. So each
//! renewal carries the number of changes: the store keeps the latest lease, and a reply to an older renewal
//! extends nothing.

use std::sync::Arc;

use super::{SemaphoreSession, Step, terms};
use crate::acquisition::{Acquisition, Effect, Input, ReplyTimes, Stage};
use crate::clock::{Moment, millis};
use crate::error::AdoptError;
use crate::protocol::{AdoptRequest, Declaration, MAX_COUNTS_MS, RenewRequest, RequestId};
use crate::session::callers::{PendingRelease, PermitGuard, TermsChange};
use crate::session::permit_state::Check;
use crate::session::spec::{AcquireSpec, LimitDeclaration};
use crate::session::timers::Timer;
use crate::timing::held_until;

impl SemaphoreSession {
    /// Takes over a permit that another process acquired. The store has given it to `adopt.new_request`, in
    /// its reply to a call that was sent at `sent_at`.
    pub(in crate::session) fn adopt(
        &mut self,
        adopt: AdoptRequest,
        sent_at: Moment,
        step: &mut Step,
    ) -> Result<PermitGuard, AdoptError> {
        let now = step.now;
        let AdoptRequest { holder, grant, new_request: request, .. } = adopt;
        let limit = Arc::new(LimitDeclaration::new(Declaration::Stored));
        let spec = AcquireSpec {
            meters: step.config.meters.known_semaphore(self.name.as_str()),
            ..AcquireSpec::new(self.name.clone(), (holder, request.clone()), adopt.terms, limit)
        };
        let acquisition = Acquisition { stage: Stage::InFlight, ..Acquisition::new(sent_at) };
        self.insert(spec, acquisition, None, step);
        let adopted = self.acquisitions.get_mut(&request).map(|entry| {
            let terms = terms(entry, step);
            entry.acquisition.step(Input::Adopted(grant), &terms, now)
        });
        let permit = match adopted {
            Some(Effect::Deliver { grant, until }) => self.hold(&request, grant, until, step),
            // The reply took longer than the lease.
            _ => None,
        };
        if permit.is_none()
            && let Some(entry) = self.forget(&request, step)
        {
            // The process that handed it over has worked with it.
            self.queue_release(PendingRelease { counted: None, ..entry.to_release() }, step);
        }
        permit.ok_or(AdoptError::Gone)
    }

    pub(in crate::session) fn hand_over(&mut self, request: &RequestId, step: &mut Step) {
        if self.in_flight.renewing > 0 {
            self.handed_over.insert(request.clone());
        }
        self.step(request, Input::HandedOver, step);
    }

    #[cfg(test)]
    pub(in crate::session) fn handed_over(&self) -> usize {
        self.handed_over.len()
    }

    /// The renewal of one permit, and the declaration to send with it.
    pub(in crate::session) fn renewal_of(&self, request: &RequestId) -> Option<(RenewRequest, Declaration)> {
        Some((self.acquisitions.get(request)?.to_renewal(), self.fallback()))
    }

    /// Lets the grant of a permit with `at_least` count for that time from now on. Returns the renewal that
    /// tells the store, and the declaration to send with it.
    ///
    /// The store counts `at_least` from the grant, so the time since the grant is added, and rather too much
    /// than too little. The server read its clock for the last reply after that call was sent. So at `now`
    /// its clock shows at most that time plus what has passed here since the sending.
    pub(in crate::session) fn count_anew(
        &mut self,
        request: &RequestId,
        now: Moment,
    ) -> Option<(RenewRequest, Declaration)> {
        let entry = self.acquisitions.get_mut(request)?;
        let permit = entry.permit.as_ref()?;
        let granted_us = permit.stored_grant().token;
        // A message may bring the grant before any reply has come. Then the request was sent before the grant
        // was made, which serves as well.
        let before_any = ReplyTimes { sent_at: entry.acquisition.extended_at, server_us: granted_us };
        let ReplyTimes { sent_at, server_us } = self.replied.unwrap_or(before_any);
        let server_us = server_us + now.as_micros().saturating_sub(sent_at.as_micros());
        let since_ms = server_us.saturating_sub(granted_us).div_ceil(1000);
        let at_least_ms = (permit.granted_terms().at_least_ms + since_ms).min(MAX_COUNTS_MS);
        entry.spec.terms.at_least_ms = at_least_ms;
        permit.count_for(at_least_ms);
        self.renewal_of(request)
    }

    /// Changes the terms of a permit. The next renewal tells the store.
    pub(in crate::session) fn change_terms(
        &mut self,
        request: &RequestId,
        change: TermsChange,
        step: &mut Step,
    ) {
        let now = step.now;
        let Some(entry) = self.acquisitions.get_mut(request) else { return };
        let Some(permit) = entry.permit.clone() else { return };
        match change {
            // If parts are released at once, their messages may come in either order: the least weight
            // counts.
            TermsChange::Weight(weight) => entry.spec.terms.weight = entry.spec.terms.weight.min(weight),
            TermsChange::AutoRenew(renew) => {
                entry.spec.client.auto_renew = renew;
                self.plan_renewal(request);
            }
            TermsChange::Lease(lease) => {
                entry.spec.terms.lease_ms = millis(lease);
                entry.lease_version += 1;
                permit.set_lease(lease, held_until(now, lease));
                match permit.check(now) {
                    Check::Held(deadline) => {
                        step.timers.remove(entry.timer.take());
                        let timer = Timer::Acquisition(self.name.clone(), request.clone());
                        entry.timer = Some(step.timers.set(deadline, timer));
                    }
                    // The loss is signalled when the lock is free. The timer ends the acquisition.
                    Check::Expired => step.outbox.signal_loss(&permit),
                    Check::Ended => {}
                }
                self.shortest_lease = self.shortest_lease.map(|shortest| shortest.min(lease));
                self.plan_renewal(request);
            }
        }
    }
}
