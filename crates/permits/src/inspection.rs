//! [`Inspection`]: the state of a semaphore, for operators.
//!
//! The feature `serde` turns an inspection into the JSON of the command. `docs/reference/status.schema.json`
//! describes that JSON in the sentences of this file, and the types of the packages for Python and Node are
//! generated from it: add a field here and there, and it is in all of them.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::model::PAUSED;
use crate::protocol::{
    Alert, Answers, ChangeEffect, ChangeRecord, Counts, InspectedLane, LanePin, Name, Reply, Waits,
    in_one_unit,
};

/// The state of a semaphore, returned by [`Semaphore::inspect`](crate::Semaphore::inspect).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Inspection {
    /// The name of the semaphore.
    pub name: String,
    /// The number of units that may be held at once; `None` if no limit is stored.
    pub limit: Option<u32>,
    /// The version of the limit: rises with every change of the limit or its pin.
    pub limit_version: u64,
    /// True if an operator has pinned the limit.
    pub pinned: bool,
    /// True if granting is stopped.
    pub paused: bool,
    /// The time until the pause ends by itself; `None` if it has no end, or the semaphore is not paused.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "pause_remaining_ms", serialize_with = "as_json::optional")
    )]
    pub pause_remaining: Option<Duration>,
    /// The reason of the pause, possibly empty; `None` if the semaphore is not paused.
    pub pause_reason: Option<String>,
    /// Why the line is closed, possibly empty; `None` if it is open.
    pub closed: Option<String>,
    /// The thresholds, set by an operator, beyond which the semaphore needs a look.
    pub alert: Alert,
    /// The number of units that are taken: by holders, kept by a client, or cooling.
    pub held: u64,
    /// The units among [`held`](Self::held) whose holders have left, but which stay taken: see
    /// [`AcquireOptions::at_least`](crate::AcquireOptions::at_least).
    pub cooling: u64,
    /// The number of waiters.
    pub waiting: u64,
    /// The time for which the store still grants no free units after a restart; 0 otherwise.
    #[cfg_attr(feature = "serde", serde(rename = "recovering_ms", serialize_with = "as_json::duration"))]
    pub recovering: Duration,
    /// The numbers of events.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub counts: Counts,
    /// The waits of requests that were granted out of the line.
    pub waits: Waits,
    /// The first 1,000 holders, by the end of their leases.
    ///
    /// The JSON also has the numbers of [`oldest_holder_age`](Self::oldest_holder_age) and
    /// [`may_be_kept`](Self::may_be_kept).
    #[cfg_attr(feature = "serde", serde(flatten, serialize_with = "as_json::holders"))]
    pub holders: Vec<HolderInfo>,
    /// The first 1,000 waiters, in order; of a line with lanes, in the order that equal shares give.
    ///
    /// The JSON also has the number of [`oldest_waiter_age`](Self::oldest_waiter_age).
    #[cfg_attr(feature = "serde", serde(flatten, serialize_with = "as_json::waiters"))]
    pub waiters: Vec<WaiterInfo>,
    /// The lanes of the waiters and of the listed holders: up to 32, and all that are pinned; those with the
    /// most waiters first, then those with the most units. Empty if there is only the lane without a name.
    pub lanes: Vec<LaneInfo>,
    /// The last changes by operators, the newest first: 32, those of the last minute up to 256, and of each
    /// kind (the limit, a pause, a closed line, the alert, lanes, a revocation) at least the last one.
    ///
    /// The store forgets the changes with the semaphore. Calls without an effect are left out, such as a
    /// pause of a paused semaphore.
    pub changes: Vec<ChangeInfo>,
}

/// A holder, in an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct HolderInfo {
    /// The name of the holder.
    pub holder: String,
    /// The number of units.
    pub weight: u32,
    /// The slot.
    pub slot: u32,
    /// The fencing token.
    pub token: u64,
    /// The rest of the lease; for a grant that cools, the time until its units are free.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "lease_remaining_ms", serialize_with = "as_json::duration")
    )]
    pub lease_remaining: Duration,
    /// True if the holder has gone, and its grant still counts: see
    /// [`AcquireOptions::at_least`](crate::AcquireOptions::at_least).
    pub cooling: bool,
    /// True if the client [may keep](crate::Semaphore::keep) the permit without using it; false while a
    /// request waits, and while the semaphore is paused, closed or recovering, or has a pinned lane.
    ///
    /// The store cannot tell a kept permit from a used one. If this is false, clients have been asked to
    /// release what they keep.
    pub may_be_kept: bool,
    /// The time since the grant, by the store's clock.
    ///
    /// A token is the time of its grant, or a little more if the clock has not moved since the grant before.
    /// So the age is never too long, unless that clock was set. A permit that its client has granted again
    /// since has the age of the store's grant.
    #[cfg_attr(feature = "serde", serde(rename = "age_ms", serialize_with = "as_json::duration"))]
    pub age: Duration,
    /// The label; `None` if there is none.
    pub label: Option<String>,
    /// The lane of the request; `None` if it names no lane.
    pub lane: Option<String>,
}

/// A waiter, in an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct WaiterInfo {
    /// The name of the waiter.
    pub holder: String,
    /// The units that it asks for.
    pub weight: u32,
    /// The number of waiters before it.
    pub position: u64,
    /// The time since it was queued, by the store's clock.
    ///
    /// As exact as the age of a holder.
    #[cfg_attr(feature = "serde", serde(rename = "age_ms", serialize_with = "as_json::duration"))]
    pub age: Duration,
    /// The label; `None` if there is none.
    pub label: Option<String>,
    /// The lane of the request; `None` if it names no lane.
    pub lane: Option<String>,
}

/// A lane, in an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct LaneInfo {
    /// The name of the lane; `None` for the requests that name no lane.
    pub lane: Option<String>,
    /// The number of waiters in the lane.
    pub waiting: u64,
    /// The units that the lane holds and that count for its limit and floor. Without these, the units of its
    /// listed holders.
    ///
    /// Units that the lane was granted before a request named a limit or a floor do not count, unless the
    /// bounds are pinned. At most 1,000 holders are listed: see [`Inspection::holders`].
    pub held: u64,
    /// The most units that the lane may hold; `None` without a limit of its own.
    ///
    /// The limit that the latest request of the lane [named](crate::AcquireOptions::lane_limit), or that an
    /// operator has pinned.
    pub limit: Option<u32>,
    /// The units up to which the lane is served before others; 0 without a floor.
    ///
    /// The floor that the latest request of the lane [named](crate::AcquireOptions::lane_floor), or that an
    /// operator has pinned.
    pub floor: u32,
    /// True if an operator has set the limit and the floor, so that requests do not change them.
    ///
    /// [`Semaphore::set_lane`](crate::Semaphore::set_lane).
    pub pinned: bool,
}

/// A change by an operator, in an [`Inspection`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ChangeInfo {
    /// The change.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub change: OperatorChange,
    /// The label of the client that made it, else its host name and process id.
    ///
    /// [`ClientBuilder::label`](crate::ClientBuilder::label) sets it.
    pub by: String,
    /// The time of the change, by the store's clock.
    #[cfg_attr(feature = "serde", serde(rename = "at_ms", serialize_with = "as_json::time"))]
    pub at: SystemTime,
    /// The time since the change, by the store's clock.
    #[cfg_attr(feature = "serde", serde(rename = "age_ms", serialize_with = "as_json::duration"))]
    pub age: Duration,
}

/// A change by an operator that had an effect. As text, such as `set the limit to 4`, it completes a sentence
/// whose subject is the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorChange {
    /// The limit was set or adjusted to this one, and pinned.
    LimitSet(u32),
    /// The limit's pin was lifted.
    Unpinned,
    /// Granting was stopped.
    Paused {
        /// How long granting was stopped; `None` if the pause has no end.
        time: Option<Duration>,
        /// The reason, which may be empty.
        reason: String,
    },
    /// Granting was resumed.
    Resumed,
    /// The line was closed, for this reason, which may be empty.
    LineClosed(String),
    /// The line was opened.
    LineOpened,
    /// The alert was set to these thresholds.
    AlertSet(Alert),
    /// The alert was removed.
    AlertRemoved,
    /// The limit and the floor of a lane were set, and pinned.
    LanePinned {
        /// The lane.
        lane: String,
        /// The limit of the lane; `None` if it has no limit of its own.
        limit: Option<u32>,
        /// The floor of the lane; 0 without one.
        floor: u32,
    },
    /// The pin of a lane's limit and floor was lifted.
    LaneUnpinned(String),
    /// A holder's permit was revoked, or a waiter's request, or a grant that cooled was freed.
    Revoked {
        /// The holder or waiter.
        holder: String,
        /// True if it waited.
        waited: bool,
        /// The reason, which may be empty.
        reason: String,
    },
}

impl OperatorChange {
    fn new(effect: ChangeEffect, at_us: u64) -> Self {
        match effect {
            ChangeEffect::Limit { limit, .. } => Self::LimitSet(limit),
            ChangeEffect::Unpin { .. } => Self::Unpinned,
            ChangeEffect::Pause { until_ms, reason } => Self::Paused {
                time: (until_ms < PAUSED)
                    .then(|| Duration::from_millis(until_ms.saturating_sub(at_us / 1000))),
                reason: reason.to_string(),
            },
            ChangeEffect::Resume => Self::Resumed,
            ChangeEffect::Close(reason) => Self::LineClosed(reason.to_string()),
            ChangeEffect::Open => Self::LineOpened,
            ChangeEffect::Alert(alert) if alert.is_set() => Self::AlertSet(alert),
            ChangeEffect::Alert(_) => Self::AlertRemoved,
            ChangeEffect::Lane { lane, pin: Some(LanePin { limit, floor }) } => {
                let (lane, limit) = (lane.as_str().to_owned(), Some(limit).filter(|limit| *limit > 0));
                Self::LanePinned { lane, limit, floor }
            }
            ChangeEffect::Lane { lane, pin: None } => Self::LaneUnpinned(lane.as_str().to_owned()),
            ChangeEffect::Revoke { holder, waited, reason } => {
                Self::Revoked { holder: holder.to_string(), waited, reason: reason.to_string() }
            }
        }
    }

    /// The change as a keyword: `limit_set`, `unpinned`, `paused`, `resumed`, `line_closed`, `line_opened`,
    /// `alert_set`, `alert_removed`, `lane_pinned`, `lane_unpinned` or `revoked`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::LimitSet(_) => "limit_set",
            Self::Unpinned => "unpinned",
            Self::Paused { .. } => "paused",
            Self::Resumed => "resumed",
            Self::LineClosed(_) => "line_closed",
            Self::LineOpened => "line_opened",
            Self::AlertSet(_) => "alert_set",
            Self::AlertRemoved => "alert_removed",
            Self::LanePinned { .. } => "lane_pinned",
            Self::LaneUnpinned(_) => "lane_unpinned",
            Self::Revoked { .. } => "revoked",
        }
    }

    /// A number for the part of the semaphore that the change affects.
    fn kind(&self) -> u8 {
        match self {
            Self::LimitSet(_) | Self::Unpinned => 0,
            Self::Paused { .. } | Self::Resumed => 1,
            Self::LineClosed(_) | Self::LineOpened => 2,
            Self::Revoked { .. } => 3,
            Self::AlertSet(_) | Self::AlertRemoved => 4,
            Self::LanePinned { .. } | Self::LaneUnpinned(_) => 5,
        }
    }

    /// The limit that was set.
    pub fn limit(&self) -> Option<u32> {
        if let Self::LimitSet(limit) = self { Some(*limit) } else { None }
    }

    /// The holder or waiter that was revoked.
    pub fn holder(&self) -> Option<&str> {
        if let Self::Revoked { holder, .. } = self { Some(holder) } else { None }
    }

    /// The reason of a pause, a closed line or a revocation, possibly empty.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::LineClosed(reason) | Self::Paused { reason, .. } | Self::Revoked { reason, .. } => {
                Some(reason)
            }
            _ => None,
        }
    }
}

/// Writes a reason as the end of a sentence; empty if there is none.
pub(crate) fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// Writes the time of a pause as the end of a sentence, in the largest unit of which it is a multiple; empty
/// if the pause has no end.
pub(crate) fn for_time(time: Option<Duration>) -> String {
    time.map(|time| format!(" for {}", in_one_unit(time))).unwrap_or_default()
}

impl fmt::Display for OperatorChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitSet(limit) => write!(f, "set the limit to {limit}"),
            Self::Unpinned => f.write_str("unpinned the limit"),
            Self::Paused { time, .. } => write!(f, "paused{}", for_time(*time)),
            Self::Resumed => f.write_str("resumed"),
            Self::LineClosed(_) => f.write_str("closed the line"),
            Self::LineOpened => f.write_str("opened the line"),
            Self::AlertSet(alert) => write!(f, "set the alert to {alert}"),
            Self::AlertRemoved => f.write_str("removed the alert"),
            Self::LanePinned { lane, limit, floor } => {
                let pin = LanePin { limit: limit.unwrap_or(0), floor: *floor };
                write!(f, "pinned {pin} of lane {lane}")
            }
            Self::LaneUnpinned(lane) => write!(f, "unpinned lane {lane}"),
            Self::Revoked { holder, waited: false, .. } => write!(f, "revoked the holder {holder}"),
            Self::Revoked { holder, waited: true, .. } => write!(f, "revoked the waiter {holder}"),
        }?;
        f.write_str(&because(self.reason().unwrap_or_default()))
    }
}

/// Writes the keyword, the text and the parts. Parts that this change does not have are null.
#[cfg(feature = "serde")]
impl serde::Serialize for OperatorChange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut fields = serializer.serialize_struct("OperatorChange", 5)?;
        fields.serialize_field("change", self.keyword())?;
        fields.serialize_field("text", &self.to_string())?;
        fields.serialize_field("limit", &self.limit())?;
        fields.serialize_field("holder", &self.holder())?;
        fields.serialize_field("reason", &self.reason())?;
        fields.end()
    }
}

/// Writes times as whole milliseconds, and lists together with the numbers that follow from them.
#[cfg(feature = "serde")]
mod as_json {
    use serde::ser::SerializeStruct as _;

    use super::{Duration, HolderInfo, SystemTime, WaiterInfo, kept, oldest_holder_age, oldest_waiter_age};
    use crate::clock::millis;

    pub(super) fn holders<S: serde::Serializer>(
        holders: &[HolderInfo],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Holders", 3)?;
        fields.serialize_field("holders", holders)?;
        fields.serialize_field("oldest_holder_age_ms", &oldest_holder_age(holders).map(millis))?;
        fields.serialize_field("may_be_kept", &kept(holders))?;
        fields.end()
    }

    pub(super) fn waiters<S: serde::Serializer>(
        waiters: &[WaiterInfo],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Waiters", 2)?;
        fields.serialize_field("waiters", waiters)?;
        fields.serialize_field("oldest_waiter_age_ms", &oldest_waiter_age(waiters).map(millis))?;
        fields.end()
    }

    pub(super) fn duration<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(millis(*time))
    }

    pub(super) fn optional<S: serde::Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_some(&time.map(millis))
    }

    /// Writes a time in milliseconds since 1970.
    pub(super) fn time<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        duration(&time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(), serializer)
    }
}

/// A grant that cools has no age here: its holder has gone.
fn oldest_holder_age(holders: &[HolderInfo]) -> Option<Duration> {
    holders.iter().filter(|info| !info.cooling).map(|info| info.age).max()
}

fn oldest_waiter_age(waiters: &[WaiterInfo]) -> Option<Duration> {
    waiters.iter().map(|info| info.age).max()
}

/// The units that may be kept.
fn kept(holders: &[HolderInfo]) -> u64 {
    holders.iter().filter(|info| info.may_be_kept).map(|info| u64::from(info.weight)).sum()
}

impl Inspection {
    /// The age of the oldest listed holder that does not cool; `None` without such a holder.
    pub fn oldest_holder_age(&self) -> Option<Duration> {
        oldest_holder_age(&self.holders)
    }

    /// The age of the oldest listed waiter; `None` without waiters.
    pub fn oldest_waiter_age(&self) -> Option<Duration> {
        oldest_waiter_age(&self.waiters)
    }

    /// The held units of the listed holders whose clients [may keep them](crate::Semaphore::keep) without
    /// using them.
    pub fn may_be_kept(&self) -> u64 {
        kept(&self.holders)
    }

    /// The change that paused the semaphore, if it is paused.
    pub fn paused_by(&self) -> Option<&ChangeInfo> {
        self.last_change(|change| matches!(change, OperatorChange::Paused { .. })).filter(|_| self.paused)
    }

    /// The change that pinned the limit, if it is pinned.
    pub fn pinned_by(&self) -> Option<&ChangeInfo> {
        self.last_change(|change| matches!(change, OperatorChange::LimitSet(_))).filter(|_| self.pinned)
    }

    /// The change that closed the line, if it is closed.
    pub fn closed_by(&self) -> Option<&ChangeInfo> {
        self.last_change(|change| matches!(change, OperatorChange::LineClosed(_)))
            .filter(|_| self.closed.is_some())
    }

    /// The last change of each kind (the limit, a pause, a closed line, a revocation, an alert, a lane), the
    /// newest first.
    pub fn last_changes(&self) -> impl Iterator<Item = &ChangeInfo> {
        let is_last = |at: &usize| {
            let kind = self.changes[*at].change.kind();
            self.changes[..*at].iter().all(|newer| newer.change.kind() != kind)
        };
        (0..self.changes.len()).filter(is_last).map(|at| &self.changes[at])
    }

    fn last_change(&self, is_wanted: impl Fn(&OperatorChange) -> bool) -> Option<&ChangeInfo> {
        self.changes.iter().find(|info| is_wanted(&info.change))
    }

    /// Returns `None` if the reply does not answer an inspection.
    pub(crate) fn new(name: Name, reply: Reply) -> Option<Self> {
        let Answers::Inspect(listed) = reply.answers else { return None };
        let holders = listed.holders.into_iter().map(|holder| HolderInfo {
            holder: holder.holder.to_string(),
            weight: holder.weight,
            slot: holder.grant.slot,
            token: holder.grant.token,
            lease_remaining: Duration::from_millis(holder.lease_remaining_ms),
            cooling: holder.cooling,
            may_be_kept: holder.keep && reply.keepable,
            age: Duration::from_micros(reply.now_us.saturating_sub(holder.grant.token)),
            label: text(holder.label.as_str()),
            lane: text(holder.lane.as_str()),
        });
        let waiters = listed.waiters.into_iter().enumerate().map(|(position, waiter)| WaiterInfo {
            holder: waiter.holder.to_string(),
            weight: waiter.weight,
            position: position as u64,
            age: Duration::from_micros(reply.now_us.saturating_sub(waiter.queued_us)),
            label: text(waiter.label.as_str()),
            lane: text(waiter.lane.as_str()),
        });
        let lanes = listed.lanes.into_iter().map(|lane| {
            let InspectedLane { lane, waiting, held, limit, floor, pinned } = lane;
            let (lane, limit) = (text(lane.as_str()), (limit > 0).then_some(limit));
            LaneInfo { lane, waiting, held, limit, floor, pinned }
        });
        let changes = listed.changes.into_iter().map(|ChangeRecord { origin, at_us, effect }| ChangeInfo {
            change: OperatorChange::new(effect, at_us),
            by: origin.by.as_str().to_owned(),
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(at_us),
            age: Duration::from_micros(reply.now_us.saturating_sub(at_us)),
        });
        Some(Self {
            name: name.to_string(),
            limit: (reply.limit > 0).then_some(reply.limit),
            limit_version: reply.limit_version,
            pinned: reply.pinned,
            paused: listed.paused.is_some(),
            pause_remaining: listed
                .paused
                .as_ref()
                .and_then(|pause| pause.remaining_ms)
                .map(Duration::from_millis),
            pause_reason: listed.paused.map(|pause| pause.reason.to_string()),
            closed: listed.closed.map(|reason| reason.to_string()),
            alert: listed.alert,
            held: listed.held,
            cooling: listed.cooling,
            waiting: listed.waiting,
            recovering: Duration::from_millis(reply.recovering_ms),
            counts: listed.counts,
            waits: listed.waits,
            holders: holders.collect(),
            waiters: waiters.collect(),
            lanes: lanes.collect(),
            changes: changes.collect(),
        })
    }
}

/// A label or a lane as it is shown: `None` if it is empty.
fn text(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(str::to_owned)
}
