//! The callers' side of a session: the messages that they send to the engine, the inbox that the messages go into, and
//! the values that wait for the replies.
//!
//! Each message but the withdrawing ones brings the channel for its reply. A receiver may be dropped at any time:
//! sending then fails, and a permit that was on its way is dropped, which releases it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::config::Config;
use super::permit_state::PermitState;
use super::reply::{Answer, PendingReply, reply};
use super::spec::{AcquireSpec, Position};
use crate::clock::Moment;
use crate::error::{AcquireError, AdminError, AdoptError, CloseError, Ended, Lost, ReleaseError, RenewError};
use crate::process::Process;
use crate::protocol::{AdoptRequest, Holder, Name, Operation, ReleaseRequest, Reply, RequestId};
use crate::store::StoreError;

/// A message to the engine.
pub(crate) enum Message {
    Acquire(Box<AcquireSpec>, Answer<PermitGuard, AcquireError>),
    /// The caller no longer waits.
    Cancel {
        semaphore: Name,
        request: RequestId,
    },
    Release {
        semaphore: Name,
        release: PendingRelease,
    },
    /// Renew now, once.
    Renew {
        semaphore: Name,
        request: RequestId,
        answer: Answer<(), RenewError>,
    },
    /// Another process takes over: neither renew nor release any more.
    HandOver {
        semaphore: Name,
        request: RequestId,
    },
    /// Take a permit over from another process.
    Adopt {
        semaphore: Name,
        adopt: Box<AdoptRequest>,
        answer: Answer<PermitGuard, AdoptError>,
    },
    /// An operation on the semaphore itself.
    Admin {
        semaphore: Name,
        operation: Operation,
        answer: Answer<Reply, AdminError>,
    },
    /// List the semaphores.
    List {
        answer: Answer<Vec<Name>, AdminError>,
    },
    /// Release everything, and end.
    Close {
        answer: Answer<(), CloseError>,
    },
}

impl Message {
    /// Replies in place of the engine, which has ended or is another process's.
    pub(super) fn refuse(self, ended: Ended) {
        match self {
            Self::Acquire(_, answer) => reply(answer, Err(ended.into())),
            Self::Adopt { answer, .. } => reply(answer, Err(ended.into())),
            Self::Admin { answer, .. } => reply(answer, Err(ended.into())),
            Self::List { answer } => reply(answer, Err(ended.into())),
            Self::Renew { answer, .. } if ended != Ended::Closed => {
                reply(answer, Err(RenewError::Lost(ended.into())));
            }
            Self::Close { answer } => reply(
                answer,
                match ended {
                    Ended::Closed => Ok(()),
                    Ended::Forked => Err(CloseError::Forked),
                    Ended::SessionFailed => Err(CloseError::SessionFailed),
                },
            ),
            // A permit that was lost by the closing has the reason.
            Self::Renew { .. } | Self::Cancel { .. } | Self::Release { .. } | Self::HandOver { .. } => {}
        }
    }
}

/// A release that the store has not confirmed.
pub(crate) struct PendingRelease {
    pub(crate) request: ReleaseRequest,
    /// The store drops the entry on its own once this lease has passed.
    pub(crate) lease: Duration,
    /// An earlier release of this request was sent and not answered. If the store does not know the request, that may
    /// be why.
    pub(crate) sent_before: bool,
    pub(crate) answer: Option<Answer<(), ReleaseError>>,
}

/// The callers' side of a session. The session ends when its last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

/// The state that all clones share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// `Some` until the drop.
    inbox: Option<mpsc::UnboundedSender<Message>>,
    requests: AtomicU64,
    config: Config,
    /// The process that connected.
    process: Process,
    /// The session's thread has panicked.
    failed: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.process.is_forked() {
            // To close the inbox is to wake the session's thread, by locks and a descriptor of the parent's.
            std::mem::forget(self.inbox.take());
        }
    }
}

impl Shared {
    pub(super) fn note_failure(&self) {
        self.failed.store(true, Ordering::Release);
    }
}

impl From<Arc<Shared>> for Session {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Session {
    pub(super) fn new(config: Config) -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (inbox, messages) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            inbox: Some(inbox),
            requests: AtomicU64::new(0),
            config,
            process: Process::current(),
            failed: AtomicBool::new(false),
        });
        (Self { shared }, messages)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The usual lease.
    pub(crate) fn lease(&self) -> Duration {
        self.shared.config.lease
    }

    /// Sends to the engine. If it has ended, or belongs to the parent process, the message is refused here.
    pub(crate) fn send(&self, message: Message) {
        if self.is_forked() {
            return message.refuse(Ended::Forked);
        }
        let Some(inbox) = &self.shared.inbox else { return };
        if let Err(mpsc::error::SendError(message)) = inbox.send(message) {
            message.refuse(self.ended());
        }
    }

    fn is_forked(&self) -> bool {
        self.shared.process.is_forked()
    }

    /// The reason why a reply does not come.
    pub(crate) fn ended(&self) -> Ended {
        if self.is_forked() {
            Ended::Forked
        } else if self.shared.failed.load(Ordering::Acquire) {
            Ended::SessionFailed
        } else {
            Ended::Closed
        }
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
        self.call_or(|answer| Message::Close { answer }, || Err(CloseError::SessionFailed))
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

    /// Queues the release, also of a permit that was lost: only now has the caller's work surely stopped, and the store
    /// may still count it. Returns why it was lost, if it was.
    fn release_once(&mut self, answer: Option<Answer<(), ReleaseError>>) -> Option<Lost> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        if self.state.is_forked() {
            // The parent holds it.
            return Some(Lost::Forked);
        }
        // Whether it is lost is decided now, at the latest.
        self.state.deadline(Moment::now());
        self.state.end();
        let state = &self.state;
        let release = PendingRelease {
            request: ReleaseRequest { holder: state.holder.clone(), request: state.request.clone() },
            lease: state.lease,
            sent_before: false,
            answer,
        };
        self.session.send(Message::Release { semaphore: state.semaphore.clone(), release });
        state.reason()
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
