//! The errors, one enum for each operation.
//!
//! Five kinds are kept apart, because a program reacts differently to each: *not now*
//! ([`AcquireError::is_not_now`]), *never* (the request cannot succeed as it is), *lost* ([`Lost`]),
//! *unknown outcome* and *the store failed* (both in [`StoreError`]).
//!
//! A message does not repeat its cause, which is the error's `source()`: a report of the whole chain says
//! everything once.

mod keywords;
mod not_now;

use std::sync::Arc;
use std::time::Duration;

use crate::inspection::{Inspection, because};
use crate::obstacles::{kept_out, recovers};
pub use crate::protocol::InvalidInput;
use crate::sys::background::SpawnError;
use permits_store::AddressError;
pub use permits_store::StoreError;

/// The errors of connecting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL has a scheme that no store serves.
    #[error("unknown URL scheme {scheme:?}: use one of {known}")]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// The known schemes.
        known: String,
    },
    /// The program was built without the store of this scheme, or without TLS.
    #[error(
        "this build has no {scheme} store: enable the feature `{feature}` of the crate permits \
         (cargo add permits --features {feature})"
    )]
    MissingFeature {
        /// The beginning of the URL.
        scheme: &'static str,
        /// The feature of this crate that adds the store.
        feature: &'static str,
    },
    /// The URL is malformed. It is not repeated here, since it may have a password.
    #[error("the URL is not valid: {reason}")]
    Url {
        /// The fault.
        reason: String,
    },
    /// The lease, prefix or label is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store cannot be reached, denies access, or is not supported.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system gives no random numbers, from which session ids are made.
    #[error("the operating system gives no random numbers: {reason}")]
    Entropy {
        /// The system's error.
        reason: String,
    },
    /// The background thread could not be started.
    #[error("the background thread could not be started: {reason}")]
    Thread {
        /// The system's error.
        reason: String,
    },
}

impl From<AddressError> for ConnectError {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::UnknownScheme { scheme, known } => Self::UnknownScheme { scheme, known },
            AddressError::MissingFeature { scheme, feature } => Self::MissingFeature { scheme, feature },
            AddressError::Invalid { reason } => Self::Url { reason },
        }
    }
}

impl From<SpawnError> for ConnectError {
    fn from(error: SpawnError) -> Self {
        Self::Thread { reason: error.to_string() }
    }
}

/// The errors of acquiring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Not now: the units are taken, or other requests wait for them.
    #[error("no permits are free now")]
    NoPermits,
    /// Not now: the units are free, and the store holds them back. It started or lost its state a moment ago,
    /// and earlier holders have time to reconnect.
    #[error("{}", recovers(*remaining))]
    Recovering {
        /// The time until it grants again.
        remaining: Duration,
    },
    /// Not now: units that [cool](crate::AcquireOptions::at_least) keep the request out. If a pause or a
    /// recovery does, too, it ends before them.
    #[error("no permits are free for another {remaining:?}: units that were released still count")]
    Cooling {
        /// The time until enough of them are free. A request that is made then succeeds, unless others have
        /// made one.
        remaining: Duration,
    },
    /// Not now: an operator has [paused](crate::Semaphore::pause) the semaphore.
    #[error("the semaphore is paused{}", another(remaining))]
    Paused {
        /// The time until the request would be granted unless others come first, where that is known: the
        /// pause has an end, and nothing else keeps the request out for longer.
        remaining: Option<Duration>,
    },
    /// Not now: the lane of the request holds as much as its [limit](crate::AcquireOptions::lane_limit)
    /// allows.
    #[error("lane {lane:?} is at its limit{}", another(remaining))]
    LaneFull {
        /// The lane.
        lane: String,
        /// The time until the request would be granted unless others come first, where that is known: units
        /// of the lane that still count keep it out, and nothing else does for longer.
        remaining: Option<Duration>,
    },
    /// Not now: the timeout has passed, and the store answers, as far as is known. The request has left the
    /// line. In an outage the error is a [`StoreError`].
    ///
    /// The message names holders by their labels: log it, and send it to nobody who must not know them.
    #[error("no permit within {waited:?}{}", kept_out(inspection.as_deref()))]
    TimedOut {
        /// The timeout.
        waited: Duration,
        /// The reason why the request got no permit: the semaphore when the time was up, without the request,
        /// with the first four of its holders and waiters. `None` if the store did not say so within a tenth
        /// of the timeout, 100 ms at most, for which the error has then waited.
        inspection: Option<Arc<Inspection>>,
        /// See [`AcquireError::retry_after`].
        retry_after: Option<Duration>,
    },
    /// Not now: an operator has [closed the line](crate::Semaphore::close_line). A request
    /// that waited has left it.
    #[error("the line is closed{}", because(reason))]
    LineClosed {
        /// The reason that the operator gave.
        reason: Arc<str>,
    },
    /// Not now: the line is at its maximum, or the lane of the request has as many waiters as the
    /// [request allows](crate::AcquireOptions::lane_waiters).
    #[error("{} is full: {max} requests wait already", line_of(lane))]
    QueueFull {
        /// The maximum of waiters.
        max: u32,
        /// The lane whose line is full, if it is not the whole line.
        lane: Option<String>,
    },
    /// Not now: this holder holds or waits already, by another request.
    #[error("holder {holder:?} holds or waits for a permit already")]
    AlreadyHeld {
        /// The holder.
        holder: String,
    },
    /// Not now: a later request with the same key has [superseded](crate::AcquireOptions::supersede) it.
    #[error("a later request with the key {key:?} has superseded it")]
    Superseded {
        /// The key.
        key: String,
    },
    /// Not now: the request was granted, but too few replicas confirmed the grant in its time, so the permit
    /// was released.
    #[error("the grant is on {confirmed} replicas, not on {wanted}: it was released")]
    NotReplicated {
        /// The number of replicas that confirmed it in time.
        confirmed: u32,
        /// The number that the client asks for.
        wanted: u32,
    },
    /// Never: the request asks for more units than the limit, which may have been lowered meanwhile.
    #[error("a weight of {weight} exceeds the limit of {limit}")]
    ExceedsLimit {
        /// The weight asked for.
        weight: u32,
        /// The limit.
        limit: u32,
    },
    /// Never: the request asks for more units than the limit of its lane, which a later request may have
    /// lowered.
    #[error("a weight of {weight} exceeds the limit of {limit} of lane {lane:?}")]
    ExceedsLaneLimit {
        /// The weight asked for.
        weight: u32,
        /// The lane.
        lane: String,
        /// The limit of the lane.
        limit: u32,
    },
    /// Never: no limit is stored, and the program declared none.
    #[error("semaphore {semaphore:?} has no limit yet: declare or set one")]
    NoLimit {
        /// The semaphore.
        semaphore: String,
    },
    /// Never: the limit in force is not the required one.
    #[error("semaphore {semaphore:?} has a limit of {stored}, not {required}")]
    LimitMismatch {
        /// The semaphore.
        semaphore: String,
        /// The limit required.
        required: u32,
        /// The limit in force.
        stored: u32,
    },
    /// An operator revoked the waiting request.
    #[error("the request was revoked{}", because(reason))]
    Revoked {
        /// The reason that the operator gave.
        reason: Arc<str>,
    },
    /// The program cancelled the acquisition. The request has left the line.
    ///
    /// A [`Canceller`](crate::Canceller) does this.
    #[error("the acquisition was cancelled")]
    Cancelled,
    /// Never: a name, number, time, handle or option is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The client has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The store refused, or could not be reached within the store timeout. Nothing stays behind for longer
    /// than a lease.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The errors of acquiring permits of several semaphores. After an error you hold none of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireAllError {
    /// A permit was not granted.
    #[error("no permit of {semaphore:?}")]
    Acquire {
        /// The semaphore.
        semaphore: String,
        /// The reason.
        source: AcquireError,
    },
    /// A granted permit was lost while the set waited for another one.
    #[error("the permit of {semaphore:?} was lost while another was waited for")]
    Lost {
        /// The semaphore.
        semaphore: String,
        /// The reason.
        #[source]
        reason: Lost,
    },
    /// Never: a semaphore is named twice. Two programs that acquire its units one by one can wait for one
    /// another: ask for the sum of the weights. Semaphores of one name at two clients count as one, because
    /// the stores may be the same.
    #[error("semaphore {semaphore:?} is named twice: ask for its units by one weight")]
    Twice {
        /// The semaphore.
        semaphore: String,
    },
}

/// The reasons why a permit is no longer held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The permit could not be renewed before its deadline.
    #[error("the permit was lost: it could not be renewed in time")]
    Expired,
    /// The store no longer has the permit: its lease ended there, it was revoked and the message was lost, or
    /// the store lost its state and others had the units when the permit came back.
    #[error("the permit was lost: the store no longer has it")]
    Gone,
    /// An operator revoked the permit.
    #[error("the permit was revoked{}", because(reason))]
    Revoked {
        /// The reason that the operator gave.
        reason: Arc<str>,
    },
    /// The permit was held for the longest time that its request allows:
    /// [`max_hold`](crate::AcquireOptions::max_hold).
    #[error("the permit was held for {limit:?}, the longest time that its request allows")]
    HeldTooLong {
        /// The longest time.
        limit: Duration,
    },
    /// The client was closed.
    #[error("the permit was released: the client was closed")]
    Closed,
    /// The process is a forked child. Its parent still holds the permit.
    #[error("the permit is the parent process's: it was acquired before the fork")]
    Forked,
    /// The client has panicked inside, so that the permit is no longer renewed.
    #[error("the permit was lost: {}", Ended::SessionFailed)]
    SessionFailed,
}

/// The errors of releasing a permit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The permit was lost before: another holder may have used the resource meanwhile.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store could not be reached, or refuses; the units are freed when the lease ends.
    #[error("the permit could not be released, and its units are freed when its lease ends")]
    Store(#[from] StoreError),
}

/// The errors of renewing a permit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The permit is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The units to release, or the lease, are out of range. Nothing has changed.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store lost its state, and cannot put the permit back before other holders have renewed. After a
    /// renewal the permit is still held until its deadline: renew it again. A hand-over has released it.
    #[error("the store lost its state and cannot put the permit back yet: try again in a moment")]
    RetryLater,
    /// The store did not confirm the renewal. The permit is still held until its deadline.
    #[error("the permit could not be renewed")]
    Store(#[from] StoreError),
}

/// The errors of adopting a permit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The store no longer has the permit: its lease ended, it was released or adopted, or the store lost it.
    #[error("the permit cannot be adopted: the store no longer has it")]
    Gone,
    /// The text is not a permit handle.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The client has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The store refused or could not be reached. If no try was answered, the store may have given the permit
    /// to this client, which then releases it in the background. You may adopt by the same handle again: that
    /// succeeds if no try was executed, and is [`Gone`](Self::Gone) otherwise.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The errors of operations on a semaphore itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Never: the limit was changed meanwhile, and has another version.
    #[error("the limit is at version {version} ({limit} units), not at version {expected}")]
    VersionMismatch {
        /// The version expected.
        expected: u64,
        /// The version in force.
        version: u64,
        /// The limit in force.
        limit: u32,
    },
    /// The store has no limit, and the program declares none.
    #[error("semaphore {semaphore:?} has no limit yet: set one")]
    NoLimit {
        /// The semaphore.
        semaphore: String,
    },
    /// The limit in force is not the required one.
    #[error("semaphore {semaphore:?} has a limit of {stored}, not {required}")]
    LimitMismatch {
        /// The semaphore.
        semaphore: String,
        /// The limit required.
        required: u32,
        /// The limit in force.
        stored: u32,
    },
    /// Not now: the semaphore to delete is in use.
    #[error("semaphore {semaphore:?} is in use: {held} held or cooling, {waiting} waiting")]
    InUse {
        /// The semaphore.
        semaphore: String,
        /// The units held, including those that cool.
        held: u64,
        /// The number of waiters.
        waiting: u64,
    },
    /// Not now: the store started or lost its state a moment ago. If you delete a semaphore now, its holders
    /// may still be alive. If you renew a handle now, other holders may have its units.
    #[error(
        "semaphore {semaphore:?} recovers for another {remaining:?}: the store started or lost its state a moment ago"
    )]
    Recovering {
        /// The semaphore.
        semaphore: String,
        /// The rest of the recovery window.
        remaining: Duration,
    },
    /// Never: as many lanes are pinned as a semaphore may have.
    #[error("semaphore {semaphore:?} has {most} pinned lanes, the most that it may have: unpin one")]
    TooManyPins {
        /// The semaphore.
        semaphore: String,
        /// The most lanes that may be pinned.
        most: u32,
    },
    /// Never: the adjusted limit would be below 1 or above 4,294,967,295.
    #[error("the limit is {limit}: adjusted so, it would not be between 1 and 4294967295")]
    LimitOutOfRange {
        /// The limit in force.
        limit: u32,
    },
    /// A name, holder, limit or reason is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The client has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The store refused or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The errors of closing a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The client is closed, but the store could not be reached to release everything.
    #[error("{count} permits and waiting requests could not be released, and end with their leases")]
    NotReleased {
        /// The number of permits and waiting requests.
        count: usize,
        /// The store's error.
        source: StoreError,
    },
    /// The client had ended before. In a forked child, the parent's client stays open. If the client has
    /// panicked, its permits end with their leases.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// The end of a client: the reason why an operation was not begun, or is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// The process is a forked child, and its parent has connected. Connect in the child: it needs a client
    /// of its own.
    #[error("the client was connected before the process was forked: connect in the child")]
    Forked,
    /// The client has panicked inside. Connect again, and report the panic.
    #[error("the client has panicked inside")]
    SessionFailed,
}

impl From<Ended> for Lost {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Closed => Self::Closed,
            Ended::Forked => Self::Forked,
            Ended::SessionFailed => Self::SessionFailed,
        }
    }
}

/// Names the line that is full.
fn line_of(lane: &Option<String>) -> String {
    lane.as_ref().map_or_else(|| "the line".to_owned(), |lane| format!("the line of lane {lane:?}"))
}

/// Writes the time that is left as the end of a sentence; empty if it is not known.
fn another(time: &Option<Duration>) -> String {
    time.map_or_else(String::new, |time| format!(" for another {time:?}"))
}
