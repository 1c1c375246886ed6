//! [`Permit`]: units that are held.

use permits::Lost;
use permits_bindings::{Held, HeldError};
use pyo3::prelude::*;

use crate::call::Call;
use crate::convert::{count, duration};
use crate::failure::{Failure, Raise as _};

/// Some units of a semaphore, held for a lease.
#[pyclass(frozen, module = "permits._permits")]
pub(crate) struct Permit {
    #[pyo3(get)]
    semaphore: String,
    #[pyo3(get)]
    holder: String,
    #[pyo3(get)]
    token: u64,
    #[pyo3(get)]
    slot: u32,
    held: Held,
}

/// A loss, as an exception that is returned.
struct Loss(Option<Lost>);

impl<'py> IntoPyObject<'py> for Loss {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let exception = self.0.map(|lost| Failure::from(lost).into_py(py).into_value(py));
        Ok(exception
            .map_or_else(|| py.None().into_bound(py), |exception| exception.into_bound(py).into_any()))
    }
}

impl Permit {
    pub(crate) fn new(permit: permits::Permit) -> Self {
        Self {
            semaphore: permit.semaphore().to_owned(),
            holder: permit.holder().to_owned(),
            token: permit.token(),
            slot: permit.slot(),
            held: Held::new(permit),
        }
    }
}

#[pymethods]
impl Permit {
    #[getter]
    fn weight(&self) -> u32 {
        self.held.weight()
    }

    #[getter]
    fn lease(&self) -> f64 {
        self.held.lease().as_secs_f64()
    }

    fn remaining(&self) -> f64 {
        self.held.remaining().as_secs_f64()
    }

    /// `held`, `unsure`, `lost`, or `released`.
    fn status(&self) -> &'static str {
        self.held.status()
    }

    /// The loss, if it is lost.
    fn lost<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Loss(self.held.lost()).into_pyobject(py)
    }

    /// Waits until it is lost: the loss; or released: `None`.
    fn wait_lost(&self) -> Call {
        let lost = self.held.wait_lost();
        Call::new(async move { Ok::<_, HeldError>(Loss(lost.await)) })
    }

    fn renew(&self) -> Call {
        Call::new(self.held.operation(|permit| async move { permit.renew().await }))
    }

    fn release_part(&self, units: i64) -> PyResult<Call> {
        let units = count("the number of units", 1, units)?;
        Ok(Call::new(self.held.operation(move |permit| async move { permit.release_part(units).await })))
    }

    fn count(&self, units: i64) -> PyResult<()> {
        let units = count("the number of units", 0, units)?;
        self.held.count(units).map_err(|invalid| Failure::from(invalid).raised())
    }

    fn set_lease(&self, seconds: f64) -> PyResult<Call> {
        let lease = duration("the lease", seconds)?;
        Ok(Call::new(self.held.operation(move |permit| async move { permit.set_lease(lease).await })))
    }

    fn auto_renew(&self, renew: bool) {
        self.held.auto_renew(renew);
    }

    /// Releases it. Without effect if it was released before.
    fn release(&self) -> Call {
        Call::new(self.held.release())
    }

    /// Releases it without a wait for the confirmation.
    fn forget(&self) {
        self.held.forget();
    }

    /// Makes a handle of it, for another process.
    fn hand_over(&self) -> Call {
        Call::new(self.held.hand_over())
    }
}
