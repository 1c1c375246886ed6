//! The methods for operators: limits, pauses, the line, revocation, deletion and inspection.

use std::time::Duration;

use super::Semaphore;
use super::change::{Change, Changed};
use crate::error::AdminError;
use crate::inspection::Inspection;
use crate::model::INSPECT_MAX;
use crate::protocol::{Alert, Declaration, Operation};
use crate::reply::Reply;
use permits_store::StoreError;

impl Semaphore {
    /// Makes a change. Each of the other methods that change a semaphore makes one particular [`Change`].
    ///
    /// # Errors
    /// [`AdminError`]: the errors of the method for this change.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    pub fn change(&self, change: Change) -> Reply<Changed, AdminError> {
        match change.operation(self.session.new_change()) {
            Ok(operation) => self
                .administer(Declaration::Stored, operation, move |name, reply| change.result(&name, &reply)),
            Err(invalid) => Reply::failed(invalid),
        }
    }

    /// Sets the limit and pins it: from now on declarations of programs are ignored, until
    /// [`Semaphore::unpin`]. Returns the limit's new version.
    ///
    /// A higher limit grants at once. A lower one revokes no permit: nothing is granted until the held units
    /// fit. Waiters for more units than the new limit are refused, at the latest at their next renewal.
    ///
    /// # Errors
    /// [`AdminError`]; with the limit 0, [`AdminError::Invalid`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    pub fn set_limit(&self, limit: u32) -> Reply<u64, AdminError> {
        self.change(Change::SetLimit { limit, if_version: None }).map(version_of)
    }

    /// Like [`Semaphore::set_limit`], but only if the limit is still at `version`, as [`Semaphore::inspect`]
    /// showed it. If several changes name one version, one succeeds, even if all set the same limit.
    ///
    /// # Errors
    /// [`AdminError::VersionMismatch`] if the limit has another version. A call whose reply was lost is
    /// sent again and answered as the first one was, unless 256 other changes of this semaphore have come
    /// between.
    pub fn set_limit_if_version(&self, limit: u32, version: u64) -> Reply<u64, AdminError> {
        self.change(Change::SetLimit { limit, if_version: Some(version) }).map(version_of)
    }

    /// Adds a number to the limit, and pins the sum as [`Semaphore::set_limit`] does. Returns the new limit.
    /// Calls of several sessions add up.
    ///
    /// # Errors
    /// [`AdminError::NoLimit`] if no limit is stored, [`AdminError::LimitOutOfRange`] if the sum is below 1
    /// or above 2^32 − 1. A call whose reply was lost is sent again and counts once, unless 256 other changes
    /// of this semaphore have come between.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    pub fn adjust_limit(&self, number: i64) -> Reply<u32, AdminError> {
        self.change(Change::AdjustLimit { by: number }).map(|changed| changed.limit.unwrap_or_default())
    }

    /// Lets programs declare the limit again. A program does so with its next request if its last one was
    /// granted or queued during the pin, else when it starts again. The limit stays until then. Returns its
    /// new version.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn unpin(&self) -> Reply<u64, AdminError> {
        self.change(Change::Unpin).map(version_of)
    }

    /// Stops granting, for a reason of at most 1,000 bytes, which may be empty. Holders keep what they hold;
    /// waiters wait. It stays so until [`Semaphore::resume`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn pause(&self, reason: &str) -> Reply<(), AdminError> {
        self.change(Change::Pause { time: None, reason: reason.to_owned() }).map(drop)
    }

    /// Stops granting for `time`, 1 ms to 366 days, rounded up to a millisecond. Then the store grants again
    /// by itself. If pauses overlap, the one that ends last counts, so a call never makes a pause shorter:
    /// [`Semaphore::resume`] ends it.
    ///
    /// Use it when one of your workers learns that all have to stop, for example because an API answers 429
    /// with `Retry-After`.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
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
        self.change(Change::Pause { time: Some(time), reason: reason.to_owned() }).map(drop)
    }

    /// Grants again, beginning with the head of the line.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn resume(&self) -> Reply<(), AdminError> {
        self.change(Change::Resume).map(drop)
    }

    /// Closes the line: waiters are refused with the reason (at most 1,000 bytes), and so are new requests,
    /// until [`Semaphore::open_line`]. Holders keep what they hold, renew and release.
    ///
    /// A [pause](Semaphore::pause) lets requests wait; a closed line sends them away. Close the line of a
    /// resource that has moved, or will be down for longer than requests should wait. Connected waiters are
    /// notified at once, the first 500 by this call and the others by calls for which the store asks their
    /// sessions.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    pub fn close_line(&self, reason: &str) -> Reply<(), AdminError> {
        self.change(Change::CloseLine { reason: reason.to_owned() }).map(drop)
    }

    /// Opens a closed line.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn open_line(&self) -> Reply<(), AdminError> {
        self.change(Change::OpenLine).map(drop)
    }

    /// Sets the thresholds beyond which the semaphore needs a look. They replace the earlier ones, so a
    /// threshold that you do not give is removed. The store keeps them as it keeps a pin.
    /// `permits serve`, its page and its alerts use them in place of their own. They change no grant.
    ///
    /// # Errors
    /// [`AdminError`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::Alert;
    /// use std::time::Duration;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let exports = client.semaphore("exports", 4)?;
    /// exports.set_alert(Alert::new(Some(Duration::from_secs(30)), Some(100))?).await?;
    /// assert_eq!(exports.inspect().await?.alert.to_string(), "a wait of 30s or 100 waiting");
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_alert(&self, alert: Alert) -> Reply<(), AdminError> {
        self.change(Change::SetAlert(alert)).map(drop)
    }

    /// Sets the limit and the floor of a lane, and pins them: the store then ignores the bounds that requests
    /// name, until `unpin_lane`. They replace the earlier bounds: a bound that you do not give is removed.
    /// All that the lane holds counts for them. The store keeps them as it keeps a pinned limit.
    ///
    /// A higher limit grants at once, and a lower one revokes no permit. A waiter for more units than its
    /// lane may hold is refused when it comes to the head of its lane. A floor of 0 means no floor. What the
    /// lane holds is counted in the first 10,000 permits whose leases end; beyond these, only later grants
    /// count.
    ///
    /// # Errors
    /// [`AdminError::Invalid`] if the lane is empty, its limit is 0, neither bound is given, or the floor is
    /// above the limit of the lane or of the semaphore; [`AdminError::TooManyPins`] if 1,000 lanes are
    /// pinned; [`AdminError`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::AcquireOptions;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 20)?;
    /// api.set_lane("tenant-7", Some(1), None).await?;
    /// let of_7 = AcquireOptions::new().lane("tenant-7").lane_limit(5);
    /// let _held = api.acquire_with(of_7.clone()).await?;
    /// assert!(api.try_acquire_with(of_7).await.is_err(), "the pinned limit counts");
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_lane(&self, lane: &str, limit: Option<u32>, floor: Option<u32>) -> Reply<(), AdminError> {
        self.change(Change::SetLane { lane: lane.to_owned(), limit, floor }).map(drop)
    }

    /// Lets requests name the limit and the floor of a lane again. The lane keeps its bounds until one of its
    /// requests names others, or until nobody holds or waits in it.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn unpin_lane(&self, lane: &str) -> Reply<(), AdminError> {
        self.change(Change::UnpinLane { lane: lane.to_owned() }).map(drop)
    }

    /// Revokes a holder's permit, or a waiter's request, and sends it the reason (at most 1,000 bytes).
    /// Returns whether the semaphore had either.
    ///
    /// A call whose reply was lost is sent again and answered as the first one was, unless 256 other changes
    /// of this semaphore have come between.
    ///
    /// A connected holder is notified at once, others at their next renewal. Until then the holder may
    /// continue to work while another is granted its units. So revoke only holders that do not answer, or
    /// accept the overlap.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn revoke(&self, holder: &str, reason: &str) -> Reply<bool, AdminError> {
        let (holder, reason) = (holder.to_owned(), reason.to_owned());
        self.change(Change::Revoke { holder, token: None, reason }).map(|changed| changed.found)
    }

    /// Frees a grant that cools: see [`AcquireOptions::at_least`](crate::AcquireOptions::at_least). `token`
    /// is the token of the grant, which [`Semaphore::inspect`] shows. Returns whether the grant cooled.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn revoke_cooling(&self, holder: &str, token: u64) -> Reply<bool, AdminError> {
        let change = Change::Revoke { holder: holder.to_owned(), token: Some(token), reason: String::new() };
        self.change(change).map(|changed| changed.found)
    }

    /// Forgets the semaphore at once, with all that the store knows of it: the limit, an operator's pins, a
    /// pause, a closed line, and an alert. Refused while units are held or cool, or requests wait. Returns
    /// whether there was one.
    ///
    /// The store also forgets an idle semaphore by itself, unless it or a lane of it is pinned, or it is
    /// paused or closed, or has an alert.
    ///
    /// A call whose reply was lost is sent again, and returns true if the semaphore is gone by then. The
    /// tokens of a later semaphore of this name are higher than those before, because a token is the time of
    /// its grant.
    ///
    /// # Errors
    /// [`AdminError::InUse`] while units are held or cool, or requests wait; [`AdminError::Recovering`] in a
    /// recovery window; [`AdminError`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    pub fn delete(&self) -> Reply<bool, AdminError> {
        self.change(Change::Delete { unreadable: false }).map(|changed| changed.found)
    }

    /// Deletes the semaphore even if it cannot be read, which is
    /// [`StoreError::Unreadable`](crate::StoreError::Unreadable) or
    /// [`StoreError::OtherLayout`](crate::StoreError::OtherLayout). Such a semaphore is deleted even if it is
    /// in use. The store then no longer knows its holders, so more than the limit may be held until their
    /// leases have ended. A semaphore that can be read is deleted only if it is idle, as by
    /// [`Semaphore::delete`].
    ///
    /// # Errors
    /// As [`Semaphore::delete`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the change may have been made.
    pub fn delete_unreadable(&self) -> Reply<bool, AdminError> {
        self.change(Change::Delete { unreadable: true }).map(|changed| changed.found)
    }

    /// The limit, the first 1,000 holders and 1,000 waiters, and the last changes by operators.
    ///
    /// The inspection shows the state at the store's time, and changes nothing. So you can inspect a replica,
    /// or a server that refuses writes for some time.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn inspect(&self) -> Reply<Inspection, AdminError> {
        self.inspect_up_to(INSPECT_MAX)
    }

    /// Like [`Semaphore::inspect`], with at most `max` holders, waiters and changes each, and at most 1,000;
    /// the last change of each kind is always there. With 0 there are no holders, waiters, lanes or changes
    /// at all.
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
    /// still wait: behind others, or because the semaphore is paused or the store recovers. If the store has
    /// no limit, because the semaphore is not used, the limit is what this program declares.
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
}

/// The version after a change of the limit.
fn version_of(changed: Changed) -> u64 {
    changed.limit_version.unwrap_or_default()
}
