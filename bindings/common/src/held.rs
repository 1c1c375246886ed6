//! [`Held`]: a permit, and what stays known when it has ended.
//!
//! Operations of one permit run one after the other, each with the permit to itself. For example, a release
//! that is asked for while a renewal is in flight follows it. The release polls the renewal, too: a release
//! that blocks has stopped the event loop that would do so. If an operation that was to release the permit
//! is dropped early, the permit is released nevertheless. A permit that is being handed over has ended: what
//! is asked for meanwhile does not wait for that.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, WeakShared, join_all, select};
use permits::error::{Lost, ReleaseError, RenewError};
use permits::{CancellationToken, Permit, PermitStatus};
use permits_process::Process;

use crate::arguments::{Language, argument, count};
use crate::call::{Call, Value};
use crate::failure::Failure;
use crate::operation::{PermitOperation, named};

/// A permit until it is released or handed over, and what stays known of it afterwards.
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
    /// The process that has acquired the permit.
    process: Process,
    state: Arc<Mutex<State>>,
    /// The operation that has this lock has its turn.
    turn: Arc<tokio::sync::Mutex<()>>,
    operations: Arc<Mutex<Operations>>,
    /// Cancelled when the permit is released or handed over.
    ended: CancellationToken,
    /// The loss that was found when the permit ended.
    lost: Arc<OnceLock<Lost>>,
}

#[derive(Debug)]
enum State {
    Held(Arc<Permit>),
    /// The permit was released or handed over. This is its last weight and lease.
    Ended(u32, Duration),
}

/// The operations that were asked for and not dropped. Some may have ended.
type Operations = Vec<WeakShared<BoxFuture<'static, ()>>>;

/// The loss of a permit, if it is lost. A session first ends a permit, and sets the reason some instructions
/// later; the signal of the loss comes after that. This function waits for the reason, so a permit that is
/// not held always has its loss.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    /// Makes this from a permit that is held.
    pub fn new(permit: Permit) -> Self {
        Self {
            semaphore: permit.semaphore().to_owned(),
            holder: permit.holder().to_owned(),
            token: permit.token(),
            slot: permit.slot(),
            process: Process::current(),
            state: Arc::new(Mutex::new(State::Held(Arc::new(permit)))),
            turn: Arc::default(),
            operations: Arc::default(),
            ended: CancellationToken::new(),
            lost: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Ends the permit here. The caller releases the returned permit, or hands it over. `None` if it had
    /// ended before.
    fn end(&self) -> Option<Arc<Permit>> {
        let mut state = self.lock();
        let State::Held(permit) = &*state else { return None };
        let ended = State::Ended(permit.weight(), permit.lease());
        let State::Held(permit) = std::mem::replace(&mut *state, ended) else { return None };
        // Keep the loss for calls that wait for it and are polled after the permit is gone.
        if let Some(lost) = loss(&permit) {
            let _ = self.lost.set(lost);
        }
        self.ended.cancel();
        Some(permit)
    }

    /// Runs an operation when it has its turn, and polls those before it meanwhile. `begin` makes it; what
    /// `begin` does and the operation become visible to others at the same time.
    fn queue<F>(&self, begin: impl FnOnce() -> F) -> BoxFuture<'static, F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let result = Arc::new(Mutex::new(None));
        let (put, turn) = (result.clone(), self.turn.clone());
        let mut operations = lock(&self.operations);
        let operation = begin();
        let operation = async move {
            let _turn = turn.lock_owned().await;
            let found = operation.await;
            *lock(&put) = Some(found);
        };
        let operation = operation.boxed().shared();
        operations.retain(|operation| operation.upgrade().is_some());
        let before: Vec<_> = operations.iter().filter_map(WeakShared::upgrade).collect();
        operations.extend(operation.downgrade());
        drop(operations);
        let done = async move {
            if let Either::Right((_, operation)) = select(operation, join_all(before)).await {
                operation.await;
            }
            lock(&result).take().expect("an operation that has ended has put its result")
        };
        done.boxed()
    }

    /// The permit for an operation, which may use it while it has the turn.
    fn weak(&self) -> Weak<Permit> {
        match &*self.lock() {
            State::Held(permit) => Arc::downgrade(permit),
            State::Ended(..) => Weak::new(),
        }
    }

    /// The units that the permit has, or had last.
    pub fn weight(&self) -> u32 {
        match &*self.lock() {
            State::Held(permit) => permit.weight(),
            State::Ended(weight, _) => *weight,
        }
    }

    /// Corrects the units that the grant counts for. `units` is a number in JSON. Has no effect once the
    /// permit has ended.
    ///
    /// # Errors
    /// A failure if the permit was acquired without `at_least`, or if the number is out of range.
    pub fn count(&self, units: &str) -> Result<(), Failure> {
        let units = count("units", 0, &argument(units))?;
        match &*self.lock() {
            State::Held(permit) => Ok(permit.count(units)?),
            State::Ended(..) => Ok(()),
        }
    }

    /// The lease that the permit has, or had last.
    pub fn lease(&self) -> Duration {
        match &*self.lock() {
            State::Held(permit) => permit.lease(),
            State::Ended(_, lease) => *lease,
        }
    }

    /// How long the permit is certainly held without another renewal; 0 if it is not held.
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

    /// Checks that the permit is held, for a block of work that begins.
    ///
    /// # Errors
    /// A failure if the permit is lost, was released or was handed over.
    pub fn check(&self) -> Result<(), Failure> {
        match (self.lost(), &*self.lock()) {
            (Some(lost), _) => Err(lost),
            (None, State::Ended(..)) => Err(Failure::released()),
            (None, State::Held(_)) => Ok(()),
        }
    }

    /// The loss, if the permit is lost.
    pub fn lost(&self) -> Option<Failure> {
        let lost = match &*self.lock() {
            State::Held(permit) => loss(permit),
            State::Ended(..) => self.lost.get().cloned(),
        };
        lost.map(Failure::from)
    }

    /// Runs an operation. `renew`. `release`, which has no effect if the permit has ended before.
    /// `hand_over`, whose result is a handle for another process. `wait_lost`, whose result is the loss, or
    /// nothing once the permit was released and the release found no loss. `release_part`, with a number of
    /// units in JSON. `set_lease`, with a time in JSON, in the unit of the language.
    ///
    /// # Errors
    /// A failure if the argument is not a number, or is out of range.
    pub fn call(&self, language: Language, operation: &str, number: &str) -> Result<Call, Failure> {
        let named = named(operation)?;
        // A forked child takes no lock and waits for no turn: a thread of the parent alone may have it.
        if self.process.is_forked() {
            return Ok(match named {
                PermitOperation::WaitLost => {
                    Call::new(async { Ok::<_, Failure>(Value::Lost(Some(Lost::Forked.into()))) })
                }
                _ => Call::new(async { Err::<(), Failure>(Lost::Forked.into()) }),
            });
        }
        Ok(match named {
            PermitOperation::Renew => self.operation(|permit| async move { permit.renew().await }),
            PermitOperation::Release => self.release(),
            PermitOperation::HandOver => self.hand_over(),
            PermitOperation::WaitLost => self.wait_lost(),
            PermitOperation::ReleasePart => {
                let units = count("units", 1, &argument(number))?;
                self.operation(move |permit| async move { permit.release_part(units).await })
            }
            PermitOperation::SetLease => {
                let lease = language.time("lease", &argument(number))?;
                self.operation(move |permit| async move { permit.set_lease(lease).await })
            }
        })
    }

    fn wait_lost(&self) -> Call {
        let (state, ended, found) = (self.state.clone(), self.ended.clone(), self.lost.clone());
        let signal = match &*self.lock() {
            State::Held(permit) => permit.cancellation_token(),
            State::Ended(..) => CancellationToken::new(),
        };
        let operations = self.operations.clone();
        let lost = async move {
            tokio::select! {
                () = signal.cancelled() => {}
                () = ended.cancelled() => {}
            }
            // A loss does not wait for an operation in flight, which may take longer than the margin before
            // the next grant.
            if let State::Held(permit) = &*lock(&state) {
                return loss(permit);
            }
            // The release that has ended the permit may find the loss.
            let last: Vec<_> = lock(&operations).iter().filter_map(WeakShared::upgrade).collect();
            join_all(last).await;
            found.get().cloned()
        };
        Call::new(async move { Ok::<_, Failure>(Value::Lost(lost.await.map(Failure::from))) })
    }

    /// Runs an operation that leaves the permit held.
    fn operation<F>(&self, operation: impl FnOnce(Arc<Permit>) -> F + Send + 'static) -> Call
    where
        F: Future<Output = Result<(), RenewError>> + Send + 'static,
    {
        let permit = self.weak();
        Call::new(self.queue(|| async move {
            let permit = permit.upgrade().ok_or_else(Failure::released)?;
            operation(permit).await.map_err(Failure::from)
        }))
    }

    /// Renews the permit in the background from now on, or stops doing so.
    pub fn auto_renew(&self, renew: bool) {
        if let State::Held(permit) = &*self.lock() {
            permit.auto_renew(renew);
        }
    }

    fn release(&self) -> Call {
        let lost = self.lost.clone();
        Call::new(self.queue(|| {
            let permit = self.end();
            async move {
                // Other operations hold no reference to the permit now, because this one has the turn.
                let Some(permit) = permit.and_then(Arc::into_inner) else { return Ok(()) };
                let released = permit.release().await;
                if let Err(ReleaseError::Lost(reason)) = &released {
                    let _ = lost.set(reason.clone());
                }
                released
            }
        }))
    }

    /// Releases the permit, without waiting for the confirmation.
    pub fn forget(&self) {
        drop(self.end());
    }

    /// Ends a block of work: releases the permit as [`Held::forget`] does.
    ///
    /// # Errors
    /// A failure if the permit is known to be lost, unless it had ended before.
    pub fn leave(&self) -> Result<(), Failure> {
        let Some(permit) = self.end() else { return Ok(()) };
        drop(permit);
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone().into()))
    }

    fn hand_over(&self) -> Call {
        let permit = self.queue(|| {
            let permit = self.end();
            async move { permit.and_then(Arc::into_inner) }
        });
        // Another operation may poll those of the queue, but only the caller can use the handle. So if the
        // call is dropped, a permit that was not handed over is dropped with it, and thereby released.
        Call::new(async move {
            let permit = permit.await.ok_or_else(Failure::released)?;
            let handle = permit.hand_over().await?;
            Ok::<_, Failure>(Value::Text(handle.to_string()))
        })
    }
}
