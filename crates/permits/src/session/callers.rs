//! The callers' side of a session: it sends their messages to the engine, and waits for the replies.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::config::Config;
use super::message::{Message, PendingRelease};
use super::permit_state::{Check, PermitState};
use super::reply::{Answer, PendingReply};
use super::spec::{AcquireSpec, Position};
use crate::clock::Moment;
use crate::error::{AcquireError, CloseError, Ended, Lost, ReleaseError, RenewError};
use crate::process::Process;
use crate::protocol::{Holder, Name, ReleaseRequest, RequestId};
use crate::store::StoreError;

/// The way to the engine: the [driver](super::driver) of the session, or a test.
pub(super) trait Port: Send + Sync {
    /// Sends a message. If the engine has ended, the message is refused.
    fn send(&self, message: Message);

    /// The reason why a reply does not come.
    fn ended(&self) -> Ended;
}

/// The callers' side of a session. The session ends when its last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

/// The state that all clones share.
pub(crate) struct Shared {
    port: Arc<dyn Port>,
    requests: AtomicU64,
    config: Config,
    /// The process that connected.
    process: Process,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.process.is_forked() {
            // Never dropped: its locks and its descriptors are the parent's.
            std::mem::forget(self.port.clone());
        } else {
            self.port.send(Message::Close { answer: None });
        }
    }
}

impl From<Arc<Shared>> for Session {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Session {
    /// A session whose messages go to the port that is made of a reference to it.
    pub(super) fn new(config: Config, port: impl FnOnce(&Weak<Shared>) -> Arc<dyn Port>) -> Self {
        let requests = AtomicU64::new(0);
        let process = Process::current();
        let shared = Arc::new_cyclic(|weak| Shared { port: port(weak), requests, config, process });
        Self { shared }
    }

    /// The process that connected.
    pub(super) fn process(&self) -> Process {
        self.shared.process
    }

    /// The usual lease.
    pub(crate) fn lease(&self) -> Duration {
        self.shared.config.lease
    }

    /// Sends to the engine. If it has ended, or belongs to the parent process, the message is refused.
    pub(crate) fn send(&self, message: Message) {
        if self.is_forked() {
            return message.refuse(Ended::Forked);
        }
        self.shared.port.send(message);
    }

    fn is_forked(&self) -> bool {
        self.shared.process.is_forked()
    }

    /// The reason why a reply does not come.
    pub(crate) fn ended(&self) -> Ended {
        if self.is_forked() { Ended::Forked } else { self.shared.port.ended() }
    }

    /// The id of another request.
    pub(crate) fn new_request(&self) -> RequestId {
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.config.session.request(number)
    }

    /// The holder of a request whose caller names none: unique.
    pub(crate) fn default_holder(&self, request: &RequestId) -> Holder {
        let label = &self.shared.config.label;
        Holder::new(&format!("{label}/{request}")).expect("labels are checked")
    }

    /// An acquisition that is not sent yet.
    pub(crate) fn acquire(&self, spec: AcquireSpec) -> PendingAcquire {
        PendingAcquire {
            session: self.clone(),
            semaphore: spec.semaphore.clone(),
            holder: spec.holder.clone(),
            request: spec.request.clone(),
            position: spec.position.clone(),
            progress: Progress::Unsent(Box::new(spec)),
        }
    }

    /// Sends a message, and returns the value that waits for its reply.
    pub(crate) fn call<T: 'static, E: From<Ended> + 'static>(
        &self,
        message: impl FnOnce(Answer<T, E>) -> Message,
    ) -> PendingReply<T, E> {
        let session = self.clone();
        self.call_or(message, move || Err(session.ended().into()))
    }

    fn call_or<T: 'static, E: 'static>(
        &self,
        message: impl FnOnce(Answer<T, E>) -> Message,
        if_ended: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> PendingReply<T, E> {
        let (answer, receiver) = oneshot::channel();
        self.send(message(answer));
        PendingReply::<T, E>::new(receiver, if_ended)
    }

    /// Releases everything, and ends the session.
    pub(crate) fn close(&self) -> PendingReply<(), CloseError> {
        self.call_or(|answer| Message::Close { answer: Some(answer) }, || Err(CloseError::SessionFailed))
    }
}

/// An acquisition in progress. Dropped, it is withdrawn at any stage: before the reply by a message to the engine, after it
/// because the permit in the channel releases itself.
#[derive(Debug)]
pub(crate) struct PendingAcquire {
    session: Session,
    semaphore: Name,
    holder: Holder,
    request: RequestId,
    position: Arc<Position>,
    progress: Progress,
}

enum Progress {
    Unsent(Box<AcquireSpec>),
    Sent(oneshot::Receiver<Result<PermitGuard, AcquireError>>),
    Done,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unsent(_) => "Unsent",
            Self::Sent(_) => "Sent",
            Self::Done => "Done",
        })
    }
}

impl PendingAcquire {
    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    pub(crate) fn position(&self) -> Option<u64> {
        self.position.get()
    }

    /// Sends the request, if it has not been sent.
    pub(crate) fn send(&mut self) {
        if matches!(self.progress, Progress::Unsent(_)) {
            let (answer, receiver) = oneshot::channel();
            let sent = Progress::Sent(receiver);
            if let Progress::Unsent(spec) = std::mem::replace(&mut self.progress, sent) {
                self.session.send(Message::Acquire(spec, answer));
            }
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<PermitGuard, AcquireError>> {
        self.send();
        let Progress::Sent(receiver) = &mut self.progress else { panic!("polled after completion") };
        let result = if self.session.is_forked() {
            // The call was begun before the fork. Its reply goes to the parent.
            Err(self.session.ended().into())
        } else {
            let reply = std::task::ready!(Pin::new(receiver).poll(context));
            reply.unwrap_or_else(|_| Err(self.session.ended().into()))
        };
        self.progress = Progress::Done;
        Poll::Ready(result)
    }

    pub(crate) fn wait(mut self) -> Result<PermitGuard, AcquireError> {
        self.send();
        let Progress::Sent(receiver) = std::mem::replace(&mut self.progress, Progress::Done) else {
            panic!("waited for after completion")
        };
        receiver.blocking_recv().unwrap_or_else(|_| Err(self.session.ended().into()))
    }

    /// Sends it to a store that replies at once.
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
        Some(result)
    }
}

impl Drop for PendingAcquire {
    fn drop(&mut self) {
        if matches!(self.progress, Progress::Sent(_)) {
            let (semaphore, request) = (self.semaphore.clone(), self.request.clone());
            self.session.send(Message::Cancel { semaphore, request });
        }
    }
}

/// A granted permit, with its caller or on the way there. Dropped, it is released.
#[derive(Debug)]
pub(crate) struct PermitGuard {
    pub(crate) state: Arc<PermitState>,
    session: Session,
    /// It was released or handed over: nothing is left to do on drop.
    released: bool,
}

impl PermitGuard {
    pub(super) fn new(state: Arc<PermitState>, session: Session) -> Self {
        Self { state, session, released: false }
    }

    /// Releases it.
    pub(crate) fn release(mut self) -> Result<PendingReply<(), ReleaseError>, ReleaseError> {
        let (answer, receiver) = oneshot::channel();
        if let Some(lost) = self.release_once(Some(answer)) {
            return Err(ReleaseError::Lost(lost));
        }
        let session = self.session.clone();
        let if_ended = move || match session.ended() {
            // A session that was closed has released everything.
            Ended::Closed => Ok(()),
            Ended::Forked | Ended::SessionFailed => Err(ReleaseError::Store(thread_panicked())),
        };
        Ok(PendingReply::<(), ReleaseError>::new(receiver, if_ended))
    }

    /// Renews it.
    pub(crate) fn renew(&self) -> PendingReply<(), RenewError> {
        let state = self.state.clone();
        let (semaphore, request) = (state.semaphore.clone(), state.request.clone());
        self.session.call_or(
            |answer| Message::Renew { semaphore, request, answer },
            // The engine forgets a permit without a reply only when it is lost.
            move || Err(RenewError::Lost(state.reason().unwrap_or(Lost::Gone))),
        )
    }

    /// Forgets it without a release: another process holds it now.
    pub(crate) fn hand_over(mut self) {
        self.released = true;
        self.state.end();
        let (semaphore, request) = (self.state.semaphore.clone(), self.state.request.clone());
        self.session.send(Message::HandOver { semaphore, request });
    }

    /// Sends the release, also of a permit that was lost: only now has the caller's work surely stopped, and the store
    /// may still count it. Returns why it was lost, if it was.
    fn release_once(&mut self, answer: Option<Answer<(), ReleaseError>>) -> Option<Lost> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        let state = &self.state;
        if state.is_forked() {
            // The parent holds it.
            return Some(Lost::Forked);
        }
        // Whether it is lost is decided now, at the latest.
        if let Check::Expired = state.check(Moment::now()) {
            state.signal_loss();
        }
        state.end();
        let release = PendingRelease {
            request: ReleaseRequest { holder: state.holder.clone(), request: state.request.clone() },
            lease: state.lease,
            sent_before: false,
            answer,
        };
        self.session.shared.port.send(Message::Release { semaphore: state.semaphore.clone(), release });
        state.loss()
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        self.release_once(None);
    }
}

/// The outcome of calls that were in flight when the session's thread panicked.
fn thread_panicked() -> StoreError {
    StoreError::NoAnswer { reason: AcquireError::SessionFailed.to_string() }
}
