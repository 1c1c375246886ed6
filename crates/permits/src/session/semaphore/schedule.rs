//! The times at which a semaphore has to act even if nothing happens before: a renewal, a recheck, a retry
//! after a failure, the release of kept permits that nobody uses.

use std::time::Duration;

use crate::clock::Moment;
use crate::session::timers::Retry;

/// How many rechecks may follow one another at once, and the pause before each further one.
const RECHECKS_AT_ONCE: u32 = 32;
const RECHECK_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Default)]
pub(super) struct Schedule {
    pub(super) renewal: Renewal,
    pub(super) recheck: Recheck,
    pub(super) retry: Retry,
    /// As `retry`, for confirmations, which have a connection of their own.
    pub(super) confirm_retry: Retry,
    /// The time to release kept permits that were not used for some time.
    pub(super) give_back_at: Option<Moment>,
}

/// The renewal of everything that needs it.
#[derive(Default)]
pub(super) struct Renewal {
    /// The renewal goes out with the next calls.
    pub(super) is_due: bool,
    pub(super) at: Option<Moment>,
    /// If the renewal is due because its time came: the time for which it was planned.
    planned: Option<Moment>,
    /// The time of the last renewal. Before the first one: the time at which the first acquisition that needs
    /// renewal was extended.
    last: Option<Moment>,
}

/// A recheck: the renewal of one waiter, so that the store lets time take effect.
#[derive(Default)]
pub(super) struct Recheck {
    /// The recheck goes out with the next calls.
    pub(super) is_due: bool,
    at: Option<Moment>,
    /// The position of the waiter for which it is planned.
    position: u64,
    /// How many replies in a row have asked for a recheck at once.
    at_once: u32,
}

impl Schedule {
    /// Plans to look by then for kept permits that nobody uses.
    pub(super) fn give_back_by(&mut self, at: Moment) {
        advance(&mut self.give_back_at, at);
    }

    /// The earliest of these times.
    pub(super) fn next(&self) -> Option<Moment> {
        let times =
            [self.renewal.at, self.recheck.at, self.retry.at, self.confirm_retry.at, self.give_back_at];
        times.into_iter().flatten().min()
    }
}

impl Renewal {
    /// Plans a renewal by then, for an acquisition that was last extended at `extended_at`.
    pub(super) fn plan(&mut self, extended_at: Moment, at: Moment) {
        self.last.get_or_insert(extended_at);
        advance(&mut self.at, at);
    }

    /// Plans a renewal by then, outside of the usual rhythm.
    pub(super) fn hasten(&mut self, at: Moment) {
        advance(&mut self.at, at);
    }

    pub(super) fn on_time(&mut self, now: Moment) {
        if let Some(planned) = self.at.take_if(|at| *at <= now) {
            self.is_due = true;
            self.planned.get_or_insert(planned);
        }
    }

    /// Notes that the renewal is being sent and that the next one is due at `next`, if anything needs one.
    /// Returns how late the renewal is.
    pub(super) fn sent(&mut self, next: Option<Moment>, now: Moment) -> Option<Duration> {
        self.is_due = false;
        self.at = next;
        self.last = next.map(|_| now);
        self.planned.take().map(|planned| now.since(planned))
    }

    /// Makes the renewal due now, if at `later` the last one would be longer than `longest` ago and the next
    /// one is planned for after `later`.
    pub(super) fn advance_unless_before(&mut self, later: Moment, longest: Duration) -> bool {
        let too_late = self.last.is_some_and(|at| at + longest < later);
        let advances = too_late && self.at.is_some_and(|at| at > later);
        self.is_due |= advances;
        advances
    }
}

impl Recheck {
    /// Takes a reply that asks for a recheck after this time, for the waiter at `position`.
    pub(super) fn on_reply(&mut self, after: Option<Duration>, position: u64, now: Moment) {
        match after {
            // The store has more expired leases to remove than fit into a call.
            Some(Duration::ZERO) if self.at_once < RECHECKS_AT_ONCE => {
                self.at_once += 1;
                self.is_due = true;
            }
            // The same, but too often: the state of the store may be damaged, so do not hurry.
            Some(Duration::ZERO) => advance(&mut self.at, now + RECHECK_PAUSE),
            Some(after) => {
                self.at_once = 0;
                self.at_turn(now + after, position);
            }
            None => self.at_once = 0,
        }
    }

    /// Plans a recheck for a waiter, unless one for a waiter ahead of it is planned.
    pub(super) fn at_turn(&mut self, at: Moment, position: u64) {
        if self.at.is_none() || position <= self.position {
            self.at = Some(at);
            self.position = position;
        }
    }

    /// Returns true if the recheck was planned for now or earlier, and takes it from the plan.
    pub(super) fn comes(&mut self, now: Moment) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }

    /// Returns true if the last reply asked for a recheck at once.
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once > 0
    }
}

fn advance(planned: &mut Option<Moment>, at: Moment) {
    *planned = Some(planned.map_or(at, |planned| planned.min(at)));
}
