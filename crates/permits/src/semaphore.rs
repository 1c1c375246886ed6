//! [`Semaphore`]: turns options into messages to the session, and replies into types.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::error::{AcquireError, AdminError};
use crate::model::INSPECT_MAX;
use crate::protocol::{
    self, Answers, Declaration, Holder, InvalidInput, Label, LimitChange, LimitOutcome, Name, Operation,
    ReleaseOutcome, check_lease, check_reason,
};
use crate::session::inbox::{
    AcquireSpec, LimitDeclaration, Message, PendingAcquire, PendingReply, Session, Wait,
};
use crate::store::StoreError;

/// A named line with a limit. Cheap to clone.
///
/// Made by [`Client::semaphore`](crate::Client::semaphore). First come, first served: a request is granted when all that
/// came before it have been, also if it is for fewer units than they.
#[derive(Debug, Clone)]
pub struct Semaphore {
    session: Session,
    name: Name,
    limit: Arc<LimitDeclaration>,
}

/// The limit that a program expects of a semaphore. A number is [`Limit::Declared`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use permits::Limit;
///
/// # let client = permits::Client::connect("memory:").await?;
/// let declared = client.semaphore("exports", 4)?;
/// # declared.acquire().await?;
/// let stored = client.semaphore("exports", Limit::Stored)?;
/// let required = client.semaphore("exports", Limit::Exactly(4))?;
/// # stored.acquire().await?;
/// # required.acquire().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// This limit, at least 1. The last declaration of any program counts, until an operator pins another limit
    /// ([`Semaphore::set_limit`]), which is then logged as a warning. A handle declares it with its first acquisition;
    /// from then on the limit counts only where none is stored.
    Declared(u32),
    /// The stored limit. Without one, acquiring fails with [`AcquireError::NoLimit`].
    Stored,
    /// This limit, at least 1, declared where none is stored. While another one is in force, acquiring fails with
    /// [`AcquireError::LimitMismatch`].
    Exactly(u32),
}

impl From<u32> for Limit {
    fn from(limit: u32) -> Self {
        Self::Declared(limit)
    }
}

impl From<NonZeroU32> for Limit {
    fn from(limit: NonZeroU32) -> Self {
        Self::Declared(limit.get())
    }
}

impl Limit {
    fn declaration(self) -> Result<Declaration, InvalidInput> {
        match self {
            Self::Declared(0) | Self::Exactly(0) => Err(InvalidInput::ZeroLimit),
            Self::Declared(limit) => Ok(Declaration::Declare(limit)),
            Self::Stored => Ok(Declaration::Stored),
            Self::Exactly(limit) => Ok(Declaration::Require(limit)),
        }
    }
}

/// Options of an acquisition.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use permits::AcquireOptions;
/// use std::time::Duration;
///
/// # let client = permits::Client::connect("memory:").await?;
/// let seats = client.semaphore("licence seats", 8)?;
/// let options = AcquireOptions::new().weight(2).timeout(Duration::from_secs(30));
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
    auto_renew: bool,
}

impl Default for AcquireOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl AcquireOptions {
    /// One unit, a holder of its own, waiting without limit, the client's lease, renewed in the background.
    pub fn new() -> Self {
        Self { weight: 1, holder: None, label: None, wait: Wait::Forever, lease: None, auto_renew: true }
    }

    /// The number of units: at least 1, at most the limit; 1 unless set.
    #[must_use]
    pub fn weight(mut self, units: u32) -> Self {
        self.weight = units;
        self
    }

    /// The holder, 1–200 bytes of printable UTF-8. One holder has at most one permit of a semaphore: while it holds or
    /// waits, a second request is refused with [`AcquireError::AlreadyHeld`]. Unique unless set.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// A note for operators, shown beside the holder by [`Semaphore::inspect`]: at most 120 bytes of printable UTF-8. Many
    /// holders may have the same. None unless set.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Waits in line for `limit` at most; without limit unless set. Zero is [`AcquireOptions::no_wait`].
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.wait = if limit.is_zero() { Wait::No } else { Wait::AtMost(limit) };
        self
    }

    /// Does not wait: refused with [`AcquireError::NoPermits`] unless it can be granted now.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.wait = Wait::No;
        self
    }

    /// The lease: 100 ms to 1 day; the client's unless set.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Returns true if the client renews the permit in the background: `true` unless set. If `false`, the permit ends with its
    /// lease unless [`Permit::renew`](crate::Permit::renew) is called. A waiter is always renewed.
    #[must_use]
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.auto_renew = renew;
        self
    }
}

impl Semaphore {
    pub(crate) fn new(session: Session, name: &str, limit: Limit) -> Result<Self, InvalidInput> {
        let limit = Arc::new(LimitDeclaration::new(limit.declaration()?));
        Ok(Self { session, name: Name::new(name)?, limit })
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Acquires one unit, waiting in line for it without limit.
    ///
    /// # Errors
    /// [`AcquireError`], but none that [is for now](AcquireError::is_not_now) except `QueueFull`. If the store
    /// cannot be reached, calls are retried for [`store_timeout`](crate::ClientBuilder::store_timeout).
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it leaves the line; a permit that was granted meanwhile is released.
    pub fn acquire(&self) -> Acquire {
        self.acquire_with(AcquireOptions::new())
    }

    /// Acquires several units at once: all or none, for one permit of this weight.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]; [`AcquireError::ExceedsLimit`] if `units` is above the limit.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_many(&self, units: u32) -> Acquire {
        self.acquire_with(AcquireOptions::new().weight(units))
    }

    /// Acquires one unit if it is free now and no request waits for it.
    ///
    /// # Errors
    /// [`AcquireError::NoPermits`] if not.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn try_acquire(&self) -> Acquire {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Acquires as the options say, but does not wait.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn try_acquire_with(&self, options: AcquireOptions) -> Acquire {
        self.acquire_with(options.no_wait())
    }

    /// Acquires as the options say.
    ///
    /// # Errors
    /// [`AcquireError`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_with(&self, options: AcquireOptions) -> Acquire {
        Acquire::new(self.start_acquiring(options))
    }

    fn start_acquiring(&self, options: AcquireOptions) -> Result<PendingAcquire, AcquireError> {
        if options.weight == 0 {
            Err(InvalidInput::ZeroWeight)?;
        }
        if let Some(lease) = options.lease {
            check_lease(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))?;
        }
        let holder = options.holder.map(|holder| Holder::new(&holder)).transpose()?;
        let label = Label::new(options.label.as_deref().unwrap_or_default())?;
        let request = self.session.new_request();
        Ok(self.session.acquire(AcquireSpec {
            semaphore: self.name.clone(),
            holder: holder.unwrap_or_else(|| self.session.default_holder(&request)),
            request,
            label,
            weight: options.weight,
            lease: options.lease.unwrap_or(self.session.lease()),
            wait: options.wait,
            auto_renew: options.auto_renew,
            limit: self.limit.clone(),
            position: Arc::default(),
        }))
    }

    /// Sets the limit and pins it: from now on declarations of programs are ignored, until [`Semaphore::unpin`].
    ///
    /// A higher limit grants at once. A lower one revokes no permit: nothing is granted until the held units fit.
    /// Waiters for more units than the new limit are refused, at the latest at their next renewal. Returns the limit's new
    /// version.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub async fn set_limit(&self, limit: u32) -> Result<u64, AdminError> {
        self.start_set_limit(limit, None).await
    }

    /// Like [`Semaphore::set_limit`], but only if the limit is still at `version`, as [`Semaphore::inspect`]
    /// showed it. Of several changes at one version one succeeds, also if they set the same limit.
    ///
    /// # Errors
    /// [`AdminError::VersionMismatch`] if it is not. A call whose reply was lost is sent again and answered as the first
    /// one was, unless 32 other changes of this semaphore have come between.
    pub async fn set_limit_if_version(&self, limit: u32, version: u64) -> Result<u64, AdminError> {
        self.start_set_limit(limit, Some(version)).await
    }

    pub(crate) fn start_set_limit(&self, limit: u32, expected_version: Option<u64>) -> Reply<u64> {
        if limit == 0 {
            return Reply::failed(InvalidInput::ZeroLimit.into());
        }
        self.change_limit(LimitChange::Set(limit), expected_version).and_then(|(_, version)| Ok(version))
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
        self.start_adjust_limit(number).await
    }

    pub(crate) fn start_adjust_limit(&self, number: i64) -> Reply<u32> {
        self.change_limit(LimitChange::Adjust(number), None).and_then(|(limit, _)| Ok(limit))
    }

    /// Lets programs declare the limit again. The limit stays until one does. Returns its new version.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn unpin(&self) -> Result<u64, AdminError> {
        self.start_unpin().await
    }

    pub(crate) fn start_unpin(&self) -> Reply<u64> {
        self.change_limit(LimitChange::Unpin, None).and_then(|(_, version)| Ok(version))
    }

    /// Changes the limit. Returns the limit and its version after the change.
    fn change_limit(&self, change: LimitChange, expected_version: Option<u64>) -> Reply<(u32, u64)> {
        let request = self.session.new_request();
        let operation = Operation::SetLimit { request, change, expected_version };
        self.administer(operation, move |name, reply| {
            let (limit, version) = (reply.limit, reply.limit_version);
            match reply.answers {
                Answers::SetLimit(LimitOutcome::Done { limit, version }) => Ok((limit, version)),
                Answers::SetLimit(LimitOutcome::NoLimit) => {
                    Err(AdminError::NoLimit { semaphore: name.to_string() })
                }
                Answers::SetLimit(LimitOutcome::OutOfRange) => Err(AdminError::LimitOutOfRange { limit }),
                _ => {
                    let expected = expected_version.unwrap_or_default();
                    Err(AdminError::VersionMismatch { expected, version, limit })
                }
            }
        })
    }

    /// Stops granting. Holders keep what they hold; waiters wait. It stays so until [`Semaphore::resume`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn pause(&self) -> Result<(), AdminError> {
        self.start_pause(true).await
    }

    /// Grants again, beginning with the head of the line.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn resume(&self) -> Result<(), AdminError> {
        self.start_pause(false).await
    }

    pub(crate) fn start_pause(&self, paused: bool) -> Reply<()> {
        self.administer(Operation::Pause(paused), |_, _| Ok(()))
    }

    /// Revokes a holder's permit, or a waiter's request, and sends it the reason (at most 1,000 bytes). Returns whether
    /// the semaphore had either. A call whose reply was lost is sent again and answered as the first one was, unless 32
    /// other changes of this semaphore have come between.
    ///
    /// A connected holder is notified at once, others at their next renewal. Until then the holder may continue to work
    /// while another is granted its units: revoke holders that do not answer, or accept the overlap.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn revoke(&self, holder: &str, reason: &str) -> Result<bool, AdminError> {
        self.start_revoke(holder, reason).await
    }

    pub(crate) fn start_revoke(&self, holder: &str, reason: &str) -> Reply<bool> {
        let checked = Holder::new(holder).and_then(|holder| Ok((holder, check_reason(reason)?)));
        let (holder, reason) = match checked {
            Ok(checked) => checked,
            Err(invalid) => return Reply::failed(invalid.into()),
        };
        let request = self.session.new_request();
        self.administer(Operation::Revoke { request, holder, reason }, |_, reply| {
            Ok(reply.answers != Answers::Revoke(ReleaseOutcome::Unknown))
        })
    }

    /// The limit, and the first 1,000 holders and 1,000 waiters.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn inspect(&self) -> Result<Inspection, AdminError> {
        self.start_inspect(INSPECT_MAX).await
    }

    /// Like [`Semaphore::inspect`], with the first `max` of each, at most 1,000: with 0, the counts alone.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn inspect_up_to(&self, max: u32) -> Result<Inspection, AdminError> {
        self.start_inspect(max).await
    }

    pub(crate) fn start_inspect(&self, max: u32) -> Reply<Inspection> {
        let operation = Operation::Inspect { max: max.min(INSPECT_MAX) };
        self.administer(operation, |name, reply| match Inspection::new(name, reply) {
            Some(inspection) => Ok(inspection),
            None => Err(AdminError::Store(StoreError::Malformed { reason: "no inspection".into() })),
        })
    }

    /// The units that are not held: the limit less the held units, at least 0. A request for as many may still wait:
    /// behind others, or because the semaphore is paused or the store recovers.
    ///
    /// # Errors
    /// [`AdminError::NoLimit`] if no limit is stored; [`AdminError`].
    pub async fn available(&self) -> Result<u32, AdminError> {
        self.start_available().await
    }

    pub(crate) fn start_available(&self) -> Reply<u32> {
        self.start_inspect(0).and_then(|found| match found.limit {
            Some(limit) => Ok(limit.saturating_sub(u32::try_from(found.held).unwrap_or(u32::MAX))),
            None => Err(AdminError::NoLimit { semaphore: found.name }),
        })
    }

    /// Executes an operation on the semaphore itself, and makes the result of the reply.
    fn administer<T: 'static>(
        &self,
        operation: Operation,
        result: impl FnOnce(Name, protocol::Reply) -> Result<T, AdminError> + Send + 'static,
    ) -> Reply<T> {
        let (name, semaphore) = (self.name.clone(), self.name.clone());
        let call = self.session.call(|answer| Message::Admin { semaphore, operation, answer });
        call.and_then(move |reply| result(name, reply))
    }
}

/// The reply to an operation on a semaphore itself.
type Reply<T> = PendingReply<protocol::Reply, AdminError, T>;

impl Inspection {
    /// `None` if the reply is not one to an inspection.
    fn new(name: Name, reply: protocol::Reply) -> Option<Self> {
        let Answers::Inspect(listed) = reply.answers else { return None };
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
        Some(Self {
            name: name.to_string(),
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

/// A label as it is shown.
fn text(label: &Label) -> Option<String> {
    Some(label.as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The state of a semaphore, returned by [`Semaphore::inspect`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Its name.
    pub name: String,
    /// The limit; `None` if none is stored.
    pub limit: Option<u32>,
    /// The version of the limit: rises with every change of the limit or its pin.
    pub limit_version: u64,
    /// True if an operator has pinned the limit.
    pub pinned: bool,
    /// True if granting is stopped.
    pub paused: bool,
    /// The held units.
    pub held: u64,
    /// The number of waiters.
    pub waiting: u64,
    /// The time for which the store still grants no free units after a restart; zero otherwise.
    pub recovering: Duration,
    /// The first 1,000 holders, by the end of their leases.
    pub holders: Vec<HolderInfo>,
    /// The first 1,000 waiters, in order.
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
    /// The rest of its lease.
    pub lease_remaining: Duration,
    /// The time since its grant, by the store's clock. A token is the time of its grant, or a little more if the clock has
    /// not moved since the grant before. So the age is never too long, unless that clock was set.
    pub age: Duration,
    /// Its label, if it has one.
    pub label: Option<String>,
}

/// A waiter, in an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// Its name.
    pub holder: String,
    /// The units that it asks for.
    pub weight: u32,
    /// The number of waiters before it.
    pub position: u64,
    /// The time since it was queued, by the store's clock, as exact as the age of a holder.
    pub age: Duration,
    /// Its label, if it has one.
    pub label: Option<String>,
}
