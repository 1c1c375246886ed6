//! [`Semaphore`]: acquisitions and administration.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use permits::{Acquire, AdminError};
use pyo3::prelude::*;

use crate::call::{Call, Outcome, Work, outcome};
use crate::convert::{self, count, duration};
use crate::permit::Permit;

/// A named line with a limit.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Semaphore {
    pub(crate) inner: permits::Semaphore,
}

impl Semaphore {
    pub(crate) fn new(inner: permits::Semaphore) -> Self {
        Self { inner }
    }

    /// The call of an operation on the semaphore.
    fn call<T, F>(&self, operation: impl FnOnce(permits::Semaphore) -> F) -> Call
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
        F: Future<Output = Result<T, AdminError>> + Send + 'static,
    {
        Call::new(operation(self.inner.clone()))
    }
}

#[pymethods]
impl Semaphore {
    /// An acquisition, and its holder.
    fn acquire(&self, options: Option<&str>) -> PyResult<(Call, String)> {
        let acquire = self.inner.acquire_with(convert::request(options)?);
        let holder = acquire.holder().to_owned();
        Ok((Call::of(One(acquire)), holder))
    }

    fn declare(&self) -> Call {
        self.call(|semaphore| async move { semaphore.declare().await })
    }

    fn set_limit(&self, limit: i64, version: Option<u64>) -> PyResult<Call> {
        let limit = convert::limit(limit)?;
        Ok(self.call(move |semaphore| async move {
            match version {
                None => semaphore.set_limit(limit).await,
                Some(version) => semaphore.set_limit_if_version(limit, version).await,
            }
        }))
    }

    fn adjust_limit(&self, number: i64) -> Call {
        self.call(move |semaphore| async move { semaphore.adjust_limit(number).await })
    }

    fn unpin(&self) -> Call {
        self.call(|semaphore| async move { semaphore.unpin().await })
    }

    fn pause(&self, seconds: Option<f64>, reason: String) -> PyResult<Call> {
        let time = seconds.map(|seconds| duration("the pause", seconds)).transpose()?;
        Ok(self.call(move |semaphore| async move {
            match time {
                Some(time) => semaphore.pause_for(time, &reason).await,
                None => semaphore.pause(&reason).await,
            }
        }))
    }

    fn resume(&self) -> Call {
        self.call(|semaphore| async move { semaphore.resume().await })
    }

    fn close_line(&self, reason: String) -> Call {
        self.call(|semaphore| async move { semaphore.close_line(&reason).await })
    }

    fn open_line(&self) -> Call {
        self.call(|semaphore| async move { semaphore.open_line().await })
    }

    fn revoke(&self, holder: String, reason: String) -> Call {
        self.call(|semaphore| async move { semaphore.revoke(&holder, &reason).await })
    }

    fn revoke_cooling(&self, holder: String, token: u64) -> Call {
        self.call(move |semaphore| async move { semaphore.revoke_cooling(&holder, token).await })
    }

    fn delete(&self, unreadable: bool) -> Call {
        self.call(move |semaphore| async move {
            if unreadable { semaphore.delete_unreadable().await } else { semaphore.delete().await }
        })
    }

    fn inspect(&self, max: i64) -> PyResult<Call> {
        let max = count("max", 0, max)?;
        Ok(self.call(move |semaphore| async move {
            semaphore.inspect_up_to(max).await.map(|found| convert::inspection(&found))
        }))
    }

    fn available(&self) -> Call {
        self.call(|semaphore| async move { semaphore.available().await })
    }
}

/// An acquisition of one permit.
struct One(Acquire);

impl Work for One {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        Poll::Ready(outcome(ready!(Pin::new(&mut self.0).poll(context)).map(Permit::new)))
    }

    fn position(&self) -> Option<u64> {
        self.0.position()
    }
}
