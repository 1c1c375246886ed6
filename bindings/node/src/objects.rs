//! The classes of the native half. The methods of clients, semaphores and permits make a [`Call`]: an
//! operation in progress, which the thread of the event loop polls, takes out and drops.
//!
//! If a permit becomes garbage, its finalizer drops it, which releases it.

use napi::bindgen_prelude::{ClassInstance, Env, Result, ToNapiValue, Unknown};
use napi_derive::napi;
use permits_bindings::{Held, Language, Value, unparks};

use crate::failure::{Failure, json_of, thrown};
use crate::mailbox::Mailbox;

/// An operation in progress. It begins with the first poll.
#[napi]
pub struct Call(pub(crate) permits_bindings::Call);

fn unknown<'env>(value: Value, env: &'env Env) -> Result<Unknown<'env>> {
    match value {
        Value::Nothing => ().into_unknown(env),
        Value::Flag(flag) => flag.into_unknown(env),
        Value::Number(number) => number.into_unknown(env),
        Value::Text(text) => text.into_unknown(env),
        Value::Client(store, inner) => {
            let inner = Language::JavaScript.client(store.clone(), inner);
            Client { store, inner }.into_unknown(env)
        }
        Value::Permit(permit) => Permit(Held::new(permit)).into_unknown(env),
        Value::Permits(set) => {
            let permits = set.into_permits().into_iter().map(Held::new).map(Permit);
            permits.collect::<Vec<_>>().into_unknown(env)
        }
        Value::Lost(lost) => lost.map(json_of).into_unknown(env),
    }
}

#[napi]
impl Call {
    /// Polls the operation for the event loop of `mailbox`, which notes `key` when it has to be polled again.
    /// Returns true if it has ended, and false if it waits. Null means: poll it again as soon as the tasks
    /// that are ready have run.
    #[napi]
    pub fn poll(&self, mailbox: &Mailbox, key: u32) -> Option<bool> {
        mailbox.0.poll(&self.0, key.into())
    }

    /// Begins the operation, without waiting for it.
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

    /// Cancels the operation. Has no effect once it has ended.
    #[napi]
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

fn call(call: std::result::Result<permits_bindings::Call, Failure>) -> Result<Call> {
    call.map(Call).map_err(thrown)
}

/// Connects to a store. The settings are JSON, and `program` is the name of the program that the interpreter
/// runs.
#[napi]
pub(crate) fn connect(url: String, settings: String, program: String, asked: Option<&Asked>) -> Result<Call> {
    call(Language::JavaScript.connect(url, &settings, program, asked.map(|asked| &asked.0)))
}

/// The questions of one client for credentials.
#[napi]
pub struct Asked(permits_bindings::Asked);

#[napi]
impl Asked {
    #[napi(constructor)]
    pub fn new() -> Self {
        Self(permits_bindings::Asked::new())
    }

    /// Waits for a question, and returns true. Returns false when the client is gone.
    #[napi]
    pub fn next(&self) -> Call {
        Call(self.0.next())
    }

    /// Answers all questions, with JSON.
    #[napi]
    pub fn answer(&self, answer: String) {
        self.0.answer(Language::JavaScript, &answer);
    }
}

/// Diagnoses a store. The result is JSON.
#[napi]
pub(crate) fn diagnose(url: String, settings: String, asked: Option<&Asked>) -> Result<Call> {
    call(Language::JavaScript.diagnose(url, &settings, asked.map(|asked| &asked.0)))
}

/// The events of the library since the last call, as JSON.
#[napi]
pub(crate) fn events() -> Call {
    Call(permits_bindings::events())
}

/// A session with a store.
#[napi]
pub struct Client {
    /// The address of the store, without a password.
    #[napi(readonly)]
    pub store: String,
    inner: permits_bindings::Client,
}

#[napi]
impl Client {
    /// The semaphore of this name, with a limit and options as JSON.
    #[napi]
    pub fn semaphore(&self, name: String, limit: String, options: String) -> Result<Semaphore> {
        self.inner.semaphore(&name, &limit, &options).map(Semaphore).map_err(thrown)
    }

    /// Acquires permits of several semaphores, all or none. Each has the options at its index, and the
    /// options for all. All options are JSON.
    #[napi]
    pub fn acquire_all(
        &self,
        semaphores: Vec<ClassInstance<'_, Semaphore>>,
        options: Vec<Option<String>>,
        common: Option<String>,
    ) -> Result<Call> {
        let requests = semaphores.iter().map(|semaphore| &semaphore.0).zip(options);
        call(self.inner.acquire_all(requests, common.as_deref()))
    }

    /// Runs an operation of the session, or on the permit of a handle.
    #[napi(ts_args_type = "operation: 'list' | 'close' | 'adopt' | 'renew' | 'release', handle?: string")]
    pub fn call(&self, operation: String, handle: Option<String>) -> Result<Call> {
        call(self.inner.call(&operation, &handle.unwrap_or_default()))
    }
}

/// A named line with a limit.
#[napi]
pub struct Semaphore(permits_bindings::Semaphore);

#[napi]
impl Semaphore {
    /// Acquires a permit. The options are JSON.
    #[napi]
    pub fn acquire(&self, options: Option<String>) -> Result<Call> {
        call(self.0.acquire(options.as_deref()).map(|(call, _)| call))
    }

    /// Runs an operation, whose argument is JSON.
    #[napi(ts_args_type = "operation: 'declare' | 'available' | 'inspect' | 'change', argument?: string")]
    pub fn call(&self, operation: String, argument: Option<String>) -> Result<Call> {
        call(self.0.call(&operation, &argument.unwrap_or_default()))
    }
}

/// Some units of a semaphore, held for a lease.
#[napi]
pub struct Permit(pub(crate) Held);

#[napi]
impl Permit {
    #[napi(getter)]
    pub fn semaphore(&self) -> &str {
        &self.0.semaphore
    }

    #[napi(getter)]
    pub fn holder(&self) -> &str {
        &self.0.holder
    }

    #[napi(getter)]
    pub fn token(&self) -> i64 {
        // The token is in microseconds since 1970, which stays below 2^53 until the year 2255.
        self.0.token as i64
    }

    #[napi(getter)]
    pub fn slot(&self) -> u32 {
        self.0.slot
    }

    #[napi(getter)]
    pub fn weight(&self) -> u32 {
        self.0.weight()
    }

    #[napi(getter)]
    pub fn lease_ms(&self) -> f64 {
        self.0.lease().as_secs_f64() * 1000.0
    }

    #[napi(getter)]
    pub fn remaining_ms(&self) -> f64 {
        self.0.remaining().as_secs_f64() * 1000.0
    }

    #[napi(getter, ts_return_type = "'held' | 'unsure' | 'lost' | 'released'")]
    pub fn status(&self) -> &'static str {
        self.0.status()
    }

    /// Runs an operation. Its number of units or milliseconds is JSON, and so is the loss that it waits for.
    #[napi(
        ts_args_type = "operation: 'renew' | 'release' | 'hand_over' | 'wait_lost' | 'release_part' | 'set_lease', number?: string"
    )]
    pub fn call(&self, operation: String, number: Option<String>) -> Result<Call> {
        call(self.0.call(Language::JavaScript, &operation, &number.unwrap_or_default()))
    }

    #[napi]
    pub fn count(&self, units: String) -> Result<()> {
        self.0.count(&units).map_err(thrown)
    }

    #[napi]
    pub fn auto_renew(&self, renew: bool) {
        self.0.auto_renew(renew);
    }

    /// Releases the permit, without waiting for the confirmation.
    #[napi]
    pub fn forget(&self) {
        self.0.forget();
    }

    /// Ends a block: as `forget`, but throws the loss if the permit is known to be lost.
    #[napi]
    pub fn leave(&self) -> Result<()> {
        self.0.leave().map_err(thrown)
    }
}
