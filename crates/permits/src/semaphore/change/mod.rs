//! [`Change`]: an operator's change as a value, its rules, its text and its form in JSON.
//!
//! The methods for operators, the command, its page and other languages all make a change from these values,
//! so a rule, a name and a wording exist once. [`OperatorChange`](crate::OperatorChange) is the record of a
//! change.

#[cfg(feature = "serde")]
mod fields;

use std::fmt;
use std::time::Duration;

use crate::error::AdminError;
use crate::inspection::{because, for_time};
use crate::protocol::{
    Alert, Answers, ChangeOrigin, DeleteOutcome, Holder, InvalidInput, LANE_PINS_MAX, LaneName, LanePin,
    LimitChange, Name, Operation, Pause, ReleaseOutcome, Reply, RequestId, SetOutcome, Setting, check_pause,
    check_reason,
};

/// A change that an operator asks for: the argument of [`Semaphore::change`](crate::Semaphore::change). As
/// text, such as `set the limit to 4`, it completes a sentence that begins with "it is to".
///
/// The feature `serde` makes it JSON: an object whose field `change` names the variant in the form
/// `set_limit`. Its other fields are the fields of the variant, with times in milliseconds, such as
/// `time_ms`. A field that is `null` counts as not set, and a field that has a default may be missing.
/// Reading the JSON checks the change as [`Change::checked`] does.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use permits::Change;
/// use std::time::Duration;
///
/// # let client = permits::Client::connect("memory:").await?;
/// let exports = client.semaphore("exports", 4)?;
/// let pause = Change::Pause { time: Some(Duration::from_secs(3600)), reason: "upgrade".into() };
/// assert_eq!(pause.to_string(), "pause for 1 h: upgrade");
/// exports.change(pause).await?;
/// assert!(exports.inspect().await?.paused);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "change", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Change {
    /// [`Semaphore::set_limit`](crate::Semaphore::set_limit).
    SetLimit {
        /// The new limit, at least 1.
        limit: u32,
        /// The version at which the limit has to be. Any unless set.
        ///
        /// [`Semaphore::set_limit_if_version`](crate::Semaphore::set_limit_if_version).
        if_version: Option<u64>,
    },
    /// [`Semaphore::adjust_limit`](crate::Semaphore::adjust_limit).
    AdjustLimit {
        /// The number to add to the limit.
        by: i64,
    },
    /// [`Semaphore::unpin`](crate::Semaphore::unpin).
    Unpin,
    /// [`Semaphore::pause_for`](crate::Semaphore::pause_for).
    Pause {
        /// The time after which the pause ends by itself, 1 ms to 366 days, rounded up to a millisecond.
        /// Without end unless set.
        ///
        /// A pause without end is [`Semaphore::pause`](crate::Semaphore::pause).
        #[cfg_attr(feature = "serde", serde(rename = "time_ms", serialize_with = "crate::json::time"))]
        time: Option<Duration>,
        /// The reason that people read, at most 1,000 bytes. Empty unless set.
        reason: String,
    },
    /// [`Semaphore::resume`](crate::Semaphore::resume).
    Resume,
    /// [`Semaphore::close_line`](crate::Semaphore::close_line).
    CloseLine {
        /// The reason that people read, at most 1,000 bytes. Empty unless set.
        reason: String,
    },
    /// [`Semaphore::open_line`](crate::Semaphore::open_line).
    OpenLine,
    /// [`Semaphore::set_alert`](crate::Semaphore::set_alert). In JSON its fields are `wait_ms` and `waiting`,
    /// not set by default.
    SetAlert(Alert),
    /// [`Semaphore::set_lane`](crate::Semaphore::set_lane).
    SetLane {
        /// The lane, 1 to 120 bytes.
        lane: String,
        /// The most units that the lane may hold, at least 1. None unless set.
        limit: Option<u32>,
        /// The units up to which the lane is served before others, at most the limits. None unless set.
        floor: Option<u32>,
    },
    /// [`Semaphore::unpin_lane`](crate::Semaphore::unpin_lane).
    UnpinLane {
        /// The lane, 1 to 120 bytes.
        lane: String,
    },
    /// [`Semaphore::revoke`](crate::Semaphore::revoke).
    Revoke {
        /// The holder or waiter, 1 to 200 bytes.
        holder: String,
        /// The token of a grant of this holder that cools: that grant is freed, in place of a permit or a
        /// request. None unless set.
        ///
        /// [`Semaphore::revoke_cooling`](crate::Semaphore::revoke_cooling).
        token: Option<u64>,
        /// The reason that people read, at most 1,000 bytes. Empty unless set.
        reason: String,
    },
    /// [`Semaphore::delete`](crate::Semaphore::delete).
    Delete {
        /// Whether to delete the semaphore even if it cannot be read, and then even if it is in use: more
        /// than the limit may be held until the leases have ended. False unless set.
        ///
        /// [`Semaphore::delete_unreadable`](crate::Semaphore::delete_unreadable).
        unreadable: bool,
    },
}

/// The result of a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// False if there was nothing to revoke or to delete.
    pub found: bool,
    /// The limit after a change of the limit, if one is stored.
    pub limit: Option<u32>,
    /// The version of the limit after a change of the limit.
    pub limit_version: Option<u64>,
}

impl Change {
    /// Checks all rules: for programs that have the change before they have a client.
    /// [`Semaphore::change`](crate::Semaphore::change) checks them by itself.
    ///
    /// # Errors
    /// [`InvalidInput`] for the first rule that is broken.
    pub fn checked(self) -> Result<Self, InvalidInput> {
        // The operation has the rules. It needs an origin, and any will do.
        self.operation(RequestId::new("checked")?.into())?;
        Ok(self)
    }

    pub(super) fn operation(&self, origin: ChangeOrigin) -> Result<Operation, InvalidInput> {
        let of_limit = |change| Setting::Limit { change, expected_version: None };
        let setting = match self {
            Self::SetLimit { limit: 0, .. } => return Err(InvalidInput::ZeroLimit),
            &Self::SetLimit { limit, if_version: expected_version } => {
                Setting::Limit { change: LimitChange::Set(limit), expected_version }
            }
            Self::AdjustLimit { by } => of_limit(LimitChange::Adjust(*by)),
            Self::Unpin => of_limit(LimitChange::Unpin),
            Self::Pause { time, reason } => {
                let for_ms = time.map(check_pause).transpose()?;
                Setting::Pause(Some(Pause { for_ms, reason: check_reason(reason)? }))
            }
            Self::Resume => Setting::Pause(None),
            Self::CloseLine { reason } => Setting::Line(Some(check_reason(reason)?)),
            Self::OpenLine => Setting::Line(None),
            &Self::SetAlert(alert) => Setting::Alert(alert),
            Self::SetLane { lane, limit, floor } => {
                Setting::Lane { lane: lane_name(lane)?, pin: Some(lane_pin(*limit, *floor)?) }
            }
            Self::UnpinLane { lane } => Setting::Lane { lane: lane_name(lane)?, pin: None },
            Self::Revoke { holder, token, reason } => {
                let (holder, reason) = (Holder::new(holder)?, check_reason(reason)?);
                return Ok(Operation::Revoke { origin, holder, cooling: *token, reason });
            }
            &Self::Delete { unreadable } => return Ok(Operation::Delete { unreadable }),
        };
        Ok(Operation::Set { origin, setting })
    }

    fn is_of_limit(&self) -> bool {
        matches!(self, Self::SetLimit { .. } | Self::AdjustLimit { .. } | Self::Unpin)
    }

    /// Makes the result of the change from the store's reply.
    pub(super) fn result(&self, name: &Name, reply: &Reply) -> Result<Changed, AdminError> {
        let semaphore = name.to_string();
        let found = |found| Ok(Changed { found, limit: None, limit_version: None });
        let limit = reply.limit;
        match reply.answers {
            Answers::Set(SetOutcome::Done { limit, version }) if self.is_of_limit() => {
                Ok(Changed { found: true, limit: (limit > 0).then_some(limit), limit_version: Some(version) })
            }
            Answers::Set(SetOutcome::NoLimit) => Err(AdminError::NoLimit { semaphore }),
            Answers::Set(SetOutcome::OutOfRange) => Err(AdminError::LimitOutOfRange { limit }),
            Answers::Set(SetOutcome::OtherVersion) => {
                let expected = if let Self::SetLimit { if_version, .. } = self { *if_version } else { None };
                let (expected, version) = (expected.unwrap_or_default(), reply.limit_version);
                Err(AdminError::VersionMismatch { expected, version, limit })
            }
            Answers::Set(SetOutcome::FloorAboveLimit) => {
                let floor = if let Self::SetLane { floor: Some(floor), .. } = self { *floor } else { 0 };
                let what = "the limit of the semaphore";
                Err(InvalidInput::FloorAboveLimit { floor, limit, what }.into())
            }
            Answers::Set(SetOutcome::TooManyPins) => {
                Err(AdminError::TooManyPins { semaphore, most: LANE_PINS_MAX })
            }
            Answers::Delete(DeleteOutcome::InUse { held, waiting }) => {
                Err(AdminError::InUse { semaphore, held, waiting })
            }
            Answers::Delete(DeleteOutcome::Recovering) => {
                let remaining = Duration::from_millis(reply.recovering_ms);
                Err(AdminError::Recovering { semaphore, remaining })
            }
            Answers::Delete(DeleteOutcome::Unknown) | Answers::Revoke(ReleaseOutcome::Unknown) => {
                found(false)
            }
            _ => found(true),
        }
    }
}

/// The lane of a change, which has a name.
fn lane_name(lane: &str) -> Result<LaneName, InvalidInput> {
    match lane {
        "" => Err(InvalidInput::Empty { what: "the lane", max: LaneName::MAX_BYTES }),
        lane => LaneName::new(lane),
    }
}

/// The bounds of a lane to pin. A floor of 0 means no floor.
fn lane_pin(limit: Option<u32>, floor: Option<u32>) -> Result<LanePin, InvalidInput> {
    match (limit, floor.unwrap_or(0)) {
        (Some(0), _) => Err(InvalidInput::ZeroLaneLimit),
        (None, 0) => Err(InvalidInput::PinsNoBound),
        (Some(limit), floor) if floor > limit => {
            Err(InvalidInput::FloorAboveLimit { floor, limit, what: "its limit" })
        }
        (limit, floor) => Ok(LanePin { limit: limit.unwrap_or(0), floor }),
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetLimit { limit, if_version: None } => write!(f, "set the limit to {limit}"),
            Self::SetLimit { limit, if_version: Some(version) } => {
                write!(f, "set the limit to {limit} if it is at version {version}")
            }
            Self::AdjustLimit { by: by @ ..0 } => write!(f, "lower the limit by {}", by.unsigned_abs()),
            Self::AdjustLimit { by } => write!(f, "raise the limit by {by}"),
            Self::Unpin => f.write_str("unpin the limit"),
            Self::Pause { time, reason } => write!(f, "pause{}{}", for_time(*time), because(reason)),
            Self::Resume => f.write_str("resume"),
            Self::CloseLine { reason } => write!(f, "close the line{}", because(reason)),
            Self::OpenLine => f.write_str("open the line"),
            Self::SetAlert(alert) if alert.is_set() => write!(f, "set the alert to {alert}"),
            Self::SetAlert(_) => f.write_str("remove the alert"),
            Self::SetLane { lane, limit, floor } => {
                let pin = LanePin { limit: limit.unwrap_or(0), floor: floor.unwrap_or(0) };
                write!(f, "pin {pin} of lane {lane}")
            }
            Self::UnpinLane { lane } => write!(f, "unpin lane {lane}"),
            Self::Revoke { holder, token: None, reason } => write!(f, "revoke {holder}{}", because(reason)),
            Self::Revoke { holder, token: Some(token), reason } => {
                write!(f, "free the grant {token} of {holder} that cools{}", because(reason))
            }
            Self::Delete { unreadable: false } => f.write_str("delete"),
            Self::Delete { unreadable: true } => f.write_str("delete, also if it cannot be read"),
        }
    }
}
