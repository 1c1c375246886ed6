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

    /// The names of all semaphores.
    #[napi]
    pub fn list(&self) -> Call {
        Call(self.inner.list())
    }

    /// Takes over the permit of a handle.
    #[napi]
    pub fn adopt(&self, handle: String) -> Result<Call> {
        call(self.inner.adopt(&handle))
    }

    /// Renews the permit of a handle, which stays valid.
    #[napi]
    pub fn renew(&self, handle: String) -> Result<Call> {
        call(self.inner.renew(&handle))
    }

    /// Releases the permit of a handle.
    #[napi]
    pub fn release(&self, handle: String) -> Result<Call> {
        call(self.inner.release(&handle))
    }

    /// Releases everything and ends the session.
    #[napi]
    pub fn close(&self) -> Call {
        Call(self.inner.close())
    }
}

/// The result of a change.
#[napi(object, object_from_js = false)]
pub(crate) struct Changed {
    pub found: bool,
    /// After a change of the limit.
    pub limit: Option<u32>,
    pub limit_version: Option<i64>,
}

impl From<permits::Changed> for Changed {
    fn from(changed: permits::Changed) -> Self {
        let permits::Changed { found, limit, limit_version, .. } = changed;
        Self { found, limit, limit_version: limit_version.map(|version| version as i64) }
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

    /// Makes a change by an operator, which is JSON.
    #[napi]
    pub fn change(&self, change: String) -> Result<Call> {
        call(self.0.change(&change))
    }

    #[napi]
    pub fn declare(&self) -> Call {
        Call(self.0.declare())
    }

    #[napi]
    pub fn available(&self) -> Call {
        Call(self.0.available())
    }

    /// The state, as JSON.
    #[napi]
    pub fn inspect(&self, max: f64) -> Result<Call> {
        call(self.0.inspect(max))
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

    /// Waits until it is lost: the loss as JSON; or released: null, unless the release found a loss.
    #[napi]
    pub fn wait_lost(&self) -> Call {
        Call(self.0.wait_lost())
    }

    #[napi]
    pub fn renew(&self) -> Call {
        Call(self.0.renew())
    }

    #[napi]
    pub fn release_part(&self, units: f64) -> Result<Call> {
        call(self.0.release_part(units))
    }

    #[napi]
    pub fn count(&self, units: f64) -> Result<()> {
        self.0.count(units).map_err(thrown)
    }

    #[napi]
    pub fn set_lease(&self, ms: f64) -> Result<Call> {
        call(self.0.set_lease(Language::JavaScript, ms))
    }

    #[napi]
    pub fn auto_renew(&self, renew: bool) {
        self.0.auto_renew(renew);
    }

    /// Releases it. Without effect if it was released before.
    #[napi]
    pub fn release(&self) -> Call {
        Call(self.0.release())
    }

    /// Releases it without a wait for the confirmation.
    #[napi]
    pub fn forget(&self) {
        self.0.forget();
    }

    /// Makes a handle of it, for another process.
    #[napi]
    pub fn hand_over(&self) -> Call {
        Call(self.0.hand_over())
    }
}
