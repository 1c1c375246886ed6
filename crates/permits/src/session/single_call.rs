//! Calls that are not batched: operations on a semaphore itself, a renewal that the caller asked for, an
//! adoption.
//!
//! Each call has a caller of its own. While the store cannot be reached, calls are retried until the store
//! timeout. A renewal is not, because the permit has a deadline of its own. The renewal by which a grant
//! counts anew is retried for as long as its caller would wait for a permit.

use std::time::Duration;

use super::callers::PermitGuard;
use super::outbox::Answer;
use super::outbox::Outbox;
use super::timers::{Outage, Retry};
use crate::clock::Moment;
use crate::error::{AcquireError, AdminError, AdoptError, Ended, RenewError};
use crate::protocol::{
    AdoptRequest, Answers, CHANGE_RETRIED_MS, Declaration, DeleteOutcome, Name, Operation, ReleaseOutcome,
    RenewRequest, Reply,
};
use crate::timing::CALL_TIMEOUT_MAX;
use permits_store::StoreError;

/// A call, and its caller.
pub(super) struct SingleCall {
    pub(super) semaphore: Name,
    pub(super) declaration: Declaration,
    pub(super) operation: Operation,
    pub(super) reply_to: ReplyTo,
    created_at: Moment,
    /// An earlier try was sent and not answered. If the store does not know the permit or semaphore, that try
    /// may have been executed.
    sent_before: bool,
    /// Failures after this time are not retried, even if the store timeout is longer.
    within: Option<Duration>,
    retry: Retry,
    outage: Option<Outage>,
}

/// The caller that waits for the reply.
pub(super) enum ReplyTo {
    Admin(Answer<Reply, AdminError>),
    Renew(RenewRequest, Answer<(), RenewError>),
    /// A renewal that tells the store how long a grant counts.
    CountAnew(RenewRequest, Answer<(), AcquireError>),
    Adopt(Box<AdoptRequest>, Answer<PermitGuard, AdoptError>),
}

impl SingleCall {
    fn new(
        semaphore: Name,
        declaration: Declaration,
        operation: Operation,
        reply_to: ReplyTo,
        now: Moment,
    ) -> Self {
        Self {
            semaphore,
            declaration,
            operation,
            reply_to,
            created_at: now,
            sent_before: false,
            within: None,
            retry: Retry::default(),
            outage: None,
        }
    }

    pub(super) fn admin(
        semaphore: Name,
        declaration: Declaration,
        operation: Operation,
        answer: Answer<Reply, AdminError>,
        now: Moment,
    ) -> Self {
        Self::new(semaphore, declaration, operation, ReplyTo::Admin(answer), now)
    }

    pub(super) fn renew(
        semaphore: Name,
        renewal: RenewRequest,
        fallback: Declaration,
        answer: Answer<(), RenewError>,
        now: Moment,
    ) -> Self {
        let operation = Operation::Renew(vec![renewal.clone()]);
        let call = Self::new(semaphore, fallback, operation, ReplyTo::Renew(renewal, answer), now);
        Self { within: Some(Duration::ZERO), ..call }
    }

    pub(super) fn count_anew(
        semaphore: Name,
        renewal: RenewRequest,
        fallback: Declaration,
        (within, answer): (Option<Duration>, Answer<(), AcquireError>),
        now: Moment,
    ) -> Self {
        let operation = Operation::Renew(vec![renewal.clone()]);
        let call = Self::new(semaphore, fallback, operation, ReplyTo::CountAnew(renewal, answer), now);
        Self { within, ..call }
    }

    pub(super) fn adopt(
        semaphore: Name,
        adopt: Box<AdoptRequest>,
        answer: Answer<PermitGuard, AdoptError>,
        now: Moment,
    ) -> Self {
        let operation = Operation::Adopt((*adopt).clone());
        Self::new(semaphore, Declaration::Stored, operation, ReplyTo::Adopt(adopt, answer), now)
    }

    pub(super) fn is_adoption(&self) -> bool {
        matches!(self.reply_to, ReplyTo::Adopt(..))
    }

    /// Returns true if this call is the renewal by which a grant counts anew.
    pub(super) fn counts_anew(&self) -> bool {
        matches!(self.reply_to, ReplyTo::CountAnew(..))
    }

    /// Returns true if this call reads, and changes nothing.
    pub(super) fn inspects(&self) -> bool {
        matches!(self.operation, Operation::Inspect { .. })
    }

    /// Returns true if it is too late to retry after a failure.
    pub(super) fn is_late(&self, now: Moment) -> bool {
        self.within.is_some_and(|within| now >= self.created_at + within)
    }

    /// The answers for the caller, from those to the last try. If an earlier try was not answered, an unknown
    /// permit counts as released, and an unknown semaphore as deleted.
    pub(super) fn answers(&self, last: Answers) -> Answers {
        match last {
            Answers::Release(mut outcomes) if self.sent_before => {
                outcomes.fill(ReleaseOutcome::Held);
                Answers::Release(outcomes)
            }
            Answers::Delete(DeleteOutcome::Unknown) if self.sent_before => {
                Answers::Delete(DeleteOutcome::Deleted)
            }
            answers => answers,
        }
    }

    /// If this call is an adoption that the store may have executed, in an earlier try or in this one, which
    /// failed with `error`: that adoption.
    pub(super) fn possible_adoption(&self, error: Option<&StoreError>) -> Option<&AdoptRequest> {
        let is_possible = self.sent_before || error.is_some_and(StoreError::is_outcome_unknown);
        match &self.reply_to {
            ReplyTo::Adopt(adopt, _) if is_possible => Some(adopt),
            _ => None,
        }
    }

    /// Returns true if this call is a change that the store may have made at the first try, so long ago that
    /// it may not remember the change when the next try arrives.
    fn may_be_forgotten(&self, now: Moment) -> bool {
        let remembered = Duration::from_millis(CHANGE_RETRIED_MS).saturating_sub(CALL_TIMEOUT_MAX);
        self.sent_before && self.operation.origin().is_some() && now >= self.created_at + remembered
    }

    /// Replies with an error of the store. If an earlier try was not answered, the outcome is unknown,
    /// whatever the last try has met.
    pub(super) fn fail(self, error: StoreError, outbox: &mut Outbox) {
        let error = if self.sent_before && !error.is_outcome_unknown() {
            StoreError::NoAnswer { reason: format!("an earlier try of this call; and then: {error}") }
        } else {
            error
        };
        match self.reply_to {
            ReplyTo::Admin(answer) => outbox.reply(answer, Err(AdminError::Store(error))),
            ReplyTo::Renew(_, answer) => outbox.reply(answer, Err(RenewError::Store(error))),
            ReplyTo::CountAnew(_, answer) => outbox.reply(answer, Err(AcquireError::Store(error))),
            ReplyTo::Adopt(_, answer) => outbox.reply(answer, Err(AdoptError::Store(error))),
        }
    }

    pub(super) fn fail_closed(self, outbox: &mut Outbox) {
        match self.reply_to {
            ReplyTo::Admin(answer) => outbox.reply(answer, Err(AdminError::Ended(Ended::Closed))),
            // If the closing lost the permit, the permit knows why.
            ReplyTo::Renew(_, answer) => outbox.discard(answer),
            ReplyTo::CountAnew(_, answer) => outbox.discard(answer),
            ReplyTo::Adopt(_, answer) => outbox.reply(answer, Err(AdoptError::Ended(Ended::Closed))),
        }
    }
}

/// The single calls that wait to be sent, for the first time or again.
#[derive(Default)]
pub(super) struct SingleCalls {
    waiting: Vec<SingleCall>,
}

impl SingleCalls {
    pub(super) fn add(&mut self, call: SingleCall) {
        self.waiting.push(call);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes back a call that failed temporarily, to try it again.
    pub(super) fn retry(&mut self, mut call: SingleCall, error: StoreError, now: Moment) {
        call.sent_before |= error.is_outcome_unknown();
        Outage::record(&mut call.outage, error, now);
        call.retry.on_failure(now);
        self.waiting.push(call);
    }

    pub(super) fn retry_now(&mut self) {
        for call in &mut self.waiting {
            call.retry.at = None;
        }
    }

    /// The calls to send now. A change fails instead, if the store may have made it and may have forgotten
    /// it.
    pub(super) fn take_ready(&mut self, now: Moment, outbox: &mut Outbox) -> Vec<SingleCall> {
        for call in self.waiting.extract_if(.., |call| call.may_be_forgotten(now)) {
            let error = call.outage.as_ref().map(|outage| outage.error.clone());
            let unanswered = || StoreError::NoAnswer { reason: "for too long to send it again".into() };
            call.fail(error.unwrap_or_else(unanswered), outbox);
        }
        self.waiting.extract_if(.., |call| call.retry.at.is_none_or(|at| at <= now)).collect()
    }

    pub(super) fn next_time(&self) -> Option<Moment> {
        self.waiting.iter().filter_map(|call| call.retry.at).min()
    }

    pub(super) fn has_outage(&self) -> bool {
        self.waiting.iter().any(|call| call.outage.is_some())
    }

    /// Takes the calls that have waited longer than `timeout` because the store, or a part of it, cannot be
    /// reached. Each comes with its error.
    pub(super) fn take_timed_out(
        &mut self,
        down: &Option<Outage>,
        timeout: Duration,
        now: Moment,
    ) -> Vec<(SingleCall, StoreError)> {
        let mut timed_out = Vec::new();
        for index in (0..self.waiting.len()).rev() {
            let call = &self.waiting[index];
            let Some(Outage { since, error }) = Outage::older(down, &call.outage).cloned() else { continue };
            if call.is_late(now) || now >= since.max(call.created_at) + timeout {
                timed_out.push((self.waiting.remove(index), error));
            }
        }
        timed_out
    }

    pub(super) fn take_all(&mut self) -> Vec<SingleCall> {
        std::mem::take(&mut self.waiting)
    }
}
