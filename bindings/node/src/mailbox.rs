//! [`Mailbox`]: the calls that an event loop has to poll.
//!
//! A waker runs on any thread, such as the library's own, which must not enter the interpreter. So it notes
//! the key of its call here, and the first key since the last [`take`](Mailbox::take) calls a threadsafe
//! function, which the event loop runs. That function is weak: it keeps no process alive, and without
//! effect once the environment of the event loop has ended.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use napi::Status;
use napi::bindgen_prelude::{Function, Result};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use permits_bindings::Stage;

/// The calls of one event loop that have to be polled.
#[napi]
pub struct Mailbox {
    shared: Arc<Shared>,
}

struct Shared {
    woken: Mutex<Vec<u32>>,
    signal: ThreadsafeFunction<(), (), (), Status, false, true>,
}

#[napi]
impl Mailbox {
    /// A mailbox whose event loop calls `deliver` when calls have to be polled.
    #[napi(constructor)]
    pub fn new(deliver: Function<'_, (), ()>) -> Result<Self> {
        let signal = deliver.build_threadsafe_function().weak::<true>().build()?;
        Ok(Self { shared: Arc::new(Shared { woken: Mutex::default(), signal }) })
    }

    /// Takes the keys of the calls that have to be polled.
    #[napi]
    pub fn take(&self) -> Vec<u32> {
        mem::take(&mut self.shared.lock())
    }
}

impl Mailbox {
    /// A waker for one poll of the call with this key.
    pub(crate) fn waker(&self, key: u32) -> Arc<MailboxWaker> {
        Arc::new(MailboxWaker { shared: self.shared.clone(), key, stage: Stage::default() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: u32) {
        let mut woken = self.lock();
        let is_first = woken.is_empty();
        woken.push(key);
        drop(woken);
        if is_first {
            // Fails if the environment has ended: then no call is polled again.
            let _ = self.signal.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

/// Notes a call in its mailbox, once.
pub(crate) struct MailboxWaker {
    shared: Arc<Shared>,
    key: u32,
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
