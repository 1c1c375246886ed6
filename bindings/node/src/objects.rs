//! The classes of the native half: their methods make calls. Numbers of JavaScript are `f64`.
//!
//! A permit that is garbage is released, since its finalizer drops it.

use napi::bindgen_prelude::{ClassInstance, Result};
use napi_derive::napi;
use permits::check;
use permits_bindings::{Held, Language};

use crate::call::Call;
use crate::failure::{Failure, thrown};

fn call(call: std::result::Result<permits_bindings::Call, Failure>) -> Result<Call> {
    call.map(Call).map_err(thrown)
}

/// Connects to a store. The settings are JSON, and `program` is the name of the program that the interpreter
/// runs.
#[napi]
pub(crate) fn connect(url: String, settings: String, program: String) -> Result<Call> {
    call(Language::JavaScript.connect(url, &settings, program))
}

/// Diagnoses a store: JSON.
#[napi]
pub(crate) fn diagnose(url: String, settings: String) -> Result<Call> {
    call(Language::JavaScript.diagnose(url, &settings))
}

/// Refuses the name of an option that is none of those that are known.
#[napi]
pub(crate) fn check_field(name: String, known: Vec<String>) -> Result<()> {
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    check::field(&name, &known).map_err(thrown)
}

/// A session with a store.
#[napi]
pub struct Client {
    /// The address of the store, without a password.
    #[napi(readonly)]
    pub store: String,
    inner: permits_bindings::Client,
}

impl From<permits_bindings::Client> for Client {
    fn from(inner: permits_bindings::Client) -> Self {
        Self { store: inner.store.clone(), inner }
    }
}

#[napi]
impl Client {
    /// The semaphore of this name. Without a limit: the stored one. With `exactly`, no other limit is
    /// accepted. Without `keep`, it keeps permits as the client does.
    #[napi]
    pub fn semaphore(
        &self,
        name: String,
        limit: Option<f64>,
        exactly: bool,
        keep: Option<f64>,
    ) -> Result<Semaphore> {
        let semaphore = self.inner.semaphore(Language::JavaScript, &name, limit, exactly, keep);
        semaphore.map(Semaphore).map_err(thrown)
    }

    /// Permits of several semaphores, all or none, each with the options at its index.
    #[napi]
    pub fn acquire_all(
        &self,
        semaphores: Vec<ClassInstance<'_, Semaphore>>,
        options: Vec<Option<String>>,
    ) -> Result<Call> {
        call(self.inner.acquire_all(semaphores.iter().map(|semaphore| &semaphore.0).zip(options)))
    }

    /// An operation of the session, or about the permit of a handle.
    #[napi]
    pub fn call(&self, operation: String, handle: Option<String>) -> Result<Call> {
        call(self.inner.call(&operation, &handle.unwrap_or_default()))
    }
}

/// A named line with a limit.
#[napi]
pub struct Semaphore(permits_bindings::Semaphore);

#[napi]
impl Semaphore {
    /// Acquires a permit. With `now`, it does not wait. The options are JSON.
    #[napi]
    pub fn acquire(&self, options: Option<String>, now: bool) -> Result<Call> {
        call(self.0.acquire(options.as_deref(), now).map(|(call, _)| call))
    }

    /// An operation, whose argument is JSON.
    #[napi]
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
        // Microseconds since 1970: below 2^53 until the year 2255.
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

    /// An operation, with a number of units or milliseconds. The loss for which it waits is JSON.
    #[napi]
    pub fn call(&self, operation: String, number: Option<f64>) -> Result<Call> {
        call(self.0.call(Language::JavaScript, &operation, number.unwrap_or_default()))
    }

    #[napi]
    pub fn count(&self, units: f64) -> Result<()> {
        self.0.count(units).map_err(thrown)
    }

    #[napi]
    pub fn auto_renew(&self, renew: bool) {
        self.0.auto_renew(renew);
    }

    /// Releases it without a wait for the confirmation.
    #[napi]
    pub fn forget(&self) {
        self.0.forget();
    }
}
