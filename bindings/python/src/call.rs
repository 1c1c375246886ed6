//! [`Call`]: an operation in progress, which a thread blocks on or an event loop polls.
//!
//! No thread waits for the interpreter's lock while it holds the lock of a call.

use std::sync::OnceLock;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use permits_bindings::{Value, unparks};
use pyo3::conversion::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::failure::{Raised, exception};
use crate::mailbox::Mailbox;
use crate::objects::{Client, Permit};

/// The pause between two checks for signals, on the thread that handles them.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);

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

/// An operation in progress. It begins with the first poll.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Call(pub(crate) permits_bindings::Call);

fn object(value: Value, py: Python<'_>) -> PyResult<Py<PyAny>> {
    match value {
        Value::Nothing => Ok(py.None()),
        Value::Flag(flag) => flag.into_py_any(py),
        Value::Number(number) => number.into_py_any(py),
        Value::Text(text) => text.into_py_any(py),
        Value::Client(client) => Client(client).into_py_any(py),
        Value::Permit(permit) => Permit(permit).into_py_any(py),
        Value::Permits(permits) => permits.into_iter().map(Permit).collect::<Vec<_>>().into_py_any(py),
        Value::Lost(lost) => exception(lost, py).into_py_any(py),
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
        let waker = unparks();
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let interval = signals.then_some(SIGNALS_INTERVAL);
            let sleep = left.into_iter().chain(interval).min();
            let ended = py.detach(|| {
                let ended = self.0.block(&waker, sleep);
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
        mailbox.0.poll(&self.0, key)
    }

    /// Begins it, without a wait.
    fn start(&self) {
        self.0.start();
    }

    /// Takes the result. A call that has none is cancelled.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        object(self.0.take().map_err(Raised)?, py)
    }

    /// Cancels it, from any thread. Without effect once it has ended.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// The position in line, while it waits.
    fn position(&self) -> Option<u64> {
        self.0.position()
    }

    /// The semaphore in whose line it waits, while it does.
    fn semaphore(&self) -> Option<String> {
        self.0.semaphore()
    }
}
