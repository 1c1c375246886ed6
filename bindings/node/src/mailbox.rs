//! [`Mailbox`]: the calls that an event loop has to poll.
//!
//! The signal is a threadsafe function, which the event loop runs. It is weak: it does not keep the process
//! alive, and has no effect once the environment of the event loop has ended.

use napi::Status;
use napi::bindgen_prelude::{Function, Result};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use permits_bindings::Signal;

/// The calls of one event loop that have to be polled.
#[napi]
pub struct Mailbox(pub(crate) permits_bindings::Mailbox<Deliver>);

pub(crate) struct Deliver(ThreadsafeFunction<(), (), (), Status, false, true>);

impl Signal for Deliver {
    fn signal(&self) {
        // The call fails if the environment has ended, and then no call is polled again anyway.
        let _ = self.0.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

#[napi]
impl Mailbox {
    /// A mailbox whose event loop calls `deliver` when calls have to be polled.
    #[napi(constructor)]
    pub fn new(deliver: Function<'_, (), ()>) -> Result<Self> {
        let deliver = deliver.build_threadsafe_function().weak::<true>().build()?;
        Ok(Self(permits_bindings::Mailbox::new(Deliver(deliver))))
    }

    /// Takes the keys of the calls that have to be polled.
    #[napi]
    pub fn take(&self) -> Vec<u32> {
        // The keys come from `Call::poll`, where they have 32 bits.
        self.0.take().into_iter().map(|key| key as u32).collect()
    }
}
