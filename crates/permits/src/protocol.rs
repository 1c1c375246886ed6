//! What a session and a store say to each other: [`Command`], [`Reply`] and [`Event`].
//!
//! Plain data and its validation; no I/O, no clock, and nothing imported from the rest of the crate. A
//! command carries a *batch*: many requests of one session for one semaphore. Its reply answers each of them
//! in order. An event tells a session something it did not ask for: that a waiter was granted its permit,
//! that a permit was revoked, that a waiter can never be granted.
//!
//! Numbers stay below 2^53, because the Lua of the Redis store computes in doubles.

mod names;

use std::sync::Arc;

pub use self::names::{
    Holder, InvalidInput, Label, MAX_LEASE_MS, MIN_LEASE_MS, Name, RequestId, SessionId, check_lease,
    check_prefix, check_reason,
};

/// The most requests that one command may carry. Longer batches are sent in parts.
pub const MAX_BATCH: usize = 500;

/// The shortest recovery window, in milliseconds. A store that has lost its state knows no longer lease than that
/// of the first command; holders with longer leases must have time to reconnect as well.
pub const MIN_WINDOW_MS: u64 = 1000;

/// The longest window of [`Recovery::Interval`], in milliseconds. The window covers reconnecting, which takes a
/// connected holder a fraction of a second however long its lease is.
pub const MAX_INTERVAL_WINDOW_MS: u64 = 5000;

/// How long a new era holds back free capacity, for holders that the store may have forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recovery {
    /// Not at all: after a restart that lost state, more than the limit may be held for up to a lease.
    Off,
    /// A third of the longest lease that the store has seen, at least 1 s and at most 5 s: a connected holder tries to
    /// reconnect twice a second at least, and renews at once.
    #[default]
    Interval,
    /// The longest lease that the store has seen, at least 1 s: also a holder that cannot reach the store has
    /// stopped by then, unless its lease is longer than that of all who came before it.
    Strict,
}

impl Recovery {
    /// The window, in milliseconds, where `lease_max_ms` is the longest lease known.
    pub fn window_ms(self, lease_max_ms: u64) -> u64 {
        match self {
            Self::Off => 0,
            Self::Interval => (lease_max_ms / 3).clamp(MIN_WINDOW_MS, MAX_INTERVAL_WINDOW_MS),
            Self::Strict => MIN_WINDOW_MS.max(lease_max_ms),
        }
    }
}

/// What a program says of the limit when it acquires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declaration {
    /// Nothing: the stored limit counts, and there must be one.
    Stored,
    /// This limit from now on, unless an operator pinned another. Sent once by each handle.
    Declare(u32),
    /// This limit if none is stored (the state may have expired or been lost since it was declared).
    Fallback(u32),
    /// This limit, or a refusal if another one is stored.
    Require(u32),
}

/// One message from a session to the store: what to do to one semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The semaphore.
    pub semaphore: Name,
    /// The session that asks, and that hears of grants to what it enqueues.
    pub session: SessionId,
    /// The session's usual lease, in milliseconds: sizes recovery windows while nothing better is known.
    pub lease_ms: u64,
    /// How cautious to be after a restart of the store.
    pub recovery: Recovery,
    /// What the program says of the limit.
    pub declaration: Declaration,
    /// What to do.
    pub operation: Operation,
}

impl Command {
    /// Whether the command only looks: it keeps no semaphore alive, and makes no recovery window longer.
    pub fn only_looks(&self) -> bool {
        matches!(self.operation, Operation::Inspect { .. })
    }

    /// The longest lease that the command speaks of, in milliseconds.
    pub fn longest_lease_ms(&self) -> u64 {
        let requested = match &self.operation {
            Operation::Acquire { requests, .. } => requests.iter().map(|request| request.lease_ms).max(),
            Operation::Renew(requests) => requests.iter().map(|renew| renew.lease_ms).max(),
            Operation::Adopt(adopt) => Some(adopt.lease_ms),
            _ => None,
        };
        self.lease_ms.max(requested.unwrap_or(0))
    }
}

/// What to do to a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Take units, or stand in line for them.
    Acquire {
        /// The most waiters that the line may have.
        queue_max: u32,
        /// In the order in which they came.
        requests: Vec<AcquireRequest>,
    },
    /// Forget these entries, whether they wait or hold.
    Release(Vec<ReleaseRequest>),
    /// Extend leases, and hear how each entry stands. An empty list only lets time take effect.
    Renew(Vec<RenewRequest>),
    /// Give a permit to this session, under a new request id: whoever had it can do nothing with it any more.
    Adopt(AdoptRequest),
    /// Change the limit, or lift its pin.
    SetLimit {
        /// Names this change: sent again, it has one effect and one answer.
        request: RequestId,
        /// The change.
        change: LimitChange,
        /// Refuse unless the limit's version is this one. Granted, the change then makes a new version in any case.
        expected_version: Option<u64>,
    },
    /// Stop (`true`) or resume (`false`) granting.
    Pause(bool),
    /// Take a holder's place or permit away.
    Revoke {
        /// Names this revocation: sent again, it has one effect and one answer.
        request: RequestId,
        /// Whose.
        holder: Holder,
        /// Why: printable text, handed to the holder.
        reason: Arc<str>,
    },
    /// List what is there.
    Inspect {
        /// At most so many holders, and so many waiters.
        max: u32,
    },
}

/// A change of the limit by an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitChange {
    /// Set and pin this limit. Without an expected version it is done already where it is so already.
    Set(u32),
    /// Add this number to the limit, and pin the sum.
    Adjust(i64),
    /// Let programs declare the limit again.
    Unpin,
}

/// A request for units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireRequest {
    /// The holder's name.
    pub holder: Holder,
    /// Names this acquisition: asked again, it has one effect and one answer.
    pub request: RequestId,
    /// How many units.
    pub weight: u32,
    /// How long a grant or a place in line stands without renewal, in milliseconds.
    pub lease_ms: u64,
    /// Stand in line if it cannot be granted at once.
    pub wait: bool,
    /// A note for people.
    pub label: Label,
}

/// A request to forget an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The holder's name.
    pub holder: Holder,
    /// The acquisition.
    pub request: RequestId,
}

/// A request to extend a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewRequest {
    /// The holder's name.
    pub holder: Holder,
    /// The acquisition.
    pub request: RequestId,
    /// Its weight.
    pub weight: u32,
    /// Its lease, in milliseconds.
    pub lease_ms: u64,
    /// What the session holds, if it holds: with it, a permit that the store forgot can be put back.
    pub grant: Option<Grant>,
    /// Its label, to be put back with it.
    pub label: Label,
}

/// A request to take over a permit that another session lets go of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptRequest {
    /// The holder's name.
    pub holder: Holder,
    /// The acquisition, as it was named so far.
    pub request: RequestId,
    /// What it has, which must be so.
    pub weight: u32,
    /// Its lease, in milliseconds, which must be so.
    pub lease_ms: u64,
    /// Its token and slot, which must be so.
    pub grant: Grant,
    /// What it is named from now on.
    pub new_request: RequestId,
}

/// What a holder has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// The fencing token.
    pub token: u64,
    /// The slot.
    pub slot: u32,
}

/// The store's answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The store's clock when it executed the command, in microseconds.
    pub now_us: u64,
    /// The state's sequence number after it; 0 if the command left no state.
    pub sequence: u64,
    /// When to ask again, in milliseconds: 0 if work is left to do, `None` if nobody asked for it by waiting.
    pub recheck_ms: Option<u64>,
    /// The limit in force; 0 if there is none.
    pub limit: u32,
    /// The limit's version: it rises with every change.
    pub limit_version: u64,
    /// Whether an operator pinned the limit.
    pub pinned: bool,
    /// How long free capacity is still held back, in milliseconds; 0 when not recovering.
    pub recovering_ms: u64,
    /// The limit that the command's declaration has replaced, if it has replaced one.
    pub replaced_limit: Option<u32>,
    /// The answers, in the order of the requests.
    pub answers: Answers,
}

/// Answers by kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answers {
    /// To [`Operation::Acquire`].
    Acquire(Vec<AcquireOutcome>),
    /// To [`Operation::Release`].
    Release(Vec<ReleaseOutcome>),
    /// To [`Operation::Renew`].
    Renew(Vec<RenewOutcome>),
    /// To [`Operation::Adopt`]: whether there was such a permit.
    Adopt(bool),
    /// To [`Operation::SetLimit`].
    SetLimit(LimitOutcome),
    /// To [`Operation::Pause`].
    Pause,
    /// To [`Operation::Revoke`].
    Revoke(ReleaseOutcome),
    /// To [`Operation::Inspect`].
    Inspect(Inspection),
}

/// The answer to a [`LimitChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub enum LimitOutcome {
    /// It was done, now or by an earlier call of the same request. The limit and its version after it.
    Done {
        /// The limit; 0 if none is stored.
        limit: u32,
        /// Its version.
        version: u64,
    },
    /// The version is another.
    OtherVersion,
    /// There is no limit to adjust.
    NoLimit,
    /// The sum is no limit: below 1, or above 2^32 − 1.
    OutOfRange,
}

/// The answer to one [`Acquire`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// It holds.
    Granted(Grant),
    /// It waits, with so many waiters before it.
    Waiting {
        /// How many stand before it.
        position: u64,
    },
    /// It does not stand anywhere.
    Refused(Refusal),
}

/// Why an [`Acquire`] was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not now: units are taken, others wait, or the semaphore is paused.
    NoPermits,
    /// Not now: the units are free, and the store holds them back because it recovers.
    Recovering,
    /// Never: it asks for more than the limit.
    ExceedsLimit,
    /// This holder holds or waits already, by another request.
    AlreadyHeld,
    /// The line is at its maximum.
    QueueFull,
    /// No limit is stored and none was declared.
    NoLimit,
    /// Another limit is stored than the one required.
    LimitMismatch,
}

/// The answer to one [`Release`]: what the entry was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub enum ReleaseOutcome {
    /// It held; its units are free.
    Held,
    /// It waited; its place is gone.
    Waiting,
    /// There was no such entry.
    Unknown,
}

/// The answer to one [`Renew`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewOutcome {
    /// It holds what it said it holds.
    Held,
    /// It holds, and did not know: the wake-up was lost or is on its way.
    Granted(Grant),
    /// It waits, with so many waiters before it.
    Waiting {
        /// How many stand before it.
        position: u64,
    },
    /// There is no such entry: it expired, or was revoked, or the store forgot a waiter.
    Lost,
    /// The store forgot this holder and cannot put it back yet: ask again before its own deadline.
    RetryLater,
    /// It waited for more than the limit has become, and does not wait any more.
    ExceedsLimit,
}

/// What a session hears without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub struct Event {
    /// The session that it is for.
    pub session: SessionId,
    /// The semaphore.
    pub semaphore: Name,
    /// The holder.
    pub holder: Holder,
    /// The acquisition.
    pub request: RequestId,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub enum EventKind {
    /// The waiter holds.
    Granted(Grant),
    /// The permit or place was taken away, for this reason.
    Revoked(Arc<str>),
    /// The waiter asks for more than the limit has become, and does not wait any more.
    Refused,
}

/// The state of a semaphore, as far as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Units held.
    pub held: u64,
    /// How many wait.
    pub waiting: u64,
    /// Whether granting is stopped.
    pub paused: bool,
    /// Holders, by the end of their lease, soonest first.
    pub holders: Vec<InspectedHolder>,
    /// Waiters, first in line first.
    pub waiters: Vec<InspectedWaiter>,
}

/// A holder, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedHolder {
    /// The holder's name.
    pub holder: Holder,
    /// Its units.
    pub weight: u32,
    /// Its fencing token and slot.
    pub grant: Grant,
    /// How long its lease still runs, in milliseconds.
    pub lease_remaining_ms: u64,
    /// Its label.
    pub label: Label,
}

/// A waiter, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedWaiter {
    /// The holder's name.
    pub holder: Holder,
    /// The units it asks for.
    pub weight: u32,
    /// Its place in line. A ticket is the time at which it was given, as a token is.
    pub ticket: u64,
    /// Its label.
    pub label: Label,
}
