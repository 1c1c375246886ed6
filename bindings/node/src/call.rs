//! [`Call`]: an operation in progress, which the thread of the event loop polls, takes out and drops.

use napi::bindgen_prelude::{Env, Result, ToNapiValue, Unknown};
use napi_derive::napi;
use permits_bindings::{Value, unparks};

use crate::failure::{json_of, thrown};
use crate::mailbox::Mailbox;
use crate::objects::{Client, Permit};

/// An operation in progress. It begins with the first poll.
#[napi]
pub struct Call(pub(crate) permits_bindings::Call);

fn unknown<'env>(value: Value, env: &'env Env) -> Result<Unknown<'env>> {
    match value {
        Value::Nothing => ().into_unknown(env),
        Value::Flag(flag) => flag.into_unknown(env),
        Value::Number(number) => number.into_unknown(env),
        Value::Text(text) => text.into_unknown(env),
        Value::Client(client) => Client::from(client).into_unknown(env),
        Value::Permit(permit) => Permit(permit).into_unknown(env),
        Value::Permits(permits) => permits.into_iter().map(Permit).collect::<Vec<_>>().into_unknown(env),
        Value::Lost(lost) => lost.map(json_of).into_unknown(env),
    }
}

#[napi]
impl Call {
    /// Polls it for the event loop of `mailbox`, which notes `key` when it is to be polled again. Returns
    /// true if it has ended, false if it waits, and null if it is to be polled as soon as the tasks that
    /// are ready have run.
    #[napi]
    pub fn poll(&self, mailbox: &Mailbox, key: u32) -> Option<bool> {
        mailbox.0.poll(&self.0, key.into())
    }

    /// Begins it, without a wait.
    #[napi]
    pub fn start(&self) {
        self.0.start();
    }

    /// Blocks the event loop until it has ended.
    #[napi]
    pub fn block(&self) {
        self.0.block(&unparks(), None);
    }

    /// Takes the result, or throws the error.
    #[napi]
    pub fn take<'env>(&self, env: &'env Env) -> Result<Unknown<'env>> {
        unknown(self.0.take().map_err(thrown)?, env)
    }

    /// Cancels it. Without effect once it has ended.
    #[napi]
    pub fn cancel(&self) {
        self.0.cancel();
    }
}
