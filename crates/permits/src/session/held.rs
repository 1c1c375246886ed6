//! A permit in somebody's hands, or on its way there: dropped, it is released, at whatever stage that is.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Session;
use super::core::PermitState;
use super::message::{Answer, Leaving, Message};
use crate::clock::Moment;
use crate::error::{Lost, ReleaseError, RenewError};

/// Owns a granted permit. The engine sends it to the caller; if nobody takes it, it is given back.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) core: Arc<PermitState>,
    pub(crate) session: Session,
    /// It was released or handed over: nothing to do on drop.
    settled: bool,
}

impl Held {
    pub(crate) fn new(core: Arc<PermitState>, session: Session) -> Self {
        Self { core, session, settled: false }
    }

    /// Asks for the release; the answer comes on the channel.
    pub(crate) fn release(mut self) -> Result<oneshot::Receiver<Result<(), ReleaseError>>, ReleaseError> {
        let (answer, receiver) = oneshot::channel();
        match self.give_back(Some(answer)) {
            Some(lost) => Err(ReleaseError::Lost(lost)),
            None => Ok(receiver),
        }
    }

    /// Asks for a renewal; the answer comes on the channel.
    pub(crate) fn renew(&self) -> oneshot::Receiver<Result<(), RenewError>> {
        let (answer, receiver) = oneshot::channel();
        let (semaphore, request) = (self.core.semaphore.clone(), self.core.request.clone());
        self.session.send(Message::Renew { semaphore, request, answer });
        receiver
    }

    /// Lets go without releasing: another process holds it now.
    pub(crate) fn hand_over(mut self) {
        self.settled = true;
        self.core.end();
        let (semaphore, request) = (self.core.semaphore.clone(), self.core.request.clone());
        self.session.send(Message::HandOver { semaphore, request });
    }

    /// Tells the store, also when the permit was lost meanwhile: only now has the work surely stopped, and the
    /// store may still count it. Returns why it was lost, if it was.
    fn give_back(&mut self, answer: Option<Answer<(), ReleaseError>>) -> Option<Lost> {
        if std::mem::replace(&mut self.settled, true) {
            return None;
        }
        if self.core.is_forked() {
            // The parent holds it.
            return Some(Lost::Forked);
        }
        // Whether it is lost is decided now, at the latest.
        self.core.deadline(Moment::now());
        self.core.end();
        let core = &self.core;
        let leaving = Leaving {
            holder: core.holder.clone(),
            request: core.request.clone(),
            lease: core.lease,
            sent_before: false,
            answer,
        };
        self.session.send(Message::Release { semaphore: core.semaphore.clone(), leaving });
        core.reason()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(None);
    }
}
