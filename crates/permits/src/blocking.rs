//! The API without async: for programs that have no runtime.
//!
//! It is the same engine on the same background thread; a call here blocks its thread until the reply. The
//! types mirror those at the root of the crate, which document each operation, its errors and its bounds.
//!
//! # Panics
//! Like all calls that block, those here panic inside an async runtime: use the async API there.
//!
//! # Examples
//! ```
//! let client = permits::blocking::Client::connect("memory:")?;
//! let exports = client.semaphore("exports", 4)?;
//! let permit = exports.acquire()?;
//! // … at most 4 of these run at once, anywhere
//! permit.release()?;
//! client.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::time::Duration;

use crate::block_on::block_on;
use crate::client::thread_ended;
use crate::diagnostics::Diagnosis;
use crate::error::{
    AcquireAllError, AcquireError, AdminError, AdoptError, CloseError, ConnectError, Lost, ReleaseError,
    RenewError,
};
use crate::handle::PermitHandle;
use crate::inspection::Inspection;
use crate::model::INSPECT_MAX;
use crate::options::{AcquireOptions, Limit};
use crate::protocol::InvalidInput;
use crate::session::pending_acquire::Canceller as PendingCanceller;
use crate::session::permit_state::PermitStatus;
use crate::several::first_lost;
use crate::{
    Acquire as AsyncAcquire, Client as AsyncClient, ClientBuilder, Permit as AsyncPermit,
    PermitSet as AsyncPermitSet, Semaphore as AsyncSemaphore,
};

impl ClientBuilder {
    /// As [`ClientBuilder::connect`], for programs without a runtime.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    ///
    /// # Panics
    /// Inside an async runtime.
    pub fn connect_blocking(self) -> Result<Client, ConnectError> {
        let session = self.start()?.blocking_recv().unwrap_or_else(|_| Err(thread_ended()))?;
        Ok(Client { inner: AsyncClient { session } })
    }

    /// As [`ClientBuilder::diagnose`], for programs without a runtime.
    ///
    /// # Errors
    /// As [`ClientBuilder::diagnose`].
    ///
    /// # Panics
    /// Inside an async runtime.
    pub fn diagnose_blocking(self) -> Result<Diagnosis, ConnectError> {
        self.start_diagnosis(true)?.blocking_recv().map_err(|_| thread_ended())
    }

    /// As [`ClientBuilder::diagnose_settings`], for programs without a runtime.
    ///
    /// # Errors
    /// As [`ClientBuilder::diagnose`].
    ///
    /// # Panics
    /// Inside an async runtime.
    pub fn diagnose_settings_blocking(self) -> Result<Diagnosis, ConnectError> {
        self.start_diagnosis(false)?.blocking_recv().map_err(|_| thread_ended())
    }
}

/// Shows each of these types as the async one that it wraps.
macro_rules! shown_as_inner {
    ($($wrapper:ty),+) => {
        $(impl fmt::Debug for $wrapper {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.inner.fmt(f)
            }
        })+
    };
}

shown_as_inner!(Client, Semaphore, Acquire, Permit);

/// A session with a store, as [`crate::Client`].
#[derive(Clone)]
pub struct Client {
    inner: AsyncClient,
}

impl Client {
    /// As [`crate::Client::connect`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect_blocking()
    }

    /// A client with other settings than the defaults: [`ClientBuilder::connect_blocking`] connects it.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        AsyncClient::builder(url)
    }

    /// As [`crate::Client::semaphore`].
    ///
    /// # Errors
    /// [`InvalidInput`].
    pub fn semaphore(
        &self,
        name: impl AsRef<str>,
        limit: impl Into<Limit>,
    ) -> Result<Semaphore, InvalidInput> {
        Ok(Semaphore { inner: self.inner.semaphore(name, limit)? })
    }

    /// As [`crate::Client::acquire_all`].
    ///
    /// # Errors
    /// [`AcquireAllError`].
    pub fn acquire_all(
        &self,
        requests: impl IntoIterator<Item = (Semaphore, AcquireOptions)>,
    ) -> Result<PermitSet, AcquireAllError> {
        let requests = requests.into_iter().map(|(semaphore, options)| (semaphore.inner, options));
        let permits = self.inner.acquire_all(requests).wait()?.into_permits();
        Ok(PermitSet { permits: permits.into_iter().map(|inner| Permit { inner }).collect() })
    }

    /// As [`crate::Client::list`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn list(&self) -> Result<Vec<String>, AdminError> {
        self.inner.start_list().wait()
    }

    /// As [`crate::Client::adopt`].
    ///
    /// # Errors
    /// [`AdoptError`].
    pub fn adopt(&self, handle: &PermitHandle) -> Result<Permit, AdoptError> {
        Ok(Permit { inner: self.inner.start_adopt(handle).wait()? })
    }

    /// As [`crate::Client::renew`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn renew(&self, handle: &PermitHandle) -> Result<bool, AdminError> {
        self.inner.start_renew(handle).wait()
    }

    /// As [`crate::Client::release`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn release(&self, handle: &PermitHandle) -> Result<bool, AdminError> {
        self.inner.start_release(handle).wait()
    }

    /// As [`crate::Client::close`].
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<(), CloseError> {
        self.inner.start_close().wait()
    }
}

/// A named line with a limit, as [`crate::Semaphore`].
#[derive(Clone)]
pub struct Semaphore {
    inner: AsyncSemaphore,
}

impl Semaphore {
    /// The name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// As [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_with(AcquireOptions::new())
    }

    /// As [`crate::Semaphore::acquire_many`].
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire_many(&self, units: u32) -> Result<Permit, AcquireError> {
        self.acquire_with(AcquireOptions::new().weight(units))
    }

    /// As [`crate::Semaphore::acquire_with`].
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire_with(&self, options: AcquireOptions) -> Result<Permit, AcquireError> {
        Ok(Permit { inner: self.inner.acquire_with(options).wait()? })
    }

    /// An acquisition that another thread can watch and cancel. [`Acquire::wait`] sends the request.
    ///
    /// # Examples
    /// ```
    /// use permits::{AcquireError, AcquireOptions};
    ///
    /// let client = permits::blocking::Client::connect("memory:")?;
    /// let exports = client.semaphore("exports", 1)?;
    /// let permit = exports.acquire()?;
    /// let acquire = exports.start_acquire(AcquireOptions::new());
    /// let canceller = acquire.canceller();
    /// let waiter = std::thread::spawn(move || acquire.wait());
    /// canceller.cancel();
    /// assert_eq!(waiter.join().expect("it does not panic").err(), Some(AcquireError::Cancelled));
    /// # permit.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_acquire(&self, options: AcquireOptions) -> Acquire {
        Acquire { inner: self.inner.acquire_with(options) }
    }

    /// As [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn try_acquire(&self) -> Result<Permit, AcquireError> {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// As [`crate::Semaphore::try_acquire_with`].
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn try_acquire_with(&self, options: AcquireOptions) -> Result<Permit, AcquireError> {
        self.acquire_with(options.no_wait())
    }

    /// As [`crate::Semaphore::declare`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn declare(&self) -> Result<u32, AdminError> {
        self.inner.start_declare().wait()
    }

    /// As [`crate::Semaphore::set_limit`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn set_limit(&self, limit: u32) -> Result<u64, AdminError> {
        self.inner.start_set_limit(limit, None).wait()
    }

    /// As [`crate::Semaphore::set_limit_if_version`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn set_limit_if_version(&self, limit: u32, version: u64) -> Result<u64, AdminError> {
        self.inner.start_set_limit(limit, Some(version)).wait()
    }

    /// As [`crate::Semaphore::adjust_limit`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn adjust_limit(&self, number: i64) -> Result<u32, AdminError> {
        self.inner.start_adjust_limit(number).wait()
    }

    /// As [`crate::Semaphore::unpin`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn unpin(&self) -> Result<u64, AdminError> {
        self.inner.start_unpin().wait()
    }

    /// As [`crate::Semaphore::pause`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn pause(&self) -> Result<(), AdminError> {
        self.inner.start_pause(true).wait()
    }

    /// As [`crate::Semaphore::resume`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn resume(&self) -> Result<(), AdminError> {
        self.inner.start_pause(false).wait()
    }

    /// As [`crate::Semaphore::close_line`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn close_line(&self, reason: &str) -> Result<(), AdminError> {
        self.inner.start_close_line(reason).wait()
    }

    /// As [`crate::Semaphore::open_line`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn open_line(&self) -> Result<(), AdminError> {
        self.inner.start_open_line().wait()
    }

    /// As [`crate::Semaphore::revoke`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn revoke(&self, holder: &str, reason: &str) -> Result<bool, AdminError> {
        self.inner.start_revoke(holder, None, reason).wait()
    }

    /// As [`crate::Semaphore::revoke_cooling`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn revoke_cooling(&self, holder: &str, token: u64) -> Result<bool, AdminError> {
        self.inner.start_revoke(holder, Some(token), "").wait()
    }

    /// As [`crate::Semaphore::delete`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn delete(&self) -> Result<bool, AdminError> {
        self.inner.start_delete(false).wait()
    }

    /// As [`crate::Semaphore::delete_unreadable`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn delete_unreadable(&self) -> Result<bool, AdminError> {
        self.inner.start_delete(true).wait()
    }

    /// As [`crate::Semaphore::inspect`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn inspect(&self) -> Result<Inspection, AdminError> {
        self.inspect_up_to(INSPECT_MAX)
    }

    /// As [`crate::Semaphore::inspect_up_to`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn inspect_up_to(&self, max: u32) -> Result<Inspection, AdminError> {
        self.inner.start_inspect(max).wait()
    }

    /// As [`crate::Semaphore::available`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn available(&self) -> Result<u32, AdminError> {
        self.inner.start_available().wait()
    }
}

/// An acquisition, as [`crate::Acquire`]. Returned by [`Semaphore::start_acquire`].
#[must_use = "nothing is acquired before wait"]
pub struct Acquire {
    inner: AsyncAcquire,
}

impl Acquire {
    /// The holder, as [`crate::Acquire::holder`].
    pub fn holder(&self) -> &str {
        self.inner.holder()
    }

    /// Cancels this acquisition from any thread, at any time.
    pub fn canceller(&self) -> Canceller {
        Canceller { inner: self.inner.canceller() }
    }

    /// Sends the request, and blocks until it is granted, refused or cancelled.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn wait(self) -> Result<Permit, AcquireError> {
        Ok(Permit { inner: self.inner.wait()? })
    }
}

/// Cancels an [`Acquire`]. It keeps no client open.
#[derive(Debug, Clone)]
pub struct Canceller {
    inner: Option<PendingCanceller>,
}

impl Canceller {
    /// Cancels the acquisition: [`Acquire::wait`] returns [`AcquireError::Cancelled`] at once, and the
    /// request leaves the line. If it was granted before, it is not cancelled, and [`Acquire::wait`] returns
    /// the permit.
    pub fn cancel(&self) {
        if let Some(canceller) = &self.inner {
            canceller.cancel();
        }
    }
}

/// Some units of a semaphore, as [`crate::Permit`].
#[must_use = "a permit that is dropped is released"]
pub struct Permit {
    inner: AsyncPermit,
}

impl Permit {
    /// The name of the semaphore.
    pub fn semaphore(&self) -> &str {
        self.inner.semaphore()
    }

    /// The holder.
    pub fn holder(&self) -> &str {
        self.inner.holder()
    }

    /// The number of units.
    pub fn weight(&self) -> u32 {
        self.inner.weight()
    }

    /// The lease.
    pub fn lease(&self) -> Duration {
        self.inner.lease()
    }

    /// As [`crate::Permit::token`].
    pub fn token(&self) -> u64 {
        self.inner.token()
    }

    /// As [`crate::Permit::slot`].
    pub fn slot(&self) -> u32 {
        self.inner.slot()
    }

    /// As [`crate::Permit::is_held`].
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// As [`crate::Permit::remaining`].
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// As [`crate::Permit::status`].
    pub fn status(&self) -> PermitStatus {
        self.inner.status()
    }

    /// Blocks until it is lost, or `limit` has passed. `None` if it is still held then.
    pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
        self.inner.lost_within(limit)
    }

    /// As [`crate::Permit::release_part`].
    ///
    /// # Errors
    /// [`RenewError`].
    pub fn release_part(&self, units: u32) -> Result<(), RenewError> {
        self.inner.start_release_part(units).wait()
    }

    /// As [`crate::Permit::set_lease`].
    ///
    /// # Errors
    /// [`RenewError`].
    pub fn set_lease(&self, lease: Duration) -> Result<(), RenewError> {
        self.inner.start_set_lease(lease).wait()
    }

    /// As [`crate::Permit::auto_renew`].
    pub fn auto_renew(&self, renew: bool) {
        self.inner.auto_renew(renew);
    }

    /// As [`crate::Permit::renew`].
    ///
    /// # Errors
    /// [`RenewError`].
    pub fn renew(&self) -> Result<(), RenewError> {
        self.inner.start_renewal().wait()
    }

    /// As [`crate::Permit::release`].
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.inner.start_release()?.wait()
    }

    /// As [`crate::Permit::hand_over`].
    ///
    /// # Errors
    /// [`RenewError`].
    pub fn hand_over(self) -> Result<PermitHandle, RenewError> {
        self.renew()?;
        Ok(self.inner.into_handle())
    }
}

/// Permits of several semaphores, as [`crate::PermitSet`].
#[derive(Debug)]
#[must_use = "permits that are dropped are released"]
pub struct PermitSet {
    permits: Vec<Permit>,
}

impl PermitSet {
    /// The permits, in the order in which they were acquired.
    pub fn permits(&self) -> &[Permit] {
        &self.permits
    }

    /// The permit of this semaphore.
    pub fn get(&self, semaphore: &str) -> Option<&Permit> {
        self.permits.iter().find(|permit| permit.semaphore() == semaphore)
    }

    /// As [`crate::PermitSet::is_held`].
    pub fn is_held(&self) -> bool {
        self.permits.iter().all(Permit::is_held)
    }

    /// As [`crate::PermitSet::remaining`].
    pub fn remaining(&self) -> Duration {
        self.permits.iter().map(Permit::remaining).min().unwrap_or(Duration::MAX)
    }

    /// Blocks until one is lost, or `limit` has passed. `None` if all are still held then.
    pub fn lost_within(&self, limit: Duration) -> Option<(&Permit, Lost)> {
        let lost = first_lost(self.permits.iter().map(|permit| &permit.inner));
        block_on(lost, Some(limit)).map(|(index, lost)| (&self.permits[index], lost))
    }

    /// As [`crate::PermitSet::renew`].
    ///
    /// # Errors
    /// [`RenewError`].
    pub fn renew(&self) -> Result<(), RenewError> {
        let renewals = futures_util::future::join_all(self.permits.iter().map(|permit| permit.inner.renew()));
        block_on(renewals, None).expect("it has no time limit").into_iter().collect()
    }

    /// As [`crate::PermitSet::release`].
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn release(self) -> Result<(), ReleaseError> {
        let permits = self.permits.into_iter().map(|permit| permit.inner).collect();
        AsyncPermitSet::new(permits).wait_for_release()
    }

    /// The permits, each on its own from now on.
    pub fn into_permits(self) -> Vec<Permit> {
        self.permits
    }
}
