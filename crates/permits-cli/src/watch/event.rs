//! The events of `permits watch`: the lines of `--json`.

use permits::{Counts, Inspection, OperatorChange};
use serde::Serialize;

use crate::status::StatusJson;

/// An event. Programs depend on it: events and fields may be added, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum WatchEvent {
    /// The whole state follows, because the events before it do not lead to it.
    #[serde(skip)]
    State,
    Granted {
        holder: String,
        weight: u32,
        slot: u32,
        token: u64,
        label: Option<String>,
    },
    /// A permit of an earlier grant, put back after the store lost its state.
    Restored {
        holder: String,
        weight: u32,
        slot: u32,
        token: u64,
        label: Option<String>,
    },
    /// The holder has gone, and its units stay taken.
    Cooling {
        holder: String,
        weight: u32,
        token: u64,
        lease_remaining_ms: u64,
        label: Option<String>,
    },
    Left {
        holder: String,
        weight: u32,
        token: u64,
        cause: Cause,
        label: Option<String>,
        /// The time from its grant to the first inspection that no longer has it.
        held_ms: u64,
    },
    Queued {
        holder: String,
        weight: u32,
        position: u64,
        label: Option<String>,
    },
    LeftQueue {
        holder: String,
        weight: u32,
        cause: Cause,
        label: Option<String>,
        /// The time from its start to the first inspection that no longer has it.
        waited_ms: u64,
    },
    Limit {
        limit: Option<u32>,
        before: Option<u32>,
        limit_version: u64,
    },
    Pinned,
    Unpinned,
    Paused {
        reason: String,
        /// `None` if the pause has no end.
        pause_remaining_ms: Option<u64>,
    },
    Resumed,
    Closed {
        reason: String,
    },
    Opened,
    /// A change by an operator.
    Changed {
        by: String,
        #[serde(flatten)]
        change: OperatorChange,
    },
    Recovering {
        recovering_ms: u64,
    },
    Recovered,
    /// Increases of the counters.
    Counts {
        #[serde(flatten)]
        rise: Counts,
        /// Grants whose permit was in no inspection; unknown if not all holders are listed.
        unseen: Option<u64>,
    },
    /// The counters begin again: the store forgot the semaphore, or lost its state.
    Reset,
    /// The lists of holders or of waiters that are not whole, so that their changes are not known.
    Partial {
        holders: bool,
        waiters: bool,
    },
    Unreachable {
        reason: String,
    },
    Back,
}

/// The cause of the end of a permit or of a place in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// By the holder.
    Released,
    /// By the waiter.
    Cancelled,
    Expired,
    Revoked,
    /// The line was closed, or the limit became lower than the weight.
    Refused,
    /// Several are possible.
    Unknown,
}

/// A line: an event, with its time and the counts after it.
#[derive(Serialize)]
pub(super) struct WatchLine<'a> {
    #[serde(flatten)]
    pub(super) event: &'a WatchEvent,
    pub(super) at_ms: u64,
    pub(super) name: &'a str,
    /// `None` while the store cannot be reached.
    pub(super) held: Option<u64>,
    pub(super) waiting: Option<u64>,
}

/// The line of the whole state.
#[derive(Serialize)]
pub(super) struct StateLine<'a> {
    event: &'static str,
    at_ms: u64,
    #[serde(flatten)]
    status: StatusJson<'a>,
}

impl<'a> StateLine<'a> {
    pub(super) fn new(inspection: &'a Inspection, store: &str, at_ms: u64) -> Self {
        Self { event: "state", at_ms, status: StatusJson::new(inspection, store.to_owned()) }
    }
}
