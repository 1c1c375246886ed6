//! Commands: one operation on one semaphore, for one session.

use std::sync::Arc;

use super::change::{ChangeOrigin, Setting};
use super::names::{Holder, Name, RequestId, SessionId};
use super::reply::Grant;
use super::terms::PermitTerms;

/// The most requests that one command may carry. Longer batches are sent in parts.
pub const MAX_BATCH: usize = 500;

/// The rule for the recovery window: the time for which a new era holds back free capacity, for holders that
/// the store may have forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recovery {
    /// The store grants at once: after a restart that lost state, more than the limit may be held for up to a
    /// lease.
    Off,
    /// A third of the longest lease that the store has seen, at least 1 s and at most 5 s: a connected holder
    /// tries to reconnect twice a second at least, and renews at once. If keys have vanished while the server
    /// runs, no connection ends. The window is then a third of the longest lease of the holders, and a
    /// second.
    #[default]
    Interval,
    /// The longest lease that the store has seen, or `at_least` if one was longer, at least 1 s: with a rate
    /// of a day, a day. A holder that cannot reach the store has also stopped by then, unless its lease is
    /// longer than that of every earlier command.
    Strict,
}

impl Recovery {
    /// The rule in numbers, which the scripts of the Redis store get as they are.
    ///
    /// A store that lost its state knows only the lease of the first client to reconnect: the minimum of 1 s
    /// gives holders with longer leases time to reconnect, too. The interval's maximum of 5 s suffices
    /// because the window covers reconnecting, which takes a connected holder a fraction of a second however
    /// long its lease is.
    #[doc(hidden)]
    pub fn window(self) -> Window {
        match self {
            Self::Off => Window { divisor: 1, least_ms: 0, most_ms: 0 },
            Self::Interval => Window { divisor: 3, least_ms: 1000, most_ms: 5000 },
            Self::Strict => Window { divisor: 1, least_ms: 1000, most_ms: (1 << 53) - 1 },
        }
    }
}

/// The length of a recovery window: a part of the longest lease known, within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The number that the lease is divided by.
    pub divisor: u64,
    /// The shortest window, in milliseconds.
    pub least_ms: u64,
    /// The longest window, in milliseconds.
    pub most_ms: u64,
}

impl Window {
    /// The window, in milliseconds, where `lease_max_ms` is the longest lease known.
    pub fn of(self, lease_max_ms: u64) -> u64 {
        (lease_max_ms / self.divisor).clamp(self.least_ms, self.most_ms)
    }

    /// The window after a loss of keys, in milliseconds. No connection ends then, so a holder comes with its
    /// next renewal: there is no maximum, and time for that renewal to arrive.
    pub fn after_loss(self, lease_max_ms: u64) -> u64 {
        let until_renewed = lease_max_ms / self.divisor + self.least_ms;
        if self.most_ms == 0 { 0 } else { until_renewed.min(lease_max_ms.max(self.least_ms)) }
    }
}

/// The limit as the program declares it in an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declaration {
    /// The program declares no limit: a limit must be stored, and is in force.
    Stored,
    /// The limit is this one from now on, unless an operator has pinned another. A program sends it until it
    /// has counted.
    Declare(u32),
    /// The limit is this one if the store has no limit: the state may have expired or been lost since it was
    /// declared.
    Fallback(u32),
    /// The limit must be this one: if another one is stored, the request is refused.
    Require(u32),
}

/// A message from a session to the store: an operation on one semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The semaphore.
    pub semaphore: Name,
    /// The session that sends it, and that receives the events of the entries it creates.
    pub session: SessionId,
    /// The session's usual lease, in milliseconds. Recovery windows are as long as it requires, until a
    /// longer lease is known.
    pub lease_ms: u64,
    /// The rule for the recovery window.
    pub recovery: Recovery,
    /// The limit as the program declares it.
    pub declaration: Declaration,
    /// The operation.
    pub operation: Operation,
}

impl Command {
    /// Returns true if the command only reads.
    pub fn only_looks(&self) -> bool {
        matches!(self.operation, Operation::Inspect { .. })
    }

    /// Returns true if the command may name permits by their handles, which no session has renewed since.
    pub fn is_by_handle(&self) -> bool {
        match &self.operation {
            Operation::Adopt(_) => true,
            Operation::Renew(requests) => requests.iter().any(|renew| renew.by_handle),
            _ => false,
        }
    }

    /// The longest time for which a grant of this command may count, in milliseconds: its lease or its
    /// `at_least`.
    pub fn longest_lease_ms(&self) -> u64 {
        let requested = match &self.operation {
            Operation::Acquire { requests, .. } => {
                requests.iter().map(|request| request.terms.counts_for_ms()).max()
            }
            Operation::Renew(requests) => requests.iter().map(|renew| renew.terms.counts_for_ms()).max(),
            Operation::Adopt(adopt) => Some(adopt.terms.counts_for_ms()),
            _ => None,
        };
        self.lease_ms.max(requested.unwrap_or(0))
    }

    /// The longest time for which a session may keep a grant of this command without renewal, in
    /// milliseconds; 0 if it may not keep any.
    pub fn kept_for_ms(&self) -> u64 {
        let kept = |terms: &PermitTerms| if terms.keep { terms.lease_ms } else { 0 };
        let longest = match &self.operation {
            Operation::Acquire { requests, .. } => requests.iter().map(|request| kept(&request.terms)).max(),
            Operation::Renew(requests) => requests.iter().map(|renew| kept(&renew.terms)).max(),
            _ => None,
        };
        longest.unwrap_or(0)
    }
}

/// An operation on a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Take units, or join the queue for them.
    Acquire {
        /// The most waiters that the queue may have.
        queue_max: u32,
        /// Requests in the order in which they came.
        requests: Vec<AcquireRequest>,
    },
    /// Forget these entries, whether they wait or hold.
    Release(Vec<ReleaseRequest>),
    /// Extend leases, and return the state of each entry. An empty list only lets time take effect.
    Renew(Vec<RenewRequest>),
    /// Give a permit to this session, under a new request id: requests under the old id have no effect any
    /// more.
    Adopt(AdoptRequest),
    /// Change a setting of the semaphore.
    Set {
        /// The id of the change, and the label of the session that makes it.
        origin: ChangeOrigin,
        /// The setting, and its new value.
        setting: Setting,
    },
    /// Remove a holder or waiter, or free what cools.
    Revoke {
        /// The id of the change, and the label of the session that makes it.
        origin: ChangeOrigin,
        /// The holder or waiter to remove.
        holder: Holder,
        /// The token of one of its cooling grants, to be freed instead of removing the holder.
        cooling: Option<u64>,
        /// The reason: printable text, passed to the holder.
        reason: Arc<str>,
    },
    /// Forget the semaphore, if it is idle.
    Delete {
        /// Also forget a semaphore whose state cannot be read, even if it is in use.
        unreadable: bool,
    },
    /// List holders and waiters.
    Inspect {
        /// The most holders, the most waiters, and the most changes by operators to list. Unless it is 0, the
        /// last change of each part is listed, too.
        max: u32,
    },
}

/// Defines [`OperationKind`] from one list, so that `ALL` and the names are complete.
macro_rules! operation_kinds {
    ($($kind:ident $name:literal,)*) => {
        /// The kinds of [`Operation`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum OperationKind {
            $(#[doc = concat!("[`Operation::", stringify!($kind), "`].")] $kind,)*
        }

        impl OperationKind {
            /// Every kind, in the order of its number (`kind as usize`).
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The name, as in the names of scripts.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

operation_kinds! {
    Acquire "acquire",
    Release "release",
    Renew "renew",
    Adopt "adopt",
    Set "set",
    Revoke "revoke",
    Delete "delete",
    Inspect "inspect",
}

impl Operation {
    /// The kind of the operation.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Acquire { .. } => OperationKind::Acquire,
            Self::Release(_) => OperationKind::Release,
            Self::Renew(_) => OperationKind::Renew,
            Self::Adopt(_) => OperationKind::Adopt,
            Self::Set { .. } => OperationKind::Set,
            Self::Revoke { .. } => OperationKind::Revoke,
            Self::Delete { .. } => OperationKind::Delete,
            Self::Inspect { .. } => OperationKind::Inspect,
        }
    }

    /// The origin of a change by an operator, which the store remembers: sent again, it counts once.
    pub fn origin(&self) -> Option<&ChangeOrigin> {
        match self {
            Self::Set { origin, .. } | Self::Revoke { origin, .. } => Some(origin),
            Self::Acquire { .. } | Self::Release(_) | Self::Renew(_) | Self::Adopt(_) => None,
            Self::Delete { .. } | Self::Inspect { .. } => None,
        }
    }

    /// Returns true if the operation may leave entries of its session, for which the store sends events.
    pub fn keeps_entries(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Renew(_) | Self::Adopt(_))
    }
}

/// A request for units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireRequest {
    /// The holder's name.
    pub holder: Holder,
    /// The id of this acquisition: sent again, it has one effect and one answer.
    pub request: RequestId,
    /// The terms of the request.
    pub terms: PermitTerms,
    /// True if the request joins the queue when it cannot be granted at once.
    pub wait: bool,
    /// The most waiters in its lane, this one included; 0 without a bound.
    pub lane_waiters: u32,
    /// True if the request supersedes the waiter with the same key. False if the request has no key, or if it
    /// may be older than that waiter: then the request is refused. A request with a key always waits.
    pub supersedes: bool,
}

impl AcquireRequest {
    /// A request that waits if it cannot be granted at once, without a bound of waiters and without a key.
    pub fn new(holder: Holder, request: RequestId, terms: PermitTerms) -> Self {
        Self { holder, request, terms, wait: true, lane_waiters: 0, supersedes: false }
    }
}

/// The names of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// The holder's name.
    pub holder: Holder,
    /// The acquisition.
    pub request: RequestId,
}

impl From<&AcquireRequest> for RequestKey {
    fn from(AcquireRequest { holder, request, .. }: &AcquireRequest) -> Self {
        Self { holder: holder.clone(), request: request.clone() }
    }
}

impl From<&RenewRequest> for RequestKey {
    fn from(RenewRequest { holder, request, .. }: &RenewRequest) -> Self {
        Self { holder: holder.clone(), request: request.clone() }
    }
}

/// A request to end an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The holder's name.
    pub holder: Holder,
    /// The acquisition.
    pub request: RequestId,
    /// The last token that the session has used of a grant that it kept: the next grant gets a higher one.
    pub last_token: Option<u64>,
    /// The number of units that stay taken until `at_least` has passed, if the caller has corrected it. At
    /// most the limit.
    pub counted: Option<u32>,
}

impl From<RequestKey> for ReleaseRequest {
    fn from(RequestKey { holder, request }: RequestKey) -> Self {
        Self { holder, request, last_token: None, counted: None }
    }
}

/// A request to extend a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewRequest {
    /// The holder's name.
    pub holder: Holder,
    /// The acquisition.
    pub request: RequestId,
    /// The terms as the session knows them. If their weight is lower than the stored one, the difference is
    /// released. If the stored grant counts for longer than these terms say, it stays so. A permit that is
    /// put back gets all of these terms.
    pub terms: PermitTerms,
    /// How often the lease was changed since the grant or the adoption. A call that was sent before a change
    /// may arrive after it: the store then keeps the later lease.
    pub lease_version: u32,
    /// The grant, if the session holds one: the store can put back a permit that it forgot.
    pub grant: Option<Grant>,
    /// True if the caller has only a handle, and its session has not held the permit all along. The store
    /// puts the permit back only if it knows that it has lost state since the grant. If one renewal of a
    /// batch is by a handle, the whole batch counts as by a handle.
    pub by_handle: bool,
}

impl RenewRequest {
    /// A renewal by the session that made the request, whose lease it has not changed: of a permit if there
    /// is a grant, otherwise of a waiter.
    pub fn new(holder: Holder, request: RequestId, terms: PermitTerms, grant: Option<Grant>) -> Self {
        Self { holder, request, terms, lease_version: 0, grant, by_handle: false }
    }
}

/// A request to take over a permit that another session hands over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptRequest {
    /// The holder's name.
    pub holder: Holder,
    /// The acquisition's present request id.
    pub request: RequestId,
    /// The terms that the permit must have. The label may differ, and the weight may be higher: the
    /// difference is released.
    pub terms: PermitTerms,
    /// The token and slot that the permit must have.
    pub grant: Grant,
    /// The acquisition's new request id.
    pub new_request: RequestId,
    /// The last token that the other session has used of the grant, if it kept it: the next grant gets a
    /// higher one.
    pub last_token: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_kinds_are_one_to_one() {
        for (number, kind) in OperationKind::ALL.iter().copied().enumerate() {
            assert_eq!(kind as usize, number);
        }
        let names: std::collections::BTreeSet<_> =
            OperationKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), OperationKind::ALL.len(), "no two kinds have one name");
    }
}
