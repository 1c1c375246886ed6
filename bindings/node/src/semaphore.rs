//! [`Semaphore`]: acquisitions and administration.

use std::future::Future;

use napi::bindgen_prelude::{Result, ToNapiValue};
use napi_derive::napi;
use permits::{AcquireError, AcquireOptions, AdminError, check};

use crate::call::Call;
use crate::convert::{self, count, duration, whole};
use crate::failure::thrown;
use crate::permit::Permit;

/// Options of an acquisition. One that is absent has the default of the library.
#[napi(object, object_to_js = false)]
pub struct Options {
    /// The number of units; 1 unless set.
    pub weight: Option<f64>,
    /// The longest wait, in milliseconds; without end unless set.
    pub timeout: Option<f64>,
    /// The name of this acquisition, which no two permits of a semaphore share; a unique one unless set.
    pub holder: Option<String>,
    /// A note for operators, shown beside the holder; that of the client unless set.
    pub label: Option<String>,
    /// The lease, in milliseconds; that of the client unless set.
    pub lease: Option<f64>,
    /// False if only `renew` renews the permit.
    pub auto_renew: Option<bool>,
    /// The time for which the units count from the grant on, even if they are released before, in
    /// milliseconds.
    pub at_least: Option<f64>,
    /// The lane: requests of one lane are granted in order, and lanes take turns.
    pub lane: Option<String>,
    /// The share of the lane: 1 to 1,000, 1 unless set.
    pub share: Option<f64>,
    /// The longest time for which it is held, in milliseconds; without limit unless set.
    pub max_hold: Option<f64>,
    /// True to take the place in line of an earlier request of the same holder.
    pub supersede: Option<bool>,
}

impl Options {
    pub(crate) fn into_options(self) -> Result<AcquireOptions> {
        let mut options = AcquireOptions::new();
        if let Some(weight) = self.weight {
            options = options.weight(count("the weight", 1, weight)?);
        }
        if let Some(timeout) = self.timeout.filter(|timeout| *timeout != f64::INFINITY) {
            options = options.timeout(duration("the timeout", timeout)?);
        }
        if let Some(holder) = self.holder {
            options = options.holder(holder);
        }
        if let Some(label) = self.label {
            options = options.label(label);
        }
        if let Some(lease) = self.lease {
            options = options.lease(duration("the lease", lease)?);
        }
        if let Some(renew) = self.auto_renew {
            options = options.auto_renew(renew);
        }
        if let Some(time) = self.at_least {
            options = options.at_least(duration("atLeast", time)?);
        }
        if let Some(lane) = self.lane {
            check::lane(&lane).map_err(thrown)?;
            options = options.lane(lane);
        }
        if let Some(share) = self.share {
            options = options.share(convert::share(share)?);
        }
        if let Some(time) = self.max_hold {
            options = options.max_hold(duration("maxHold", time)?);
        }
        if self.supersede == Some(true) {
            options = options.supersede();
        }
        Ok(options)
    }
}

/// A named line with a limit.
#[napi]
pub struct Semaphore {
    pub(crate) inner: permits::Semaphore,
}

impl Semaphore {
    pub(crate) fn new(inner: permits::Semaphore) -> Self {
        Self { inner }
    }

    /// The call of an operation on the semaphore.
    fn call<T, F>(&self, operation: impl FnOnce(permits::Semaphore) -> F) -> Call
    where
        T: ToNapiValue + 'static,
        F: Future<Output = std::result::Result<T, AdminError>> + 'static,
    {
        Call::new(operation(self.inner.clone()))
    }
}

#[napi]
impl Semaphore {
    /// Acquires a permit. With `now`, it does not wait.
    #[napi]
    pub fn acquire(&self, options: Options, now: bool) -> Result<Call> {
        let options = options.into_options()?;
        let options = if now { options.no_wait() } else { options };
        let acquire = self.inner.acquire_with(options);
        Ok(Call::new(async move { Ok::<_, AcquireError>(Permit::new(acquire.await?)) }))
    }

    #[napi]
    pub fn declare(&self) -> Call {
        self.call(|semaphore| async move { semaphore.declare().await })
    }

    #[napi]
    pub fn set_limit(&self, limit: f64, version: Option<f64>) -> Result<Call> {
        let limit = convert::limit(limit)?;
        let version = version.map(|version| whole("the version", 0.0, version)).transpose()?;
        Ok(self.call(move |semaphore| async move {
            let version = match version {
                None => semaphore.set_limit(limit).await?,
                Some(version) => semaphore.set_limit_if_version(limit, version.unsigned_abs()).await?,
            };
            Ok(version as i64)
        }))
    }

    #[napi]
    pub fn adjust_limit(&self, number: f64) -> Result<Call> {
        let number = whole("the number", -2f64.powi(53), number)?;
        Ok(self.call(move |semaphore| async move { semaphore.adjust_limit(number).await }))
    }

    #[napi]
    pub fn unpin(&self) -> Call {
        self.call(|semaphore| async move { Ok(semaphore.unpin().await? as i64) })
    }

    #[napi]
    pub fn pause(&self, ms: Option<f64>, reason: String) -> Result<Call> {
        let time = ms.map(|ms| duration("the pause", ms)).transpose()?;
        Ok(self.call(move |semaphore| async move {
            match time {
                Some(time) => semaphore.pause_for(time, &reason).await,
                None => semaphore.pause(&reason).await,
            }
        }))
    }

    #[napi]
    pub fn resume(&self) -> Call {
        self.call(|semaphore| async move { semaphore.resume().await })
    }

    #[napi]
    pub fn close_line(&self, reason: String) -> Call {
        self.call(|semaphore| async move { semaphore.close_line(&reason).await })
    }

    #[napi]
    pub fn open_line(&self) -> Call {
        self.call(|semaphore| async move { semaphore.open_line().await })
    }

    #[napi]
    pub fn revoke(&self, holder: String, reason: String) -> Call {
        self.call(|semaphore| async move { semaphore.revoke(&holder, &reason).await })
    }

    #[napi]
    pub fn revoke_cooling(&self, holder: String, token: f64) -> Result<Call> {
        let token = whole("the token", 0.0, token)?.unsigned_abs();
        Ok(self.call(move |semaphore| async move { semaphore.revoke_cooling(&holder, token).await }))
    }

    #[napi]
    pub fn delete(&self, unreadable: bool) -> Call {
        self.call(move |semaphore| async move {
            if unreadable { semaphore.delete_unreadable().await } else { semaphore.delete().await }
        })
    }

    /// The state, as JSON.
    #[napi]
    pub fn inspect(&self, max: f64) -> Result<Call> {
        let max = count("max", 0, max)?;
        Ok(self.call(move |semaphore| async move {
            let found = semaphore.inspect_up_to(max).await?;
            Ok(serde_json::to_string(&found).expect("numbers, texts and lists of them are JSON"))
        }))
    }

    #[napi]
    pub fn available(&self) -> Call {
        self.call(|semaphore| async move { semaphore.available().await })
    }
}
