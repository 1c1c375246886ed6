//! [`Permit`]: units that are held.
//!
//! Operations of one permit run one after the other, each with the permit to itself: a release that is asked
//! for while a renewal is in flight follows it. A call that is dropped early releases the permit
//! nevertheless, if it was to release it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use permits::{CancellationToken, Lost, PermitStatus, ReleaseError, RenewError};
use pyo3::prelude::*;

use crate::call::Call;
use crate::convert::{count, duration};
use crate::failure::Failure;

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
    state: Mutex<State>,
    /// The turn of an operation.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Cancelled when it is released or handed over.
    ended: CancellationToken,
    /// The loss that its end found.
    lost: Arc<OnceLock<Lost>>,
}

enum State {
    Held(Arc<permits::Permit>),
    /// Released or handed over, with its last weight and lease.
    Ended(u32, Duration),
}

/// The error of an operation on a permit.
enum PermitError {
    Released,
    Renew(RenewError),
}

impl From<PermitError> for Failure {
    fn from(error: PermitError) -> Self {
        match error {
            PermitError::Released => Self::released(),
            PermitError::Renew(error) => error.into(),
        }
    }
}

/// The loss of a permit, if it is lost.
fn loss(permit: &permits::Permit) -> Option<Lost> {
    if permit.is_held() {
        return None;
    }
    match pin!(permit.lost()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(lost) => Some(lost),
        Poll::Pending => None,
    }
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
            state: Mutex::new(State::Held(Arc::new(permit))),
            turn: Arc::default(),
            ended: CancellationToken::new(),
            lost: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it here. The caller releases what is returned, or hands it over. `None` if it has ended before.
    fn end(&self) -> Option<Arc<permits::Permit>> {
        let mut state = self.lock();
        let State::Held(permit) = &*state else { return None };
        let ended = State::Ended(permit.weight(), permit.lease());
        let State::Held(permit) = std::mem::replace(&mut *state, ended) else { return None };
        // For the calls that wait for the loss and are polled after the permit is gone.
        if let Some(lost) = loss(&permit) {
            let _ = self.lost.set(lost);
        }
        self.ended.cancel();
        Some(permit)
    }

    /// The permit for an operation, which has it as long as it has the turn.
    fn weak(&self) -> Weak<permits::Permit> {
        match &*self.lock() {
            State::Held(permit) => Arc::downgrade(permit),
            State::Ended(..) => Weak::new(),
        }
    }

    /// The call of an operation that leaves the permit held.
    fn operation<F>(&self, operation: impl FnOnce(Arc<permits::Permit>) -> F + Send + 'static) -> Call
    where
        F: Future<Output = Result<(), RenewError>> + Send + 'static,
    {
        let (turn, permit) = (self.turn.clone(), self.weak());
        Call::new(async move {
            let _turn = turn.lock_owned().await;
            let permit = permit.upgrade().ok_or(PermitError::Released)?;
            operation(permit).await.map_err(PermitError::Renew)
        })
    }
}

#[pymethods]
impl Permit {
    #[getter]
    fn weight(&self) -> u32 {
        match &*self.lock() {
            State::Held(permit) => permit.weight(),
            State::Ended(weight, _) => *weight,
        }
    }

    #[getter]
    fn lease(&self) -> f64 {
        match &*self.lock() {
            State::Held(permit) => permit.lease(),
            State::Ended(_, lease) => *lease,
        }
        .as_secs_f64()
    }

    fn remaining(&self) -> f64 {
        match &*self.lock() {
            State::Held(permit) => permit.remaining().as_secs_f64(),
            State::Ended(..) => 0.0,
        }
    }

    /// `held`, `unsure`, `lost`, or `released`.
    fn status(&self) -> &'static str {
        match &*self.lock() {
            State::Held(permit) => match permit.status() {
                PermitStatus::Held => "held",
                PermitStatus::Unsure => "unsure",
                _ => "lost",
            },
            State::Ended(..) => "released",
        }
    }

    /// The loss, if it is lost.
    fn lost<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let lost = match &*self.lock() {
            State::Held(permit) => loss(permit),
            State::Ended(..) => self.lost.get().cloned(),
        };
        Loss(lost).into_pyobject(py)
    }

    /// Waits until it is lost: the loss; or released: `None`.
    fn wait_lost(&self) -> Call {
        let (permit, ended, found) = (self.weak(), self.ended.clone(), self.lost.clone());
        let signal = match &*self.lock() {
            State::Held(permit) => permit.cancellation_token(),
            State::Ended(..) => CancellationToken::new(),
        };
        let turn = self.turn.clone();
        Call::new(async move {
            tokio::select! {
                biased;
                () = signal.cancelled() => {}
                () = ended.cancelled() => return Ok::<_, PermitError>(Loss(found.get().cloned())),
            }
            let _turn = turn.lock_owned().await;
            let Some(permit) = permit.upgrade() else { return Ok(Loss(found.get().cloned())) };
            let mut lost = pin!(permit.lost());
            let lost = poll_fn(|context| lost.as_mut().poll(context)).await;
            Ok(Loss(Some(lost)))
        })
    }

    fn renew(&self) -> Call {
        self.operation(|permit| async move { permit.renew().await })
    }

    fn release_part(&self, units: i64) -> PyResult<Call> {
        let units = count("the number of units", 1, units)?;
        Ok(self.operation(move |permit| async move { permit.release_part(units).await }))
    }

    fn set_lease(&self, seconds: f64) -> PyResult<Call> {
        let lease = duration("the lease", seconds)?;
        Ok(self.operation(move |permit| async move { permit.set_lease(lease).await }))
    }

    fn auto_renew(&self, renew: bool) {
        if let State::Held(permit) = &*self.lock() {
            permit.auto_renew(renew);
        }
    }

    /// Releases it. Without effect if it was released before.
    fn release(&self) -> Call {
        let (turn, permit, lost) = (self.turn.clone(), self.end(), self.lost.clone());
        Call::new(async move {
            let _turn = turn.lock_owned().await;
            // With the turn, no other operation has the permit.
            let Some(permit) = permit.and_then(Arc::into_inner) else { return Ok(()) };
            let released = permit.release().await;
            if let Err(ReleaseError::Lost(reason)) = &released {
                let _ = lost.set(reason.clone());
            }
            released
        })
    }

    /// Releases it without a wait for the confirmation.
    fn forget(&self) {
        drop(self.end());
    }

    /// Makes a handle of it, for another process.
    fn hand_over(&self) -> Call {
        let (turn, permit) = (self.turn.clone(), self.end());
        Call::new(async move {
            let _turn = turn.lock_owned().await;
            let permit = permit.and_then(Arc::into_inner).ok_or(PermitError::Released)?;
            let handle = permit.hand_over().await.map_err(PermitError::Renew)?;
            Ok::<_, PermitError>(handle.to_string())
        })
    }
}
