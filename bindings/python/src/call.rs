//! [`Call`]: an operation of the library in progress.
//!
//! Invariant: the future is polled, taken out and dropped under the lock of the call, and no thread waits for
//! the interpreter's lock while it holds that one. Dropping the future is what cancels the operation, at any
//! stage.

use std::any::TypeId;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use pyo3::conversion::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::failure::{Failure, Raise as _};
use crate::mailbox::Mailbox;

/// The pause between two checks for signals, on the thread that handles them.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);

/// The longest sleep, because the clock of a parked thread stands still while the machine is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The thread that ends the process, once it has begun to.
static EXIT: OnceLock<ThreadId> = OnceLock::new();

/// Notes that the calling thread ends the process. From now on no call returns on another thread.
///
/// Only daemon threads are left then. Their calls end because the clients are closed, and an error would be
/// printed for each.
#[pyfunction]
pub(crate) fn exit_begins() {
    let _ = EXIT.set(thread::current().id());
}

/// The result, to be made into Python's when the interpreter's lock is held.
pub(crate) type Outcome = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A future of the library, with what is known of it while it waits.
pub(crate) trait Work: Send {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome>;

    /// The position in line.
    fn position(&self) -> Option<u64> {
        None
    }

    /// The semaphore in whose line it waits.
    fn semaphore(&self) -> Option<&str> {
        None
    }
}

/// The outcome of a result.
pub(crate) fn outcome<T, E>(result: Result<T, E>) -> Outcome
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
    E: Into<Failure> + Send + 'static,
{
    Box::new(move |py| match result {
        // PyO3 makes an empty tuple of it.
        Ok(_) if TypeId::of::<T>() == TypeId::of::<()>() => Ok(py.None()),
        Ok(value) => value.into_py_any(py),
        Err(error) => Err(error.into().into_py(py)),
    })
}

/// Any future of a result.
struct Plain<F>(Pin<Box<F>>);

impl<T, E, F> Work for Plain<F>
where
    F: Future<Output = Result<T, E>> + Send,
    T: for<'py> IntoPyObject<'py> + Send + 'static,
    E: Into<Failure> + Send + 'static,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        Poll::Ready(outcome(ready!(self.0.as_mut().poll(context))))
    }
}

/// An operation in progress. It begins with the first poll.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Call {
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    /// Wakes the waiting thread or event loop.
    waiter: Option<Waker>,
}

enum Progress {
    Running(Box<dyn Work>),
    Ready(Outcome),
    /// The outcome was taken.
    Taken,
    Cancelled,
}

impl Call {
    /// The call of a future.
    pub(crate) fn new<T, E>(future: impl Future<Output = Result<T, E>> + Send + 'static) -> Self
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
        E: Into<Failure> + Send + 'static,
    {
        Self::of(Plain(Box::pin(future)))
    }

    pub(crate) fn of(work: impl Work + 'static) -> Self {
        Self { state: Mutex::new(State { progress: Progress::Running(Box::new(work)), waiter: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls it, if it runs. Returns true if it has ended.
    fn step(&self, waker: &Waker) -> bool {
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

    /// Blocks until it has ended, or `limit` has passed. Returns true if it has ended.
    fn block(&self, waker: &Waker, limit: Option<Duration>) -> bool {
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
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[pymethods]
impl Call {
    /// Blocks without the interpreter's lock until it has ended, and returns the result. With `signals`, a
    /// signal's handler runs meanwhile, and cancels the call if it raises an exception. After `timeout`
    /// seconds the call is cancelled and the result is `None`.
    #[pyo3(signature = (signals, timeout=None))]
    fn wait(&self, py: Python<'_>, signals: bool, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let interval = signals.then_some(SIGNALS_INTERVAL);
            let sleep = left.into_iter().chain(interval).min();
            let ended = py.detach(|| {
                let ended = self.block(&waker, sleep);
                if EXIT.get().is_some_and(|exit| *exit != thread::current().id()) {
                    loop {
                        thread::park();
                    }
                }
                ended
            });
            if ended {
                return self.take(py);
            }
            if signals {
                py.check_signals().inspect_err(|_| self.cancel())?;
            }
            if left.is_some_and(|left| left.is_zero()) {
                self.cancel();
                return Ok(py.None());
            }
        }
    }

    /// Polls it for the event loop of `mailbox`, which notes `key` when it is to be polled again. Returns
    /// true if it has ended, false if it waits, and `None` if it is to be polled as soon as the tasks that
    /// are ready have run.
    fn poll(&self, mailbox: &Mailbox, key: u64) -> Option<bool> {
        let waker = mailbox.waker(key);
        if self.step(&waker.clone().into()) { Some(true) } else { waker.polled().then_some(false) }
    }

    /// Begins it, without a wait.
    fn start(&self) {
        self.step(Waker::noop());
    }

    /// Takes the result. A call that has none is cancelled.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut state = self.lock();
        let progress = std::mem::replace(&mut state.progress, Progress::Taken);
        if let Progress::Running(_) | Progress::Cancelled = progress {
            state.progress = progress;
            drop(state);
            return Err(Failure::from(permits::AcquireError::Cancelled).into_py(py));
        }
        drop(state);
        match progress {
            Progress::Ready(outcome) => outcome(py),
            _ => Err(pyo3::exceptions::PyRuntimeError::new_err("the result was taken before")),
        }
    }

    /// Cancels it, from any thread. Without effect once it has ended.
    fn cancel(&self) {
        let mut state = self.lock();
        if !matches!(state.progress, Progress::Running(_)) {
            return;
        }
        let work = std::mem::replace(&mut state.progress, Progress::Cancelled);
        let waiter = state.waiter.take();
        drop(state);
        drop(work);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// The position in line, while it waits.
    fn position(&self) -> Option<u64> {
        match &self.lock().progress {
            Progress::Running(work) => work.position(),
            _ => None,
        }
    }

    /// The semaphore in whose line it waits, while it does.
    fn semaphore(&self) -> Option<String> {
        match &self.lock().progress {
            Progress::Running(work) => work.semaphore().map(str::to_owned),
            _ => None,
        }
    }
}
