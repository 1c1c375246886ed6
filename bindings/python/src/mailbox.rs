//! [`Mailbox`]: the calls that an event loop, or a thread, has to poll.
//!
//! A waker must not wait for the interpreter's lock, which the program may keep for longer than a lease. So
//! it only makes a socket readable, which an event loop or a thread watches.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use permits_bindings::Signal;
use pyo3::prelude::*;

/// The calls of one event loop, or of one thread, that have to be polled.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Mailbox(pub(crate) permits_bindings::Mailbox<Sockets>);

/// The signals of a mailbox: one for event loops, and one for a thread.
pub(crate) struct Sockets {
    readable: UnixStream,
    signal: UnixStream,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_signalled: bool,
    is_closed: bool,
}

impl Sockets {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signal for Sockets {
    fn signal(&self) {
        // If the socket is full, it is already readable.
        let _ = (&self.signal).write(&[0]);
        self.lock().is_signalled = true;
        self.changed.notify_all();
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let (readable, signal) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        signal.set_nonblocking(true)?;
        let sockets = Sockets { readable, signal, state: Mutex::default(), changed: Condvar::new() };
        Ok(Self(permits_bindings::Mailbox::new(sockets)))
    }

    /// The descriptor that is readable while calls have to be polled.
    fn fileno(&self) -> i32 {
        self.0.signal().readable.as_raw_fd()
    }

    /// Notes a call that has to be polled.
    fn note(&self, key: u64) {
        self.0.note(key);
    }

    /// Takes the keys of the calls that have to be polled.
    fn take(&self) -> Vec<u64> {
        let mut bytes = [0; 64];
        // Read the bytes first: then a key that is noted later is either taken below, or has a byte of its
        // own.
        while matches!((&self.0.signal().readable).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        self.0.take()
    }

    /// Blocks until calls have to be polled. Returns false if the mailbox was closed.
    fn wait(&self, py: Python<'_>) -> bool {
        let sockets = self.0.signal();
        py.detach(|| {
            let idle = |state: &mut State| !state.is_signalled && !state.is_closed;
            let waited = sockets.changed.wait_while(sockets.lock(), idle);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            state.is_signalled = false;
            !state.is_closed
        })
    }

    /// Ends the thread or greenlet that waits.
    fn close(&self) {
        self.0.signal().lock().is_closed = true;
        self.0.signal().signal();
    }
}
