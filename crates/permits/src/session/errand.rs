//! One-off calls: operations on a semaphore itself, a renewal that somebody asked for, an adoption.
//!
//! Unlike what stands in a lane they are not batched, and each is answered on its own. While the store cannot
//! be reached they are tried again until timeout is over, except a renewal: the permit has its own.

use std::time::Duration;

use super::engine::{Trouble, earlier, note_trouble};
use super::held::Held;
use super::message::Answer;
use crate::clock::Moment;
use crate::error::{AdminError, AdoptError, RenewError};
use crate::handle::PermitHandle;
use crate::protocol::{AdoptRequest, Declaration, Name, Operation, RenewRequest, Reply, RequestId};
use crate::store::StoreError;

/// The first and the last delay before another try.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A call of its own, and who waits for it.
pub(crate) struct Errand {
    pub(crate) semaphore: Name,
    pub(crate) declaration: Declaration,
    pub(crate) operation: Operation,
    pub(crate) kind: Kind,
    created: Option<Moment>,
    retry_at: Option<Moment>,
    delay: Duration,
    trouble: Option<Trouble>,
}

/// Who waits for the answer.
pub(crate) enum Kind {
    Admin(Answer<Reply, AdminError>),
    Renew(Answer<(), RenewError>),
    Adopt(AdoptRequest, Answer<Held, AdoptError>),
}

impl Errand {
    fn new(semaphore: Name, declaration: Declaration, operation: Operation, kind: Kind) -> Self {
        Self {
            semaphore,
            declaration,
            operation,
            kind,
            created: None,
            retry_at: None,
            delay: RETRY.0,
            trouble: None,
        }
    }

    pub(crate) fn admin(semaphore: Name, operation: Operation, answer: Answer<Reply, AdminError>) -> Self {
        Self::new(semaphore, Declaration::Stored, operation, Kind::Admin(answer))
    }

    pub(crate) fn renew(
        semaphore: Name,
        renewal: RenewRequest,
        fallback: Declaration,
        answer: Answer<(), RenewError>,
    ) -> Self {
        Self::new(semaphore, fallback, Operation::Renew(vec![renewal]), Kind::Renew(answer))
    }

    pub(crate) fn adopt(
        handle: PermitHandle,
        new_request: RequestId,
        answer: Answer<Held, AdoptError>,
    ) -> Self {
        let PermitHandle { semaphore, holder, request, weight, lease_ms, grant } = handle;
        let adopt = AdoptRequest { holder, request, weight, lease_ms, grant, new_request };
        let kind = Kind::Adopt(adopt.clone(), answer);
        Self::new(semaphore, Declaration::Stored, Operation::Adopt(adopt), kind)
    }

    /// What it takes over, if it does.
    pub(crate) fn adoption(&self) -> Option<&AdoptRequest> {
        match &self.kind {
            Kind::Adopt(adopt, _) => Some(adopt),
            Kind::Admin(_) | Kind::Renew(_) => None,
        }
    }

    /// Answers with a failure. Whoever is gone does not mind.
    pub(crate) fn fail(self, error: StoreError) {
        match self.kind {
            Kind::Admin(answer) => drop(answer.send(Err(AdminError::Store(error)))),
            Kind::Renew(answer) => drop(answer.send(Err(RenewError::Store(error)))),
            Kind::Adopt(_, answer) => drop(answer.send(Err(AdoptError::Store(error)))),
        }
    }

    pub(crate) fn fail_closed(self) {
        match self.kind {
            Kind::Admin(answer) => drop(answer.send(Err(AdminError::Closed))),
            // The permit was lost by the closing, and knows it.
            Kind::Renew(answer) => drop(answer),
            Kind::Adopt(_, answer) => drop(answer.send(Err(AdoptError::Closed))),
        }
    }
}

/// The errands that wait to be run, for the first time or again.
#[derive(Default)]
pub(crate) struct Errands {
    waiting: Vec<Errand>,
}

impl Errands {
    pub(crate) fn add(&mut self, mut errand: Errand, now: Moment) {
        errand.created.get_or_insert(now);
        self.waiting.push(errand);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts one back whose call failed in a way that may pass.
    pub(crate) fn again(&mut self, mut errand: Errand, error: StoreError, now: Moment) {
        note_trouble(&mut errand.trouble, error, now);
        errand.retry_at = Some(now + errand.delay);
        errand.delay = (errand.delay * 2).min(RETRY.1);
        self.waiting.push(errand);
    }

    pub(crate) fn retry_now(&mut self) {
        for errand in &mut self.waiting {
            errand.retry_at = None;
        }
    }

    pub(crate) fn take_ready(&mut self, now: Moment) -> Vec<Errand> {
        self.waiting.extract_if(.., |errand| errand.retry_at.is_none_or(|at| at <= now)).collect()
    }

    pub(crate) fn next_time(&self) -> Option<Moment> {
        self.waiting.iter().filter_map(|errand| errand.retry_at).min()
    }

    pub(crate) fn in_trouble(&self) -> bool {
        self.waiting.iter().any(|errand| errand.trouble.is_some())
    }

    /// Fails those that have waited longer than `timeout` for a store, or a part of it, out of reach.
    pub(crate) fn sweep(&mut self, now: Moment, down: &Option<Trouble>, timeout: Duration) {
        for index in (0..self.waiting.len()).rev() {
            let errand = &self.waiting[index];
            let Some((since, error)) = earlier(down, &errand.trouble) else { continue };
            let created = errand.created.unwrap_or(now);
            if matches!(errand.kind, Kind::Renew(_)) || now >= since.max(created) + timeout {
                self.waiting.remove(index).fail(error);
            }
        }
    }

    pub(crate) fn close(&mut self) {
        for errand in self.waiting.drain(..) {
            errand.fail_closed();
        }
    }
}
