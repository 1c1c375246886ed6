//! [`Mailbox`]: the calls that an event loop has to poll.
//!
//! A waker runs on any thread, such as the library's own. It must not wait for the interpreter's lock, which
//! the program may keep for longer than a lease. So it notes the key of its call here and makes a socket
//! readable, which an event loop watches, or ends the wait of a thread.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use permits_bindings::Stage;
use pyo3::prelude::*;

/// The calls of one event loop, or of one thread, that have to be polled.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Mailbox {
    shared: Arc<Shared>,
    readable: UnixStream,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    signal: UnixStream,
}

#[derive(Default)]
struct State {
    woken: Vec<u64>,
    is_closed: bool,
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let (readable, signal) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        signal.set_nonblocking(true)?;
        let shared = Shared { state: Mutex::default(), changed: Condvar::new(), signal };
        Ok(Self { shared: Arc::new(shared), readable })
    }

    /// The descriptor that is readable while calls have to be polled.
    fn fileno(&self) -> i32 {
        self.readable.as_raw_fd()
    }

    /// Notes a call that has to be polled.
    fn note(&self, key: u64) {
        self.shared.note(key);
    }

    /// Takes the keys of the calls that have to be polled.
    fn take(&self) -> Vec<u64> {
        let mut bytes = [0; 64];
        // The bytes go first: a key that is noted after this is taken below, or has a byte of its own.
        while matches!((&self.readable).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        std::mem::take(&mut self.shared.lock().woken)
    }

    /// Blocks until calls have to be polled. Returns false if the mailbox was closed.
    fn wait(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let idle = |state: &mut State| state.woken.is_empty() && !state.is_closed;
            let waited = self.shared.changed.wait_while(self.shared.lock(), idle);
            !waited.unwrap_or_else(PoisonError::into_inner).is_closed
        })
    }

    /// Ends the thread or greenlet that waits.
    fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.signal();
    }
}

impl Mailbox {
    /// A waker for one poll of the call with this key.
    pub(crate) fn waker(&self, key: u64) -> Arc<MailboxWaker> {
        Arc::new(MailboxWaker { shared: self.shared.clone(), key, stage: Stage::default() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: u64) {
        let mut state = self.lock();
        let is_first = state.woken.is_empty();
        state.woken.push(key);
        drop(state);
        if is_first {
            self.signal();
        }
    }

    fn signal(&self) {
        // A full socket is readable already. A closed one has no reader left.
        let _ = (&self.signal).write(&[0]);
        self.changed.notify_all();
    }
}

/// Notes a call in its mailbox, once.
pub(crate) struct MailboxWaker {
    shared: Arc<Shared>,
    key: u64,
    stage: Stage,
}

impl MailboxWaker {
    /// Ends the poll. Returns false if the waker was called meanwhile: then the call is polled again, and
    /// nothing is noted.
    pub(crate) fn polled(&self) -> bool {
        self.stage.polled()
    }
}

impl Wake for MailboxWaker {
    fn wake(self: Arc<Self>) {
        if self.stage.woken() {
            self.shared.note(self.key);
        }
    }
}
