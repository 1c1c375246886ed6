//! [`Client`]: connecting, and what concerns several semaphores.

use std::task::{Context, Poll, ready};
use std::{future::Future, pin::Pin};

use permits::{AcquireAll, AcquireAllError, AcquireOptions, ConnectError, Limit, PermitHandle, Recovery};
use permits_bindings::diagnosis;
use pyo3::prelude::*;

use crate::call::{Call, Outcome, Work, outcome};
use crate::convert::{self, count, duration};
use crate::failure::{Failure, Raise as _};
use crate::permit::Permit;
use crate::semaphore::Semaphore;

/// Settings from Python. What is `None` has the default of the library.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    prefix: Option<String>,
    label: Option<String>,
    lease: Option<f64>,
    keep: Option<f64>,
    recovery: Option<String>,
    max_waiters: Option<i64>,
    replicas: Option<i64>,
    store_timeout: Option<f64>,
}

impl Settings {
    fn builder(self, url: String) -> PyResult<permits::ClientBuilder> {
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
                    return Err(Failure::invalid(fault).raised());
                }
            });
        }
        if let Some(max) = self.max_waiters {
            builder = builder.max_waiters(count("max_waiters", 0, max)?);
        }
        if let Some(replicas) = self.replicas {
            builder = builder.replicas(count("replicas", 0, replicas)?);
        }
        if let Some(timeout) = self.store_timeout {
            builder = builder.store_timeout(duration("store_timeout", timeout)?);
        }
        Ok(builder)
    }
}

/// Connects to a store. `program` is the name of the program that the interpreter runs.
#[pyfunction]
pub(crate) fn connect(url: String, settings: Settings, program: String) -> PyResult<Call> {
    let builder = settings.builder(url)?.program(program);
    Ok(Call::new(async move {
        let store = builder.address()?;
        Ok::<_, ConnectError>(Client { store, inner: builder.connect().await? })
    }))
}

/// Diagnoses a store.
#[pyfunction]
pub(crate) fn diagnose(url: String, settings: Settings) -> PyResult<Call> {
    let builder = settings.builder(url)?;
    Ok(Call::new(async move { builder.diagnose().await.map(|found| diagnosis(&found)) }))
}

/// A session with a store.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Client {
    /// The address of the store, without a password.
    #[pyo3(get)]
    store: String,
    inner: permits::Client,
}

#[pymethods]
impl Client {
    /// The semaphore of this name. Without a limit: the stored one. With `exactly`, no other limit is
    /// accepted. Without `keep`, it keeps permits as the client does.
    fn semaphore(
        &self,
        name: &str,
        limit: Option<i64>,
        exactly: bool,
        keep: Option<f64>,
    ) -> PyResult<Semaphore> {
        let limit = match limit {
            None if exactly => return Err(Failure::invalid("exactly=True needs a limit".into()).raised()),
            None => Limit::Stored,
            Some(limit) if exactly => Limit::Exactly(convert::limit(limit)?),
            Some(limit) => Limit::Declared(convert::limit(limit)?),
        };
        let keep = keep.map(|keep| duration("keep", keep)).transpose()?;
        let semaphore = self.inner.semaphore(name, limit).map_err(|error| Failure::from(error).raised())?;
        Ok(Semaphore::new(match keep {
            Some(idle) => semaphore.keep(idle),
            None => semaphore,
        }))
    }

    /// Permits of several semaphores, all or none.
    fn acquire_all(&self, requests: Vec<(Py<Semaphore>, Option<String>)>) -> PyResult<Call> {
        let request = |(semaphore, options): (Py<Semaphore>, Option<String>)| {
            Ok((semaphore.get().inner.clone(), convert::request(options.as_deref())?))
        };
        let requests = requests.into_iter().map(request).collect::<PyResult<Vec<(_, AcquireOptions)>>>()?;
        Ok(Call::of(Several(self.inner.acquire_all(requests))))
    }

    fn list(&self) -> Call {
        let client = self.inner.clone();
        Call::new(async move { client.list().await })
    }

    /// Takes over the permit of a handle.
    fn adopt(&self, handle: &str) -> PyResult<Call> {
        let (client, handle) = (self.inner.clone(), parsed(handle)?);
        Ok(Call::new(async move { client.adopt(&handle).await.map(Permit::new) }))
    }

    /// Renews the permit of a handle, which stays valid.
    fn renew(&self, handle: &str) -> PyResult<Call> {
        let (client, handle) = (self.inner.clone(), parsed(handle)?);
        Ok(Call::new(async move { client.renew(&handle).await }))
    }

    /// Releases the permit of a handle.
    fn release(&self, handle: &str) -> PyResult<Call> {
        let (client, handle) = (self.inner.clone(), parsed(handle)?);
        Ok(Call::new(async move { client.release(&handle).await }))
    }

    fn close(&self) -> Call {
        let client = self.inner.clone();
        Call::new(async move { client.close().await })
    }
}

fn parsed(handle: &str) -> PyResult<PermitHandle> {
    handle.parse().map_err(|error: permits::InvalidInput| Failure::from(error).raised())
}

/// An acquisition of permits of several semaphores.
struct Several(AcquireAll);

impl Work for Several {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let set = ready!(Pin::new(&mut self.0).poll(context));
        let permits = set.map(|set| set.into_permits().into_iter().map(Permit::new).collect::<Vec<_>>());
        Poll::Ready(outcome::<_, AcquireAllError>(permits))
    }

    fn position(&self) -> Option<u64> {
        self.0.position()
    }

    fn semaphore(&self) -> Option<&str> {
        self.0.semaphore()
    }
}
