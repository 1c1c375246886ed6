//! [`Semaphore`]: the façade. It turns options into commands and answers into types; everything in between is
//! the session's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{AcquireError, AdminError};
use crate::model::INSPECT_MAX;
use crate::permit::Permit;
use crate::protocol::{
    Answers, Holder, InvalidInput, Label, LimitChange, LimitOutcome, Name, Operation, ReleaseOutcome, Reply,
    check_lease, check_reason,
};
use crate::session::message::{Message, Opening, Wait};
use crate::session::{Pending, Session, Wanted};

/// A named line with a limit. Cheap to clone.
///
/// Opened by [`Client::semaphore`](crate::Client::semaphore). First come, first served: a request is granted
/// when all that came before it have been, also if it is for fewer units than they.
#[derive(Debug, Clone)]
pub struct Semaphore {
    session: Session,
    name: Result<Name, InvalidInput>,
    opening: Arc<Opening>,
}

/// How to acquire.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use permits::AcquireOptions;
/// use std::time::Duration;
///
/// # let client = permits::Client::connect("memory:").await?;
/// let seats = client.semaphore("licence seats", 8);
/// let options = AcquireOptions::new().weight(2).wait(Duration::from_secs(30));
/// let permit = seats.acquire_with(options).await?;
/// assert_eq!(permit.weight(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AcquireOptions {
    weight: u32,
    holder: Option<String>,
    label: Option<String>,
    wait: Wait,
    lease: Option<Duration>,
    renew: bool,
}

impl Default for AcquireOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl AcquireOptions {
    /// One unit, a holder of its own, waiting without limit, the client's lease, renewed in the background.
    pub fn new() -> Self {
        Self { weight: 1, holder: None, label: None, wait: Wait::Forever, lease: None, renew: true }
    }

    /// How many units: at least 1, at most the limit.
    #[must_use]
    pub fn weight(mut self, units: u32) -> Self {
        self.weight = units;
        self
    }

    /// Who holds, 1–200 bytes of printable UTF-8. One holder has at most one permit of a semaphore: while it
    /// holds or waits, a second request is refused with [`AcquireError::AlreadyHeld`]. Unique unless set.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// A note for people, shown beside the holder by [`Semaphore::inspect`]: at most 120 bytes of printable UTF-8. Many
    /// holders may have the same. None unless set.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Waits in line at most so long; not at all if it is zero.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = if limit.is_zero() { Wait::No } else { Wait::AtMost(limit) };
        self
    }

    /// How long the permit stands without renewal, 100 ms to 1 day, in place of the client's lease.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Does not renew it once it is held: it ends with its lease unless [`Permit::renew`] is called.
    #[must_use]
    pub fn no_renewal(mut self) -> Self {
        self.renew = false;
        self
    }
}

impl Semaphore {
    pub(crate) fn new(session: Session, name: &str, limit: Option<u32>) -> Self {
        let opening = Opening { limit, require: false, declared: AtomicBool::new(false) };
        Self { session, name: Name::new(name), opening: Arc::new(opening) }
    }

    /// Refuses to acquire with [`AcquireError::LimitMismatch`] where another limit than the declared one is in
    /// force, instead of changing it or putting up with it.
    #[must_use]
    pub fn require_limit(mut self) -> Self {
        let limit = self.opening.limit;
        self.opening = Arc::new(Opening { limit, require: true, declared: AtomicBool::new(false) });
        self
    }

    /// The name, if it is a valid one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn name(&self) -> Result<&str, InvalidInput> {
        self.name.as_ref().map(Name::as_str).map_err(Clone::clone)
    }

    /// Acquires one unit, waiting in line for it without limit.
    ///
    /// # Errors
    /// [`AcquireError`], but none that [is for now](AcquireError::is_not_now) except `QueueFull`. If the store
    /// cannot be reached it is tried for [`store_timeout`](crate::ClientBuilder::store_timeout).
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it leaves the line; a permit that was granted meanwhile is given back.
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_with(AcquireOptions::new()).await
    }

    /// Acquires one unit if it is free now and nobody waits for it.
    ///
    /// # Errors
    /// [`AcquireError::NoPermits`] if not.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, a permit that was granted meanwhile is given back.
    pub async fn try_acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_with(AcquireOptions::new().wait(Duration::ZERO)).await
    }

    /// Acquires as the options say.
    ///
    /// # Errors
    /// [`AcquireError`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub async fn acquire_with(&self, options: AcquireOptions) -> Result<Permit, AcquireError> {
        self.start_acquiring(options)?.wait().await.map(Permit::new)
    }

    pub(crate) fn start_acquiring(&self, options: AcquireOptions) -> Result<Pending, AcquireError> {
        let name = self.name.clone()?;
        if self.opening.limit == Some(0) {
            Err(InvalidInput::ZeroLimit)?;
        }
        if options.weight == 0 {
            Err(InvalidInput::ZeroWeight)?;
        }
        if let Some(lease) = options.lease {
            check_lease(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))?;
        }
        let wanted = Wanted {
            holder: options.holder.map(|holder| Holder::new(&holder)).transpose()?,
            label: Label::new(options.label.as_deref().unwrap_or_default())?,
            weight: options.weight,
            lease: options.lease,
            wait: options.wait,
            renew: options.renew,
            opening: self.opening.clone(),
        };
        Ok(self.session.acquire(name, wanted))
    }

    /// Sets the limit and pins it: from now on what programs declare is ignored, until [`Semaphore::unpin`].
    ///
    /// A higher limit grants at once. A lower one revokes nobody: nothing is granted until what is held fits.
    /// Waiters for more units than the new limit are refused, at the latest when they are next renewed.
    /// Returns the limit's new version.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub async fn set_limit(&self, limit: u32) -> Result<u64, AdminError> {
        self.limit_changed(self.start_changing_limit(LimitChange::Set(limit), None)?.await, None)
            .map(|(_, version)| version)
    }

    /// Like [`Semaphore::set_limit`], but only if the limit is still at `version`, as [`Semaphore::inspect`]
    /// showed it. Of several changes at one version one succeeds, also if they set the same limit.
    ///
    /// # Errors
    /// [`AdminError::VersionMismatch`] if it is not. A call whose reply was lost is sent again and answered as the first
    /// one was, unless 32 other changes of this semaphore have come between.
    pub async fn set_limit_if_version(&self, limit: u32, version: u64) -> Result<u64, AdminError> {
        let expected = Some(version);
        let answer = self.start_changing_limit(LimitChange::Set(limit), expected)?.await;
        self.limit_changed(answer, expected).map(|(_, version)| version)
    }

    /// Adds `number` to the limit, and pins the sum as [`Semaphore::set_limit`] does. Returns the new limit. Calls of
    /// several sessions add up.
    ///
    /// # Errors
    /// [`AdminError::NoLimit`] if no limit is stored, [`AdminError::LimitOutOfRange`] if the sum is below 1 or above
    /// 2^32 − 1. A call whose reply was lost is sent again and counts once, unless 32 other changes of this semaphore
    /// have come between.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub async fn adjust_limit(&self, number: i64) -> Result<u32, AdminError> {
        let answer = self.start_changing_limit(LimitChange::Adjust(number), None)?.await;
        self.limit_changed(answer, None).map(|(limit, _)| limit)
    }

    /// Lets programs declare the limit again. The limit stays until one does. Returns its new version.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn unpin(&self) -> Result<u64, AdminError> {
        self.limit_changed(self.start_changing_limit(LimitChange::Unpin, None)?.await, None)
            .map(|(_, version)| version)
    }

    pub(crate) fn start_changing_limit(
        &self,
        change: LimitChange,
        expected_version: Option<u64>,
    ) -> Result<Answering, AdminError> {
        if change == LimitChange::Set(0) {
            Err(InvalidInput::ZeroLimit)?;
        }
        let request = self.session.new_request();
        self.administer(Operation::SetLimit { request, change, expected_version })
    }

    /// The limit and its version after a change.
    pub(crate) fn limit_changed(
        &self,
        answer: Answered,
        expected: Option<u64>,
    ) -> Result<(u32, u64), AdminError> {
        let Reply { answers, limit, limit_version: version, .. } = self.answered(answer)?;
        match answers {
            Answers::SetLimit(LimitOutcome::Done { limit, version }) => Ok((limit, version)),
            Answers::SetLimit(LimitOutcome::NoLimit) => {
                Err(AdminError::NoLimit { semaphore: self.name.clone()?.to_string() })
            }
            Answers::SetLimit(LimitOutcome::OutOfRange) => Err(AdminError::LimitOutOfRange { limit }),
            _ => Err(AdminError::VersionMismatch { expected: expected.unwrap_or_default(), version, limit }),
        }
    }

    /// Stops granting. Holders keep what they hold; waiters wait. It stays so until [`Semaphore::resume`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn pause(&self) -> Result<(), AdminError> {
        self.answered(self.administer(Operation::Pause(true))?.await).map(drop)
    }

    /// Grants again, beginning with the head of the line.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn resume(&self) -> Result<(), AdminError> {
        self.answered(self.administer(Operation::Pause(false))?.await).map(drop)
    }

    /// Takes a holder's permit or place in line away, and tells it why (at most 1,000 bytes). Returns whether
    /// there was anything to take. A call whose reply was lost is sent again and answered as the first one was, unless 32
    /// other changes of this semaphore have come between.
    ///
    /// The holder hears it at once if it is connected, and otherwise at its next renewal. Until it has heard
    /// it, it may go on working while another is granted its units: revoke who does not answer, or accept that.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn revoke(&self, holder: &str, reason: &str) -> Result<bool, AdminError> {
        self.revoked(self.start_revoking(holder, reason)?.await)
    }

    pub(crate) fn start_revoking(&self, holder: &str, reason: &str) -> Result<Answering, AdminError> {
        let (holder, reason) = (Holder::new(holder)?, check_reason(reason)?);
        let request = self.session.new_request();
        self.administer(Operation::Revoke { request, holder, reason })
    }

    /// Who holds and who waits: at most 1,000 of each.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn inspect(&self) -> Result<Inspection, AdminError> {
        self.inspect_up_to(INSPECT_MAX).await
    }

    /// Like [`Semaphore::inspect`], with the first `max` of each, at most 1,000: with 0, the counts alone.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn inspect_up_to(&self, max: u32) -> Result<Inspection, AdminError> {
        self.inspection(self.start_inspecting(max)?.await)
    }

    pub(crate) fn start_inspecting(&self, max: u32) -> Result<Answering, AdminError> {
        self.administer(Operation::Inspect { max: max.min(INSPECT_MAX) })
    }

    pub(crate) fn administer(&self, operation: Operation) -> Result<Answering, AdminError> {
        let semaphore = self.name.clone()?;
        let (answer, receiver) = oneshot::channel();
        self.session.send(Message::Admin { semaphore, operation, answer });
        Ok(receiver)
    }

    /// What was answered. No answer comes if the session has ended.
    pub(crate) fn answered(&self, answer: Answered) -> Result<Reply, AdminError> {
        answer.unwrap_or_else(|_| Err(self.session.ended().into()))
    }

    pub(crate) fn revoked(&self, answer: Answered) -> Result<bool, AdminError> {
        Ok(!matches!(self.answered(answer)?.answers, Answers::Revoke(ReleaseOutcome::Unknown)))
    }

    pub(crate) fn inspection(&self, answer: Answered) -> Result<Inspection, AdminError> {
        let reply = self.answered(answer)?;
        let name = self.name.clone()?.to_string();
        let Answers::Inspect(listed) = reply.answers else { return Err(AdminError::Closed) };
        let holders = listed.holders.into_iter().map(|holder| HolderInfo {
            holder: holder.holder.to_string(),
            weight: holder.weight,
            slot: holder.grant.slot,
            token: holder.grant.token,
            lease_remaining: Duration::from_millis(holder.lease_remaining_ms),
            age: Duration::from_micros(reply.now_us.saturating_sub(holder.grant.token)),
            label: text(&holder.label),
        });
        let waiters = listed.waiters.into_iter().enumerate().map(|(position, waiter)| WaiterInfo {
            holder: waiter.holder.to_string(),
            weight: waiter.weight,
            position: position as u64,
            age: Duration::from_micros(reply.now_us.saturating_sub(waiter.ticket)),
            label: text(&waiter.label),
        });
        Ok(Inspection {
            name,
            limit: (reply.limit > 0).then_some(reply.limit),
            limit_version: reply.limit_version,
            pinned: reply.pinned,
            paused: listed.paused,
            held: listed.held,
            waiting: listed.waiting,
            recovering: Duration::from_millis(reply.recovering_ms),
            holders: holders.collect(),
            waiters: waiters.collect(),
        })
    }
}

/// A label as people see it.
fn text(label: &Label) -> Option<String> {
    Some(label.as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// An answer on its way, and arrived. The channel closes when the session ends.
pub(crate) type Answering = oneshot::Receiver<Result<Reply, AdminError>>;
pub(crate) type Answered = Result<Result<Reply, AdminError>, oneshot::error::RecvError>;

/// A semaphore as [`Semaphore::inspect`] found it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Its name.
    pub name: String,
    /// How many units may be held at once; `None` if nobody has said.
    pub limit: Option<u32>,
    /// Rises with every change of the limit or its pin.
    pub limit_version: u64,
    /// Whether an operator set the limit.
    pub pinned: bool,
    /// Whether granting is stopped.
    pub paused: bool,
    /// How many units are held.
    pub held: u64,
    /// How many wait.
    pub waiting: u64,
    /// How long free capacity is still held back after a restart of the store; zero otherwise.
    pub recovering: Duration,
    /// Who holds, soonest end of lease first. At most 1,000.
    pub holders: Vec<HolderInfo>,
    /// Who waits, first in line first. At most 1,000.
    pub waiters: Vec<WaiterInfo>,
}

/// A holder, in an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// Its name.
    pub holder: String,
    /// Its units.
    pub weight: u32,
    /// Its slot.
    pub slot: u32,
    /// Its fencing token.
    pub token: u64,
    /// How long its lease still runs.
    pub lease_remaining: Duration,
    /// How long ago it was granted, by the store's clock. A token is the time of its grant, or a little more where
    /// the clock has not moved on since the grant before; so this is never too long, unless that clock was set.
    pub age: Duration,
    /// Its label, if it was given one.
    pub label: Option<String>,
}

/// A waiter, in an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// Its name.
    pub holder: String,
    /// The units it asks for.
    pub weight: u32,
    /// How many stand before it.
    pub position: u64,
    /// For how long it has waited at this place in line, by the store's clock, as exactly as the age of a holder.
    pub age: Duration,
    /// Its label, if it was given one.
    pub label: Option<String>,
}
