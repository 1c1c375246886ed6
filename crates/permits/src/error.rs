//! What can go wrong, one enum an operation.
//!
//! Five things are kept apart, because a program does something else about each: *not now*
//! ([`AcquireError::is_not_now`]), *never* (the request cannot succeed as it is), *lost* ([`Lost`]),
//! *unknown outcome* and *the store failed* (both in [`StoreError`]).

use std::sync::Arc;
use std::time::Duration;

use crate::background::SpawnError;
pub use crate::protocol::InvalidInput;
use crate::store::AddressError;
pub use crate::store::StoreError;

/// Why a client could not connect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL has a scheme that no store serves.
    #[error("unknown URL scheme {scheme:?}: use one of {known}")]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// The schemes that there are.
        known: String,
    },
    /// The URL cannot be understood. It is not repeated here, as it may have a password.
    #[error("the URL is not valid: {reason}")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// The lease, prefix or label is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store cannot be reached, denies access, or is not supported.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system has no random numbers to give, from which sessions are named.
    #[error("the operating system gives no random numbers: {reason}")]
    Entropy {
        /// The system's error.
        reason: String,
    },
    /// The background thread could not be started.
    #[error("the background thread could not be started: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
}

impl From<AddressError> for ConnectError {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::UnknownScheme { scheme, known } => Self::UnknownScheme { scheme, known },
            AddressError::Invalid { reason } => Self::Url { reason },
        }
    }
}

impl From<SpawnError> for ConnectError {
    fn from(error: SpawnError) -> Self {
        Self::Thread { reason: error.to_string() }
    }
}

/// Why there is no permit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Not now: the units are taken, or others wait for them.
    #[error("no permits are free now")]
    NoPermits,
    /// Not now: the units are free, and the store holds them back: it started or lost its state a moment ago, and those
    /// who held before have this long to come back.
    #[error(
        "no permits are granted for another {remaining:?}: the store started or lost its state a moment ago"
    )]
    Recovering {
        /// How long this lasts.
        remaining: Duration,
    },
    /// Not now: the wait limit has passed. The place in line is given up.
    #[error("no permit within {waited:?}")]
    TimedOut {
        /// The wait limit.
        waited: Duration,
    },
    /// Not now: the line is at its maximum.
    #[error("the line is full: {max} wait already")]
    QueueFull {
        /// How many may wait.
        max: u32,
    },
    /// Not now: this holder holds or waits already, by another request.
    #[error("holder {holder:?} holds or waits for a permit already")]
    AlreadyHeld {
        /// The holder.
        holder: String,
    },
    /// Not now: it was granted, but too few replicas confirmed it, so it was given back.
    #[error("the grant is on {confirmed} replicas, not on {wanted}: it was given back")]
    NotReplicated {
        /// How many confirmed it in time.
        confirmed: u32,
        /// How many the client asks for.
        wanted: u32,
    },
    /// Never: it asks for more units than the limit, as it is or as it has become.
    #[error("a weight of {weight} exceeds the limit of {limit}")]
    ExceedsLimit {
        /// The weight asked for.
        weight: u32,
        /// The limit.
        limit: u32,
    },
    /// Never: nobody has said what the limit is.
    #[error("semaphore {semaphore:?} has no limit yet: give one when you open it, or set one")]
    NoLimit {
        /// The semaphore.
        semaphore: String,
    },
    /// Never: another limit is in force than the one required.
    #[error("semaphore {semaphore:?} has a limit of {stored}, not {required}")]
    LimitMismatch {
        /// The semaphore.
        semaphore: String,
        /// The limit required.
        required: u32,
        /// The limit in force.
        stored: u32,
    },
    /// An operator took the place in line away.
    #[error("the place in line was revoked{}", because(reason))]
    Revoked {
        /// Why.
        reason: Arc<str>,
    },
    /// Never: a name, holder, weight, limit or lease is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// The process is a forked child of the one that connected. Connect in the child: it needs a client of its own.
    #[error("{FORKED}")]
    Forked,
    /// The client's background thread has panicked. Connect again, and report the panic.
    #[error("{FAILED}")]
    SessionFailed,
    /// The store refused, or could not be reached for too long. Nothing stays behind for longer than a lease.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AcquireError {
    /// Whether the same request may succeed later.
    pub fn is_not_now(&self) -> bool {
        matches!(
            self,
            Self::NoPermits
                | Self::Recovering { .. }
                | Self::TimedOut { .. }
                | Self::QueueFull { .. }
                | Self::AlreadyHeld { .. }
                | Self::NotReplicated { .. }
        )
    }
}

/// Why a permit is not held any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// It could not be renewed before its deadline.
    #[error("the permit was lost: it could not be renewed in time")]
    Expired,
    /// The store does not have it any more: its lease ended there, or it was revoked and the message was lost.
    #[error("the permit was lost: the store does not have it any more")]
    Gone,
    /// An operator revoked it.
    #[error("the permit was revoked{}", because(reason))]
    Revoked {
        /// Why.
        reason: Arc<str>,
    },
    /// The client was closed.
    #[error("the permit was given back: the client was closed")]
    Closed,
    /// The process is a forked child of the one that holds the permit. The parent holds it still.
    #[error("the permit is the parent process's: it was acquired before the fork")]
    Forked,
    /// The client's background thread has panicked, so that the permit is not renewed any more.
    #[error("the permit was lost: {FAILED}")]
    SessionFailed,
}

/// Why a permit was not released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// It was lost before: what it protected may have been used by others meanwhile.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store could not be told; the units come back when the lease ends.
    #[error("the permit could not be released, its units come back when its lease ends: {0}")]
    Store(#[from] StoreError),
}

/// Why a permit was not renewed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// It is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store lost its state, and cannot put the permit back before other holders have renewed. The permit is still
    /// held until its deadline: renew it again.
    #[error("the store lost its state and cannot put the permit back yet: renew it again")]
    RetryLater,
    /// The store did not confirm it. The permit is still held until its deadline.
    #[error("the permit could not be renewed: {0}")]
    Store(#[from] StoreError),
}

/// Why a permit was not adopted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The store does not have it: its lease ended, or it was released.
    #[error("the permit cannot be adopted: the store does not have it any more")]
    Gone,
    /// The text is no handle.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// The process is a forked child of the one that connected. Connect in the child: it needs a client of its own.
    #[error("{FORKED}")]
    Forked,
    /// The client's background thread has panicked. Connect again, and report the panic.
    #[error("{FAILED}")]
    SessionFailed,
    /// The store refused or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an operation on a semaphore itself failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Somebody changed the limit meanwhile.
    #[error("the limit is at version {version} ({limit} units), not at version {expected}")]
    VersionMismatch {
        /// The version expected.
        expected: u64,
        /// The version in force.
        version: u64,
        /// The limit in force.
        limit: u32,
    },
    /// There is no limit to adjust.
    #[error("semaphore {semaphore:?} has no limit yet: set one")]
    NoLimit {
        /// The semaphore.
        semaphore: String,
    },
    /// The adjusted limit would be below 1 or above 2^32 − 1.
    #[error("the limit is {limit}: adjusted so, it would not be between 1 and 4294967295")]
    LimitOutOfRange {
        /// The limit in force.
        limit: u32,
    },
    /// A name, holder, limit or reason is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// The process is a forked child of the one that connected. Connect in the child: it needs a client of its own.
    #[error("{FORKED}")]
    Forked,
    /// The client's background thread has panicked. Connect again, and report the panic.
    #[error("{FAILED}")]
    SessionFailed,
    /// The store refused or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a client was not closed, or not everything was given back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The client is closed, but the store could not be told of everything.
    #[error(
        "{permits} of what was held or waited for could not be given back, and ends with its lease: {source}"
    )]
    NotGivenBack {
        /// How many permits and places in line.
        permits: usize,
        /// Why.
        source: StoreError,
    },
    /// The process is a forked child of the one that connected. The parent's client stays open.
    #[error("{FORKED}")]
    Forked,
    /// The client's background thread has panicked: what was held ends with its lease.
    #[error("{FAILED}")]
    SessionFailed,
}

const FORKED: &str = "the client was connected before the process was forked: connect in the child";
const FAILED: &str = "the client's background thread has panicked";

/// Why a session does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Closed,
    Forked,
    SessionFailed,
}

macro_rules! from_ended {
    ($($error:ident),*) => {$(
        impl From<Ended> for $error {
            fn from(ended: Ended) -> Self {
                match ended {
                    Ended::Closed => Self::Closed,
                    Ended::Forked => Self::Forked,
                    Ended::SessionFailed => Self::SessionFailed,
                }
            }
        }
    )*};
}

from_ended!(AcquireError, AdoptError, AdminError, Lost);

/// A reason as the end of a sentence; nothing if none was given.
fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
