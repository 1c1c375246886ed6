//! [`Semaphore`]: turns options into messages to the session, and replies into types.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::error::{AcquireError, AdminError};
use crate::inspection::Inspection;
use crate::model::INSPECT_MAX;
use crate::observe::meters::SemaphoreMeters;
use crate::options::{AcquireOptions, Limit};
use crate::protocol::{
    self, Answers, Declaration, DeleteOutcome, Holder, InvalidInput, Label, LaneName, LimitChange,
    LimitOutcome, Name, Operation, Pause, PermitTerms, ReleaseOutcome, check_at_least, check_lease,
    check_max_hold, check_pause, check_reason, check_share,
};
use crate::reply::Reply;
use crate::session::callers::{Message, PermitGuard, Session};
use crate::session::pending_acquire::PendingAcquire;
use crate::session::shelf::Keep;
use crate::session::spec::{AcquireSpec, LimitDeclaration};
use crate::store::StoreError;
use crate::sys::clock::{Moment, millis};

/// A named line with a limit. Cheap to clone.
///
/// Made by [`Client::semaphore`](crate::Client::semaphore). First come, first served: a request is granted
/// when all that came before it have been, also if it is for fewer units than they.
#[derive(Clone)]
pub struct Semaphore {
    session: Session,
    name: Name,
    limit: Arc<LimitDeclaration>,
    meters: SemaphoreMeters,
    keep: Option<Keep>,
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit) = (self.name(), self.limit.first());
        f.debug_struct("Semaphore").field("name", &name).field("limit", &limit).finish()
    }
}

impl Semaphore {
    pub(crate) fn new(session: Session, name: &str, limit: Limit) -> Result<Self, InvalidInput> {
        let first = limit.declaration()?;
        let name = Name::new(name)?;
        let limit = session.declaration(&name, first);
        let meters = session.meters(&name);
        let idle = session.keep();
        Ok(Self { session, name, limit, meters, keep: None }.keep(idle))
    }

    /// Keeps permits: one that is released while no request waits stays with this client for `idle`, and is
    /// granted to the client's next request without a call to the store. `idle` counts as a third of the
    /// lease if it is longer; zero keeps none. The setting is that of this handle and its clones. Unless set,
    /// it is that of the client: [`ClientBuilder::keep`](crate::ClientBuilder::keep).
    ///
    /// The store counts what is kept as held, and cannot distinguish it from use:
    /// [`HolderInfo::may_be_kept`](crate::HolderInfo::may_be_kept) marks both. When a request there needs
    /// units, the limit is lowered, or an operator pauses, closes or deletes the semaphore, the store recalls
    /// what is kept by one message; this client releases it, and keeps nothing until no request waits. So a
    /// waiter may be overtaken by requests of this client for as long as that message travels, or if it is
    /// lost until the next renewal, a third of the lease; and by none afterwards. A request that does not
    /// wait is queued for kept units, for 50 ms at most. After a failed call or a lost connection, this
    /// client releases what it keeps, too.
    ///
    /// A kept permit serves a request for as many units with the same lease and label, of a handle that keeps
    /// and declares the same limit. The request names no [`holder`](AcquireOptions::holder), is renewed
    /// [automatically](AcquireOptions::auto_renew) and counts for no [time](AcquireOptions::at_least). Other
    /// requests use the store. Each grant has a higher [token](crate::Permit::token) than those before it in
    /// its slot; the holder's name is that of the store's grant.
    ///
    /// A client that is closed, or whose last handle is dropped, releases what it keeps. If a program ends
    /// without that, it stays taken until its lease ends.
    ///
    /// # Cancel safety
    /// An acquisition that a kept permit serves has it from the call on: poll it or drop it. Dropped, it
    /// leaves the permit with the client.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 500)?.keep(Duration::from_millis(200));
    /// for _ in 0..100 {
    ///     let permit = api.acquire().await?;
    ///     // … the call
    ///     permit.release().await?;
    /// }
    /// assert!(api.inspect().await?.counts.grants < 100, "most were granted by this client");
    /// client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keep(mut self, idle: Duration) -> Self {
        let declaration = self.limit.first();
        let keep = || Keep { shelf: self.session.shelf(&self.name), idle, declaration };
        self.keep = (!idle.is_zero()).then(keep);
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Acquires one unit, waiting in line for it without limit.
    ///
    /// # Errors
    /// [`AcquireError`], but none that [is for now](AcquireError::is_not_now) except `QueueFull` and
    /// `LineClosed`. If the store cannot be reached, calls are retried for
    /// [`store_timeout`](crate::ClientBuilder::store_timeout).
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
    /// [`AcquireError::NoPermits`] if not; after 50 ms at most, if units may be [kept](Semaphore::keep).
    /// [`AcquireError::Cooling`] if it is known when.
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
        match self.take_kept(&options) {
            Some(kept) => Acquire::kept(kept),
            None => Acquire::new(self.start_acquiring(options)),
        }
    }

    /// A permit that this client keeps, if these options allow it.
    fn take_kept(&self, options: &AcquireOptions) -> Option<PermitGuard> {
        let keep = self.keep.as_ref().filter(|_| options.may_be_kept())?;
        if self.session.is_forked() {
            return None;
        }
        let lease_ms = millis(options.lease.unwrap_or(self.session.lease()));
        let label = options.label.as_deref().unwrap_or_default();
        let lane = options.lane.as_deref().unwrap_or_default();
        let fits = |terms: &PermitTerms| {
            terms.weight == options.weight
                && terms.lease_ms == lease_ms
                && terms.label.as_str() == label
                && (terms.lane.as_str(), terms.share) == (lane, options.share)
        };
        let permit = keep.shelf.take(keep.declaration, fits, Moment::now)?;
        permit.observe_local_grant();
        let keep = keep.within(permit.lease());
        Some(PermitGuard::new(permit, self.session.clone(), Some(keep)))
    }

    fn start_acquiring(&self, options: AcquireOptions) -> Result<PendingAcquire, AcquireError> {
        if options.weight == 0 {
            Err(InvalidInput::ZeroWeight)?;
        }
        let at_least_ms = u64::try_from(options.at_least.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let terms = PermitTerms {
            weight: options.weight,
            lease_ms: check_lease(millis(options.lease.unwrap_or(self.session.lease())))?,
            at_least_ms: check_at_least(at_least_ms)?,
            label: Label::new(options.label.as_deref().unwrap_or_default())?,
            keep: self.keep.is_some() && options.may_be_kept(),
            lane: LaneName::new(options.lane.as_deref().unwrap_or_default())?,
            share: check_share(options.share)?,
        };
        if let Some(time) = options.max_hold {
            check_max_hold(time)?;
        }
        if options.supersedes && options.holder.is_none() {
            Err(InvalidInput::SupersedesNone)?;
        }
        let keep = self.keep.as_ref().filter(|_| terms.keep).map(|keep| keep.within(terms.lease()).idle);
        let holder = options.holder.map(|holder| Holder::new(&holder)).transpose()?;
        let names = self.session.new_names(holder);
        let spec = AcquireSpec {
            wait: options.wait,
            auto_renew: options.auto_renew,
            max_hold: options.max_hold,
            supersedes: options.supersedes,
            keep,
            meters: self.meters.clone(),
            ..AcquireSpec::new(self.name.clone(), names, terms, self.limit.clone())
        };
        Ok(PendingAcquire::new(&self.session, spec))
    }

    /// Declares the limit without acquiring: from now on [`Semaphore::inspect`] shows it. It counts as a
    /// declaration by an acquisition does: an operator's pinned limit stays, and a higher limit grants at
    /// once. Returns the limit in force.
    ///
    /// A semaphore that is not used is forgotten, as after an acquisition: with the default lease, between
    /// half a minute and a minute after its last use.
    ///
    /// # Errors
    /// [`AdminError::LimitMismatch`] if the limit is [`Limit::Exactly`] and another one is in force;
    /// [`AdminError::NoLimit`] if it is [`Limit::Stored`] and none is stored; [`AdminError`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub fn declare(&self) -> Reply<u32, AdminError> {
        let declared = self.limit.clone();
        // An empty batch of renewals applies the declaration, and grants what it lets through.
        self.administer(self.limit.first(), Operation::Renew(Vec::new()), move |name, reply| {
            let semaphore = name.to_string();
            match (declared.first(), reply.limit) {
                (_, 0) => Err(AdminError::NoLimit { semaphore }),
                (Declaration::Require(required), stored) if required != stored => {
                    Err(AdminError::LimitMismatch { semaphore, required, stored })
                }
                (_, limit) => {
                    declared.note_reply(reply.pinned);
                    Ok(limit)
                }
            }
        })
    }

    /// Sets the limit and pins it: from now on declarations of programs are ignored, until
    /// [`Semaphore::unpin`].
    ///
    /// A higher limit grants at once. A lower one revokes no permit: nothing is granted until the held units
    /// fit. Waiters for more units than the new limit are refused, at the latest at their next renewal.
    /// Returns the limit's new version.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub fn set_limit(&self, limit: u32) -> Reply<u64, AdminError> {
        self.set_limit_from(limit, None)
    }

    /// Like [`Semaphore::set_limit`], but only if the limit is still at `version`, as [`Semaphore::inspect`]
    /// showed it. Of several changes at one version one succeeds, also if they set the same limit.
    ///
    /// # Errors
    /// [`AdminError::VersionMismatch`] if it is not. A call whose reply was lost is sent again and answered
    /// as the first one was, unless 256 other changes of this semaphore have come between.
    pub fn set_limit_if_version(&self, limit: u32, version: u64) -> Reply<u64, AdminError> {
        self.set_limit_from(limit, Some(version))
    }

    fn set_limit_from(&self, limit: u32, expected_version: Option<u64>) -> Reply<u64, AdminError> {
        if limit == 0 {
            return Reply::failed(InvalidInput::ZeroLimit);
        }
        self.change_limit(LimitChange::Set(limit), expected_version, |(_, version)| version)
    }

    /// Adds `number` to the limit, and pins the sum as [`Semaphore::set_limit`] does. Returns the new limit.
    /// Calls of several sessions add up.
    ///
    /// # Errors
    /// [`AdminError::NoLimit`] if no limit is stored, [`AdminError::LimitOutOfRange`] if the sum is below 1
    /// or above 2^32 − 1. A call whose reply was lost is sent again and counts once, unless 256 other changes
    /// of this semaphore have come between.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub fn adjust_limit(&self, number: i64) -> Reply<u32, AdminError> {
        self.change_limit(LimitChange::Adjust(number), None, |(limit, _)| limit)
    }

    /// Lets programs declare the limit again: each does with its next request, and the limit stays until
    /// then. Returns its new version.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn unpin(&self) -> Reply<u64, AdminError> {
        self.change_limit(LimitChange::Unpin, None, |(_, version)| version)
    }

    /// Changes the limit. `result` gets the limit and its version after the change.
    fn change_limit<T: Send + 'static>(
        &self,
        change: LimitChange,
        expected_version: Option<u64>,
        result: fn((u32, u64)) -> T,
    ) -> Reply<T, AdminError> {
        let origin = self.session.new_change();
        let operation = Operation::SetLimit { origin, change, expected_version };
        self.administer(Declaration::Stored, operation, move |name, reply| {
            let (limit, version) = (reply.limit, reply.limit_version);
            match reply.answers {
                Answers::SetLimit(LimitOutcome::Done { limit, version }) => Ok(result((limit, version))),
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

    /// Stops granting, for a reason of at most 1,000 bytes, which may be empty. Holders keep what they hold;
    /// waiters wait. It stays so until [`Semaphore::resume`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn pause(&self, reason: &str) -> Reply<(), AdminError> {
        self.pause_until(None, reason)
    }

    /// Stops granting for `time`, 1 ms to 366 days, rounded up to a millisecond. Then the store grants again
    /// by itself. Of two pauses the one that ends later counts, so a call never makes a pause shorter:
    /// [`Semaphore::resume`] ends it.
    ///
    /// For one worker of many that learns that all have to stop: an API that answers 429 with `Retry-After`,
    /// a maintenance.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 20)?;
    /// api.pause_for(Duration::from_secs(30), "429 from the API").await?;
    /// let refused = api.try_acquire().await.expect_err("it is paused");
    /// assert!(refused.retry_after().is_some_and(|wait| wait <= Duration::from_secs(30)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause_for(&self, time: Duration, reason: &str) -> Reply<(), AdminError> {
        match check_pause(time) {
            Ok(for_ms) => self.pause_until(Some(for_ms), reason),
            Err(invalid) => Reply::failed(invalid),
        }
    }

    /// Grants again, beginning with the head of the line.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn resume(&self) -> Reply<(), AdminError> {
        self.change_pause(None)
    }

    fn pause_until(&self, for_ms: Option<u64>, reason: &str) -> Reply<(), AdminError> {
        match check_reason(reason) {
            Ok(reason) => self.change_pause(Some(Pause { for_ms, reason })),
            Err(invalid) => Reply::failed(invalid),
        }
    }

    fn change_pause(&self, pause: Option<Pause>) -> Reply<(), AdminError> {
        let origin = self.session.new_change();
        self.administer(Declaration::Stored, Operation::Pause { origin, pause }, |_, _| Ok(()))
    }

    /// Closes the line: waiters are refused with the reason (at most 1,000 bytes), and so are new requests,
    /// until [`Semaphore::open_line`]. Holders keep what they hold, renew and release.
    ///
    /// A [pause](Semaphore::pause) lets requests wait. A closed line sends them away: for a resource that has
    /// moved, or will be down for longer than they should wait. Connected waiters are notified at once, the
    /// first 500 by this call and the others by calls for which the store asks their sessions.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub fn close_line(&self, reason: &str) -> Reply<(), AdminError> {
        match check_reason(reason) {
            Ok(reason) => self.change_line(Some(reason)),
            Err(invalid) => Reply::failed(invalid),
        }
    }

    fn change_line(&self, reason: Option<Arc<str>>) -> Reply<(), AdminError> {
        let origin = self.session.new_change();
        self.administer(Declaration::Stored, Operation::CloseLine { origin, reason }, |_, _| Ok(()))
    }

    /// Opens a closed line.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn open_line(&self) -> Reply<(), AdminError> {
        self.change_line(None)
    }

    /// Revokes a holder's permit, or a waiter's request, and sends it the reason (at most 1,000 bytes).
    /// Returns whether the semaphore had either. A call whose reply was lost is sent again and answered as
    /// the first one was, unless 256 other changes of this semaphore have come between.
    ///
    /// A connected holder is notified at once, others at their next renewal. Until then the holder may
    /// continue to work while another is granted its units: revoke holders that do not answer, or accept the
    /// overlap.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn revoke(&self, holder: &str, reason: &str) -> Reply<bool, AdminError> {
        self.remove(holder, None, reason)
    }

    /// Frees a grant that cools: see [`AcquireOptions::at_least`](crate::AcquireOptions::at_least). `token`
    /// is that of the grant, from [`HolderInfo::token`](crate::HolderInfo::token). Returns whether it cooled.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn revoke_cooling(&self, holder: &str, token: u64) -> Reply<bool, AdminError> {
        self.remove(holder, Some(token), "")
    }

    fn remove(&self, holder: &str, cooling: Option<u64>, reason: &str) -> Reply<bool, AdminError> {
        let checked = Holder::new(holder).and_then(|holder| Ok((holder, check_reason(reason)?)));
        let (holder, reason) = match checked {
            Ok(checked) => checked,
            Err(invalid) => return Reply::failed(invalid),
        };
        let origin = self.session.new_change();
        self.administer(
            Declaration::Stored,
            Operation::Revoke { origin, holder, cooling, reason },
            |_, reply| Ok(reply.answers != Answers::Revoke(ReleaseOutcome::Unknown)),
        )
    }

    /// Forgets the semaphore at once, with all that the store knows of it: the limit, an operator's pin, a
    /// pause, and a closed line. Returns whether there was one. An idle semaphore is forgotten without that,
    /// except if it is pinned, paused or closed.
    ///
    /// A call whose reply was lost is sent again, and returns true if there is then none. The tokens of a
    /// later semaphore of this name are higher than those before, because a token is the time of its grant.
    ///
    /// # Errors
    /// [`AdminError::InUse`] while units are held or cool, or requests wait; [`AdminError::Recovering`] in a
    /// recovery window; [`AdminError`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub fn delete(&self) -> Reply<bool, AdminError> {
        self.forget(false)
    }

    /// Deletes the semaphore also if it cannot be read:
    /// [`StoreError::Unreadable`](crate::StoreError::Unreadable), or
    /// [`StoreError::OtherLayout`](crate::StoreError::OtherLayout). Then it is deleted even if it is in use,
    /// and the store does not know its holders any more: more than the limit may be held until their leases
    /// have ended. One that can be read is deleted as by [`Semaphore::delete`], only if it is idle.
    ///
    /// # Errors
    /// As [`Semaphore::delete`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it may have been done.
    pub fn delete_unreadable(&self) -> Reply<bool, AdminError> {
        self.forget(true)
    }

    fn forget(&self, unreadable: bool) -> Reply<bool, AdminError> {
        self.administer(Declaration::Stored, Operation::Delete { unreadable }, |name, reply| {
            let semaphore = name.to_string();
            match reply.answers {
                Answers::Delete(DeleteOutcome::Deleted) => Ok(true),
                Answers::Delete(DeleteOutcome::InUse { held, waiting }) => {
                    Err(AdminError::InUse { semaphore, held, waiting })
                }
                Answers::Delete(DeleteOutcome::Recovering) => {
                    let remaining = Duration::from_millis(reply.recovering_ms);
                    Err(AdminError::Recovering { semaphore, remaining })
                }
                _ => Ok(false),
            }
        })
    }

    /// The limit, the first 1,000 holders and 1,000 waiters, and the last changes by operators.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn inspect(&self) -> Reply<Inspection, AdminError> {
        self.inspect_up_to(INSPECT_MAX)
    }

    /// Like [`Semaphore::inspect`], with at most `max` of each, and at most 1,000: with 0, the counts alone.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn inspect_up_to(&self, max: u32) -> Reply<Inspection, AdminError> {
        let operation = Operation::Inspect { max: max.min(INSPECT_MAX) };
        self.administer(Declaration::Stored, operation, |name, reply| match Inspection::new(name, reply) {
            Some(inspection) => Ok(inspection),
            None => Err(AdminError::Store(StoreError::Malformed { reason: "no inspection".into() })),
        })
    }

    /// The units that are not held: the limit less the held units, at least 0. A request for as many may
    /// still wait: behind others, or because the semaphore is paused or the store recovers. The limit is the
    /// stored one; if none is stored, because the semaphore is not used, the one that this program declares.
    ///
    /// # Errors
    /// [`AdminError::NoLimit`] if no limit is stored and the program declares none; [`AdminError`].
    pub fn available(&self) -> Reply<u32, AdminError> {
        let (declared, inspection) = (self.limit.limit(), self.inspect_up_to(0));
        Reply::new(async move {
            let found = inspection.await?;
            match found.limit.or(declared) {
                Some(limit) => Ok(limit.saturating_sub(u32::try_from(found.held).unwrap_or(u32::MAX))),
                None => Err(AdminError::NoLimit { semaphore: found.name }),
            }
        })
    }

    /// Executes an operation on the semaphore itself, and makes the result of the reply.
    fn administer<T: Send + 'static>(
        &self,
        declaration: Declaration,
        operation: Operation,
        result: impl FnOnce(Name, protocol::Reply) -> Result<T, AdminError> + Send + 'static,
    ) -> Reply<T, AdminError> {
        let (session, name, semaphore) = (self.session.clone(), self.name.clone(), self.name.clone());
        Reply::new(async move {
            let message = |answer| Message::Admin { semaphore, declaration, operation, answer };
            result(name, session.call(message).await?)
        })
    }
}
