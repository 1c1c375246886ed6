//! The client's half of the protocol: the decisions of a session about one acquisition.
//!
//! The twin of [`model`](crate::model): a pure value and one `match` of its stage and an input, which returns
//! an effect. No clock, no I/O, no channel. The session's engine drives it and carries the effects out; the
//! exhaustive check explores the very same code; and a reader learns here what a client does.
//!
//! ```text
//!            sent                    granted                        delivered
//! Unsent ───────────▶ InFlight ─────────────────▶ Unconfirmed ─────────────────▶ Held ──▶ Ended
//!    ▲                  │   │                          ▲                           ▲
//!    │ failed, or lost  │   │ queued                   │ granted, with replicas    │ granted, without
//!    └──────────────────┘   └──────▶ Waiting ──────────┴───────────────────────────┘
//! ```
//!
//! - **One stage.** An acquisition is in one [`Stage`].
//! - **Withdrawn in order.** If the caller gives up while the call is in flight, a release is sent at once,
//!   behind the call on the same connection. The store executes both in this order, so a later request of the
//!   session never meets the withdrawn one. The release is repeated if the call fails, because the store may
//!   then execute the call later. It is also repeated if the call was granted or queued, and the release
//!   found nothing, or may have found an earlier call without an answer: it was then executed too early.
//! - **Deadlines from before the send.** A permit is held until the moment before the request was sent that
//!   last extended it, plus the lease, minus a margin. Never from a reply or a push.
//! - **Late calls.** A call that was given up may still arrive. So from the first call without an answer on,
//!   the store may have the acquisition at any time, and a later call does not date it.
//!   A renewal that returns, or fails, after the acquisition has ended may have been executed after the
//!   release, and have put back what that removed. So the release is repeated.
//! - **Late pushes.** A push of a grant is older than a reply that said "waiting" or "unknown" if its token
//!   is not above the server's time of that reply. It is ignored then, but for a renewal if the request
//!   waits: the server's clock may have been set back.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::protocol::{AcquireOutcome, EventKind, Grant, RenewOutcome};
use crate::timing::held_until;

/// An acquisition, from the call to the release.
#[derive(Debug, Clone)]
pub struct Acquisition {
    /// The stage.
    pub stage: Stage,
    /// The moment before the request was sent that, as far as is known, last extended the lease.
    pub extended_at: Moment,
    /// The server's time, in microseconds, of the last reply that reported the request as waiting or unknown.
    pub last_answer_us: u64,
    /// An earlier call was sent and not answered: it may arrive at any time, also after a later one.
    pub may_be_stored: bool,
}

/// The stage of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The request is to be sent, for the first time or again.
    Unsent,
    /// The request was sent, in a call that has not returned.
    InFlight,
    /// The caller has given up while the call was in flight. A release is behind the call, and has not
    /// returned.
    Withdrawn {
        /// The call has returned: the store had granted or queued it.
        stored: bool,
    },
    /// The request waits in the queue.
    Waiting,
    /// Granted; the replicas are being asked whether they have the grant.
    Unconfirmed(Grant),
    /// Granted, and delivered to the caller.
    Held(Grant),
    /// Released, refused, failed or lost. The store may have it for a moment longer; a grant that arrives now
    /// is released.
    Ended,
}

/// The terms under which a session acquires.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The time for which a grant or a place in the queue is valid without renewal.
    pub lease: Duration,
    /// Replicas have to confirm a grant before it is delivered.
    pub replicated: bool,
}

/// The times of a reply: when its request was sent, by the session's clock, and when it was made, by the
/// server's.
#[derive(Debug, Clone, Copy)]
pub struct ReplyTimes {
    /// The moment before the request was sent.
    pub sent_at: Moment,
    /// The server's time, in microseconds.
    pub server_us: u64,
}

/// An event in the life of an acquisition.
#[derive(Debug, Clone)]
pub enum Input {
    /// The call that asks for it is being sent.
    Sent,
    /// The call has returned.
    Acquired(AcquireOutcome, ReplyTimes),
    /// The call has failed.
    AcquireFailed(Failure),
    /// A renewal has returned.
    Renewed(RenewOutcome, ReplyTimes),
    /// A renewal has failed.
    RenewFailed,
    /// The store has pushed an event.
    Pushed(EventKind),
    /// The replicas have answered.
    Confirmed {
        /// The number of replicas that have the grant.
        confirmed: u32,
        /// The number that the session asks for.
        wanted: u32,
    },
    /// The call that asks the replicas has failed.
    ConfirmFailed(Failure),
    /// The permit of another session, adopted under this request.
    Adopted(Grant),
    /// The caller no longer waits: it has given up, or was answered with an error.
    Withdrawn,
    /// A release has returned, or has been tried for a lease.
    ReleaseReturned {
        /// The store had it, and has nothing of it any more. If false, the store may have it.
        ended: bool,
    },
    /// The caller has released or dropped the permit.
    Released,
    /// Another process takes the permit over.
    HandedOver,
    /// The deadline has passed without an extension.
    Expired,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// A retry can help.
    pub temporary: bool,
    /// The store may have executed the call, or may execute it later.
    pub outcome_unknown: bool,
}

/// The action for the owner of an acquisition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Send the request, for the first time or again.
    Send,
    /// Renew it in time: it waits, with this many waiters before it.
    Wait {
        /// The number of waiters before it.
        position: u64,
    },
    /// Renew it now: whether the session holds it is not known.
    Renew,
    /// Ask the replicas for the grant, and renew it in time meanwhile.
    Confirm,
    /// Deliver the permit to the caller, who holds it until `until`.
    Deliver {
        /// The grant.
        grant: Grant,
        /// The deadline.
        until: Moment,
    },
    /// Extend the permit's deadline.
    Extend {
        /// The deadline.
        until: Moment,
    },
    /// Mark the permit as unsure.
    MarkUnsure,
    /// Mark the permit as unsure, and renew it soon: the store forgot it and cannot put it back yet.
    RenewSoon,
    /// End the permit as lost, and forget the acquisition.
    Lose {
        /// The reason of an operator who revoked it; `None` if the store no longer has it.
        revoked: Option<Arc<str>>,
    },
    /// Release it behind the call in flight, whose outcome is awaited.
    ReleaseBehind,
    /// Answer the caller, if it still waits, and forget the acquisition.
    End {
        /// Release it first: the store may have it.
        release: bool,
    },
}

impl Acquisition {
    /// An acquisition whose request is to be sent.
    pub fn new(now: Moment) -> Self {
        Self { stage: Stage::Unsent, extended_at: now, last_answer_us: 0, may_be_stored: false }
    }

    /// An acquisition that the session does not know, or no longer knows.
    pub fn ended() -> Self {
        Self { stage: Stage::Ended, ..Self::new(Moment::from_micros(0)) }
    }

    /// Takes an input and returns the effect. `now` is the session's clock.
    pub fn step(&mut self, input: Input, terms: &Terms, now: Moment) -> Effect {
        match (self.stage, input) {
            (Stage::Unsent, Input::Sent) => {
                self.stage = Stage::InFlight;
                if !self.may_be_stored {
                    // Otherwise an earlier call may be the one that counts.
                    self.extended_at = now;
                }
                Effect::None
            }

            (Stage::InFlight, Input::Acquired(AcquireOutcome::Refused(_), _)) => self.end(false),
            (Stage::InFlight, Input::Acquired(AcquireOutcome::Granted(grant), times)) => {
                self.extended_at = times.sent_at;
                self.granted(grant, terms, now)
            }
            (Stage::InFlight, Input::Acquired(AcquireOutcome::Waiting { position }, times)) => {
                self.stage = Stage::Waiting;
                self.waiting(position, times)
            }
            (Stage::InFlight, Input::AcquireFailed(failure)) => {
                self.may_be_stored |= failure.outcome_unknown;
                if failure.temporary { self.resend() } else { self.end(self.may_be_stored) }
            }
            (Stage::Withdrawn { .. }, Input::Acquired(AcquireOutcome::Refused(_), _)) => self.end(false),
            (Stage::Withdrawn { .. }, Input::Acquired(..)) => {
                self.stage = Stage::Withdrawn { stored: true };
                Effect::None
            }
            (Stage::Withdrawn { .. }, Input::AcquireFailed(failure)) => {
                self.may_be_stored |= failure.outcome_unknown;
                self.end(self.may_be_stored)
            }
            // If the call has not returned yet, its outcome arrives at an ended acquisition, and is handled
            // as such. What the release has ended may be of an earlier call, and the last one may have been
            // executed after it.
            (Stage::Withdrawn { stored }, Input::ReleaseReturned { ended }) => {
                self.end(stored && (!ended || self.may_be_stored))
            }
            // Released while its call was in flight, which may be executed later.
            (Stage::Ended, Input::AcquireFailed(Failure { outcome_unknown: true, .. })) => self.end(true),
            (_, Input::AcquireFailed(failure)) => {
                // A push arrived before the call failed.
                self.may_be_stored |= failure.outcome_unknown;
                Effect::None
            }
            (Stage::InFlight, Input::Adopted(grant)) => self.deliver(grant, terms, now),

            (Stage::Waiting, Input::Renewed(RenewOutcome::Granted(grant), times)) => {
                self.extended_at = times.sent_at;
                self.granted(grant, terms, now)
            }
            (Stage::Waiting, Input::Renewed(RenewOutcome::Waiting { position }, times)) => {
                self.waiting(position, times)
            }
            (Stage::Waiting, Input::Renewed(RenewOutcome::ExceedsLimit | RenewOutcome::LineClosed(_), _)) => {
                self.end(false)
            }
            // The request has lost its place in the queue. It goes to the back. The store may have a grant of
            // it that came too late to be delivered.
            (Stage::Waiting, Input::Renewed(outcome, times)) => {
                self.may_be_stored |= outcome == RenewOutcome::Held;
                self.lost_place(times)
            }

            (Stage::Unconfirmed(_), Input::Renewed(RenewOutcome::Held | RenewOutcome::Granted(_), times)) => {
                self.extended_at = times.sent_at;
                Effect::None
            }
            // The push of the grant was faster than this reply, which is from before it.
            (Stage::Unconfirmed(_), Input::Renewed(RenewOutcome::Waiting { .. }, _)) => Effect::None,
            // The store has lost the grant before the caller had it.
            (Stage::Unconfirmed(_), Input::Renewed(_, times)) => self.lost_place(times),
            (Stage::Unconfirmed(grant), Input::Confirmed { confirmed, wanted }) if confirmed >= wanted => {
                self.deliver(grant, terms, now)
            }
            (Stage::Unconfirmed(_), Input::ConfirmFailed(Failure { temporary: true, .. })) => Effect::Confirm,
            (Stage::Unconfirmed(_), Input::Confirmed { .. } | Input::ConfirmFailed(_)) => self.end(true),

            (Stage::Held(_), Input::Renewed(RenewOutcome::Held | RenewOutcome::Granted(_), times)) => {
                self.extended_at = times.sent_at;
                Effect::Extend { until: held_until(times.sent_at, terms.lease) }
            }
            (Stage::Held(_), Input::Renewed(RenewOutcome::RetryLater, _)) => Effect::RenewSoon,
            // The push of the grant was faster than this reply, which is from before it.
            (Stage::Held(_), Input::Renewed(RenewOutcome::Waiting { .. }, _)) => Effect::None,
            (
                Stage::Held(_),
                Input::Renewed(
                    RenewOutcome::Lost | RenewOutcome::ExceedsLimit | RenewOutcome::LineClosed(_),
                    _,
                ),
            ) => self.lose(None),
            (Stage::Held(_), Input::RenewFailed) => Effect::MarkUnsure,
            // The permit is released when the caller drops it, because only then has its work stopped.
            (Stage::Held(_), Input::Expired | Input::HandedOver) => self.end(false),

            (Stage::Unsent | Stage::InFlight | Stage::Waiting, Input::Pushed(EventKind::Granted(grant)))
                if grant.token > self.last_answer_us =>
            {
                self.granted(grant, terms, now)
            }
            // The server's clock was set back, or the message is old. A renewal tells.
            (Stage::Waiting, Input::Pushed(EventKind::Granted(_))) => Effect::Renew,
            // The caller has gone, so the permit is released. A second release behind one that is on its way
            // changes nothing.
            (
                Stage::Ended,
                Input::Pushed(EventKind::Granted(_))
                | Input::Acquired(AcquireOutcome::Granted(_) | AcquireOutcome::Waiting { .. }, _)
                | Input::Renewed(
                    RenewOutcome::Held | RenewOutcome::Granted(_) | RenewOutcome::Waiting { .. },
                    _,
                )
                | Input::RenewFailed,
            ) => self.end(true),
            (Stage::Held(_), Input::Pushed(EventKind::Revoked(reason))) => self.lose(Some(reason)),
            (
                Stage::Waiting,
                Input::Pushed(EventKind::Revoked(_) | EventKind::LineClosed(_) | EventKind::Superseded),
            ) if !self.may_be_stored => self.end(false),
            // A call that is in flight, or was not answered, finds nothing in the store and is granted.
            (_, Input::Pushed(EventKind::Revoked(_) | EventKind::LineClosed(_) | EventKind::Superseded)) => {
                self.withdraw()
            }
            // The push does not say what the limit has become. The reply to another request does.
            (Stage::Waiting | Stage::InFlight, Input::Pushed(EventKind::Refused)) => self.resend(),

            (_, Input::Withdrawn) => self.withdraw(),
            (_, Input::Released) => self.end(true),

            // Replies and pushes about a stage that the acquisition has left.
            (
                _,
                Input::Sent
                | Input::Acquired(..)
                | Input::Renewed(..)
                | Input::RenewFailed
                | Input::Pushed(EventKind::Granted(_) | EventKind::Refused | EventKind::Turn(_))
                | Input::Confirmed { .. }
                | Input::ConfirmFailed(_)
                | Input::Adopted(_)
                | Input::ReleaseReturned { .. }
                | Input::HandedOver
                | Input::Expired,
            ) => Effect::None,
        }
    }

    /// Returns true if it needs renewal. A permit that is held does if the caller has asked for that by
    /// `renew`.
    pub fn needs_renewal(&self, renew: bool) -> bool {
        match self.stage {
            Stage::Waiting | Stage::Unconfirmed(_) => true,
            Stage::Held(_) => renew,
            Stage::Unsent | Stage::InFlight | Stage::Withdrawn { .. } | Stage::Ended => false,
        }
    }

    /// The grant that a renewal is to name, so that a store that forgot it can put it back.
    pub fn grant(&self) -> Option<Grant> {
        match self.stage {
            Stage::Unconfirmed(grant) | Stage::Held(grant) => Some(grant),
            _ => None,
        }
    }

    fn granted(&mut self, grant: Grant, terms: &Terms, now: Moment) -> Effect {
        if terms.replicated {
            self.stage = Stage::Unconfirmed(grant);
            return Effect::Confirm;
        }
        self.deliver(grant, terms, now)
    }

    /// Delivers the grant, if by the session's own clock it is still good. Otherwise a renewal has to say
    /// whether the session holds it.
    fn deliver(&mut self, grant: Grant, terms: &Terms, now: Moment) -> Effect {
        let until = held_until(self.extended_at, terms.lease);
        if until <= now {
            self.stage = Stage::Waiting;
            return Effect::Renew;
        }
        self.stage = Stage::Held(grant);
        Effect::Deliver { grant, until }
    }

    fn waiting(&mut self, position: u64, times: ReplyTimes) -> Effect {
        self.extended_at = times.sent_at;
        self.last_answer_us = times.server_us;
        Effect::Wait { position }
    }

    fn lost_place(&mut self, times: ReplyTimes) -> Effect {
        self.last_answer_us = times.server_us;
        self.resend()
    }

    fn resend(&mut self) -> Effect {
        self.stage = Stage::Unsent;
        Effect::Send
    }

    fn withdraw(&mut self) -> Effect {
        match self.stage {
            Stage::InFlight => {
                self.stage = Stage::Withdrawn { stored: false };
                Effect::ReleaseBehind
            }
            Stage::Unsent => self.end(self.may_be_stored),
            Stage::Waiting | Stage::Unconfirmed(_) => self.end(true),
            // The permit is on its way to the caller. Dropped there, it is released.
            Stage::Held(_) | Stage::Withdrawn { .. } | Stage::Ended => Effect::None,
        }
    }

    fn lose(&mut self, revoked: Option<Arc<str>>) -> Effect {
        self.stage = Stage::Ended;
        Effect::Lose { revoked }
    }

    fn end(&mut self, release: bool) -> Effect {
        self.stage = Stage::Ended;
        Effect::End { release }
    }
}
