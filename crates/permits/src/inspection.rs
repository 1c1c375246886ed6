//! [`Inspection`]: the state of a semaphore, for operators.

use std::time::Duration;

use crate::protocol::{Answers, Label, Name, Reply};

/// The state of a semaphore, returned by [`Semaphore::inspect`](crate::Semaphore::inspect).
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
    /// The reason for which the line is closed, possibly empty; `None` if it is open.
    pub closed: Option<String>,
    /// The held units.
    pub held: u64,
    /// The number of waiters.
    pub waiting: u64,
    /// The time for which the store still grants no free units after a restart; zero otherwise.
    pub recovering: Duration,
    /// Permits granted since the store has this semaphore. It and the other three begin again at 0 when the store forgets an
    /// idle semaphore, or loses its state.
    pub grants: u64,
    /// Requests refused since then: at their arrival, or later because of a lowered limit or a closed line.
    pub refused: u64,
    /// Holders and waiters whose lease has ended since then, such as those of crashed programs.
    pub expired: u64,
    /// Holders and waiters that operators have revoked since then.
    pub revoked: u64,
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
    /// The rest of its lease; if it cools, the time until its units are free.
    pub lease_remaining: Duration,
    /// True if the holder has gone, and its grant still counts: see [`AcquireOptions::at_least`](crate::AcquireOptions::at_least).
    pub cooling: bool,
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

impl Inspection {
    /// `None` if the reply is not one to an inspection.
    pub(crate) fn new(name: Name, reply: Reply) -> Option<Self> {
        let Answers::Inspect(listed) = reply.answers else { return None };
        let holders = listed.holders.into_iter().map(|holder| HolderInfo {
            holder: holder.holder.to_string(),
            weight: holder.weight,
            slot: holder.grant.slot,
            token: holder.grant.token,
            lease_remaining: Duration::from_millis(holder.lease_remaining_ms),
            cooling: holder.cooling,
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
            closed: listed.closed.map(|reason| reason.to_string()),
            held: listed.held,
            waiting: listed.waiting,
            recovering: Duration::from_millis(reply.recovering_ms),
            grants: listed.counts.grants,
            refused: listed.counts.refused,
            expired: listed.counts.expired,
            revoked: listed.counts.revoked,
            holders: holders.collect(),
            waiters: waiters.collect(),
        })
    }
}

/// A label as it is shown.
fn text(label: &Label) -> Option<String> {
    Some(label.as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
}
