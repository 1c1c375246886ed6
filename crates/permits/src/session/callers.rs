//! The callers' side of a session: the messages that they send to the engine, and the permits that they get.
//!
//! Each message carries the channel for its reply, except those that withdraw a request. The caller may drop
//! its receiver at any time: sending the reply then fails, and a permit that was on its way is dropped, which
//! releases it.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Config;
use super::gathering::after_others;
use super::outbox::{Answer, channel, reply};
use super::permit_state::{Check, HeldPermit, PermitState};
use super::shelf::{Keep, Shelf, Shelves};
use super::spec::{AcquireSpec, Declarations, LimitDeclaration};
use crate::clock::Moment;
use crate::error::{AcquireError, AdminError, AdoptError, CloseError, Ended, Lost, ReleaseError, RenewError};
use crate::observe::meters::SemaphoreMeters;
use crate::protocol::{
    AdoptRequest, ChangeOrigin, Declaration, Holder, Label, Name, Operation, ReleaseRequest, Reply,
    RequestId, RequestKey,
};
use crate::sys::process::Process;
use permits_store::StoreError;

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
    /// Hold the permit on other terms from now on. The next renewal tells the store what it keeps of them.
    ChangeTerms {
        semaphore: Name,
        request: RequestId,
        change: TermsChange,
    },
    /// Renew the permit now, once.
    Renew {
        semaphore: Name,
        request: RequestId,
        answer: Answer<(), RenewError>,
    },
    /// Let the grant of a permit with `at_least` count from now on, and answer once the store knows.
    CountAnew {
        semaphore: Name,
        request: RequestId,
        /// A failed call is not sent again after this time, even if the store timeout is longer.
        within: Option<Duration>,
        answer: Answer<(), AcquireError>,
    },
    /// Another process takes the permit over: neither renew nor release it any more.
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
        declaration: Declaration,
        operation: Operation,
        answer: Answer<Reply, AdminError>,
    },
    /// List the semaphores.
    List {
        answer: Answer<Vec<Name>, AdminError>,
    },
    /// Release everything, and end the session. No caller waits if the session ends because its last client
    /// and its last permit were dropped.
    Close {
        answer: Option<Answer<(), CloseError>>,
    },
}

impl Message {
    /// Replies in place of the engine, which has ended or belongs to another process. Call this under no
    /// lock.
    pub(super) fn refuse(self, ended: Ended) {
        match self {
            Self::Acquire(_, answer) => reply(answer, Err(ended.into())),
            Self::CountAnew { answer, .. } => reply(answer, Err(ended.into())),
            Self::Adopt { answer, .. } => reply(answer, Err(ended.into())),
            Self::Admin { answer, .. } => reply(answer, Err(ended.into())),
            Self::List { answer } => reply(answer, Err(ended.into())),
            Self::Renew { answer, .. } if ended != Ended::Closed => {
                reply(answer, Err(RenewError::Lost(ended.into())));
            }
            Self::Close { answer: Some(answer) } => reply(
                answer,
                match ended {
                    Ended::Closed => Ok(()),
                    Ended::Forked | Ended::SessionFailed => Err(ended.into()),
                },
            ),
            // If the closing lost the permit, the permit knows why.
            Self::Renew { .. }
            | Self::ChangeTerms { .. }
            | Self::Cancel { .. }
            | Self::Release { .. }
            | Self::HandOver { .. }
            | Self::Close { answer: None } => {}
        }
    }
}

/// A change of the terms on which a permit is held.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TermsChange {
    /// Fewer units.
    Weight(u32),
    /// Another lease.
    Lease(Duration),
    /// Renewal in the background, or by the caller.
    AutoRenew(bool),
}

/// A release that the store has not confirmed.
pub(crate) struct PendingRelease {
    pub(crate) request: RequestKey,
    /// The store drops the entry on its own once this lease has passed.
    pub(crate) lease: Duration,
    /// The last token that the session gave out for the permit, if it kept it and granted it again.
    pub(crate) last_token: Option<u64>,
    /// The units that the grant counts for, if the holder has corrected them.
    pub(crate) counted: Option<u32>,
    /// An earlier release of this request was sent and not answered. If the store does not know the request,
    /// that release may have been executed.
    pub(crate) sent_before: bool,
    pub(crate) answer: Option<Answer<(), ReleaseError>>,
}

impl PendingRelease {
    /// The request for the store.
    pub(super) fn to_request(&self) -> ReleaseRequest {
        ReleaseRequest { last_token: self.last_token, counted: self.counted, ..self.request.clone().into() }
    }
}

/// The way to the engine: the [driver](super::driver) of the session, or a test.
pub(super) trait Port: Send + Sync {
    /// Sends a message. If the engine has ended, the message is refused.
    fn send(&self, message: Message);

    /// Sends a message whose requests may travel with the requests of other ready tasks. Returns true if they
    /// were kept for that: then [`Port::flush`] is due when the tasks that are ready have run.
    fn gather(&self, message: Message) -> bool;

    /// Sends what was gathered.
    fn flush(&self);

    /// Returns why no reply comes.
    fn ended(&self) -> Ended;
}

/// The callers' side of a session. The session ends when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

/// The state that all clones share.
pub(crate) struct Shared {
    port: Arc<dyn Port>,
    requests: AtomicU64,
    declarations: Declarations,
    shelves: Shelves,
    config: Config,
    /// The process that connected.
    process: Process,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Config { session, label, lease, .. } = &self.shared.config;
        f.debug_struct("Session").field("id", session).field("label", label).field("lease", lease).finish()
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
    /// Makes a session that sends its messages to the port which `port` makes.
    pub(super) fn new(config: Config, port: impl FnOnce(&Weak<Shared>) -> Arc<dyn Port>) -> Self {
        let (requests, declarations, shelves) = Default::default();
        let process = Process::current();
        let shared = Arc::new_cyclic(|weak| Shared {
            port: port(weak),
            requests,
            declarations,
            shelves,
            config,
            process,
        });
        Self { shared }
    }

    /// A reference that does not keep the session alive.
    pub(super) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// The process that connected.
    pub(super) fn process(&self) -> Process {
        self.shared.process
    }

    /// The metrics of a semaphore, registered now if they are not yet: this calls the program's recorder. A
    /// forked child gets empty ones, because the locks are the parent's.
    pub(crate) fn meters(&self, semaphore: &Name) -> SemaphoreMeters {
        let registered = || self.shared.config.meters.semaphore(semaphore.as_str());
        if self.is_forked() { Default::default() } else { registered() }
    }

    /// The declaration of a new handle. A forked child declares nothing: the locks are the parent's.
    pub(crate) fn declaration(&self, semaphore: &Name, first: Declaration) -> Arc<LimitDeclaration> {
        if self.is_forked() {
            return Arc::new(LimitDeclaration::new(first));
        }
        self.shared.declarations.shared(semaphore, first)
    }

    /// The shelf of a semaphore. A forked child gets a new, empty shelf each time, because the locks are the
    /// parent's.
    pub(crate) fn shelf(&self, semaphore: &Name) -> Arc<Shelf> {
        if self.is_forked() { Arc::default() } else { self.shared.shelves.shared(semaphore) }
    }

    /// The lease of acquisitions that set no lease.
    pub(crate) fn lease(&self) -> Duration {
        self.shared.config.lease
    }

    /// The time, by the clock that measures leases.
    pub(crate) fn now(&self) -> Moment {
        self.shared.config.clock.now()
    }

    /// The label of acquisitions without a label of their own.
    pub(crate) fn label(&self) -> &Label {
        &self.shared.config.label
    }

    /// How long semaphores keep an unused permit, unless they set a time of their own.
    pub(crate) fn keep(&self) -> Duration {
        self.shared.config.keep
    }

    /// Sends to the engine. If it has ended, or belongs to the parent process, the message is refused.
    pub(crate) fn send(&self, message: Message) {
        if self.is_forked() {
            return message.refuse(Ended::Forked);
        }
        self.shared.port.send(message);
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.shared.process.is_forked()
    }

    /// Sends a message whose requests may travel with the requests of other ready tasks. Returns true if
    /// [`Session::flush`] is due when these tasks have run.
    pub(super) fn gather(&self, message: Message) -> bool {
        if self.is_forked() {
            message.refuse(Ended::Forked);
            return false;
        }
        self.shared.port.gather(message)
    }

    /// Sends what was gathered.
    pub(super) fn flush(&self) {
        if !self.is_forked() {
            self.shared.port.flush();
        }
    }

    /// Returns why no reply comes.
    pub(crate) fn ended(&self) -> Ended {
        if self.is_forked() { Ended::Forked } else { self.shared.port.ended() }
    }

    /// Makes the id of a new request.
    pub(crate) fn new_request(&self) -> RequestId {
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.config.session.request(number)
    }

    /// Makes the origin of a new change by an operator.
    pub(crate) fn new_change(&self) -> ChangeOrigin {
        ChangeOrigin { request: self.new_request(), by: self.shared.config.author.clone() }
    }

    /// Makes the holder and the id of a new request. If `holder` is `None`, the holder gets a unique name.
    pub(crate) fn new_names(&self, holder: Option<Holder>) -> (Holder, RequestId) {
        let (request, process) = (self.new_request(), &self.shared.config.process);
        let unique = || Holder::new(&format!("{process}/{request}")).expect("it is short and plain");
        (holder.unwrap_or_else(unique), request)
    }

    /// Sends a message, and waits for the reply.
    pub(crate) async fn call<T, E: From<Ended>>(
        &self,
        message: impl FnOnce(Answer<T, E>) -> Message,
    ) -> Result<T, E> {
        let (answer, receiver) = channel();
        self.send(message(answer));
        self.reply(receiver).await.unwrap_or_else(|| Err(self.ended().into()))
    }

    /// Waits for the reply of the engine. `None` if none comes: the engine has ended or forgotten the
    /// request, or the call was begun before a fork, and the reply goes to the parent.
    async fn reply<T>(&self, mut receiver: oneshot::Receiver<T>) -> Option<T> {
        poll_fn(|context| match self.is_forked() {
            true => Poll::Ready(None),
            false => Pin::new(&mut receiver).poll(context).map(Result::ok),
        })
        .await
    }

    /// Releases everything, and ends the session.
    pub(crate) async fn close(&self) -> Result<(), CloseError> {
        let (answer, receiver) = channel();
        self.send(Message::Close { answer: Some(answer) });
        let failed = || if self.is_forked() { Ended::Forked } else { Ended::SessionFailed };
        self.reply(receiver).await.unwrap_or_else(|| Err(CloseError::Ended(failed())))
    }

    /// Renews a permit of this session.
    pub(crate) async fn renew(&self, permit: &PermitState) -> Result<(), RenewError> {
        let (semaphore, request) = (permit.semaphore.clone(), permit.request.clone());
        let (answer, receiver) = channel();
        self.send(Message::Renew { semaphore, request, answer });
        self.reply(receiver).await.unwrap_or_else(|| Err(RenewError::Lost(self.loss_of(permit))))
    }

    /// Lets the grant of a permit count from now on. Returns when the store knows, or when the permit is
    /// lost.
    pub(crate) async fn count_anew(
        &self,
        permit: &PermitState,
        within: Option<Duration>,
    ) -> Result<Result<(), AcquireError>, Lost> {
        let (semaphore, request) = (permit.semaphore.clone(), permit.request.clone());
        let (answer, receiver) = channel();
        self.send(Message::CountAnew { semaphore, request, within, answer });
        self.reply(receiver).await.ok_or_else(|| self.loss_of(permit))
    }

    /// Why the engine has forgotten a permit without a reply, which it does only when the permit is lost.
    fn loss_of(&self, permit: &PermitState) -> Lost {
        if self.is_forked() { Lost::Forked } else { permit.loss().unwrap_or(Lost::Gone) }
    }

    /// Changes the terms of a permit. The next renewal tells the store.
    pub(crate) fn change_terms(&self, permit: &PermitState, change: TermsChange) {
        permit.note_other_terms();
        let (semaphore, request) = (permit.semaphore.clone(), permit.request.clone());
        self.send(Message::ChangeTerms { semaphore, request, change });
    }
}

/// A granted permit, with its caller or on the way there. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct PermitGuard {
    pub(crate) state: HeldPermit,
    session: Session,
    /// Set if the session may keep the permit.
    keep: Option<Keep>,
    /// The permit was released or handed over: nothing is left to do on drop.
    released: bool,
    /// The caller has not got it yet. If it never gets it, the grant counts for nothing.
    is_on_its_way: bool,
}

impl PermitGuard {
    pub(crate) fn new(state: Arc<PermitState>, session: Session, keep: Option<Keep>) -> Self {
        Self { state: state.into(), session, keep, released: false, is_on_its_way: false }
    }

    /// A permit that is sent to its caller, who may have gone.
    pub(super) fn on_its_way(mut self) -> Self {
        self.is_on_its_way = true;
        self
    }

    /// Notes that the caller has got it.
    pub(super) fn arrived(mut self) -> Self {
        self.is_on_its_way = false;
        self
    }

    /// The state and the session of the permit, for an operation that outlives the borrow.
    pub(crate) fn parts(&self) -> (HeldPermit, Session) {
        (self.state.clone(), self.session.clone())
    }

    /// Releases the permit to the store.
    pub(crate) async fn release(mut self) -> Result<(), ReleaseError> {
        let (answer, receiver) = channel();
        let (lost, gathered) = self.release_once(Some(answer));
        if let Some(lost) = lost {
            return Err(ReleaseError::Lost(lost));
        }
        if gathered {
            after_others(|| self.session.flush()).await;
        }
        self.session.reply(receiver).await.unwrap_or_else(|| match self.session.ended() {
            // A session that was closed has released everything.
            Ended::Closed => Ok(()),
            Ended::Forked => Err(ReleaseError::Lost(Lost::Forked)),
            Ended::SessionFailed => Err(ReleaseError::Store(session_failed())),
        })
    }

    /// Forgets the permit without a release: another process holds it now.
    pub(crate) fn hand_over(mut self) {
        self.released = true;
        self.state.end();
        self.state.observe_end(self.state.now());
        let (semaphore, request) = (self.state.semaphore.clone(), self.state.request.clone());
        self.session.send(Message::HandOver { semaphore, request });
    }

    /// Keeps the permit for the next request of this process, if that is allowed. If this returns false, the
    /// permit has to be released.
    pub(crate) fn put_back(&mut self, now: Moment) -> bool {
        let Some(keep) = self.keep.as_ref().filter(|_| !self.state.is_forked()) else {
            return false;
        };
        if self.released {
            return false;
        }
        // Before it is on the shelf, from which another thread may take it at once.
        self.state.observe_end(now);
        self.released = keep.put_back(self.state.shared(), now);
        self.released
    }

    /// Sends the release, even if the permit was lost: only now has the caller surely stopped its work, and
    /// the store may still count the units. Returns why the permit was lost, if it was; and whether
    /// [`Session::flush`] is due. With `answer` a flush may be due; without it never.
    fn release_once(&mut self, answer: Option<Answer<(), ReleaseError>>) -> (Option<Lost>, bool) {
        if std::mem::replace(&mut self.released, true) {
            return (None, false);
        }
        let state = &self.state;
        if state.is_forked() {
            // The parent holds it.
            return (Some(Lost::Forked), false);
        }
        // If nobody has noticed yet that the deadline has passed, this check decides that the permit is lost.
        let now = state.now();
        if let Check::Expired = state.check(now) {
            state.signal_loss();
        }
        state.end();
        state.observe_end(now);
        if self.is_on_its_way && state.granted_terms().at_least_ms > 0 {
            state.count(0);
        }
        let release = PendingRelease {
            request: RequestKey { holder: state.holder.clone(), request: state.request.clone() },
            lease: state.lease(),
            last_token: state.last_token(),
            counted: state.counted(),
            sent_before: false,
            answer,
        };
        let is_awaited = release.answer.is_some();
        let message = Message::Release { semaphore: state.semaphore.clone(), release };
        let port = &self.session.shared.port;
        let gathered = if is_awaited {
            port.gather(message)
        } else {
            port.send(message);
            false
        };
        (state.loss(), gathered)
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        if !self.put_back(self.state.now()) {
            self.release_once(None);
        }
    }
}

/// The error for calls that were in flight when the engine panicked.
fn session_failed() -> StoreError {
    StoreError::NoAnswer { reason: Ended::SessionFailed.to_string() }
}
