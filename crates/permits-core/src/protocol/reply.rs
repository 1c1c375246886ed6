//! Replies: the answers to the requests of a command, and the state of the semaphore after it.

use std::sync::Arc;
use std::time::Duration;

use super::change::{Alert, ChangeRecord};
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
    /// The state's sequence number after it; 0 if the command left no state. A deletion has the number after
    /// that of the state that it deleted.
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
    /// The rest of the recovery window, in milliseconds; 0 when not recovering.
    pub recovering_ms: u64,
    /// The limit that the command's declaration has replaced, if it has replaced one.
    pub replaced_limit: Option<u32>,
    /// True if no request needs units: sessions may keep what is released.
    pub keepable: bool,
    /// The answers, in the order of the requests.
    pub answers: Answers,
}

/// Answers by kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answers {
    /// To [`Operation::Acquire`](super::Operation::Acquire).
    Acquire(Vec<AcquireOutcome>),
    /// To [`Operation::Release`](super::Operation::Release).
    Release(Vec<ReleaseOutcome>),
    /// To [`Operation::Renew`](super::Operation::Renew).
    Renew(Vec<RenewOutcome>),
    /// To [`Operation::Adopt`](super::Operation::Adopt): whether the permit was found.
    Adopt(bool),
    /// To [`Operation::SetLimit`](super::Operation::SetLimit).
    SetLimit(LimitOutcome),
    /// To a change by an operator that has no other answer.
    Changed,
    /// To [`Operation::Revoke`](super::Operation::Revoke).
    Revoke(ReleaseOutcome),
    /// To [`Operation::Delete`](super::Operation::Delete).
    Delete(DeleteOutcome),
    /// To [`Operation::Inspect`](super::Operation::Inspect).
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
    /// It holds.
    Granted(Grant),
    /// It waits.
    Waiting {
        /// The number of waiters before it.
        position: u64,
    },
    /// Neither granted nor queued.
    Refused(Refusal),
}

/// The reason of a refused [`AcquireRequest`](super::AcquireRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Not now: units are taken, or other requests wait.
    NoPermits,
    /// Not now: an operator has paused the semaphore.
    Paused {
        /// The time until the store would grant it, in milliseconds, if that is known: the pause has an end,
        /// and nothing else keeps it out for longer.
        remaining_ms: Option<u64>,
    },
    /// Not now: the store holds free units back because it recovers, and nothing else keeps the request out
    /// for longer.
    Recovering,
    /// Not now: units of grants that count for some time keep it out, and nothing else does for longer.
    Cooling {
        /// The time until enough of them are free and the store grants, in milliseconds.
        remaining_ms: u64,
    },
    /// Not now: an operator has closed the line, for this reason.
    LineClosed(Arc<str>),
    /// Not now: its lane holds as much as its limit allows, or waits for that.
    LaneFull {
        /// The time until the store would grant it, in milliseconds, if time alone lets it in and nothing
        /// else keeps it out for longer.
        remaining_ms: Option<u64>,
    },
    /// Never: the weight exceeds the limit.
    ExceedsLimit,
    /// Never: the weight exceeds the limit of its lane, which is this.
    ExceedsLaneLimit(u32),
    /// This holder holds or waits already, by another request.
    AlreadyHeld,
    /// A request that may be newer waits with its key.
    Superseded,
    /// The queue is at its maximum.
    QueueFull,
    /// No limit is stored and none was declared.
    NoLimit,
    /// The stored limit is not the required one.
    LimitMismatch,
}

/// The answer to one [`RequestKey`](super::RequestKey): the state of the entry before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It held; its units are free.
    Held,
    /// It waited; it has left the queue.
    Waiting,
    /// There was no such entry.
    Unknown,
}

/// The answer to one [`RenewRequest`](super::RenewRequest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewOutcome {
    /// It holds the grant that it named.
    Held,
    /// It holds, and named no grant: the event was lost or is on its way.
    Granted(Grant),
    /// It waits.
    Waiting {
        /// The number of waiters before it.
        position: u64,
    },
    /// There is no such entry: it expired, or was revoked.
    Lost,
    /// The store has no such entry, and the renewal named no grant; or it forgot this holder and cannot put
    /// it back yet: retry before the permit's own deadline.
    RetryLater,
    /// The waiter was removed: its weight exceeds the lowered limit.
    ExceedsLimit,
    /// The waiter was removed: an operator has closed the line, for this reason.
    LineClosed(Arc<str>),
}

/// The answer to a [`LimitChange`](super::LimitChange).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOutcome {
    /// It was done, now or by an earlier call of the same request. The limit and its version after it.
    Done {
        /// The limit; 0 if none is stored.
        limit: u32,
        /// Its version.
        version: u64,
    },
    /// The version is another.
    OtherVersion,
    /// There is no limit to adjust.
    NoLimit,
    /// The sum is no limit: below 1, or above 2^32 − 1.
    OutOfRange,
}

/// The answer to [`Operation::Delete`](super::Operation::Delete).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It was idle, and is forgotten.
    Deleted,
    /// There was none.
    Unknown,
    /// Not now: it is in use.
    InUse {
        /// The units held, including those that cool.
        held: u64,
        /// The number of waiters.
        waiting: u64,
    },
    /// Not now: the store recovers, and holders that it forgot may be alive.
    Recovering,
}

/// The state of a semaphore, as far as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Units held.
    pub held: u64,
    /// Those of them that cool.
    pub cooling: u64,
    /// The number of waiters.
    pub waiting: u64,
    /// The pause, if granting is stopped.
    pub paused: Option<InspectedPause>,
    /// The reason for which the line is closed, if it is.
    pub closed: Option<Arc<str>>,
    /// The thresholds beyond which it needs a look.
    pub alert: Alert,
    /// The numbers of what has happened.
    pub counts: Counts,
    /// The waits that grants have ended.
    pub waits: Waits,
    /// Holders, by the end of their lease, soonest first.
    pub holders: Vec<InspectedHolder>,
    /// Waiters, in the order in which they are to be granted, as far as it is known: see
    /// [`State::waiters`](crate::model::State::waiters).
    pub waiters: Vec<InspectedWaiter>,
    /// The lanes with the most waiters, the largest first; none while the queue has one order.
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
    /// The number of requests refused since then: at their arrival, or later because of a lowered limit or a
    /// closed line.
    pub refused: u64,
    /// The number of holders and waiters whose lease has ended since then, such as those of crashed programs.
    pub expired: u64,
    /// The number of holders, waiters and cooling grants that operators have revoked since then.
    pub revoked: u64,
}

impl Counts {
    /// Those of these numbers, in the order of the fields.
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
    /// Their sum, in microseconds.
    pub total_us: u64,
    /// The number of waits of at most 0.01, 0.1, 1, 10 and 100 s, each without those of the bound before, and
    /// of longer ones. After 4,294,967,295 a number begins again at 0.
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
    /// Those with this sum, in microseconds, and these numbers.
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
    /// Its units.
    pub weight: u32,
    /// Its fencing token and slot.
    pub grant: Grant,
    /// The rest of its lease, in milliseconds; if it cools, the time until its units are free.
    pub lease_remaining_ms: u64,
    /// True if the holder has gone, and the grant has not counted for as long as it was asked for.
    pub cooling: bool,
    /// Its label.
    pub label: Label,
    /// True if its session may keep it when its caller has released it.
    pub keep: bool,
    /// Its lane.
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
    /// Its label.
    pub label: Label,
    /// Its lane.
    pub lane: LaneName,
}

/// A pause, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedPause {
    /// The time until its end, in milliseconds, if it has one.
    pub remaining_ms: Option<u64>,
    /// Its reason, possibly empty.
    pub reason: Arc<str>,
}

/// A lane with waiters, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedLane {
    /// Its name.
    pub lane: LaneName,
    /// The number of its waiters.
    pub waiting: u64,
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
