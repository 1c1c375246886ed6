//! [`Permit`]: units that are held.
//!
//! A permit that is garbage is released, since its finalizer drops it.

use napi::bindgen_prelude::Result;
use napi_derive::napi;
use permits::Lost;
use permits_bindings::{Held, HeldError};

use crate::call::Call;
use crate::convert::{count, duration, milliseconds};
use crate::failure::{json_of, thrown};

/// Some units of a semaphore, held for a lease.
#[napi]
pub struct Permit {
    #[napi(readonly)]
    pub semaphore: String,
    #[napi(readonly)]
    pub holder: String,
    #[napi(readonly)]
    pub token: i64,
    #[napi(readonly)]
    pub slot: u32,
    held: Held,
}

/// A loss, as the JSON of its error.
fn json(lost: Option<Lost>) -> Option<String> {
    lost.map(json_of)
}

impl Permit {
    pub(crate) fn new(permit: permits::Permit) -> Self {
        Self {
            semaphore: permit.semaphore().to_owned(),
            holder: permit.holder().to_owned(),
            // Microseconds since 1970: below 2^53 until the year 2255.
            token: permit.token() as i64,
            slot: permit.slot(),
            held: Held::new(permit),
        }
    }
}

#[napi]
impl Permit {
    #[napi(getter)]
    pub fn weight(&self) -> u32 {
        self.held.weight()
    }

    #[napi(getter)]
    pub fn lease_ms(&self) -> f64 {
        milliseconds(self.held.lease())
    }

    #[napi(getter)]
    pub fn remaining_ms(&self) -> f64 {
        milliseconds(self.held.remaining())
    }

    #[napi(getter, ts_return_type = "'held' | 'unsure' | 'lost' | 'released'")]
    pub fn status(&self) -> &'static str {
        self.held.status()
    }

    /// Waits until it is lost: the loss as JSON; or released: null, unless the release found a loss.
    #[napi]
    pub fn wait_lost(&self) -> Call {
        let lost = self.held.wait_lost();
        Call::new(async move { Ok::<_, HeldError>(json(lost.await)) })
    }

    #[napi]
    pub fn renew(&self) -> Call {
        Call::new(self.held.operation(|permit| async move { permit.renew().await }))
    }

    #[napi]
    pub fn release_part(&self, units: f64) -> Result<Call> {
        let units = count("the number of units", 1, units)?;
        Ok(Call::new(self.held.operation(move |permit| async move { permit.release_part(units).await })))
    }

    #[napi]
    pub fn count(&self, units: f64) -> Result<()> {
        self.held.count(count("the number of units", 0, units)?).map_err(thrown)
    }

    #[napi]
    pub fn set_lease(&self, ms: f64) -> Result<Call> {
        let lease = duration("the lease", ms)?;
        Ok(Call::new(self.held.operation(move |permit| async move { permit.set_lease(lease).await })))
    }

    #[napi]
    pub fn auto_renew(&self, renew: bool) {
        self.held.auto_renew(renew);
    }

    /// Releases it. Without effect if it was released before.
    #[napi]
    pub fn release(&self) -> Call {
        Call::new(self.held.release())
    }

    /// Releases it without a wait for the confirmation.
    #[napi]
    pub fn forget(&self) {
        self.held.forget();
    }

    /// Makes a handle of it, for another process.
    #[napi]
    pub fn hand_over(&self) -> Call {
        Call::new(self.held.hand_over())
    }
}
