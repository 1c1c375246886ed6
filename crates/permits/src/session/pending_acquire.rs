//! An acquisition in progress, as its caller waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use super::callers::{Message, PermitGuard, Session, Shared};
use super::outbox::channel;
use super::spec::{AcquireSpec, Position, Wait};
use crate::clock::millis;
use crate::error::{AcquireError, Ended};
use crate::observe::events;
use crate::observe::meters::SemaphoreMeters;
use crate::observe::span::AcquireSpan;
use crate::protocol::{Holder, Name, RequestId};

/// An acquisition in progress. You can drop it at any stage, which withdraws it: before the reply by a
/// message to the engine, and after it because the permit in the channel releases itself.
pub(crate) struct PendingAcquire {
    session: Session,
    semaphore: Name,
    holder: Holder,
    request: RequestId,
    position: Arc<Position>,
    meters: SemaphoreMeters,
    /// The span from the request to the outcome.
    span: Option<AcquireSpan>,
    /// Set by [`PendingCanceller::cancel`].
    cancelled: Arc<AtomicBool>,
    progress: Progress,
}

impl std::fmt::Debug for PendingAcquire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingAcquire")
            .field("semaphore", &self.semaphore)
            .field("holder", &self.holder)
            .field("position", &self.position())
            .field("progress", &self.progress)
            .finish()
    }
}

/// Cancels an acquisition whose caller is blocked. It does not keep the session alive.
#[derive(Debug, Clone)]
pub(crate) struct PendingCanceller {
    session: Weak<Shared>,
    semaphore: Name,
    request: RequestId,
    cancelled: Arc<AtomicBool>,
}

impl PendingCanceller {
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        let (semaphore, request) = (self.semaphore.clone(), self.request.clone());
        if let Some(session) = self.session.upgrade() {
            Session::from(session).send(Message::Cancel { semaphore, request });
        }
    }
}

enum Progress {
    Unsent(Box<AcquireSpec>),
    /// The message waits to travel with the requests of other tasks that are ready.
    Gathered(oneshot::Receiver<Result<PermitGuard, AcquireError>>),
    Sent(oneshot::Receiver<Result<PermitGuard, AcquireError>>),
    Done,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unsent(_) => "Unsent",
            Self::Gathered(_) => "Gathered",
            Self::Sent(_) => "Sent",
            Self::Done => "Done",
        })
    }
}

impl PendingAcquire {
    /// Makes an acquisition that is not sent yet.
    pub(crate) fn new(session: &Session, spec: AcquireSpec) -> Self {
        Self {
            session: session.clone(),
            semaphore: spec.semaphore.clone(),
            holder: spec.holder.clone(),
            request: spec.request.clone(),
            position: spec.position.clone(),
            meters: spec.meters.clone(),
            span: None,
            cancelled: Arc::default(),
            progress: Progress::Unsent(Box::new(spec)),
        }
    }

    pub(crate) fn canceller(&self) -> PendingCanceller {
        PendingCanceller {
            session: self.session.downgrade(),
            semaphore: self.semaphore.clone(),
            request: self.request.clone(),
            cancelled: self.cancelled.clone(),
        }
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    #[cfg(test)]
    pub(super) fn request(&self) -> &RequestId {
        &self.request
    }

    pub(crate) fn position(&self) -> Option<u64> {
        self.position.get()
    }

    pub(crate) fn expected_wait(&self) -> Option<Duration> {
        self.position.expected_wait(self.session.now())
    }

    /// Replaces the wait limit. Has no effect once the request is begun.
    pub(crate) fn set_wait(&mut self, wait: Wait) {
        if let Progress::Unsent(spec) = &mut self.progress {
            spec.client.wait = wait;
        }
    }

    /// Sends the request, if it has not been sent.
    pub(super) fn send(&mut self) {
        self.gather();
        match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Gathered(receiver) => {
                self.progress = Progress::Sent(receiver);
                self.session.flush();
            }
            progress => self.progress = progress,
        }
    }

    /// Begins the acquisition. Returns true if its request waits for the requests of other ready tasks: then
    /// [`PendingAcquire::send`] has to follow when these tasks have run.
    fn gather(&mut self) -> bool {
        match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Unsent(mut spec) => {
                self.open_span(&mut spec);
                let (answer, receiver) = channel();
                let gathered = self.session.gather(Message::Acquire(spec, answer));
                self.progress =
                    if gathered { Progress::Gathered(receiver) } else { Progress::Sent(receiver) };
                // A cancellation after this sends a message of its own, behind the request.
                if self.is_cancelled() {
                    self.canceller().cancel();
                }
                gathered
            }
            progress => {
                self.progress = progress;
                false
            }
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<PermitGuard, AcquireError>> {
        if self.gather() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.send();
        let Progress::Sent(receiver) = &mut self.progress else { panic!("polled after completion") };
        let result = if self.session.is_forked() {
            // The call was begun before the fork. Its reply goes to the parent.
            Err(self.session.ended().into())
        } else {
            let reply = ready!(Pin::new(receiver).poll(context));
            reply.unwrap_or_else(|_| Err(self.session.ended().into()))
        };
        self.progress = Progress::Done;
        self.observe(&result);
        Poll::Ready(result.map(PermitGuard::arrived))
    }

    /// Returns true if its canceller has cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    fn open_span(&mut self, spec: &mut AcquireSpec) {
        let span = AcquireSpan::open(spec.semaphore.as_str(), spec.terms.weight, spec.client.wait);
        spec.span = span.id();
        self.span = Some(span);
    }

    /// Reports the outcome. This calls the recorder and the subscriber of the program, so no lock is held. A
    /// forked child reports nothing.
    fn observe(&mut self, result: &Result<PermitGuard, AcquireError>) {
        let Some(span) = self.span.take() else { return };
        if let Err(AcquireError::Ended(Ended::Forked)) = result {
            return std::mem::forget(span);
        }
        self.meters.stops_waiting(&self.position.waiting);
        let outcome = result.as_ref().map_or_else(AcquireError::keyword, |_| "granted");
        span.record(outcome, self.position.first());
        let (semaphore, holder) = (&self.semaphore, &self.holder);
        match result {
            Ok(guard) => guard.state.observe_grant(span),
            Err(error) => {
                self.meters.refused(outcome);
                match error {
                    AcquireError::TimedOut { waited, .. } => {
                        events::timed_out(span, semaphore, holder, millis(*waited));
                    }
                    AcquireError::Cancelled => events::cancelled(span, semaphore, holder),
                    _ => events::refused(span, semaphore, holder, &outcome, error),
                }
            }
        }
    }

    /// Waits for the reply of a store that replies at once.
    #[cfg(test)]
    pub(super) fn wait_here(mut self) -> Result<PermitGuard, AcquireError> {
        self.send();
        self.try_take().expect("it is answered at once")
    }

    /// The result, if the reply has arrived.
    #[cfg(test)]
    pub(super) fn try_take(&mut self) -> Option<Result<PermitGuard, AcquireError>> {
        let Progress::Sent(receiver) = &mut self.progress else { return None };
        let result = receiver.try_recv().ok()?;
        self.progress = Progress::Done;
        Some(result.map(PermitGuard::arrived))
    }
}

impl Drop for PendingAcquire {
    fn drop(&mut self) {
        if matches!(self.progress, Progress::Gathered(_) | Progress::Sent(_)) {
            let (semaphore, request) = (self.semaphore.clone(), self.request.clone());
            self.session.send(Message::Cancel { semaphore, request });
            let forked = self.session.is_forked();
            self.observe(&Err(if forked {
                AcquireError::Ended(Ended::Forked)
            } else {
                AcquireError::Cancelled
            }));
        }
    }
}
