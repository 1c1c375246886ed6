//! Changes by operators: the settings of a semaphore, and the record of changes. A store remembers the last
//! changes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::names::{Holder, InvalidInput, Label, LaneName, RequestId, in_range};

/// The time for which a session sends a change again if it does not know the outcome, in milliseconds. A
/// store remembers a change for at least this time, unless 256 others come meanwhile.
pub const CHANGE_RETRIED_MS: u64 = 60_000;

/// The most lanes of a semaphore that are pinned: each of them is kept although nobody uses it.
pub const LANE_PINS_MAX: u32 = 1_000;

/// The origin of a change by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChangeOrigin {
    /// The id of the change: sent again, it has one effect and one answer.
    pub request: RequestId,
    /// The label of the session that makes the change.
    pub by: Label,
}

impl From<RequestId> for ChangeOrigin {
    /// The origin of a change by a session without a label.
    fn from(request: RequestId) -> Self {
        Self { request, by: Label::default() }
    }
}

/// A setting of a semaphore, with the value that an operator gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// The limit, and whether it is pinned.
    Limit {
        /// The change.
        change: LimitChange,
        /// Refuse the change unless the limit has this version. A change that names a version and is made
        /// always gives the limit a new version, even if it leaves the limit and its pin as they were.
        expected_version: Option<u64>,
    },
    /// The pause: stop granting, or resume it with `None`.
    Pause(Option<Pause>),
    /// The line. A reason (printable text) closes the line: waiters and new requests are then refused with
    /// this reason. `None` opens the line.
    Line(Option<Arc<str>>),
    /// The thresholds beyond which the semaphore needs a look. They replace the earlier ones; without any
    /// threshold the alert is removed.
    Alert(Alert),
    /// The bounds of a lane.
    Lane {
        /// The lane; not empty.
        lane: LaneName,
        /// The bounds to pin, which replace the lane's earlier bounds. `None` lifts the pin.
        pin: Option<LanePin>,
    },
}

/// A pause by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// The time until the pause ends by itself, in milliseconds. An earlier pause that ends later stays as it
    /// is.
    pub for_ms: Option<u64>,
    /// The reason: printable text, possibly empty.
    pub reason: Arc<str>,
}

/// A change of the limit by an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitChange {
    /// Set and pin this limit. Without an expected version, setting the limit that is pinned already changes
    /// nothing.
    Set(u32),
    /// Add this number to the limit, and pin the sum.
    Adjust(i64),
    /// Let programs declare the limit again.
    Unpin,
}

/// A change by an operator that had an effect, as a store remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChangeRecord {
    /// The id of the change, and the label of the session that made it.
    pub origin: ChangeOrigin,
    /// The store's clock when the change was made, in microseconds.
    pub at_us: u64,
    /// The effect of the change.
    pub effect: ChangeEffect,
}

/// The thresholds beyond which a semaphore needs a look. Operators set them, the store keeps them and decides
/// nothing by them, and programs that watch semaphores use them in place of their own. The text is such as
/// `a wait of 30s or 100 waiting`, or `none`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Alert {
    /// The longest wait that needs no look, 1 ms to 366 days. None unless set.
    wait_ms: Option<u64>,
    /// The most waiters that need no look, at least 1. None unless set.
    waiting: Option<u32>,
}

impl Alert {
    /// The alert with these thresholds: a wait of more than 0 and at most 366 days, which is rounded up to a
    /// millisecond, and at least 1 waiter. Without a threshold there is no alert.
    ///
    /// # Errors
    /// [`InvalidInput::AlertWait`] or [`InvalidInput::AlertWaiting`] if one is out of range.
    pub fn new(wait: Option<Duration>, waiting: Option<u32>) -> Result<Self, InvalidInput> {
        let wait_ms = wait.map(|time| in_range(time).ok_or(InvalidInput::AlertWait { time })).transpose()?;
        if waiting == Some(0) { Err(InvalidInput::AlertWaiting) } else { Ok(Self { wait_ms, waiting }) }
    }

    /// The longest wait of the first waiter that needs no look.
    pub fn wait(self) -> Option<Duration> {
        self.wait_ms.map(Duration::from_millis)
    }

    /// The most waiters that need no look.
    pub fn waiting(self) -> Option<u32> {
        self.waiting
    }

    /// True if it has a threshold.
    pub fn is_set(self) -> bool {
        self != Self::default()
    }

    /// The alert from a wait in milliseconds and a number of waiters, where 0 means no threshold, as stores
    /// keep them.
    #[doc(hidden)]
    pub fn of(wait_ms: u64, waiting: u32) -> Self {
        let (wait_ms, waiting) = (Some(wait_ms), Some(waiting));
        Self { wait_ms: wait_ms.filter(|wait| *wait > 0), waiting: waiting.filter(|most| *most > 0) }
    }

    /// The two numbers from which [`Alert::of`] makes the same alert.
    #[doc(hidden)]
    pub fn numbers(self) -> (u64, u32) {
        (self.wait_ms.unwrap_or(0), self.waiting.unwrap_or(0))
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Alert {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Thresholds {
            wait_ms: Option<u64>,
            waiting: Option<u32>,
        }
        let Thresholds { wait_ms, waiting } = Thresholds::deserialize(deserializer)?;
        Self::new(wait_ms.map(Duration::from_millis), waiting).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = self.wait().map(|wait| format!("a wait of {}", in_one_unit(wait)));
        let waiting = self.waiting.map(|waiting| format!("{waiting} waiting"));
        let thresholds: Vec<String> = wait.into_iter().chain(waiting).collect();
        if self.is_set() { f.write_str(&thresholds.join(" or ")) } else { f.write_str("none") }
    }
}

/// The time in the largest unit that divides it, such as `90 m`.
pub fn in_one_unit(time: Duration) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let divides = |(seconds, _): &(u64, &str)| time.as_secs().is_multiple_of(*seconds);
    match units.into_iter().find(divides) {
        Some((seconds, unit)) if time.subsec_nanos() == 0 => format!("{} {unit}", time.as_secs() / seconds),
        _ => format!("{time:?}"),
    }
}

/// The bounds of a lane that an operator pins; at least one of them is not 0. The text is such as
/// `a limit of 10 and a floor of 2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct LanePin {
    /// The most units that the requests of the lane may hold; 0 without a limit.
    pub limit: u32,
    /// The units up to which the lane is served before others; 0 without a floor.
    pub floor: u32,
}

impl fmt::Display for LanePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { limit, floor: 0 } => write!(f, "a limit of {limit}"),
            Self { limit: 0, floor } => write!(f, "a floor of {floor}"),
            Self { limit, floor } => write!(f, "a limit of {limit} and a floor of {floor}"),
        }
    }
}

/// The effect of a [`ChangeRecord`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ChangeEffect {
    /// The limit was set, and pinned.
    Limit {
        /// The limit after it.
        limit: u32,
        /// The limit's version after it.
        version: u64,
    },
    /// The limit's pin was lifted.
    Unpin {
        /// The limit after it; 0 if none is stored.
        limit: u32,
        /// The limit's version after it.
        version: u64,
    },
    /// Granting was stopped.
    Pause {
        /// The end of the pause, in milliseconds; [`PAUSED`](crate::model::PAUSED) without one.
        until_ms: u64,
        /// The reason, possibly empty.
        reason: Arc<str>,
    },
    /// Granting was resumed.
    Resume,
    /// The line was closed, for this reason.
    Close(Arc<str>),
    /// The line was opened.
    Open,
    /// The alert was set to these thresholds, or removed.
    Alert(Alert),
    /// The bounds of a lane were pinned, or that pin was lifted.
    Lane {
        /// The lane.
        lane: LaneName,
        /// The bounds; `None` if the pin was lifted.
        pin: Option<LanePin>,
    },
    /// A holder or waiter was removed, or a grant that cooled was freed.
    Revoke {
        /// The holder.
        holder: Holder,
        /// True if it waited.
        waited: bool,
        /// The reason, possibly empty.
        reason: Arc<str>,
    },
}

impl ChangeEffect {
    /// Returns true if the other effect is on the same part of the state: a store remembers at least the last
    /// change of each part.
    pub fn is_on_same_part(&self, other: &Self) -> bool {
        self.part() == other.part()
    }

    fn part(&self) -> u8 {
        match self {
            Self::Limit { .. } | Self::Unpin { .. } => 0,
            Self::Pause { .. } | Self::Resume => 1,
            Self::Close(_) | Self::Open => 2,
            Self::Revoke { .. } => 3,
            Self::Alert(_) => 4,
            Self::Lane { .. } => 5,
        }
    }
}
