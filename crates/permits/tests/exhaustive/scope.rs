//! How much of the world is explored: how many clients, how long a lease, and how often each fault may happen.
//!
//! Time and renewals are not bounded: states that differ only by when they are, or by names, are one (see
//! `canonical`). So with what is bounded here, all histories are explored to their end.

use permits::model::{ServerClock, State};
use permits::protocol::{Command, Event, Recovery, Reply};

/// What executes commands: the model, or the model with a defect.
pub(crate) type Store = fn(&mut Option<State>, &ServerClock<'_>, &Command) -> (Reply, Vec<Event>);

/// What may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Acquisitions, by all clients together.
    pub(crate) acquisitions: u8,
    /// Requests, replies and messages that are lost, and requests that arrive after their client gave up.
    pub(crate) losses: u8,
    /// Ticks that pass while somebody is late: a call or a message is on its way, or a client has not sent what it
    /// would have. [`ENDLESS`] are not counted.
    pub(crate) delays: u8,
    /// Waits given up by their callers.
    pub(crate) cancels: u8,
    pub(crate) crashes: u8,
    /// Restarts, failovers and flushes of the server.
    pub(crate) restarts: u8,
    /// Changes of the limit by an operator.
    pub(crate) limits: u8,
}

pub(crate) const ENDLESS: u8 = u8::MAX;

/// What the server remembers when it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Everything: a restart with an append-only file that lost nothing.
    All,
    /// Nothing: a restart without anything on disk.
    Nothing,
    /// What it was at some moment before: a failover to a replica that lags.
    Earlier,
    /// Nothing, and it is the same server: FLUSHALL. Takes no time.
    Flushed,
}

/// How a client differs from the library's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientBehaviour {
    Sound,
    /// Dates what it holds from the reply, not from the request.
    DatesFromReply,
    /// Takes an answer to a call for the end of those before it that had none.
    ForgetsLateCalls,
}

/// What is explored.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    /// The weight of each client's requests.
    pub(crate) weights: &'static [u32],
    pub(crate) limit: u32,
    /// What an operator changes the limit to.
    pub(crate) other_limit: u32,
    /// In ticks.
    pub(crate) lease: u32,
    pub(crate) recovery: Recovery,
    pub(crate) restarts: &'static [Memory],
    /// When a recovery window ends, everybody has been heard since the restart, and nothing from before it is on
    /// its way any more.
    pub(crate) connected: bool,
    pub(crate) budget: Budget,
    /// The only property that is judged, if not all are.
    pub(crate) only: Option<&'static str>,
    /// What flushes and failovers may break is not counted while they may.
    pub(crate) excused: bool,
    pub(crate) behaviour: ClientBehaviour,
    pub(crate) store: Store,
}

pub(crate) const NOTHING: Budget =
    Budget { acquisitions: 0, losses: 0, delays: 0, cancels: 0, crashes: 0, restarts: 0, limits: 0 };

impl Scope {
    /// Two clients and one unit, with nothing going wrong.
    pub(crate) fn small(name: &'static str) -> Self {
        Self {
            name,
            weights: &[1, 1],
            limit: 1,
            other_limit: 1,
            lease: 3,
            recovery: Recovery::Interval,
            restarts: &[],
            connected: false,
            budget: Budget { acquisitions: 3, ..NOTHING },
            only: None,
            excused: true,
            behaviour: ClientBehaviour::Sound,
            store: permits::model::apply,
        }
    }

    /// How long a recovery window is, in ticks.
    pub(crate) fn window(&self) -> u32 {
        let window_ms = self.recovery.window_ms(u64::from(self.lease) * super::world::TICK_MS);
        u32::try_from(window_ms.div_ceil(super::world::TICK_MS)).expect("a window is a few ticks")
    }
}
