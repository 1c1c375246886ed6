//! [`AcquireOptions`] and [`Limit`]: the arguments of a semaphore and its acquisitions.
//!
//! An option is described here once: its rules in [`AcquireOptions::checked`], its name and type in JSON,
//! from which other languages and `permits hold` make a request, in `fields`.

#[cfg(feature = "serde")]
mod fields;

use std::num::NonZeroU32;
use std::time::Duration;

use crate::clock::millis;
use crate::protocol::{
    Declaration, Holder, InvalidInput, Label, LaneName, MIN_LEASE_MS, PermitTerms, SupersedeKey,
    check_at_least, check_lease, check_max_hold, check_share,
};
use crate::session::spec::{ClientTerms, Wait};

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
#[derive(Debug, Clone, PartialEq)]
pub struct AcquireOptions {
    pub(crate) weight: u32,
    pub(crate) holder: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) lease: Option<Duration>,
    pub(crate) at_least: Duration,
    pub(crate) lane: Option<String>,
    pub(crate) share: Option<u32>,
    pub(crate) lane_limit: Option<u32>,
    pub(crate) lane_floor: Option<u32>,
    pub(crate) supersede: Option<String>,
    pub(crate) client: ClientTerms,
}

impl Default for AcquireOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl AcquireOptions {
    /// Returns the defaults: one unit, a unique holder, a wait without limit, the client's lease, and renewal
    /// in the background.
    pub fn new() -> Self {
        Self {
            weight: 1,
            holder: None,
            label: None,
            lease: None,
            at_least: Duration::ZERO,
            lane: None,
            share: None,
            lane_limit: None,
            lane_floor: None,
            supersede: None,
            client: ClientTerms::default(),
        }
    }

    /// Checks all rules, including those between options. Use it if you have the options before you have a
    /// client; each acquisition checks them anyway.
    ///
    /// # Errors
    /// [`InvalidInput`] for the first rule that is broken.
    ///
    /// # Examples
    /// ```
    /// use permits::AcquireOptions;
    ///
    /// assert!(AcquireOptions::new().lane("tenant-7").share(2).checked().is_ok());
    /// assert!(AcquireOptions::new().share(2).checked().is_err(), "a share of which lane?");
    /// ```
    pub fn checked(self) -> Result<Self, InvalidInput> {
        self.terms(Duration::from_millis(MIN_LEASE_MS), &Label::default())?;
        self.named_holder()?;
        Ok(self)
    }

    /// The terms of the permit. If the options set no lease or no label, it has these.
    pub(crate) fn terms(
        &self,
        session_lease: Duration,
        session_label: &Label,
    ) -> Result<PermitTerms, InvalidInput> {
        // Each option is named, so that a new option does not compile until it is checked and passed on here.
        let Self {
            weight,
            holder: _,
            label,
            lease,
            at_least,
            lane,
            share,
            lane_limit,
            lane_floor,
            supersede,
            client,
        } = self;
        let ClientTerms { wait, auto_renew: _, max_hold, lane_waiters: _ } = client;
        if *weight == 0 {
            return Err(InvalidInput::ZeroWeight);
        }
        self.check_lane()?;
        if supersede.as_deref() == Some("") {
            return Err(InvalidInput::Empty { what: "the supersede key", max: SupersedeKey::MAX_BYTES });
        }
        if supersede.is_some() && *wait == Wait::No {
            return Err(InvalidInput::SupersedesNow);
        }
        if let Some(time) = max_hold {
            check_max_hold(*time)?;
        }
        let at_least_ms = u64::try_from(at_least.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Ok(PermitTerms {
            weight: *weight,
            lease_ms: check_lease(millis(lease.unwrap_or(session_lease)))?,
            at_least_ms: check_at_least(at_least_ms)?,
            label: label.as_deref().map_or_else(|| Ok(session_label.clone()), Label::new)?,
            keep: false,
            lane: LaneName::new(lane.as_deref().unwrap_or_default())?,
            share: check_share(share.unwrap_or(1))?,
            lane_limit: lane_limit.unwrap_or(0),
            lane_floor: lane_floor.unwrap_or(0),
            supersede: SupersedeKey::new(supersede.as_deref().unwrap_or_default())?,
        })
    }

    fn check_lane(&self) -> Result<(), InvalidInput> {
        match (self.lane.as_deref(), self.share, self.lane_limit, self.lane_floor) {
            (Some(""), ..) => Err(InvalidInput::Empty { what: "the lane", max: LaneName::MAX_BYTES }),
            (None, Some(_), ..) => Err(InvalidInput::ShareOfNoLane),
            (None, None, Some(_), _) => Err(InvalidInput::LimitOfNoLane),
            (None, None, None, Some(_)) => Err(InvalidInput::FloorOfNoLane),
            (.., Some(0), _) => Err(InvalidInput::ZeroLaneLimit),
            (.., Some(limit), Some(floor)) if floor > limit => {
                Err(InvalidInput::FloorAboveLimit { floor, limit, what: "its limit" })
            }
            _ => match (self.lane.as_deref(), self.client.lane_waiters) {
                (None, Some(_)) => Err(InvalidInput::WaitersOfNoLane),
                (_, Some(0)) => Err(InvalidInput::ZeroLaneWaiters),
                _ => Ok(()),
            },
        }
    }

    /// The holder, if the options name one.
    pub(crate) fn named_holder(&self) -> Result<Option<Holder>, InvalidInput> {
        self.holder.as_deref().map(Holder::new).transpose()
    }

    /// Returns true if a kept permit may serve a request with these options.
    pub(crate) fn may_be_served(&self) -> bool {
        self.may_be_kept() && self.supersede.is_none() && self.check_lane().is_ok()
    }

    /// Returns true if the client may keep the permit of a request with these options.
    pub(crate) fn may_be_kept(&self) -> bool {
        // Each option is named, so that a new option does not compile until somebody has decided about it.
        // The options with an underscore may have any value.
        let Self {
            weight: _,
            holder,
            label: _,
            lease: _,
            at_least,
            lane: _,
            share: _,
            lane_limit: _,
            lane_floor: _,
            supersede: _,
            client,
        } = self;
        let ClientTerms { wait: _, auto_renew, max_hold, lane_waiters: _ } = client;
        holder.is_none() && *auto_renew && at_least.is_zero() && max_hold.is_none()
    }

    /// The number of units: at least 1, at most the limit. 1 unless set.
    #[must_use]
    pub fn weight(mut self, units: u32) -> Self {
        self.weight = units;
        self
    }

    /// The name of this acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit of
    /// a semaphore: while it holds or waits, a second request with its name is refused. Unique unless set.
    ///
    /// The error of the second request is [`AcquireError::AlreadyHeld`](crate::AcquireError::AlreadyHeld).
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// A note for operators, shown beside the holder: at most 120 bytes of printable UTF-8. Many holders
    /// may have the same label. The client's unless set; an empty label means no label.
    ///
    /// [`Semaphore::inspect`](crate::Semaphore::inspect) shows it, and
    /// [`ClientBuilder::label`](crate::ClientBuilder::label) sets the client's.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The longest wait in line; without limit unless set. With 0 the request does not wait: it is granted
    /// now, or refused.
    ///
    /// A timeout of 0 is [`AcquireOptions::no_wait`]. The time of the round trip counts: no request succeeds
    /// with a timeout above 0 that is shorter than that.
    ///
    /// Once the time is up, the error is [`AcquireError::TimedOut`](crate::AcquireError::TimedOut). It is
    /// [`AcquireError::Store`](crate::AcquireError::Store) instead if the store cannot be reached at that
    /// time, or has left calls about the semaphore without an answer for 250 ms.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.client.wait = if limit.is_zero() { Wait::No } else { Wait::AtMost(limit) };
        self
    }

    /// Does not wait in line. If the request cannot be granted now, it is refused with
    /// [`AcquireError::NoPermits`](crate::AcquireError::NoPermits), or with
    /// [`AcquireError::Cooling`](crate::AcquireError::Cooling) if it is known when units will be free.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.client.wait = Wait::No;
        self
    }

    /// The lease: how long a permit, or a place in line, stays valid if your process dies and nothing
    /// renews it. 100 ms to 1 day; the client's unless set.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Whether the client renews the permit in the background: `true` unless set. If `false`, the permit
    /// ends with its lease unless your program renews it. A request that waits is always renewed.
    ///
    /// [`Permit::renew`](crate::Permit::renew) renews it. If a server that lost its state comes back, the
    /// client puts such a permit back for the rest of its lease when it is connected again. If only some keys
    /// have vanished, only a renewal notices.
    #[must_use]
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.client.auto_renew = renew;
        self
    }

    /// The time for which the grant counts, up to 1 day; 0 unless set. If the permit is released or lost
    /// earlier, its units *cool*: they stay taken until that time has passed since the grant. For example,
    /// a limit of 100 and one minute admit at most 100 in any minute.
    ///
    /// A permit that cools has no holder. When it has cooled, the head of the line gets its units and its
    /// slot, as if they had been released then. The time is rounded up to a millisecond.
    ///
    /// A store that loses its state forgets which units cool.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::AcquireOptions;
    /// use std::time::Duration;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let requests = client.semaphore("requests", 2)?;
    /// let options = AcquireOptions::new().at_least(Duration::from_secs(60)).no_wait();
    /// drop(requests.acquire_with(options.clone()).await?);
    /// drop(requests.acquire_with(options.clone()).await?);
    /// assert!(requests.acquire_with(options).await.is_err(), "two were admitted within this minute");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn at_least(mut self, time: Duration) -> Self {
        self.at_least = time;
        self
    }

    /// The longest time for which the permit is held, at least 100 ms; without limit unless set. The permit
    /// is lost then, even if it is renewed: for work that may hang.
    ///
    /// The permit is [lost](crate::Permit::lost) as [`Lost::HeldTooLong`](crate::Lost::HeldTooLong). Its
    /// units are free when your program drops it, and at the end of the lease at the latest: two thirds of a
    /// lease after the loss or later, if the renewals have succeeded, and maybe at once if it is not renewed.
    /// Work that stops earlier does not overlap with the work of the next holder.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::{AcquireOptions, Lost};
    /// use std::time::Duration;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let exports = client.semaphore("exports", 4)?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(100));
    /// let permit = exports.acquire_with(options).await?;
    /// let hung = permit.run(std::future::pending::<()>()).await;
    /// assert!(matches!(hung, Err(Lost::HeldTooLong { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.client.max_hold = Some(time);
        self
    }

    /// A key, such as a branch: 1 to 120 bytes of printable UTF-8. At most one request waits for each key: a
    /// new request takes the place of the one that waits, which is refused. A permit with the key stays held.
    /// The request must wait: use a timeout above 0, or no timeout.
    ///
    /// The refused request gets [`AcquireError::Superseded`](crate::AcquireError::Superseded). So the newest
    /// request waits, and the turn is not lost. If the new request is in another [lane](Self::lane), it joins
    /// that lane at the end.
    ///
    /// A request that can never be granted, or that finds the line closed, supersedes no other. A request
    /// whose call has failed is sent again, and may then supersede a request that came after it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::{AcquireError, AcquireOptions};
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let builds = client.semaphore("builds", 1)?;
    /// let of_main = AcquireOptions::new().supersede("main");
    /// let first = builds.acquire_with(of_main.clone()).await?;
    /// let second = tokio::spawn(builds.acquire_with(of_main.clone()));
    /// let third = tokio::spawn(builds.acquire_with(of_main));
    /// assert!(matches!(second.await?, Err(AcquireError::Superseded { .. })));
    /// first.release().await?;
    /// third.await??;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn supersede(mut self, key: impl Into<String>) -> Self {
        self.supersede = Some(key.into());
        self
    }

    /// A lane of the line, 1 to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. Requests of
    /// one lane are granted in the order in which they came. Lanes that wait get units in proportion to
    /// their shares, so a thousand requests of one tenant do not stand before the first of another.
    /// Requests without a lane are one lane together.
    ///
    /// Lanes order the requests that wait. While no request waits they cost nothing: a request that is
    /// granted at once counts for no lane. The idea is start-time fair queueing (Goyal, Vin and Cheng, 1996).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::AcquireOptions;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 20)?;
    /// let permit = api.acquire_with(AcquireOptions::new().lane("tenant-7")).await?;
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }

    /// The share of the lane, 1 to 1,000; 1 unless set. While two lanes wait, one with the share 10 gets
    /// ten times the units of one with the share 1. Use the same share for all requests of a lane.
    ///
    /// Each request brings the share at which its own grant counts.
    #[must_use]
    pub fn share(mut self, share: u32) -> Self {
        self.share = Some(share);
        self
    }

    /// The most units that the requests of the lane hold together, at least 1; without limit unless set.
    /// While a lane is at its limit, its requests wait, and requests of other lanes pass them. Use the same
    /// limit for all requests of a lane: the latest counts.
    ///
    /// Units that [cool](Self::at_least) or that a client [keeps](crate::Semaphore::keep) count, too.
    /// What was acquired while the lane had no limit does not.
    ///
    /// A request that does not wait is refused with
    /// [`AcquireError::LaneFull`](crate::AcquireError::LaneFull), and one that is heavier than the limit with
    /// [`AcquireError::ExceedsLaneLimit`](crate::AcquireError::ExceedsLaneLimit).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::{AcquireError, AcquireOptions};
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 20)?;
    /// let of_tenant = AcquireOptions::new().lane("tenant-7").lane_limit(1).no_wait();
    /// let permit = api.acquire_with(of_tenant.clone()).await?;
    /// let second = api.acquire_with(of_tenant).await;
    /// assert!(matches!(second, Err(AcquireError::LaneFull { .. })), "19 units are free, for other lanes");
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lane_limit(mut self, units: u32) -> Self {
        self.lane_limit = Some(units);
        self
    }

    /// The most requests of the lane that wait, this one included, at least 1; without bound unless set. The
    /// next one is refused, so one tenant cannot fill the line for all.
    ///
    /// The error is [`AcquireError::QueueFull`](crate::AcquireError::QueueFull) with the lane. Each request
    /// brings its own number. The line as a whole has
    /// [`max_waiters`](crate::ClientBuilder::max_waiters).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::{AcquireError, AcquireOptions};
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 1)?;
    /// let permit = api.acquire().await?;
    /// let of_tenant = AcquireOptions::new().lane("tenant-7").lane_waiters(1);
    /// let first = tokio::spawn(api.acquire_with(of_tenant.clone()));
    /// # while api.inspect().await?.waiting < 1 {}
    /// let second = api.acquire_with(of_tenant).await;
    /// assert!(matches!(second, Err(AcquireError::QueueFull { max: 1, .. })));
    /// permit.release().await?;
    /// # first.await??.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lane_waiters(mut self, count: u32) -> Self {
        self.client.lane_waiters = Some(count);
        self
    }

    /// The units up to which the lane is served before others, at most the limits of the lane and of the
    /// semaphore. Unless you set it, or with 0, the request names no floor. While the lane holds fewer, it
    /// gets the next units. Use the same floor for all requests of a lane: the latest counts.
    ///
    /// A floor reserves no unit: the lane gets the next units that become free. Units that a lane gets by its
    /// floor are not charged to its [share](Self::share). Between lanes below their floors their shares
    /// decide.
    ///
    /// A lane whose floor is the whole limit is served before all others, for as long as it asks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::AcquireOptions;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 1)?;
    /// let permit = api.acquire().await?;
    /// let batch = api.acquire_with(AcquireOptions::new().lane("batch"));
    /// let of_tenant = api.acquire_with(AcquireOptions::new().lane("tenant-7").lane_floor(1));
    /// let (batch, of_tenant) = (tokio::spawn(batch), tokio::spawn(of_tenant));
    /// # while api.inspect().await?.waiting < 2 {}
    /// permit.release().await?;
    /// let first = of_tenant.await??;
    /// assert!(!batch.is_finished(), "tenant 7 held nothing, so it was first");
    /// # first.release().await?;
    /// # batch.await??.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lane_floor(mut self, units: u32) -> Self {
        self.lane_floor = Some(units);
        self
    }
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
    /// The given limit, at least 1. The last declaration of any program counts, until an operator pins
    /// another limit ([`Semaphore::set_limit`](crate::Semaphore::set_limit)), which is then logged as a
    /// warning. A client declares its limit with its first acquisition, however many handles it makes, and
    /// again if a handle has another number. After that, the declaration counts only if the store has no
    /// limit. [`Semaphore::declare`](crate::Semaphore::declare) declares each time.
    Declared(u32),
    /// The stored limit. If there is none, acquiring fails with
    /// [`AcquireError::NoLimit`](crate::AcquireError::NoLimit).
    Stored,
    /// The given limit, at least 1. It is declared if the store has no limit. If another limit is in force
    /// when the request reaches the store, acquiring fails with
    /// [`AcquireError::LimitMismatch`](crate::AcquireError::LimitMismatch). A request that waits already is
    /// granted even if the limit changes meanwhile: pin it if that must not happen.
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
    pub(crate) fn declaration(self) -> Result<Declaration, InvalidInput> {
        match self {
            Self::Declared(0) | Self::Exactly(0) => Err(InvalidInput::ZeroLimit),
            Self::Declared(limit) => Ok(Declaration::Declare(limit)),
            Self::Stored => Ok(Declaration::Stored),
            Self::Exactly(limit) => Ok(Declaration::Require(limit)),
        }
    }
}
