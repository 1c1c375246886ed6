//! [`User`], a program that acquires one permit or a set, and the [`Gate`] that stops the polls of its
//! future.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use permits::{
    Acquire, AcquireAll, AcquireAllError, AcquireError, AcquireOptions, Ended, Lost, Permit, PermitSet,
    ReleaseError, Semaphore,
};
use permits_testkit::sound::Named as _;
use permits_testkit::{HANGS, wait};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cancellation::fixture::Fixture;
use crate::cancellation::{FIRST, LEASE, Subject, UNITS};

/// The acquisition of a [`Subject`].
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Acquiring {
    Permit(Acquire),
    LastOfASet(AcquireAll),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Held {
    Permit(Permit),
    Set(PermitSet),
}

impl Held {
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Permit(permit) => permit.is_held(),
            Self::Set(set) => set.is_held(),
        }
    }

    pub(crate) async fn lost(&self) -> Lost {
        match self {
            Self::Permit(permit) => permit.lost().await,
            Self::Set(set) => set.lost().await.1,
        }
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Permit(permit) => permit.release().await,
            Self::Set(set) => set.release().await,
        }
    }
}

/// The error of the request that failed, which in a closed client may be the first one's.
fn of_one(error: AcquireAllError) -> AcquireError {
    match error {
        AcquireAllError::Acquire { source, .. } => source,
        AcquireAllError::Lost { reason: Lost::Closed, .. } => AcquireError::Ended(Ended::Closed),
        other => panic!("{other:?}"),
    }
}

/// A program that acquires a unit, on a runtime of its own.
pub(crate) struct User {
    pub(crate) runtime: Option<Runtime>,
    pub(crate) client: permits::Client,
    pub(crate) semaphore: Semaphore,
    pub(crate) subject: Subject,
    pub(crate) gate: Arc<Gate>,
    answered: Arc<AtomicBool>,
    hand_out: Arc<Notify>,
    task: Mutex<Option<JoinHandle<Result<Held, AcquireError>>>>,
}

impl User {
    pub(crate) fn new(fixture: &Fixture, subject: Subject) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_time().build().expect("a runtime");
        let client = runtime.block_on(fixture.client(LEASE));
        let semaphore = client.named("exports", UNITS);
        Self {
            runtime: Some(runtime),
            client,
            semaphore,
            subject,
            gate: Arc::default(),
            answered: Arc::default(),
            hand_out: Arc::default(),
            task: Mutex::default(),
        }
    }

    /// The first semaphore of the set.
    pub(crate) fn first(&self) -> Semaphore {
        self.client.named(FIRST, UNITS)
    }

    /// Starts to acquire, in a task that keeps the result until [`User::result`]. An acquisition that was
    /// started before, and stopped by the gate, continues.
    pub(crate) fn start(&mut self, options: AcquireOptions) {
        if self.task.lock().expect("no panic").is_some() {
            return self.gate.open();
        }
        let inner = match self.subject {
            Subject::Permit => Acquiring::Permit(self.semaphore.acquire_with(options)),
            Subject::LastOfASet => {
                let both = [self.semaphore.clone(), self.first()];
                Acquiring::LastOfASet(
                    self.client.acquire_all(both.map(|semaphore| (semaphore, options.clone()))),
                )
            }
        };
        let gated = Gated { inner, gate: self.gate.clone() };
        let (answered, hand_out) = (self.answered.clone(), self.hand_out.clone());
        let task = async move {
            let result = gated.await;
            answered.store(true, SeqCst);
            hand_out.notified().await;
            result
        };
        let runtime = self.runtime.as_ref().expect("it is not dropped");
        *self.task.lock().expect("no panic") = Some(runtime.spawn(task));
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = self.runtime.as_ref().expect("it is not dropped");
        let limited = async { tokio::time::timeout(HANGS, future).await };
        runtime.block_on(limited).expect("it does not hang")
    }

    #[track_caller]
    pub(crate) fn is_answered(&self) {
        assert!(wait::until(|| self.answered.load(SeqCst)), "it is not answered");
    }

    /// The result of the task.
    #[track_caller]
    pub(crate) fn result(&self) -> Result<Held, AcquireError> {
        self.is_answered();
        self.hand_out.notify_one();
        let task = self.task.lock().expect("no panic").take().expect("it was started");
        self.block_on(task).expect("acquiring does not panic")
    }

    /// Drops the future, or its permit.
    pub(crate) fn drop_future(&self) {
        let task = self.task.lock().expect("no panic").take().expect("it was started");
        task.abort();
        assert!(self.block_on(task).is_err_and(|error| error.is_cancelled()));
    }
}

/// Stops the polls of a future, and records them.
#[derive(Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    poll_stopped: AtomicBool,
    poll_passed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    /// Stops the next poll. The records begin again.
    pub(crate) fn shut(&self) {
        self.poll_stopped.store(false, SeqCst);
        self.poll_passed.store(false, SeqCst);
        self.shut.store(true, SeqCst);
    }

    pub(crate) fn open(&self) {
        self.shut.store(false, SeqCst);
        if let Some(waker) = self.waker.lock().expect("no panic").take() {
            waker.wake();
        }
    }

    /// Returns when the shut gate has stopped a poll.
    #[track_caller]
    pub(crate) fn await_stopped_poll(&self) {
        assert!(wait::until(|| self.poll_stopped.load(SeqCst)), "nothing woke it");
    }

    /// Returns when the future has been polled.
    #[track_caller]
    pub(crate) fn await_poll(&self) {
        assert!(wait::until(|| self.poll_passed.load(SeqCst)), "it is not polled");
    }
}

/// A future behind a gate.
struct Gated {
    inner: Acquiring,
    gate: Arc<Gate>,
}

impl Future for Gated {
    type Output = Result<Held, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let gate = self.gate.clone();
        // The waker is stored before `shut` is read, so that a thread that opens the gate later finds it.
        *gate.waker.lock().expect("no panic") = Some(context.waker().clone());
        if gate.shut.load(SeqCst) {
            gate.poll_stopped.store(true, SeqCst);
            return Poll::Pending;
        }
        let result = match &mut self.inner {
            Acquiring::Permit(acquire) => Pin::new(acquire).poll(context).map_ok(Held::Permit),
            Acquiring::LastOfASet(acquire) => {
                Pin::new(acquire).poll(context).map_ok(Held::Set).map_err(of_one)
            }
        };
        gate.poll_passed.store(true, SeqCst);
        result
    }
}

/// Polls a future once.
pub(crate) fn poll_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => Some(ready),
        Poll::Pending => None,
    }
}
