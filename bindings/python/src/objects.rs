//! The classes of the native half. The methods of clients, semaphores and permits make a [`Call`]: an
//! operation in progress, which a thread blocks on or an event loop polls.
//!
//! Invariant: a thread that holds the lock of a call never waits for the interpreter's lock.

use std::sync::OnceLock;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use permits_bindings::{Held, Language, Value, unparks};
use pyo3::conversion::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::failure::{Raised, exception};
use crate::mailbox::Mailbox;

type Result<T> = std::result::Result<T, Raised>;

/// How long the thread that handles signals waits before it looks for them again.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);

/// The thread that ends the process, once that has begun.
static EXIT: OnceLock<ThreadId> = OnceLock::new();

/// Notes that the calling thread ends the process. From now on calls on other threads never return.
///
/// Only daemon threads are left then. Their calls would end with an error, because the clients are closed,
/// and each error would be printed.
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
        Value::Client(store, client) => Client(Language::Python.client(store, client)).into_py_any(py),
        Value::Permit(permit) => Permit(Held::new(permit)).into_py_any(py),
        Value::Permits(set) => {
            let permits = set.into_permits().into_iter().map(Held::new).map(Permit);
            permits.collect::<Vec<_>>().into_py_any(py)
        }
        Value::Lost(lost) => exception(lost, py).into_py_any(py),
    }
}

#[pymethods]
impl Call {
    /// Blocks until the operation has ended, without the interpreter's lock, and returns the result. If
    /// `signals` is true, handlers of signals run meanwhile, and an exception of a handler cancels the call.
    /// After `timeout` seconds the call is cancelled, and the result is `None`.
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

    /// Polls the operation for the event loop of `mailbox`, which notes `key` when it has to be polled again.
    /// Returns true if it has ended, and false if it waits. `None` means: poll it again as soon as the tasks
    /// that are ready have run.
    fn poll(&self, mailbox: &Mailbox, key: u64) -> Option<bool> {
        mailbox.0.poll(&self.0, key)
    }

    /// Begins the operation, without waiting for it.
    fn start(&self) {
        self.0.start();
    }

    /// Takes the result. If there is none yet, the call is cancelled.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        object(self.0.take().map_err(Raised)?, py)
    }

    /// Cancels the operation, from any thread. Has no effect once it has ended.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// The position of the request, while it waits in line.
    fn position(&self) -> Option<u64> {
        self.0.position()
    }

    /// The semaphore in whose line the request waits, while it does.
    fn semaphore(&self) -> Option<String> {
        self.0.semaphore()
    }
}

/// Connects to a store. The settings are JSON, and `program` is the name of the program that the interpreter
/// runs.
#[pyfunction]
pub(crate) fn connect(
    url: String,
    settings: &str,
    program: String,
    asked: Option<&Bound<'_, Asked>>,
) -> Result<Call> {
    let asked = asked.map(|asked| &asked.get().0);
    Ok(Call(Language::Python.connect(url, settings, program, asked)?))
}

/// The questions of one client for credentials.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Asked(permits_bindings::Asked);

#[pymethods]
impl Asked {
    #[new]
    fn new() -> Self {
        Self(permits_bindings::Asked::new())
    }

    /// Waits for a question, and returns true. Returns false when the client is gone.
    fn next(&self) -> Call {
        Call(self.0.next())
    }

    /// Answers all questions, with JSON.
    fn answer(&self, answer: &str) {
        self.0.answer(Language::Python, answer);
    }
}

/// Diagnoses a store. The result is JSON.
#[pyfunction]
pub(crate) fn diagnose(url: String, settings: &str, asked: Option<&Bound<'_, Asked>>) -> Result<Call> {
    let asked = asked.map(|asked| &asked.get().0);
    Ok(Call(Language::Python.diagnose(url, settings, asked)?))
}

/// The events of the library since the last call, as JSON.
#[pyfunction]
pub(crate) fn events() -> Call {
    Call(permits_bindings::events())
}

/// A session with a store.
#[pyclass(frozen, weakref, module = "permits._permits")]
pub(crate) struct Client(pub(crate) permits_bindings::Client);

#[pymethods]
impl Client {
    #[getter]
    fn store(&self) -> &str {
        &self.0.store
    }

    /// The semaphore of this name, with a limit and options as JSON.
    fn semaphore(&self, name: &str, limit: &str, options: &str) -> Result<Semaphore> {
        Ok(Semaphore(self.0.semaphore(name, limit, options)?))
    }

    /// Acquires permits of several semaphores, all or none. All options are JSON.
    fn acquire_all(
        &self,
        requests: Vec<(Py<Semaphore>, Option<String>)>,
        common: Option<&str>,
    ) -> Result<Call> {
        let requests = requests.iter().map(|(semaphore, options)| (&semaphore.get().0, options.clone()));
        Ok(Call(self.0.acquire_all(requests, common)?))
    }

    #[pyo3(signature = (operation, handle=""))]
    fn call(&self, operation: &str, handle: &str) -> Result<Call> {
        Ok(Call(self.0.call(operation, handle)?))
    }
}

/// A named line with a limit.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Semaphore(permits_bindings::Semaphore);

#[pymethods]
impl Semaphore {
    /// Acquires a permit. Returns the call and the holder.
    fn acquire(&self, options: Option<&str>) -> Result<(Call, String)> {
        let (call, holder) = self.0.acquire(options)?;
        Ok((Call(call), holder))
    }

    /// Runs an operation, whose argument is JSON.
    #[pyo3(signature = (operation, argument=""))]
    fn call(&self, operation: &str, argument: &str) -> Result<Call> {
        Ok(Call(self.0.call(operation, argument)?))
    }
}

/// Some units of a semaphore, held for a lease.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Permit(pub(crate) Held);

#[pymethods]
impl Permit {
    #[getter]
    fn semaphore(&self) -> &str {
        &self.0.semaphore
    }

    #[getter]
    fn holder(&self) -> &str {
        &self.0.holder
    }

    #[getter]
    fn token(&self) -> u64 {
        self.0.token
    }

    #[getter]
    fn slot(&self) -> u32 {
        self.0.slot
    }

    #[getter]
    fn weight(&self) -> u32 {
        self.0.weight()
    }

    #[getter]
    fn lease(&self) -> f64 {
        self.0.lease().as_secs_f64()
    }

    fn remaining(&self) -> f64 {
        self.0.remaining().as_secs_f64()
    }

    fn status(&self) -> &'static str {
        self.0.status()
    }

    fn lost(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        exception(self.0.lost(), py)
    }

    /// Raises an exception unless the permit is held.
    fn check(&self) -> Result<()> {
        Ok(self.0.check()?)
    }

    /// Runs an operation. Its number of units or seconds is JSON.
    #[pyo3(signature = (operation, number=""))]
    fn call(&self, operation: &str, number: &str) -> Result<Call> {
        Ok(Call(self.0.call(Language::Python, operation, number)?))
    }

    fn count(&self, units: &str) -> Result<()> {
        Ok(self.0.count(units)?)
    }

    fn auto_renew(&self, renew: bool) {
        self.0.auto_renew(renew);
    }

    fn forget(&self) {
        self.0.forget();
    }

    fn leave(&self) -> Result<()> {
        Ok(self.0.leave()?)
    }
}
