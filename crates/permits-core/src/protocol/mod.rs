//! The messages between a session and a store: [`Command`], [`Reply`] and [`Event`].
//!
//! Plain data and its validation; no I/O, no clock, and nothing imported from the rest of the crate. A
//! command carries a *batch*: many requests of one session for one semaphore. Its reply answers each of them
//! in order. A store sends an event without being asked: a waiter was granted its permit, a permit was
//! revoked, or a waiter can never be granted.
//!
//! Numbers stay below 2^53, because the Lua of the Redis store computes in doubles.

mod change;
mod command;
mod event;
mod layout;
mod names;
mod reply;
mod terms;

pub use self::change::{
    Alert, CHANGE_RETRIED_MS, ChangeEffect, ChangeOrigin, ChangeRecord, LANE_PINS_MAX, LanePin, LimitChange,
    Pause, Setting, in_one_unit,
};
pub use self::command::{
    AcquireRequest, AdoptRequest, Command, Declaration, MAX_BATCH, Operation, OperationKind, Recovery,
    ReleaseRequest, RenewRequest, RequestKey, Window,
};
pub use self::event::{Event, EventKind};
pub use self::layout::layout;
#[cfg(feature = "testing")]
pub use self::layout::pretend_layout;
pub use self::names::{
    Holder, InvalidInput, Label, LaneName, MAX_COUNTS_MS, MAX_LEASE_MS, MAX_SHARE, MIN_LEASE_MS, Name,
    RequestId, SessionId, SupersedeKey, check_at_least, check_lease, check_max_hold, check_pause,
    check_prefix, check_reason, check_share, label_from,
};
pub use self::reply::{
    AcquireOutcome, Answers, Counts, DeleteOutcome, Grant, Inspected, InspectedHolder, InspectedLane,
    InspectedPause, InspectedWaiter, Refusal, ReleaseOutcome, RenewOutcome, Reply, SetOutcome, WAIT_BOUNDS,
    Waits,
};
pub use self::terms::PermitTerms;
