//! The bounds of an exploration: the number of clients, the lease, and the number of each fault.
//!
//! Time and renewals are not bounded: states that differ only by time or by names are one (see `canonical`).
//! Within these bounds, all histories are explored to their end.

use permits_core::model::{ServerClock, State};
use permits_core::protocol::{Command, Event, Recovery, Reply};

use super::steps::Action;

/// The function that executes commands: the model, or a mutant of it.
pub(crate) type Store = fn(&mut Option<State>, &ServerClock<'_>, &Command) -> (Reply, Vec<Event>);

/// The acquisitions and faults that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Acquisitions, by all clients together.
    pub(crate) acquisitions: u8,
    /// Requests, replies and messages that are lost, and requests that arrive after their client gave up.
    pub(crate) losses: u8,
    /// Ticks that pass while something is late: a call or a message is on its way, or a client has not sent
    /// what was due. [`ENDLESS`] are not counted.
    pub(crate) delays: u8,
    /// Waits given up by their callers.
    pub(crate) cancels: u8,
    pub(crate) crashes: u8,
    /// Restarts, failovers and flushes of the server.
    pub(crate) restarts: u8,
    /// Changes of the limit by an operator.
    pub(crate) limits: u8,
    /// Other changes by operators.
    pub(crate) operators: u8,
    /// Changes of its terms by the holder of a permit: another lease, or fewer units.
    pub(crate) terms: u8,
    /// Answers by which too few replicas have a grant.
    pub(crate) shortages: u8,
    /// Permits that are handed over.
    pub(crate) hand_overs: u8,
}

/// A change by an operator, other than a change of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Revokes the entry with which a client holds or waits.
    Revoke(usize),
    Close,
    Open,
    Pause,
    /// A pause of one tick.
    PauseForTick,
    Resume,
    /// Pins the lane of the first client, with a limit of one unit.
    PinLane,
    UnpinLane,
}

pub(crate) const ENDLESS: u8 = u8::MAX;

/// The state that the server has after a restart, failover or flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Everything: a restart with an append-only file that lost nothing.
    All,
    /// Nothing: a restart without anything on disk.
    Nothing,
    /// An earlier one: a failover to a replica that lags.
    Earlier,
    /// Nothing, and it is the same server: FLUSHALL. Takes no time.
    Flushed,
}

/// The difference of a client from the library's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientBehaviour {
    Sound,
    /// Dates a permit from the reply, not from the request.
    DatesFromReply,
    /// Takes the reply to a call for the end of earlier calls without one.
    ForgetsLateCalls,
    /// Leaves a request that it withdraws while its call is in flight to the lease.
    WithdrawsLater,
    /// Ignores recalls.
    IgnoresRecalls,
    /// Keeps permits also if replies forbid it.
    KeepsAlways,
    /// Grants what it keeps with the token of the grant before.
    RepeatsTokens,
    /// Asks no replicas.
    AsksNoReplicas,
    /// Forgets a request that is over, whatever the store has of it.
    ReleasesNothing,
}

/// The properties that are judged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Judged {
    All,
    Only(&'static str),
    AllBut(&'static str),
}

impl Judged {
    pub(crate) fn has(self, property: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => property == only,
            Self::AllBut(other) => property != other,
        }
    }
}

/// An exploration.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    /// The weight of each client's requests.
    pub(crate) weights: &'static [u32],
    /// The lane of each client's requests, and its share; empty without lanes.
    pub(crate) lanes: &'static [(&'static str, u32)],
    /// The limit and the floor that each client's requests name for their lane; 0 for no bound.
    pub(crate) lane_bounds: &'static [(u32, u32)],
    /// All requests have one key.
    pub(crate) keyed: bool,
    /// The steps that every history begins with.
    pub(crate) begin: &'static [Action],
    pub(crate) limit: u32,
    /// The limit that an operator sets.
    pub(crate) other_limit: u32,
    /// The longest lease, in ticks.
    pub(crate) lease: u32,
    /// The lease of each client's requests, if they differ.
    pub(crate) leases: &'static [u32],
    /// The time for which each grant counts, in ticks.
    pub(crate) at_least: u32,
    /// Clients keep what they release.
    pub(crate) keep: bool,
    /// All messages arrive in the order of the replies, as on one connection. Otherwise the message of a
    /// grant may arrive at any time.
    pub(crate) in_order: bool,
    /// The clients whose requests do not wait.
    pub(crate) tries: &'static [usize],
    /// Replicas have to confirm each grant.
    pub(crate) replicas: bool,
    /// The holders of permits renew them, if they want to: `auto_renew(false)`.
    pub(crate) by_program: bool,
    /// The changes that operators make.
    pub(crate) changes: &'static [Change],
    /// The lease to which a holder may change its own, in ticks; 0 if no holder changes it.
    pub(crate) new_lease: u32,
    pub(crate) recovery: Recovery,
    pub(crate) restarts: &'static [Memory],
    /// Every client has had a reply since the restart when a recovery window ends, and nothing from before
    /// the restart is on its way.
    pub(crate) connected: bool,
    pub(crate) budget: Budget,
    pub(crate) judged: Judged,
    /// Breaches that are permitted for a lease after a flush or failover do not count.
    pub(crate) excused: bool,
    pub(crate) behaviour: ClientBehaviour,
    pub(crate) store: Store,
}

pub(crate) const NOTHING: Budget = Budget {
    acquisitions: 0,
    losses: 0,
    delays: 0,
    cancels: 0,
    crashes: 0,
    restarts: 0,
    limits: 0,
    operators: 0,
    terms: 0,
    shortages: 0,
    hand_overs: 0,
};

impl Scope {
    /// Two clients and one unit, with nothing going wrong.
    pub(crate) fn small(name: &'static str) -> Self {
        Self {
            name,
            weights: &[1, 1],
            lanes: &[],
            lane_bounds: &[],
            keyed: false,
            begin: &[],
            limit: 1,
            other_limit: 1,
            lease: 3,
            leases: &[],
            at_least: 0,
            keep: false,
            in_order: false,
            tries: &[],
            replicas: false,
            by_program: false,
            changes: &[],
            new_lease: 0,
            recovery: Recovery::Interval,
            restarts: &[],
            connected: false,
            budget: Budget { acquisitions: 3, ..NOTHING },
            judged: Judged::All,
            excused: true,
            behaviour: ClientBehaviour::Sound,
            store: permits_core::model::apply,
        }
    }

    /// The longest time for which the units of a client that has vanished stay taken, in ticks. The end of a
    /// grant that counts for some time is rounded up, to the tick after.
    pub(crate) fn longest(&self) -> u32 {
        let lease = self.lease.max(self.new_lease);
        if self.at_least == 0 { lease } else { lease.max(self.at_least + 1) }
    }

    /// The lane of a client's requests, and its share.
    pub(crate) fn lane(&self, client: usize) -> (&'static str, u32) {
        self.lanes.get(client).copied().unwrap_or(("", 1))
    }

    /// The lease of a client's requests, in ticks.
    pub(crate) fn lease_of(&self, client: usize) -> u32 {
        self.leases.get(client).copied().unwrap_or(self.lease)
    }

    /// The length of a recovery window, in ticks.
    pub(crate) fn window(&self) -> u32 {
        let window_ms = self.recovery.window().of(u64::from(self.longest()) * super::world::TICK_MS);
        u32::try_from(window_ms.div_ceil(super::world::TICK_MS)).expect("a window is a few ticks")
    }
}
