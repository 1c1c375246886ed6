//! Replies: the answers to the requests of a command, and the state of the semaphore after it.

use std::sync::Arc;
use std::time::Duration;

use super::change::{Alert, ChangeRecord, LanePin};
use super::names::{Holder, Label, LaneName};

/// Token and slot of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// The fencing token.
    pub token: u64,
    /// The slot.
    pub slot: u32,
}

/// The store's reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The store's clock when it executed the command, in microseconds; or the highest token so far, if that
    /// is ahead. So a grant with a higher token is younger.
    pub now_us: u64,
    /// The state's sequence number after the command; 0 if the command left no state. A deletion gets the
    /// next number after the deleted state's.
    pub sequence: u64,
    /// The time after which the session should send a renewal, in milliseconds: 0 if the command stopped at a
    /// bound and left work to do, `None` if no request of the command waits.
    pub recheck_ms: Option<u64>,
    /// The limit in force; 0 if there is none.
    pub limit: u32,
    /// The limit's version: it rises with every change.
    pub limit_version: u64,
    /// True if an operator pinned the limit.
    pub pinned: bool,
    /// The time left of the recovery window, in milliseconds; 0 when the store does not recover.
    pub recovering_ms: u64,
    /// The earlier limit, if the command's declaration has replaced one.
    pub replaced_limit: Option<u32>,
    /// A lane and its earlier bounds, if a request of the command has replaced them by others.
    pub replaced_bounds: Option<(LaneName, LanePin)>,
    /// True if no request needs units, and no lane is pinned: sessions may keep what is released.
    pub keepable: bool,
    /// The answers, in the order of the requests.
    pub answers: Answers,
}

/// Answers by kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answers {
    /// The answers to [`Operation::Acquire`](super::Operation::Acquire).
    Acquire(Vec<AcquireOutcome>),
    /// The answers to [`Operation::Release`](super::Operation::Release).
    Release(Vec<ReleaseOutcome>),
    /// The answers to [`Operation::Renew`](super::Operation::Renew).
    Renew(Vec<RenewOutcome>),
    /// The answer to [`Operation::Adopt`](super::Operation::Adopt): whether the permit was found.
    Adopt(bool),
    /// The answer to [`Operation::Set`](super::Operation::Set).
    Set(SetOutcome),
    /// The answer to [`Operation::Revoke`](super::Operation::Revoke).
    Revoke(ReleaseOutcome),
    /// The answer to [`Operation::Delete`](super::Operation::Delete).
    Delete(DeleteOutcome),
    /// The answer to [`Operation::Inspect`](super::Operation::Inspect).
    Inspect(Box<Inspected>),
}

impl Answers {
    /// The position of the foremost request that waits.
    pub fn foremost(&self) -> Option<u64> {
        let (acquired, renewed) = match self {
            Self::Acquire(outcomes) => (&outcomes[..], &[][..]),
            Self::Renew(outcomes) => (&[][..], &outcomes[..]),
            _ => return None,
        };
        let acquired = acquired.iter().filter_map(|outcome| match outcome {
            AcquireOutcome::Waiting { position } => Some(*position),
            _ => None,
        });
        let renewed = renewed.iter().filter_map(|outcome| match outcome {
            RenewOutcome::Waiting { position } => Some(*position),
            _ => None,
        });
        acquired.chain(renewed).min()
    }
}

/// The answer to one [`AcquireRequest`](super::AcquireRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The request holds a permit.
    Granted(Grant),
    /// The request waits.
    Waiting {
        /// The number of waiters before this request.
        position: u64,
    },
    /// The request was neither granted nor queued.
    Refused(Refusal),
}

/// The reason of a refused [`AcquireRequest`](super::AcquireRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Units are taken, or other requests wait.
    NoPermits,
    /// An operator has paused the semaphore.
    Paused {
        /// The time until the store would grant the request, in milliseconds. Known only if the pause has an
        /// end, and nothing else keeps the request out for longer.
        remaining_ms: Option<u64>,
    },
    /// The store holds free units back because it recovers, and nothing else keeps the request out for
    /// longer.
    Recovering,
    /// Cooling units keep the request out, and nothing else does for longer.
    Cooling {
        /// The time until enough units have cooled and the store would grant the request, in milliseconds.
        remaining_ms: u64,
    },
    /// An operator has closed the line, for this reason.
    LineClosed(Arc<str>),
    /// The lane of the request holds as many units as its limit allows, or an earlier request of the lane
    /// waits for the same reason.
    LaneFull {
        /// The time until the store would grant the request, in milliseconds, if time alone lets it in and
        /// nothing else keeps it out for longer.
        remaining_ms: Option<u64>,
    },
    /// Never: the weight exceeds the limit.
    ExceedsLimit,
    /// Never: the weight exceeds the limit of the lane. The number is that limit.
    ExceedsLaneLimit(u32),
    /// The holder already holds or waits by another request.
    AlreadyHeld,
    /// Another request with the same supersede key waits, and may be newer.
    Superseded,
    /// The queue is at its maximum.
    QueueFull,
    /// As many requests of the lane wait as the request allows.
    LaneQueueFull,
    /// The store has no limit, and the request declares none.
    NoLimit,
    /// The stored limit is not the required one.
    LimitMismatch,
}

/// The answer to one [`ReleaseRequest`](super::ReleaseRequest): what the entry was before the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// A holder. Its units are free now, or cool.
    Held,
    /// A waiter. It has left the queue.
    Waiting,
    /// The store had no such entry.
    Unknown,
}

/// The answer to one [`RenewRequest`](super::RenewRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The request holds the grant that the renewal named.
    Held,
    /// The request holds this grant, which the renewal did not name: the event of the grant was lost, or is
    /// on its way.
    Granted(Grant),
    /// The request waits.
    Waiting {
        /// The number of waiters before this request.
        position: u64,
    },
    /// The store has no such entry any more: its lease has ended, or an operator revoked it.
    Lost,
    /// The store has no such entry, and the renewal named no grant; or it forgot this holder and cannot put
    /// it back yet: retry before the permit's own deadline.
    RetryLater,
    /// The waiter was removed: its weight exceeds the lowered limit.
    ExceedsLimit,
    /// The waiter was removed: an operator has closed the line, for this reason.
    LineClosed(Arc<str>),
}

/// The answer to [`Operation::Set`](super::Operation::Set).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOutcome {
    /// The change is made, now or by an earlier call of the same request.
    Done {
        /// The limit after the change; 0 if none is stored.
        limit: u32,
        /// The limit's version after the change.
        version: u64,
    },
    /// The limit has another version than the expected one.
    OtherVersion,
    /// The semaphore has no limit to adjust.
    NoLimit,
    /// The adjusted limit would be below 1, or above 2^32 − 1.
    OutOfRange,
    /// The floor of the lane is above the limit of the semaphore.
    FloorAboveLimit,
    /// As many lanes are pinned as may be: [`LANE_PINS_MAX`](super::LANE_PINS_MAX).
    TooManyPins,
}

/// The answer to [`Operation::Delete`](super::Operation::Delete).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The semaphore was idle, and the store has forgotten it.
    Deleted,
    /// The store had no such semaphore.
    Unknown,
    /// The semaphore is in use.
    InUse {
        /// The units held, including cooling ones.
        held: u64,
        /// The number of waiters.
        waiting: u64,
    },
    /// The store recovers, and holders that it forgot may be alive.
    Recovering,
}

/// The state of a semaphore, as far as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Units held.
    pub held: u64,
    /// Cooling units, included in `held`: their holders have left, and they stay taken for some time.
    pub cooling: u64,
    /// The number of waiters.
    pub waiting: u64,
    /// The pause, if an operator has stopped granting.
    pub paused: Option<InspectedPause>,
    /// The reason for which the line is closed, if it is.
    pub closed: Option<Arc<str>>,
    /// The thresholds beyond which somebody should look at the semaphore.
    pub alert: Alert,
    /// How often things have happened since the store has the semaphore.
    pub counts: Counts,
    /// The waits that grants have ended.
    pub waits: Waits,
    /// Holders, by the end of their lease, soonest first.
    pub holders: Vec<InspectedHolder>,
    /// Waiters, in the order in which they are to be granted, as far as it is known: see
    /// [`State::waiters`](crate::model::State::waiters).
    pub waiters: Vec<InspectedWaiter>,
    /// The lanes of waiters and of listed holders, and all pinned lanes: the lanes with the most waiters
    /// first, then the lanes with the most units; empty if every lane is the one without a name.
    pub lanes: Vec<InspectedLane>,
    /// Changes by operators, the last one first.
    pub changes: Vec<ChangeRecord>,
}

/// Numbers of events since the store has a semaphore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counts {
    /// The number of permits granted since the store has the semaphore. It and the other three begin again at
    /// 0 when the store forgets an idle semaphore, or loses its state.
    pub grants: u64,
    /// The number of requests refused since then: at their arrival, or later because of a lowered limit, a
    /// closed line, or a newer request with their supersede key.
    pub refused: u64,
    /// The number of holders and waiters whose lease has ended since then, for example because a program
    /// crashed.
    pub expired: u64,
    /// The number of holders, waiters and cooling grants that operators have revoked since then.
    pub revoked: u64,
}

impl Counts {
    /// The counts with these values, in the order of the fields.
    #[doc(hidden)]
    pub fn of([grants, refused, expired, revoked]: [u64; 4]) -> Self {
        Self { grants, refused, expired, revoked }
    }

    /// The increases since `earlier`; `None` if a count is lower, because the counts began again.
    pub fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            grants: self.grants.checked_sub(earlier.grants)?,
            refused: self.refused.checked_sub(earlier.refused)?,
            expired: self.expired.checked_sub(earlier.expired)?,
            revoked: self.revoked.checked_sub(earlier.revoked)?,
        })
    }
}

/// The waits that grants have ended, since the store has a semaphore: of each request that waited, the time
/// from its place in the queue to its grant. Requests that were granted at once, or gave up, are not in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Waits {
    /// The sum of all waits, in microseconds.
    pub total_us: u64,
    /// The number of waits of at most 0.01, 0.1, 1, 10 and 100 s, and of longer ones. Each wait counts once,
    /// at the lowest bound that it does not exceed. After 4,294,967,295 a number begins again at 0.
    ///
    /// The bounds are [`WAIT_BOUNDS`].
    pub numbers: [u32; WAIT_BOUNDS.len() + 1],
}

/// The longest waits of the [numbers](Waits::numbers) of waits.
pub const WAIT_BOUNDS: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(100),
];

impl Waits {
    /// The waits with this sum, in microseconds, and these numbers.
    #[doc(hidden)]
    pub fn of(total_us: u64, numbers: [u32; WAIT_BOUNDS.len() + 1]) -> Self {
        Self { total_us, numbers }
    }

    /// The number of waits.
    pub fn number(&self) -> u64 {
        self.numbers.iter().map(|number| u64::from(*number)).sum()
    }

    /// The mean of the waits; `None` if there are none.
    pub fn mean(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.total_us.checked_div(self.number())?))
    }

    /// The least of [`WAIT_BOUNDS`] that at least this part of the waits, 0 to 1, did not exceed: the numbers
    /// say no more. `None` if there are no waits, or they exceeded all bounds.
    pub fn within(&self, part: f64) -> Option<Duration> {
        let wanted = part * self.number() as f64;
        let mut sum = 0.0;
        let reaches = |number: &u32| {
            sum += f64::from(*number);
            sum > 0.0 && sum >= wanted
        };
        WAIT_BOUNDS.get(self.numbers.iter().position(reaches)?).copied()
    }

    /// The waits that have come since `earlier`; `None` if they are fewer, because the counts began
    /// again.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let total_us = self.total_us.checked_sub(earlier.total_us)?;
        let mut numbers = self.numbers;
        for (number, before) in numbers.iter_mut().zip(earlier.numbers) {
            *number = number.wrapping_sub(before);
        }
        Some(Self { total_us, numbers })
    }

    /// Adds a wait of so many microseconds.
    #[doc(hidden)]
    pub fn add(&mut self, wait_us: u64) {
        self.total_us += wait_us;
        let wait = Duration::from_micros(wait_us);
        let number = &mut self.numbers[WAIT_BOUNDS.partition_point(|bound| *bound < wait)];
        *number = number.wrapping_add(1);
    }
}

/// A holder, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedHolder {
    /// The holder's name.
    pub holder: Holder,
    /// The units that it holds.
    pub weight: u32,
    /// The grant's fencing token and slot.
    pub grant: Grant,
    /// The time left of its lease, in milliseconds. For a cooling grant: the time until its units are free.
    pub lease_remaining_ms: u64,
    /// True for a cooling grant: its holder has left before the `at_least` of the request had passed.
    pub cooling: bool,
    /// The holder's label.
    pub label: Label,
    /// True if the session may keep the permit after its caller has released it.
    pub keep: bool,
    /// The holder's lane.
    pub lane: LaneName,
}

/// A waiter, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedWaiter {
    /// The holder's name.
    pub holder: Holder,
    /// The units it asks for.
    pub weight: u32,
    /// The time at which it was queued, in microseconds.
    pub queued_us: u64,
    /// The waiter's label.
    pub label: Label,
    /// The waiter's lane.
    pub lane: LaneName,
}

/// A pause, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedPause {
    /// The time until its end, in milliseconds, if it has one.
    pub remaining_ms: Option<u64>,
    /// The reason of the pause, possibly empty.
    pub reason: Arc<str>,
}

/// A lane, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedLane {
    /// The lane's name.
    pub lane: LaneName,
    /// The number of its waiters.
    pub waiting: u64,
    /// The units that count for the lane's limit and floor. For a lane without bounds, the units of its
    /// listed holders.
    pub held: u64,
    /// The most units that it may hold; 0 without a limit.
    pub limit: u32,
    /// The units up to which it is served before others; 0 without a floor.
    pub floor: u32,
    /// True if an operator has pinned limit and floor.
    pub pinned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_tell_their_mean_and_bounds() {
        let mut waits = Waits::default();
        assert_eq!((waits.mean(), waits.within(0.5), waits.number()), (None, None, 0));
        for wait_us in [0, 10_000, 10_001, 90_000, 2_000_000] {
            waits.add(wait_us);
        }
        assert_eq!(waits.numbers, [2, 2, 0, 1, 0, 0]);
        assert_eq!(waits.mean(), Some(Duration::from_micros(422_000)));
        let [least, second, _, fourth, _] = WAIT_BOUNDS.map(Some);
        assert_eq!(
            [0.0, 0.4, 0.41, 0.8, 0.81, 1.0].map(|part| waits.within(part)),
            [least, least, second, second, fourth, fourth]
        );
        let before = waits;
        waits.add(200_000_000);
        assert_eq!(waits.within(1.0), None);
        let since = waits.since(&before).expect("it is later");
        assert_eq!((since.number(), since.total_us), (1, 200_000_000));
        assert_eq!(before.since(&waits), None);
        // A number that begins again.
        let full = Waits { total_us: 1, numbers: [u32::MAX; 6] };
        let mut next = full;
        next.add(5);
        assert_eq!((next.numbers[0], next.since(&full).map(|waits| waits.number())), (0, Some(1)));
    }
}
