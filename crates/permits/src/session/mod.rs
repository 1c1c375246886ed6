//! The session: one client's connection, its renewals and its wake-ups, on a thread of its own.
//!
//! The thread has its own small runtime, so that renewals go out while the program's runtime is blocked, a
//! permit can be dropped anywhere, and the blocking API is the same engine.
//!
//! - [`engine`]: what is decided, step by step, with the time as an argument; `calls`, `replies` and `lane`
//!   are parts of it, `errand` is what is not batched.
//! - [`thread`]: the loop that feeds it.
//! - [`held`] and [`core`]: a permit, as the engine and its holder share it; [`watchdog`] ends one whose session is stuck.
//!
//! Nothing here grows without bound: the inbox has at most one message for each call in progress and each
//! permit that was just dropped; signals, calls in flight and batches are bounded by constants.

mod calls;
pub(crate) mod core;
pub(crate) mod engine;
mod errand;
pub(crate) mod held;
mod lane;
pub(crate) mod message;
mod replies;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod steps;
pub(crate) mod thread;
mod timers;
mod watchdog;

use std::collections::{HashMap, HashSet};
use std::future::{Future as _, poll_fn};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::held::Held;
use self::message::{Ask, Message, Opening, Wait};
use crate::error::{AcquireError, Ended, ReleaseError};
use crate::process::Process;
use crate::protocol::{Holder, Label, Name, Recovery, RequestId, SessionId};
use crate::store::StoreError;

/// A map whose order is the same in every run, so that a simulation can be repeated. Its keys are made here or
/// named by the program, so nobody can choose them to collide.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
type Set<K> = HashSet<K, BuildHasherDefault<DefaultHasher>>;

/// The longest sleep while something is held. The clocks of timers stand still while the machine is suspended, the
/// leases don't: so soon after it wakes up, what was lost meanwhile is reported.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What a session is told when it opens.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) session: SessionId,
    pub(crate) label: String,
    pub(crate) lease: Duration,
    pub(crate) recovery: Recovery,
    pub(crate) queue_max: u32,
    /// On how many replicas a grant must be before it is handed out.
    pub(crate) replicas: u32,
    pub(crate) store_timeout: Duration,
}

/// The callers' side of a session. It ends when the last one is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

/// What all clones share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Always there, until the drop.
    inbox: Option<mpsc::UnboundedSender<Message>>,
    asked: AtomicU64,
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
    pub(crate) fn note_failure(&self) {
        self.failed.store(true, Ordering::Release);
    }
}

impl From<Arc<Shared>> for Session {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Session {
    pub(crate) fn new(config: Config) -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (inbox, messages) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            inbox: Some(inbox),
            asked: AtomicU64::new(0),
            config,
            process: Process::current(),
            failed: AtomicBool::new(false),
        });
        (Self { shared }, messages)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
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

    /// Why an answer does not come.
    pub(crate) fn ended(&self) -> Ended {
        if self.is_forked() {
            Ended::Forked
        } else if self.shared.failed.load(Ordering::Acquire) {
            Ended::SessionFailed
        } else {
            Ended::Closed
        }
    }

    /// The result of a release whose answer does not come. A session that was closed has given everything back.
    pub(crate) fn not_told(&self) -> Result<(), ReleaseError> {
        match self.ended() {
            Ended::Closed => Ok(()),
            Ended::Forked | Ended::SessionFailed => Err(ReleaseError::Store(thread_panicked())),
        }
    }

    /// The name of another acquisition.
    pub(crate) fn new_request(&self) -> RequestId {
        let number = self.shared.asked.fetch_add(1, Ordering::Relaxed);
        self.shared.config.session.request(number)
    }

    /// Asks for a permit.
    pub(crate) fn acquire(&self, semaphore: Name, wanted: Wanted) -> Pending {
        let request = self.new_request();
        let holder = wanted.holder.unwrap_or_else(|| {
            let label = &self.shared.config.label;
            Holder::new(&format!("{label}/{request}")).expect("labels are checked")
        });
        let (answer, receiver) = oneshot::channel();
        let ask = Ask {
            semaphore: semaphore.clone(),
            holder,
            request: request.clone(),
            label: wanted.label,
            weight: wanted.weight,
            lease: wanted.lease.unwrap_or(self.shared.config.lease),
            wait: wanted.wait,
            renew: wanted.renew,
            opening: wanted.opening,
            answer,
        };
        self.send(Message::Acquire(Box::new(ask)));
        Pending { session: self.clone(), semaphore, request, receiver: Some(receiver) }
    }
}

/// The outcome of calls that were in flight when the session's thread panicked.
fn thread_panicked() -> StoreError {
    StoreError::NoAnswer { reason: AcquireError::SessionFailed.to_string() }
}

/// What somebody wants to acquire, checked.
pub(crate) struct Wanted {
    pub(crate) holder: Option<Holder>,
    pub(crate) label: Label,
    pub(crate) weight: u32,
    pub(crate) lease: Option<Duration>,
    pub(crate) wait: Wait,
    pub(crate) renew: bool,
    pub(crate) opening: Arc<Opening>,
}

/// An acquisition in progress. Dropped, it is withdrawn, whatever stage it is in: before the answer the engine
/// is told; after it, the permit in the channel releases itself.
pub(crate) struct Pending {
    session: Session,
    semaphore: Name,
    request: RequestId,
    receiver: Option<oneshot::Receiver<Result<Held, AcquireError>>>,
}

impl Pending {
    pub(crate) async fn wait(mut self) -> Result<Held, AcquireError> {
        let Self { session, receiver: answer, .. } = &mut self;
        let Some(receiver) = answer else { return Err(AcquireError::Closed) };
        let result = poll_fn(|context| {
            if session.is_forked() {
                // The call was begun before the fork. Its answer goes to the parent.
                return Poll::Ready(Err(session.ended().into()));
            }
            let received = Pin::new(&mut *receiver).poll(context);
            received.map(|result| result.unwrap_or_else(|_| Err(session.ended().into())))
        })
        .await;
        *answer = None;
        result
    }

    /// What has arrived, if anything has.
    #[cfg(test)]
    fn try_take(&mut self) -> Option<Result<Held, AcquireError>> {
        let result = self.receiver.as_mut()?.try_recv().ok()?;
        self.receiver = None;
        Some(result)
    }

    pub(crate) fn wait_blocking(mut self) -> Result<Held, AcquireError> {
        let Some(receiver) = self.receiver.take() else { return Err(AcquireError::Closed) };
        receiver.blocking_recv().unwrap_or_else(|_| Err(self.session.ended().into()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.receiver.is_some() {
            let (semaphore, request) = (self.semaphore.clone(), self.request.clone());
            self.session.send(Message::Cancel { semaphore, request });
        }
    }
}
