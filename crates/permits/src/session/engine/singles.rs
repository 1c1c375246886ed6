//! The outcomes of calls about a single request or operation: renewals that callers ask for, adoptions, and
//! an operator's calls.

use super::Engine;
use crate::acquisition::ReplyTimes;
use crate::clock::Moment;
use crate::error::{AcquireError, AdoptError, Ended, RenewError};
use crate::observe::events;
use crate::protocol::{
    AdoptRequest, Answers, Declaration, Name, Operation, RenewOutcome, RenewRequest, Reply, RequestKey,
    Setting,
};
use crate::session::callers::{PendingRelease, PermitGuard};
use crate::session::semaphore::mismatched_reply;
use crate::session::single_call::{ReplyTo, SingleCall};
use permits_store::{Executed, StoreError};

impl Engine {
    pub(super) fn on_single_reply(&mut self, call: SingleCall, executed: Executed, sent_at: Moment) {
        let Executed { reply: replied, confirmed } = executed;
        let replied = Reply { answers: call.answers(replied.answers), ..replied };
        match (call.reply_to, replied) {
            (ReplyTo::Admin(answer), replied) => {
                match call.operation {
                    Operation::Set { setting: Setting::Pause(Some(pause)), .. } => {
                        events::paused(&call.semaphore, &pause.reason, pause.for_ms.unwrap_or(0));
                    }
                    Operation::Set { setting: Setting::Pause(None), .. } => {
                        events::resumed(&call.semaphore);
                    }
                    _ => {}
                }
                self.step.outbox.reply(answer, Ok(replied));
            }
            (ReplyTo::Renew(renewal, answer), Reply { answers: Answers::Renew(outcomes), now_us, .. }) => {
                let times = ReplyTimes { sent_at, server_us: now_us };
                let renewed = self.on_single_renewal(&call.semaphore, &renewal, outcomes, times);
                if matches!(renewed, Some(RenewOutcome::Held | RenewOutcome::Granted(_)))
                    && let Some((again, fallback)) = self.overtaken(&call.semaphore, &renewal)
                {
                    return self.run(SingleCall::renew(
                        call.semaphore,
                        again,
                        fallback,
                        answer,
                        self.step.now,
                    ));
                }
                let outbox = &mut self.step.outbox;
                match renewed {
                    Some(RenewOutcome::RetryLater) => outbox.reply(answer, Err(RenewError::RetryLater)),
                    Some(_) => outbox.reply(answer, Ok(())),
                    None => outbox.discard(answer),
                }
            }
            (
                ReplyTo::CountAnew(renewal, answer),
                Reply { answers: Answers::Renew(outcomes), now_us, .. },
            ) => {
                let times = ReplyTimes { sent_at, server_us: now_us };
                let renewed = self.on_single_renewal(&call.semaphore, &renewal, outcomes, times);
                let wanted = self.step.config.replicas;
                let outbox = &mut self.step.outbox;
                match renewed {
                    Some(_) if confirmed < wanted => {
                        outbox.reply(answer, Err(AcquireError::NotReplicated { confirmed, wanted }));
                    }
                    // If the store has forgotten the permit, a later renewal puts it back, and carries the
                    // time, too.
                    Some(_) => outbox.reply(answer, Ok(())),
                    None => outbox.discard(answer),
                }
            }
            (ReplyTo::Adopt(adopt, answer), Reply { answers: Answers::Adopt(true), .. }) => {
                let adopted = self.on_adopted(&call.semaphore, *adopt, sent_at);
                // A caller that has dropped its receiver drops the permit, which releases it.
                self.step.outbox.reply(answer, adopted);
            }
            (ReplyTo::Adopt(_, answer), Reply { answers: Answers::Adopt(false), .. }) => {
                self.step.outbox.reply(answer, Err(AdoptError::Gone));
            }
            (ReplyTo::CountAnew(_, answer), _) => {
                self.step.outbox.reply(answer, Err(AcquireError::Store(mismatched_reply())));
            }
            (ReplyTo::Renew(_, answer), _) => {
                self.step.outbox.reply(answer, Err(RenewError::Store(mismatched_reply())));
            }
            (ReplyTo::Adopt(adopt, answer), _) => {
                self.release_adopted(&call.semaphore, *adopt);
                self.step.outbox.reply(answer, Err(AdoptError::Store(mismatched_reply())));
            }
        }
    }

    /// Handles the reply to a renewal that a caller waits for, and returns its outcome. `None` if the permit
    /// is lost: then the permit knows why.
    fn on_single_renewal(
        &mut self,
        name: &Name,
        renewal: &RenewRequest,
        mut outcomes: Vec<RenewOutcome>,
        times: ReplyTimes,
    ) -> Option<RenewOutcome> {
        let outcome = outcomes.pop()?;
        let (semaphore, step) = self.known(name)?;
        semaphore.on_single_renewal(renewal, outcome.clone(), times, step).then_some(outcome)
    }

    /// The renewal of this permit as it has to be now, if the permit has been claimed since this renewal was
    /// sent, or has got another lease: then its reply has extended nothing.
    fn overtaken(&mut self, name: &Name, renewal: &RenewRequest) -> Option<(RenewRequest, Declaration)> {
        let (semaphore, _) = self.known(name)?;
        let (again, fallback) = semaphore.renewal_of(&renewal.request)?;
        (self.closing.is_none() && renewal.lease_version < again.lease_version).then_some((again, fallback))
    }

    fn on_adopted(
        &mut self,
        name: &Name,
        adopt: AdoptRequest,
        sent_at: Moment,
    ) -> Result<PermitGuard, AdoptError> {
        if self.closing.is_some() {
            self.release_adopted(name, adopt);
            return Err(AdoptError::Ended(Ended::Closed));
        }
        let (semaphore, step) = self.semaphore(name);
        semaphore.adopt(adopt, sent_at, step)
    }

    /// Releases the permit of an adoption that no caller waits for any more, if the store has given it or may
    /// have.
    fn release_adopted(&mut self, name: &Name, adopt: AdoptRequest) {
        let (semaphore, step) = self.semaphore(name);
        let release = PendingRelease {
            request: RequestKey { holder: adopt.holder, request: adopt.new_request },
            lease: adopt.terms.lease(),
            last_token: None,
            counted: None,
            sent_before: true,
            answer: None,
        };
        semaphore.release(release, step);
    }

    pub(super) fn on_single_failure(&mut self, call: SingleCall, error: StoreError) {
        if error.is_temporary() && !call.is_late(self.step.now) && self.closing.is_none() {
            self.single_calls.retry(call, error, self.step.now);
        } else {
            self.fail_single(call, Some(error));
        }
    }

    /// Replies with `error`, or, if there is no error, that the session closes.
    ///
    /// If the store may have executed an adoption, its permit is released, as with an acquisition: otherwise
    /// nobody would hold its units until the end of the lease.
    ///
    /// The caller may try the same handle again meanwhile. The second adoption has a request of its own,
    /// which this release does not name: however late the release arrives, it cannot end the second adoption.
    /// If the first one was executed, the second finds the permit gone. Repeating the first request was ruled
    /// out: its delayed release would take the permit from the second caller.
    pub(super) fn fail_single(&mut self, call: SingleCall, error: Option<StoreError>) {
        if let Some(adopt) = call.possible_adoption(error.as_ref()) {
            let adopt = adopt.clone();
            self.release_adopted(&call.semaphore, adopt);
        }
        match error {
            Some(error) if self.closing.is_none() => call.fail(error, &mut self.step.outbox),
            _ => call.fail_closed(&mut self.step.outbox),
        }
    }
}
