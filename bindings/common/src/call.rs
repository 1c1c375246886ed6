//! [`Call`]: an operation of the library in progress.
//!
//! Invariant: the future is polled, taken out and dropped under the lock of the call. To cancel the
//! operation, at any stage, the future is dropped.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use permits::{Acquire, AcquireAll, AcquireError, Permit, PermitSet};

use crate::failure::Failure;

/// The longest sleep, because the clock of a parked thread stands still while the machine is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The result of an operation. A language makes its own object from it.
#[derive(Debug)]
pub enum Value {
    /// Nothing to return.
    Nothing,
    /// True or false.
    Flag(bool),
    /// A limit, or another number.
    Number(u32),
    /// A handle, or JSON.
    Text(String),
    /// A client, with the address of its store without a password: see [`Language::client`](crate::Language).
    Client(String, permits::Client),
    /// A permit: see [`Held`](crate::Held).
    Permit(Permit),
    /// Permits of several semaphores.
    Permits(PermitSet),
    /// A loss; `None` if the permit was released.
    Lost(Option<Failure>),
}

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::Nothing
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

type Outcome = Result<Value, Failure>;

/// A future of the library, and what can be asked of it while it waits.
trait Work: Send {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome>;

    fn position(&self) -> Option<u64> {
        None
    }

    fn semaphore(&self) -> Option<&str> {
        None
    }
}

/// Any other future.
struct Plain<F>(Pin<Box<F>>);

impl<F: Future<Output = Outcome> + Send> Work for Plain<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        self.0.as_mut().poll(context)
    }
}

impl Work for Acquire {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let permit = ready!(Pin::new(self).poll(context))?;
        Poll::Ready(Ok(Value::Permit(permit)))
    }

    fn position(&self) -> Option<u64> {
        self.position()
    }
}

impl Work for AcquireAll {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let set = ready!(Pin::new(self).poll(context))?;
        Poll::Ready(Ok(Value::Permits(set)))
    }

    fn position(&self) -> Option<u64> {
        self.position()
    }

    fn semaphore(&self) -> Option<&str> {
        self.semaphore()
    }
}

/// An operation in progress. It begins with the first poll.
pub struct Call(Mutex<State>);

struct State {
    progress: Progress,
    /// Wakes the thread or the event loop that waits for the call.
    waiter: Option<Waker>,
}

enum Progress {
    Running(Box<dyn Work>),
    Ready(Outcome),
    /// The result was taken, or the call was cancelled.
    Ended,
}

impl From<Acquire> for Call {
    fn from(acquire: Acquire) -> Self {
        Self::of(acquire)
    }
}

impl From<AcquireAll> for Call {
    fn from(acquire: AcquireAll) -> Self {
        Self::of(acquire)
    }
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The waker for [`Call::block`], of the calling thread.
pub fn unparks() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

impl Call {
    /// Makes the call of a future.
    pub(crate) fn new<T, E>(future: impl Future<Output = Result<T, E>> + Send + 'static) -> Self
    where
        T: Into<Value>,
        E: Into<Failure>,
    {
        let outcome = async move { future.await.map(Into::into).map_err(Into::into) };
        Self::of(Plain(Box::pin(outcome)))
    }

    fn of(work: impl Work + 'static) -> Self {
        Self(Mutex::new(State { progress: Progress::Running(Box::new(work)), waiter: None }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the operation, if it runs. Returns true if it has ended.
    pub(crate) fn step(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        let Progress::Running(work) = &mut state.progress else { return true };
        match work.poll(&mut Context::from_waker(waker)) {
            Poll::Ready(outcome) => {
                state.progress = Progress::Ready(outcome);
                state.waiter = None;
                true
            }
            Poll::Pending => {
                state.waiter = Some(waker.clone());
                false
            }
        }
    }

    /// Begins the operation, without waiting for it.
    pub fn start(&self) {
        self.step(Waker::noop());
    }

    /// Blocks until the operation has ended, or `limit` has passed. `waker` comes from [`unparks`]. Returns
    /// true if the operation has ended.
    pub fn block(&self, waker: &Waker, limit: Option<Duration>) -> bool {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            if self.step(waker) {
                return true;
            }
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => thread::park_timeout(LONGEST_SLEEP),
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left.min(LONGEST_SLEEP)),
            }
        }
    }

    /// Takes the result.
    ///
    /// # Errors
    /// The failure of the operation. If the call has no result yet, it is cancelled.
    pub fn take(&self) -> Outcome {
        let mut state = self.lock();
        match std::mem::replace(&mut state.progress, Progress::Ended) {
            Progress::Ready(outcome) => outcome,
            other => {
                state.progress = other;
                Err(AcquireError::Cancelled.into())
            }
        }
    }

    /// Cancels the operation, from any thread. Has no effect once it has ended.
    pub fn cancel(&self) {
        let mut state = self.lock();
        if !matches!(state.progress, Progress::Running(_)) {
            return;
        }
        let work = std::mem::replace(&mut state.progress, Progress::Ended);
        let waiter = state.waiter.take();
        drop(state);
        drop(work);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// The position of the request, while it waits in line.
    pub fn position(&self) -> Option<u64> {
        match &self.lock().progress {
            Progress::Running(work) => work.position(),
            _ => None,
        }
    }

    /// The semaphore in whose line the request waits, while it does.
    pub fn semaphore(&self) -> Option<String> {
        match &self.lock().progress {
            Progress::Running(work) => work.semaphore().map(str::to_owned),
            _ => None,
        }
    }
}
