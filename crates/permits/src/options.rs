//! [`AcquireOptions`] and [`Limit`]: the arguments of a semaphore and its acquisitions.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::protocol::{Declaration, InvalidInput};
use crate::session::spec::Wait;

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
    pub(crate) weight: u32,
    pub(crate) holder: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) wait: Wait,
    pub(crate) lease: Option<Duration>,
    pub(crate) auto_renew: bool,
    pub(crate) at_least: Duration,
    pub(crate) lane: Option<String>,
    pub(crate) share: u32,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) supersedes: bool,
}

impl Default for AcquireOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl AcquireOptions {
    /// One unit, a holder of its own, waiting without limit, the client's lease, renewed in the background.
    pub fn new() -> Self {
        Self {
            weight: 1,
            holder: None,
            label: None,
            wait: Wait::Forever,
            lease: None,
            auto_renew: true,
            at_least: Duration::ZERO,
            lane: None,
            share: 1,
            max_hold: None,
            supersedes: false,
        }
    }

    /// Returns true if a permit that is asked for so may be kept by its client.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.holder.is_none() && self.auto_renew && self.at_least.is_zero() && self.max_hold.is_none()
    }

    /// The number of units: at least 1, at most the limit; 1 unless set.
    #[must_use]
    pub fn weight(mut self, units: u32) -> Self {
        self.weight = units;
        self
    }

    /// The holder, 1–200 bytes of printable UTF-8. One holder has at most one permit of a semaphore: while it
    /// holds or waits, a second request is refused with
    /// [`AcquireError::AlreadyHeld`](crate::AcquireError::AlreadyHeld). Unique unless set.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// A note for operators, shown beside the holder by [`Semaphore::inspect`](crate::Semaphore::inspect): at
    /// most 120 bytes of printable UTF-8. Many holders may have the same.
    /// [That of the client](crate::ClientBuilder::label) unless set. An empty label is none.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Waits in line for `limit` at most; without limit unless set. Zero is [`AcquireOptions::no_wait`].
    ///
    /// The error then is [`AcquireError::TimedOut`](crate::AcquireError::TimedOut); but
    /// [`AcquireError::Store`](crate::AcquireError::Store) if the store cannot be reached at that time, or
    /// has left calls about the semaphore without an answer for 250 ms.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.wait = if limit.is_zero() { Wait::No } else { Wait::AtMost(limit) };
        self
    }

    /// Does not wait: refused with [`AcquireError::NoPermits`](crate::AcquireError::NoPermits) unless it can
    /// be granted now; with [`AcquireError::Cooling`](crate::AcquireError::Cooling) if it is known when.
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

    /// Sets whether the client renews the permit in the background: `true` unless set. If `false`, the permit
    /// ends with its lease unless [`Permit::renew`](crate::Permit::renew) is called. A waiter is always
    /// renewed.
    #[must_use]
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.auto_renew = renew;
        self
    }

    /// The time for which the grant counts: up to 1 day, rounded up to a millisecond; zero unless set. A
    /// permit that is released, lost or revoked earlier *cools*: it has no holder, and its units and slot
    /// stay taken until that time has passed since the grant. Then the head of the line gets them, as if they
    /// had been released.
    ///
    /// So a limit of 100 and one minute admit at most 100 in any minute, and no more than 100 at once. A
    /// store that loses its state forgets what cools.
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

    /// The longest time for which the permit is held, at least 100 ms; without limit unless set. Then it is
    /// [lost](crate::Permit::lost) as [`Lost::HeldTooLong`](crate::Lost::HeldTooLong). Its units are free
    /// when the program drops it, and at the end of the lease at the latest: so work that stops within a
    /// lease does not overlap with that of the next holder.
    ///
    /// For work that may hang, and would be renewed forever.
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
        self.max_hold = Some(time);
        self
    }

    /// Takes the place in line of an earlier request of the same [holder](Self::holder), if one waits in the
    /// same lane: that request is refused with
    /// [`AcquireError::Superseded`](crate::AcquireError::Superseded). So of each holder the newest request
    /// waits, and none loses its turn: for builds and deployments of which only the last one matters. While
    /// the holder has a permit, the request is refused, as without this.
    ///
    /// A request whose call has failed is sent again, and may then take the place of one that came after it.
    #[must_use]
    pub fn supersede(mut self) -> Self {
        self.supersedes = true;
        self
    }

    /// The lane, up to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. An empty one is none.
    /// Requests of one lane are granted in the order in which they came. Lanes that wait get units in
    /// proportion to their [share](Self::share), so a thousand requests of one tenant do not stand before the
    /// first of another. All requests that name no lane are one lane; so a line without lanes has one order.
    /// None unless set.
    ///
    /// Lanes order a line, and cost nothing where none waits: what is granted at once counts for no lane.
    /// The idea is start-time fair queueing (Goyal, Vin and Cheng, 1996).
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

    /// The share of the lane, 1 to 1,000; 1 unless set. While two lanes wait, one with the share 10 gets ten
    /// times the units of one with the share 1. Each request brings the share at which its grant counts, so
    /// all requests of a lane should have the same.
    #[must_use]
    pub fn share(mut self, share: u32) -> Self {
        self.share = share;
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
    /// This limit, at least 1. The last declaration of any program counts, until an operator pins another
    /// limit ([`Semaphore::set_limit`](crate::Semaphore::set_limit)), which is then logged as a warning. A
    /// handle declares it with its first acquisition; from then on the limit counts only where none is
    /// stored.
    Declared(u32),
    /// The stored limit. Without one, acquiring fails with
    /// [`AcquireError::NoLimit`](crate::AcquireError::NoLimit).
    Stored,
    /// This limit, at least 1, declared where none is stored. While another one is in force, acquiring fails
    /// with [`AcquireError::LimitMismatch`](crate::AcquireError::LimitMismatch).
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
