//! The times at which something is to be done about a semaphore, if nothing happens before: a renewal, a
//! recheck, a call after a failure, the end of what is kept.

use std::time::Duration;

use crate::clock::Moment;
use crate::session::timers::Retry;

/// The number of rechecks that may follow one another at once, and the pause before each that comes after
/// them.
const RECHECKS_AT_ONCE: u32 = 32;
const RECHECK_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Default)]
pub(super) struct Schedule {
    pub(super) renewal: Renewal,
    pub(super) recheck: Recheck,
    pub(super) retry: Retry,
    /// As `retry`, of confirmations, which have a connection of their own.
    pub(super) confirm_retry: Retry,
    /// Release what is kept and was not used for some time.
    pub(super) give_back_at: Option<Moment>,
}

/// The renewal of everything that needs it.
#[derive(Default)]
pub(super) struct Renewal {
    /// It goes out with the next calls.
    pub(super) is_due: bool,
    pub(super) at: Option<Moment>,
    /// The time that was planned for the one that is due, if it was due by its time.
    planned: Option<Moment>,
    /// The last one; at first, the extension of the first acquisition that needs renewal.
    last: Option<Moment>,
}

/// The renewal of one waiter, which lets time take effect in the store.
#[derive(Default)]
pub(super) struct Recheck {
    /// It goes out with the next calls.
    pub(super) is_due: bool,
    at: Option<Moment>,
    /// The position of the waiter whose turn that is.
    position: u64,
    /// Replies in a row that asked for a recheck at once.
    at_once: u32,
}

impl Schedule {
    /// Looks for permits that are kept for too long.
    pub(super) fn give_back_by(&mut self, at: Moment) {
        advance(&mut self.give_back_at, at);
    }

    /// The earliest of the times.
    pub(super) fn next(&self) -> Option<Moment> {
        let times =
            [self.renewal.at, self.recheck.at, self.retry.at, self.confirm_retry.at, self.give_back_at];
        times.into_iter().flatten().min()
    }
}

impl Renewal {
    /// Renews by then, of an acquisition that was last extended at `extended_at`.
    pub(super) fn plan(&mut self, extended_at: Moment, at: Moment) {
        self.last.get_or_insert(extended_at);
        advance(&mut self.at, at);
    }

    /// Renews by then, outside of the usual rhythm.
    pub(super) fn hasten(&mut self, at: Moment) {
        advance(&mut self.at, at);
    }

    pub(super) fn on_time(&mut self, now: Moment) {
        if let Some(planned) = self.at.take_if(|at| *at <= now) {
            self.is_due = true;
            self.planned.get_or_insert(planned);
        }
    }

    /// It is being sent; the next one is due at `next`, if anything needs it. Returns by how much it is late.
    pub(super) fn sent(&mut self, next: Option<Moment>, now: Moment) -> Option<Duration> {
        self.is_due = false;
        self.at = next;
        self.last = next.map(|_| now);
        self.planned.take().map(|planned| now.since(planned))
    }

    /// It is due now, if at `later` the last one would be longer than `longest` ago, and the planned one is
    /// not before then.
    pub(super) fn advance_unless_before(&mut self, later: Moment, longest: Duration) -> bool {
        let too_late = self.last.is_some_and(|at| at + longest < later);
        let advances = too_late && self.at.is_some_and(|at| at > later);
        self.is_due |= advances;
        advances
    }
}

impl Recheck {
    /// A reply asks for a recheck after this time, by the waiter at `position`.
    pub(super) fn on_reply(&mut self, after: Option<Duration>, position: u64, now: Moment) {
        match after {
            // The store has more to reap than fits into a call.
            Some(Duration::ZERO) if self.at_once < RECHECKS_AT_ONCE => {
                self.at_once += 1;
                self.is_due = true;
            }
            // Or its state is damaged.
            Some(Duration::ZERO) => advance(&mut self.at, now + RECHECK_PAUSE),
            Some(after) => {
                self.at_once = 0;
                self.at_turn(now + after, position);
            }
            None => self.at_once = 0,
        }
    }

    /// Rechecks at the turn of a waiter, unless a waiter before it has its turn.
    pub(super) fn at_turn(&mut self, at: Moment, position: u64) {
        if self.at.is_none() || position <= self.position {
            self.at = Some(at);
            self.position = position;
        }
    }

    /// Returns true if its time has come.
    pub(super) fn comes(&mut self, now: Moment) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }

    /// Returns true if the last reply asked for one at once.
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once > 0
    }
}

fn advance(planned: &mut Option<Moment>, at: Moment) {
    *planned = Some(planned.map_or(at, |planned| planned.min(at)));
}
