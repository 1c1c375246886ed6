//! [`Held`]: a permit, and its end.
//!
//! Operations of one permit run one after the other, each with the permit to itself: a release that is asked
//! for while a renewal is in flight follows it. An operation that is dropped early releases the permit
//! nevertheless, if it was to release it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use permits::error::{Lost, ReleaseError, RenewError};
use permits::{CancellationToken, Permit, PermitStatus};

use crate::arguments::{Language, argument, count};
use crate::call::{Call, Value};
use crate::failure::Failure;

/// A permit until it is released or handed over, and what is known of it afterwards.
#[derive(Debug)]
pub struct Held {
    /// The name of the semaphore.
    pub semaphore: String,
    /// The holder.
    pub holder: String,
    /// The fencing token.
    pub token: u64,
    /// The slot.
    pub slot: u32,
    state: Mutex<State>,
    /// The turn of an operation.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Cancelled when it is released or handed over.
    ended: CancellationToken,
    /// The loss that its end found.
    lost: Arc<OnceLock<Lost>>,
}

#[derive(Debug)]
enum State {
    Held(Arc<Permit>),
    /// Released or handed over, with its last weight and lease.
    Ended(u32, Duration),
}

/// The loss of a permit, if the permit is lost. The signal of the loss comes later. The session ends a permit
/// and sets the reason some instructions later. This function waits for the reason, so a permit that is not
/// held always has its loss.
fn loss(permit: &Permit) -> Option<Lost> {
    while !permit.is_held() {
        let lost = permit.lost_within(Duration::ZERO);
        if lost.is_some() {
            return lost;
        }
        std::thread::yield_now();
    }
    None
}

impl Held {
    /// A permit that has not ended.
    pub fn new(permit: Permit) -> Self {
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
    fn end(&self) -> Option<Arc<Permit>> {
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
    fn weak(&self) -> Weak<Permit> {
        match &*self.lock() {
            State::Held(permit) => Arc::downgrade(permit),
            State::Ended(..) => Weak::new(),
        }
    }

    /// The units, or those that it had last.
    pub fn weight(&self) -> u32 {
        match &*self.lock() {
            State::Held(permit) => permit.weight(),
            State::Ended(weight, _) => *weight,
        }
    }

    /// Corrects the units that its grant counts for, a number in JSON. Once it has ended, nothing is left to
    /// correct.
    ///
    /// # Errors
    /// A failure if it was acquired without a time for which it counts, or if the number is out of range.
    pub fn count(&self, units: &str) -> Result<(), Failure> {
        let units = count("units", 0, &argument(units))?;
        match &*self.lock() {
            State::Held(permit) => Ok(permit.count(units)?),
            State::Ended(..) => Ok(()),
        }
    }

    /// The lease, or the one that it had last.
    pub fn lease(&self) -> Duration {
        match &*self.lock() {
            State::Held(permit) => permit.lease(),
            State::Ended(_, lease) => *lease,
        }
    }

    /// The time for which it is held without another renewal; 0 if it is not held.
    pub fn remaining(&self) -> Duration {
        match &*self.lock() {
            State::Held(permit) => permit.remaining(),
            State::Ended(..) => Duration::ZERO,
        }
    }

    /// The word `held`, `unsure`, `lost` or `released`.
    pub fn status(&self) -> &'static str {
        match &*self.lock() {
            State::Held(permit) => match permit.status() {
                PermitStatus::Held => "held",
                PermitStatus::Unsure => "unsure",
                _ => "lost",
            },
            State::Ended(..) => "released",
        }
    }

    /// Checks that it is held, for a block of work that begins.
    ///
    /// # Errors
    /// A failure if it is lost, was released or was handed over.
    pub fn check(&self) -> Result<(), Failure> {
        match (self.lost(), &*self.lock()) {
            (Some(lost), _) => Err(lost),
            (None, State::Ended(..)) => Err(Failure::released()),
            (None, State::Held(_)) => Ok(()),
        }
    }

    /// The loss, if it is lost.
    pub fn lost(&self) -> Option<Failure> {
        let lost = match &*self.lock() {
            State::Held(permit) => loss(permit),
            State::Ended(..) => self.lost.get().cloned(),
        };
        lost.map(Failure::from)
    }

    /// An operation: `renew`; `release`, without effect if it has ended before; `hand_over`, a handle for
    /// another process; `wait_lost`, the loss, or none once it is released, unless the release found a loss.
    /// Or one with a number in JSON: `release_part`, of units, and `set_lease`, to a time in the unit of the
    /// language.
    ///
    /// # Errors
    /// A failure if the number is none, or out of range.
    pub fn call(&self, language: Language, operation: &str, number: &str) -> Result<Call, Failure> {
        Ok(match operation {
            "renew" => self.operation(|permit| async move { permit.renew().await }),
            "release" => self.release(),
            "hand_over" => self.hand_over(),
            "wait_lost" => self.wait_lost(),
            "release_part" => {
                let units = count("units", 1, &argument(number))?;
                self.operation(move |permit| async move { permit.release_part(units).await })
            }
            "set_lease" => {
                let lease = language.time("lease", &argument(number))?;
                self.operation(move |permit| async move { permit.set_lease(lease).await })
            }
            _ => unreachable!("a permit has no operation {operation}"),
        })
    }

    fn wait_lost(&self) -> Call {
        let (permit, ended, found) = (self.weak(), self.ended.clone(), self.lost.clone());
        let signal = match &*self.lock() {
            State::Held(permit) => permit.cancellation_token(),
            State::Ended(..) => CancellationToken::new(),
        };
        let turn = self.turn.clone();
        let lost = async move {
            tokio::select! {
                biased;
                () = signal.cancelled() => {}
                () = ended.cancelled() => return found.get().cloned(),
            }
            let _turn = turn.lock_owned().await;
            let Some(permit) = permit.upgrade() else { return found.get().cloned() };
            let mut lost = pin!(permit.lost());
            Some(poll_fn(|context| lost.as_mut().poll(context)).await)
        };
        Call::new(async move { Ok::<_, Failure>(Value::Lost(lost.await.map(Failure::from))) })
    }

    /// An operation that leaves the permit held.
    fn operation<F>(&self, operation: impl FnOnce(Arc<Permit>) -> F + Send + 'static) -> Call
    where
        F: Future<Output = Result<(), RenewError>> + Send + 'static,
    {
        let (turn, permit) = (self.turn.clone(), self.weak());
        Call::new(async move {
            let _turn = turn.lock_owned().await;
            let permit = permit.upgrade().ok_or_else(Failure::released)?;
            operation(permit).await.map_err(Failure::from)
        })
    }

    /// Renews it in the background from now on, or not.
    pub fn auto_renew(&self, renew: bool) {
        if let State::Held(permit) = &*self.lock() {
            permit.auto_renew(renew);
        }
    }

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
    pub fn forget(&self) {
        drop(self.end());
    }

    /// The end of a block: as [`Held::forget`].
    ///
    /// # Errors
    /// A failure if it is known to be lost, unless it had ended before.
    pub fn leave(&self) -> Result<(), Failure> {
        let Some(permit) = self.end() else { return Ok(()) };
        drop(permit);
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone().into()))
    }

    fn hand_over(&self) -> Call {
        let (turn, permit) = (self.turn.clone(), self.end());
        Call::new(async move {
            let _turn = turn.lock_owned().await;
            let permit = permit.and_then(Arc::into_inner).ok_or_else(Failure::released)?;
            let handle = permit.hand_over().await?;
            Ok::<_, Failure>(Value::Text(handle.to_string()))
        })
    }
}
