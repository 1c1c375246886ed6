//! [`Permit`]: units held for a lease.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::millis;
use crate::error::{AcquireAllError, Lost, ReleaseError, RenewError};
use crate::handle::PermitHandle;
use crate::protocol::{InvalidInput, check_lease};
use crate::reply::Reply;
use crate::session::callers::{PermitGuard, TermsChange};
#[cfg(test)]
use crate::session::permit_state::HeldPermit;
use crate::session::permit_state::PermitStatus;

/// Some units of a semaphore, held for a lease that is renewed in the background.
///
/// If you drop a permit, it is released in the background. Drop it only when the work that it protects has
/// stopped.
///
/// A permit is held until a deadline by the machine's monotonic clock, which is before the end of its lease
/// on the server. It is lost earlier if an operator revokes it. If your work must not continue without it,
/// use [`Permit::run`], watch [`Permit::lost`], or check [`Permit::is_held`] before each step. A resource
/// that remembers the highest [`Permit::token`] of each [`Permit::slot`] can reject even a holder that was
/// suspended between the check and the step.
#[must_use = "a permit that is dropped is released"]
pub struct Permit {
    guard: PermitGuard,
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("semaphore", &self.semaphore())
            .field("holder", &self.holder())
            .field("token", &self.token())
            .field("slot", &self.slot())
            .field("weight", &self.weight())
            .field("status", &self.status())
            .finish()
    }
}

impl Permit {
    pub(crate) fn new(guard: PermitGuard) -> Self {
        Self { guard }
    }

    /// The state that the permit shares with its session.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &HeldPermit {
        &self.guard.state
    }

    /// The name of the semaphore.
    pub fn semaphore(&self) -> &str {
        self.guard.state.semaphore.as_str()
    }

    /// The holder.
    pub fn holder(&self) -> &str {
        self.guard.state.holder.as_str()
    }

    /// The number of units.
    pub fn weight(&self) -> u32 {
        self.guard.state.weight()
    }

    /// The lease.
    pub fn lease(&self) -> Duration {
        self.guard.state.lease()
    }

    /// The fencing token: greater than the token of every earlier grant of this slot.
    ///
    /// Compare tokens only within a slot: with a limit above 1, holders with lower tokens may be alive in
    /// other slots.
    pub fn token(&self) -> u64 {
        self.guard.state.grant().token
    }

    /// Returns true if the client itself has granted the permit, from what it kept. The store has not issued
    /// its token.
    #[cfg(feature = "testing")]
    pub fn is_granted_again(&self) -> bool {
        self.guard.state.last_token().is_some()
    }

    /// The slot: a number from 0, below the limit, that no other live permit has. After the limit was
    /// lowered, a permit may keep a slot above it until it is released.
    pub fn slot(&self) -> u32 {
        self.guard.state.grant().slot
    }

    /// Returns true if the permit is held now. A permit that is no longer held never is again.
    pub fn is_held(&self) -> bool {
        self.guard.state.deadline(self.guard.state.now()).is_some()
    }

    /// How long the permit is certainly held without another renewal; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.guard.state.now();
        self.guard.state.deadline(now).map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// The state of the permit: held, unsure or lost.
    pub fn status(&self) -> PermitStatus {
        self.guard.state.status(self.guard.state.now())
    }

    /// Waits until the permit is lost, and returns the reason. Never ready while it is held.
    ///
    /// The future is ready at the permit's deadline even if the client's background thread is stuck. It works
    /// without a runtime.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> Lost {
        self.guard.state.lost().await
    }

    /// A token that is cancelled when the permit is lost, at its deadline at the latest, and not when you
    /// release, drop or hand over the permit. Cancelling the token has no effect on the permit.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.state.cancellation_token()
    }

    /// Runs `work` while the permit is held. If the permit is lost, `work` is dropped at its current await.
    ///
    /// # Errors
    /// [`Lost`] if the permit was lost before `work` was ready.
    ///
    /// # Cancel safety
    /// If you drop the future, `work` is dropped, and the permit stays held.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = permits::Client::connect("memory:").await?;
    /// let permit = client.semaphore("report", 1)?.acquire().await?;
    /// let sum = permit.run(async { 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    /// Renews the permit now. You need this only after
    /// [`AcquireOptions::auto_renew(false)`](crate::AcquireOptions::auto_renew), or to be sure of a full
    /// lease.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the permit is lost. [`RenewError::Store`] if the store did not confirm the
    /// renewal, and [`RenewError::RetryLater`] if it cannot do so yet; after these two you still hold the
    /// permit.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the permit may have been renewed.
    pub fn renew(&self) -> Reply<(), RenewError> {
        let (state, session) = self.guard.parts();
        Reply::new(async move { session.renew(&state).await })
    }

    /// Releases `units` of the permit: the next in line is granted in the same moment. The permit keeps its
    /// slot, its token and its lease.
    ///
    /// If the permit was acquired with [`AcquireOptions::at_least`](crate::AcquireOptions::at_least), the
    /// units are free with the first renewal after that time.
    ///
    /// # Errors
    /// [`RenewError::Invalid`] if `units` is 0 or no unit would be left: release the permit then. Otherwise
    /// as [`Permit::renew`]: the permit has the lower weight, and the store learns of it by the next renewal.
    ///
    /// # Cancel safety
    /// If you drop the reply after you have polled it, the units are released.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = permits::Client::connect("memory:").await?;
    /// let workers = client.semaphore("workers", 8)?;
    /// let permit = workers.acquire_many(8).await?;
    /// // … the part that needs all of them
    /// permit.release_part(7).await?;
    /// assert_eq!((permit.weight(), workers.available().await?), (1, 7));
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_part(&self, units: u32) -> Reply<(), RenewError> {
        let (state, session) = self.guard.parts();
        Reply::new(async move {
            let rest = if units == 0 { None } else { state.give_back(units) };
            let invalid = InvalidInput::Part { units, weight: state.weight() };
            session.change_terms(&state, TermsChange::Weight(rest.ok_or(invalid)?));
            session.renew(&state).await
        })
    }

    /// Corrects the units that the grant counts for, when the work is done and you know what it really cost.
    /// The permit must have been acquired with [`AcquireOptions::at_least`](crate::AcquireOptions::at_least).
    /// The store learns of the last correction with the release. If you count fewer units, or 0, the others
    /// are free at once. If you count more, the line waits until they have cooled. A permit counts for the
    /// limit at most, so one correction holds the line up for as long as `at_least` says and no longer.
    ///
    /// The correction has no effect if the permit is revoked or handed over, if its lease has ended at the
    /// store, or if you release it later than `at_least` after its grant: then the permit counts for the
    /// units that it was granted.
    ///
    /// # Errors
    /// [`InvalidInput::NothingCounts`] if the permit was acquired without `at_least`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::AcquireOptions;
    /// use std::time::Duration;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let tokens = client.semaphore("tokens a minute", 100_000)?;
    /// let options = AcquireOptions::new().weight(4_000).at_least(Duration::from_secs(60));
    /// let permit = tokens.acquire_with(options).await?;
    /// // … the call, whose reply says what it cost
    /// permit.count(1_250)?;
    /// permit.release().await?;
    /// assert_eq!(tokens.available().await?, 98_750);
    /// # Ok(())
    /// # }
    /// ```
    pub fn count(&self, units: u32) -> Result<(), InvalidInput> {
        let state = &self.guard.state;
        if state.granted_terms().at_least_ms == 0 {
            return Err(InvalidInput::NothingCounts);
        }
        state.count(units);
        Ok(())
    }

    /// Lets the grant count from now on, and returns when the store knows. A failed call is sent again for
    /// this time, and for the store timeout at most.
    pub(crate) fn count_anew(
        &self,
        within: Option<Duration>,
    ) -> impl Future<Output = Result<(), AcquireAllError>> + Send + Sync + use<> {
        let (state, session) = self.guard.parts();
        async move {
            let counted = session.count_anew(&state, within).await;
            let semaphore = state.semaphore.to_string();
            match counted {
                Ok(result) => result.map_err(|source| AcquireAllError::Acquire { semaphore, source }),
                Err(reason) => Err(AcquireAllError::Lost { semaphore, reason }),
            }
        }
    }

    /// Returns true if the permit was acquired with `at_least`.
    pub(crate) fn counts(&self) -> bool {
        self.guard.state.granted_terms().at_least_ms > 0
    }

    /// Gives the permit another lease, 100 ms to 1 day, from now on, and renews it.
    ///
    /// # Errors
    /// [`RenewError::Invalid`] if the lease is out of range. Otherwise as [`Permit::renew`]: the permit has
    /// the new lease, and the store learns of it by the next renewal.
    ///
    /// # Cancel safety
    /// If you drop the reply after you have polled it, the permit has the new lease.
    pub fn set_lease(&self, lease: Duration) -> Reply<(), RenewError> {
        let (state, session) = self.guard.parts();
        Reply::new(async move {
            let lease = Duration::from_millis(check_lease(millis(lease))?);
            session.change_terms(&state, TermsChange::Lease(lease));
            session.renew(&state).await
        })
    }

    /// Renews the permit in the background from now on, or leaves that to [`Permit::renew`]: see
    /// [`AcquireOptions::auto_renew`](crate::AcquireOptions::auto_renew).
    pub fn auto_renew(&self, renew: bool) {
        let (state, session) = self.guard.parts();
        session.change_terms(&state, TermsChange::AutoRenew(renew));
    }

    /// Releases the permit: the next in line is granted in the same moment, or, if the permit was acquired
    /// with [`at_least`](crate::AcquireOptions::at_least), once that time has passed. If no request waits,
    /// the client may [keep](crate::Semaphore::keep) the permit.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] if the permit was lost before, so that another holder may have been granted its
    /// units meanwhile; [`ReleaseError::Store`] if the store could not be reached until the end of the lease,
    /// or, at once, if it refuses. Then the units are free at the end of the lease.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the permit is released in the background.
    pub fn release(self) -> Reply<(), ReleaseError> {
        let Self { mut guard } = self;
        if guard.put_back(guard.state.now()) { Reply::ready(Ok(())) } else { Reply::new(guard.release()) }
    }

    /// Hands the permit over to another process: renews it once more, and turns it into a text from which
    /// [`Client::adopt`](crate::Client::adopt) makes a permit again, within one lease.
    ///
    /// # Errors
    /// [`RenewError`] if the permit could not be renewed. Then it is released.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the permit is released.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = permits::Client::connect("memory:").await?;
    /// # let other = permits::Client::connect("memory:").await?;
    /// let permit = client.semaphore("build", 1)?.acquire().await?;
    /// let text = permit.hand_over().await?.to_string();
    /// // … in another process:
    /// let permit = other.adopt(&text.parse()?).await?;
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hand_over(self) -> Reply<PermitHandle, RenewError> {
        Reply::new(async move {
            self.renew().await?;
            Ok(self.into_handle())
        })
    }

    fn into_handle(self) -> PermitHandle {
        let state = &self.guard.state;
        let handle = PermitHandle {
            semaphore: state.semaphore.clone(),
            holder: state.holder.clone(),
            request: state.request.clone(),
            terms: state.terms(),
            grant: state.stored_grant(),
            last_token: state.last_token(),
            counted: None,
        };
        self.guard.hand_over();
        handle
    }

    /// Blocks this thread until the permit is lost, or `limit` has passed. `None` if it is still held then.
    /// Inside an async runtime it blocks the runtime's thread: await [`Permit::lost`] there.
    pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
        self.guard.state.lost_within(limit)
    }
}
