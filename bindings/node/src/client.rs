//! [`Client`]: connecting, and what concerns several semaphores.

use napi::bindgen_prelude::{ClassInstance, Result};
use napi_derive::napi;
use permits::{AcquireAllError, AdoptError, ConnectError, Limit, Recovery};
use permits_bindings::diagnosis;

use crate::call::Call;
use crate::convert::{self, count, duration};
use crate::failure::{Failure, thrown};
use crate::permit::Permit;
use crate::semaphore::Semaphore;

/// Settings of a client. One that is absent has the default of the library.
#[napi(object, object_to_js = false)]
pub(crate) struct Settings {
    /// The first part of every key; `permits` unless set.
    pub prefix: Option<String>,
    /// The label of acquisitions that have none of their own, and the author of this client's changes. Unless
    /// set, the label is the name of the program, and the author its host name and process id. An empty label
    /// is none.
    pub label: Option<String>,
    /// The time for which a permit is valid without renewal, in milliseconds: 100 ms to 1 day, 15,000 unless
    /// set.
    pub lease: Option<f64>,
    /// The time for which semaphores keep permits that were released, in milliseconds; 0 unless set.
    pub keep: Option<f64>,
    /// The way in which the store recovers after a restart that may have lost state; `"interval"` unless the
    /// URL says.
    #[napi(ts_type = "'off' | 'interval' | 'strict'")]
    pub recovery: Option<String>,
    /// The longest line of a semaphore; 100,000 unless set, and 10,000 at most with `local:`.
    pub max_waiters: Option<f64>,
    /// The number of replicas that must have a grant before it is reported; 0 unless set.
    pub replicas: Option<f64>,
    /// The time for which the store may be unreachable before operations fail, in milliseconds; 30,000 unless
    /// set.
    pub store_timeout: Option<f64>,
}

impl Settings {
    fn builder(self, url: String) -> Result<permits::ClientBuilder> {
        let mut builder = permits::Client::builder(url);
        if let Some(prefix) = self.prefix {
            builder = builder.prefix(prefix);
        }
        if let Some(label) = self.label {
            builder = builder.label(label);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(duration("the lease", lease)?);
        }
        if let Some(keep) = self.keep {
            builder = builder.keep(duration("keep", keep)?);
        }
        if let Some(recovery) = self.recovery {
            builder = builder.recovery(match recovery.as_str() {
                "off" => Recovery::Off,
                "interval" => Recovery::Interval,
                "strict" => Recovery::Strict,
                _ => {
                    let fault = format!("recovery is \"off\", \"interval\" or \"strict\", not {recovery:?}");
                    return Err(thrown(Failure::invalid(fault)));
                }
            });
        }
        if let Some(max) = self.max_waiters {
            builder = builder.max_waiters(count("maxWaiters", 0, max)?);
        }
        if let Some(replicas) = self.replicas {
            builder = builder.replicas(count("replicas", 0, replicas)?);
        }
        if let Some(timeout) = self.store_timeout {
            builder = builder.store_timeout(duration("storeTimeout", timeout)?);
        }
        Ok(builder)
    }
}

/// Connects to a store. `program` is the name of the program that the interpreter runs.
#[napi]
pub(crate) fn connect(url: String, settings: Settings, program: String) -> Result<Call> {
    let builder = settings.builder(url)?.program(program);
    Ok(Call::new(async move {
        let store = builder.address()?;
        Ok::<_, ConnectError>(Client { store, inner: builder.connect().await? })
    }))
}

/// Diagnoses a store.
#[napi]
pub(crate) fn diagnose(url: String, settings: Settings) -> Result<Call> {
    let builder = settings.builder(url)?;
    Ok(Call::new(async move { Ok::<_, ConnectError>(diagnosis(&builder.diagnose().await?)) }))
}

/// A session with a store.
#[napi]
pub struct Client {
    /// The address of the store, without a password.
    #[napi(readonly)]
    pub store: String,
    inner: permits::Client,
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
        let limit = match limit {
            None if exactly => return Err(thrown(Failure::invalid("exactly needs a limit".into()))),
            None => Limit::Stored,
            Some(limit) if exactly => Limit::Exactly(convert::limit(limit)?),
            Some(limit) => Limit::Declared(convert::limit(limit)?),
        };
        let keep = keep.map(|keep| duration("keep", keep)).transpose()?;
        let semaphore = self.inner.semaphore(name, limit).map_err(thrown)?;
        Ok(Semaphore::new(match keep {
            Some(idle) => semaphore.keep(idle),
            None => semaphore,
        }))
    }

    /// Permits of several semaphores, all or none, each with the options at its index.
    #[napi]
    pub fn acquire_all(
        &self,
        semaphores: Vec<ClassInstance<'_, Semaphore>>,
        options: Vec<Option<String>>,
    ) -> Result<Call> {
        let semaphores = semaphores.iter().map(|semaphore| semaphore.inner.clone());
        let requests = semaphores
            .zip(options)
            .map(|(semaphore, options)| Ok((semaphore, convert::request(options.as_deref())?)))
            .collect::<Result<Vec<_>>>()?;
        let acquire = self.inner.acquire_all(requests);
        Ok(Call::new(async move {
            let permits = acquire.await?.into_permits();
            Ok::<_, AcquireAllError>(permits.into_iter().map(Permit::new).collect::<Vec<_>>())
        }))
    }

    /// The names of all semaphores.
    #[napi]
    pub fn list(&self) -> Call {
        let client = self.inner.clone();
        Call::new(async move { client.list().await })
    }

    /// Takes over the permit of a handle.
    #[napi]
    pub fn adopt(&self, handle: String) -> Result<Call> {
        let (client, handle) = (self.inner.clone(), convert::handle(&handle)?);
        Ok(Call::new(async move { Ok::<_, AdoptError>(Permit::new(client.adopt(&handle).await?)) }))
    }

    /// Renews the permit of a handle, which stays valid.
    #[napi]
    pub fn renew(&self, handle: String) -> Result<Call> {
        let (client, handle) = (self.inner.clone(), convert::handle(&handle)?);
        Ok(Call::new(async move { client.renew(&handle).await }))
    }

    /// Releases the permit of a handle.
    #[napi]
    pub fn release(&self, handle: String) -> Result<Call> {
        let (client, handle) = (self.inner.clone(), convert::handle(&handle)?);
        Ok(Call::new(async move { client.release(&handle).await }))
    }

    /// Releases everything and ends the session.
    #[napi]
    pub fn close(&self) -> Call {
        let client = self.inner.clone();
        Call::new(async move { client.close().await })
    }
}
