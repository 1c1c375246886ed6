//! [`Permit`]: units that are held.
//!
//! Operations of one permit run one after the other, each with the permit to itself: a release that is asked
//! for while a renewal is in flight follows it. A call that is dropped early releases the permit
//! nevertheless, if it was to release it. A permit that is garbage is released, since its finalizer drops it.

use std::cell::OnceCell;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use napi::bindgen_prelude::Result;
use napi_derive::napi;
use permits::error::{Lost, ReleaseError, RenewError};
use permits::{CancellationToken, PermitStatus};

use crate::call::Call;
use crate::convert::{count, duration, milliseconds};
use crate::failure::Failure;

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
    state: RefCell<State>,
    /// The turn of an operation.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Cancelled when it is released or handed over.
    ended: CancellationToken,
    /// The loss that its end found.
    lost: Rc<OnceCell<Lost>>,
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

/// A loss, as the JSON of its error.
fn json(lost: Option<Lost>) -> Option<String> {
    lost.map(|lost| Failure::from(lost).into_json())
}

impl Permit {
    pub(crate) fn new(permit: permits::Permit) -> Self {
        Self {
            semaphore: permit.semaphore().to_owned(),
            holder: permit.holder().to_owned(),
            // Microseconds since 1970: below 2^53 until the year 2255.
            token: permit.token() as i64,
            slot: permit.slot(),
            state: RefCell::new(State::Held(Arc::new(permit))),
            turn: Arc::default(),
            ended: CancellationToken::new(),
            lost: Rc::default(),
        }
    }

    /// Ends it here. The caller releases what is returned, or hands it over. `None` if it has ended before.
    fn end(&self) -> Option<Arc<permits::Permit>> {
        let mut state = self.state.borrow_mut();
        let State::Held(permit) = &*state else { return None };
        let ended = State::Ended(permit.weight(), permit.lease());
        let State::Held(permit) = mem::replace(&mut *state, ended) else { return None };
        // For the calls that wait for the loss and are polled after the permit is gone.
        if let Some(lost) = loss(&permit) {
            let _ = self.lost.set(lost);
        }
        self.ended.cancel();
        Some(permit)
    }

    /// The permit for an operation, which has it as long as it has the turn.
    fn weak(&self) -> Weak<permits::Permit> {
        match &*self.state.borrow() {
            State::Held(permit) => Arc::downgrade(permit),
            State::Ended(..) => Weak::new(),
        }
    }

    /// The call of an operation that leaves the permit held.
    fn operation<F>(&self, operation: impl FnOnce(Arc<permits::Permit>) -> F + 'static) -> Call
    where
        F: Future<Output = std::result::Result<(), RenewError>> + 'static,
    {
        let (turn, permit) = (self.turn.clone(), self.weak());
        Call::new(async move {
            let _turn = turn.lock_owned().await;
            let permit = permit.upgrade().ok_or(PermitError::Released)?;
            operation(permit).await.map_err(PermitError::Renew)
        })
    }
}

#[napi]
impl Permit {
    #[napi(getter)]
    pub fn weight(&self) -> u32 {
        match &*self.state.borrow() {
            State::Held(permit) => permit.weight(),
            State::Ended(weight, _) => *weight,
        }
    }

    #[napi(getter)]
    pub fn lease_ms(&self) -> f64 {
        milliseconds(match &*self.state.borrow() {
            State::Held(permit) => permit.lease(),
            State::Ended(_, lease) => *lease,
        })
    }

    #[napi(getter)]
    pub fn remaining_ms(&self) -> f64 {
        match &*self.state.borrow() {
            State::Held(permit) => milliseconds(permit.remaining()),
            State::Ended(..) => 0.0,
        }
    }

    #[napi(getter, ts_return_type = "'held' | 'unsure' | 'lost' | 'released'")]
    pub fn status(&self) -> &'static str {
        match &*self.state.borrow() {
            State::Held(permit) => match permit.status() {
                PermitStatus::Held => "held",
                PermitStatus::Unsure => "unsure",
                _ => "lost",
            },
            State::Ended(..) => "released",
        }
    }

    /// Waits until it is lost: the loss as JSON; or released: null, unless the release found a loss.
    #[napi]
    pub fn wait_lost(&self) -> Call {
        let (permit, ended, found) = (self.weak(), self.ended.clone(), self.lost.clone());
        let signal = match &*self.state.borrow() {
            State::Held(permit) => permit.cancellation_token(),
            State::Ended(..) => CancellationToken::new(),
        };
        let turn = self.turn.clone();
        Call::new(async move {
            tokio::select! {
                biased;
                () = signal.cancelled() => {}
                () = ended.cancelled() => return Ok::<_, PermitError>(json(found.get().cloned())),
            }
            let _turn = turn.lock_owned().await;
            let Some(permit) = permit.upgrade() else { return Ok(json(found.get().cloned())) };
            let mut lost = pin!(permit.lost());
            let lost = poll_fn(|context| lost.as_mut().poll(context)).await;
            Ok(json(Some(lost)))
        })
    }

    #[napi]
    pub fn renew(&self) -> Call {
        self.operation(|permit| async move { permit.renew().await })
    }

    #[napi]
    pub fn release_part(&self, units: f64) -> Result<Call> {
        let units = count("the number of units", 1, units)?;
        Ok(self.operation(move |permit| async move { permit.release_part(units).await }))
    }

    #[napi]
    pub fn set_lease(&self, ms: f64) -> Result<Call> {
        let lease = duration("the lease", ms)?;
        Ok(self.operation(move |permit| async move { permit.set_lease(lease).await }))
    }

    #[napi]
    pub fn auto_renew(&self, renew: bool) {
        if let State::Held(permit) = &*self.state.borrow() {
            permit.auto_renew(renew);
        }
    }

    /// Releases it. Without effect if it was released before.
    #[napi]
    pub fn release(&self) -> Call {
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
    #[napi]
    pub fn forget(&self) {
        drop(self.end());
    }

    /// Makes a handle of it, for another process.
    #[napi]
    pub fn hand_over(&self) -> Call {
        let (turn, permit) = (self.turn.clone(), self.end());
        Call::new(async move {
            let _turn = turn.lock_owned().await;
            let permit = permit.and_then(Arc::into_inner).ok_or(PermitError::Released)?;
            let handle = permit.hand_over().await.map_err(PermitError::Renew)?;
            Ok::<_, PermitError>(handle.to_string())
        })
    }
}
