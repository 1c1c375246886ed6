//! [`Mailbox`]: the calls that an event loop has to poll.
//!
//! A waker may run on any thread, such as the library's own, which must not enter the interpreter. So it only
//! notes the key of its call here, and the first key since the last [`take`](Mailbox::take) signals the event
//! loop.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use crate::call::Call;

/// The call is being polled.
const POLLING: u8 = 0;
/// The poll has ended, and the call waits.
const WAITING: u8 = 1;
/// The waker was called.
const WOKEN: u8 = 2;

/// Makes an event loop take the keys of its mailbox.
pub trait Signal: Send + Sync + 'static {
    /// Signals, from any thread, without waiting.
    fn signal(&self);
}

/// The calls of one event loop, or of one thread, that have to be polled.
#[derive(Debug)]
pub struct Mailbox<S>(Arc<Shared<S>>);

#[derive(Debug)]
struct Shared<S> {
    woken: Mutex<Vec<u64>>,
    signal: S,
}

impl<S: Signal> Mailbox<S> {
    /// Makes a mailbox whose event loop gets this signal.
    pub fn new(signal: S) -> Self {
        Self(Arc::new(Shared { woken: Mutex::default(), signal }))
    }

    /// The signal.
    pub fn signal(&self) -> &S {
        &self.0.signal
    }

    /// Notes a call that has to be polled.
    pub fn note(&self, key: u64) {
        self.0.note(key);
    }

    /// Takes the keys of the calls that have to be polled.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock())
    }

    /// Polls a call, and notes its key when it has to be polled again. Returns true if the call has ended,
    /// and false if it waits. `None` means: poll it again as soon as the tasks that are ready have run.
    pub fn poll(&self, call: &Call, key: u64) -> Option<bool> {
        let waker = Arc::new(NotesCall { shared: self.0.clone(), key, stage: AtomicU8::new(POLLING) });
        if call.step(&waker.clone().into()) {
            return Some(true);
        }
        let polled = waker.stage.compare_exchange(POLLING, WAITING, Ordering::AcqRel, Ordering::Acquire);
        polled.is_ok().then_some(false)
    }
}

impl<S: Signal> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: u64) {
        let mut woken = self.lock();
        let is_first = woken.is_empty();
        woken.push(key);
        drop(woken);
        if is_first {
            self.signal.signal();
        }
    }
}

/// The waker of one poll of a call. It notes the call once, and only after the poll. If the call is woken
/// during its poll, its caller polls it again.
struct NotesCall<S> {
    shared: Arc<Shared<S>>,
    key: u64,
    stage: AtomicU8,
}

impl<S: Signal> Wake for NotesCall<S> {
    fn wake(self: Arc<Self>) {
        if self.stage.swap(WOKEN, Ordering::AcqRel) == WAITING {
            self.shared.note(self.key);
        }
    }
}
