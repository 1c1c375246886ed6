//! The classes of the native half: their methods make calls.

use permits_bindings::{Held, Language};
use pyo3::prelude::*;

use crate::call::Call;
use crate::failure::{Raised, exception};

type Result<T> = std::result::Result<T, Raised>;

/// Connects to a store. The settings are JSON, and `program` is the name of the program that the interpreter
/// runs.
#[pyfunction]
pub(crate) fn connect(url: String, settings: &str, program: String) -> Result<Call> {
    Ok(Call(Language::Python.connect(url, settings, program)?))
}

/// Diagnoses a store: JSON.
#[pyfunction]
pub(crate) fn diagnose(url: String, settings: &str) -> Result<Call> {
    Ok(Call(Language::Python.diagnose(url, settings)?))
}

/// A session with a store.
#[pyclass(frozen, weakref, module = "permits._permits")]
pub(crate) struct Client(pub(crate) permits_bindings::Client);

#[pymethods]
impl Client {
    #[getter]
    fn store(&self) -> &str {
        &self.0.store
    }

    /// The semaphore of this name, with a limit and options as JSON.
    fn semaphore(&self, name: &str, limit: &str, options: &str) -> Result<Semaphore> {
        Ok(Semaphore(self.0.semaphore(name, limit, options)?))
    }

    /// Permits of several semaphores, all or none. All options are JSON.
    fn acquire_all(
        &self,
        requests: Vec<(Py<Semaphore>, Option<String>)>,
        common: Option<&str>,
    ) -> Result<Call> {
        let requests = requests.iter().map(|(semaphore, options)| (&semaphore.get().0, options.clone()));
        Ok(Call(self.0.acquire_all(requests, common)?))
    }

    #[pyo3(signature = (operation, handle=""))]
    fn call(&self, operation: &str, handle: &str) -> Result<Call> {
        Ok(Call(self.0.call(operation, handle)?))
    }
}

/// A named line with a limit.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Semaphore(permits_bindings::Semaphore);

#[pymethods]
impl Semaphore {
    /// An acquisition, and its holder.
    fn acquire(&self, options: Option<&str>) -> Result<(Call, String)> {
        let (call, holder) = self.0.acquire(options)?;
        Ok((Call(call), holder))
    }

    /// An operation, whose argument is JSON.
    #[pyo3(signature = (operation, argument=""))]
    fn call(&self, operation: &str, argument: &str) -> Result<Call> {
        Ok(Call(self.0.call(operation, argument)?))
    }
}

/// Some units of a semaphore, held for a lease.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Permit(pub(crate) Held);

#[pymethods]
impl Permit {
    #[getter]
    fn semaphore(&self) -> &str {
        &self.0.semaphore
    }

    #[getter]
    fn holder(&self) -> &str {
        &self.0.holder
    }

    #[getter]
    fn token(&self) -> u64 {
        self.0.token
    }

    #[getter]
    fn slot(&self) -> u32 {
        self.0.slot
    }

    #[getter]
    fn weight(&self) -> u32 {
        self.0.weight()
    }

    #[getter]
    fn lease(&self) -> f64 {
        self.0.lease().as_secs_f64()
    }

    fn remaining(&self) -> f64 {
        self.0.remaining().as_secs_f64()
    }

    fn status(&self) -> &'static str {
        self.0.status()
    }

    fn lost(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        exception(self.0.lost(), py)
    }

    /// Raises an exception unless it is held.
    fn check(&self) -> Result<()> {
        Ok(self.0.check()?)
    }

    /// An operation, with a number of units or seconds in JSON.
    #[pyo3(signature = (operation, number=""))]
    fn call(&self, operation: &str, number: &str) -> Result<Call> {
        Ok(Call(self.0.call(Language::Python, operation, number)?))
    }

    fn count(&self, units: &str) -> Result<()> {
        Ok(self.0.count(units)?)
    }

    fn auto_renew(&self, renew: bool) {
        self.0.auto_renew(renew);
    }

    fn forget(&self) {
        self.0.forget();
    }
}
