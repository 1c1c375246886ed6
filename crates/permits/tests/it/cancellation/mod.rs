//! A cancelled acquisition leaves nothing in the store, at every stage.
//!
//! Each [`Stage`] of an acquisition is crossed with each [`Outcome`] and each [`Subject`]; every triple is a
//! test. A proxy between client and server holds the acquisition at its stage. Afterwards a second client
//! must get all units at once. The leases are longer than the test, so only a release frees the units.
//!
//! - `blocked`: an acquisition of the blocking API, cancelled by another thread.
//! - `lost_replies`: any other call whose reply is lost, and a grant whose message is lost.
//! - `other_calls`: the same for other calls that are dropped.
//! - `runtimes`: permits outlive the runtime that acquired them, and a blocked one.
//! - `storm`: many acquisitions, dropped at random points.
//! - `fixture`: server, proxy and observer; it brings an acquisition to its stage. `user`: the program that
//!   acquires.

mod blocked;
mod fixture;
mod lost_replies;
mod other_calls;
mod runtimes;
mod storm;
mod user;

use std::time::Duration;

use permits::AcquireOptions;
use permits_testkit::{HOUR, in_real_time};

use fixture::Fixture;
use user::{Held, User};

/// A lease that ends in no test.
pub(crate) const LEASE: Duration = HOUR;

/// The wait after which acquisitions time out that are to. They must reach their stage before.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The limit.
pub(crate) const UNITS: u32 = 2;

/// The semaphore of a set that is acquired before the other one.
pub(crate) const FIRST: &str = "exports/first";

/// The acquisition that is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The request for one permit.
    Permit,
    /// The request for the second permit of a set, while the first one is held. The stages of the first
    /// permit are the stages of a single permit.
    LastOfASet,
}

/// A stage of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The future has not been polled.
    BeforeTheFirstPoll,
    /// The store cannot be reached.
    BeforeItIsSent,
    /// The request has been sent, and has not arrived.
    OnItsWay,
    /// The store has granted it, and the reply has not arrived.
    GrantedWithTheReplyOnItsWay,
    /// The store has queued it, and the reply has not arrived.
    QueuedWithTheReplyOnItsWay,
    /// The request waits in the queue.
    Queued,
    /// The store has granted the waiter, and the event has not arrived.
    GrantedWithTheEventOnItsWay,
    /// The grant has arrived, and the future was not polled since.
    GrantedAndNotDelivered,
    /// The caller has the permit.
    Held,
}

/// The end of the acquisition at that stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    FutureDropped,
    TimedOut,
    ClientClosed,
    RuntimeDropped,
    ConnectionCut,
    ConnectionCutAndFutureDropped,
}

macro_rules! crossed {
    ($subject:ident: $($stage:ident: $variant:ident,)*) => {
        $(mod $stage {
            use crate::cancellation::{Outcome, Stage, Subject, cross};

            #[test]
            fn a_dropped_future_leaves_nothing() {
                cross(Subject::$subject, Stage::$variant, Outcome::FutureDropped);
            }

            #[test]
            fn a_timeout_leaves_nothing() {
                cross(Subject::$subject, Stage::$variant, Outcome::TimedOut);
            }

            #[test]
            fn a_closed_client_leaves_nothing() {
                cross(Subject::$subject, Stage::$variant, Outcome::ClientClosed);
            }

            #[test]
            fn a_dropped_runtime_leaves_nothing() {
                cross(Subject::$subject, Stage::$variant, Outcome::RuntimeDropped);
            }

            #[test]
            fn a_cut_connection_does_not_stop_it() {
                cross(Subject::$subject, Stage::$variant, Outcome::ConnectionCut);
            }

            #[test]
            fn a_cut_connection_and_a_dropped_future_leave_nothing() {
                cross(Subject::$subject, Stage::$variant, Outcome::ConnectionCutAndFutureDropped);
            }
        })*
    };
}

/// All stages of a subject.
macro_rules! stages {
    ($subject:ident) => {
        crossed! { $subject:
            before_the_first_poll: BeforeTheFirstPoll,
            before_it_is_sent: BeforeItIsSent,
            on_its_way: OnItsWay,
            granted_with_the_reply_on_its_way: GrantedWithTheReplyOnItsWay,
            queued_with_the_reply_on_its_way: QueuedWithTheReplyOnItsWay,
            queued: Queued,
            granted_with_the_event_on_its_way: GrantedWithTheEventOnItsWay,
            granted_and_not_delivered: GrantedAndNotDelivered,
            held: Held,
        }
    };
}

stages!(Permit);

mod last_of_a_set {
    stages!(LastOfASet);
}

fn cross(subject: Subject, stage: Stage, outcome: Outcome) {
    if outcome == Outcome::TimedOut {
        in_real_time(|| cross_once(subject, stage, outcome));
    } else {
        cross_once(subject, stage, outcome);
    }
}

fn cross_once(subject: Subject, stage: Stage, outcome: Outcome) {
    let fixture = Fixture::new();
    let options = AcquireOptions::new();
    let options = if outcome == Outcome::TimedOut { options.timeout(LONGEST_WAIT) } else { options };
    let mut user = User::new(&fixture, subject);
    fixture.reach(stage, &mut user, options);
    match outcome {
        Outcome::FutureDropped => user.drop_future(),
        Outcome::TimedOut => fixture.let_it_time_out(stage, &user),
        Outcome::ClientClosed => fixture.close(stage, &user),
        Outcome::RuntimeDropped => drop(user.runtime.take()),
        Outcome::ConnectionCut => {
            let stored = fixture.token();
            fixture.proxy.cut();
            fixture.heal();
            fixture.unblock();
            user.gate.open();
            let permit = user.result().expect("the session retries");
            assert!(permit.is_held());
            if let (Some(stored), Held::Permit(permit)) = (stored, &permit) {
                assert_eq!(permit.token(), stored, "the grant to the first request");
            }
            user.block_on(permit.release()).expect("it is held");
        }
        Outcome::ConnectionCutAndFutureDropped => {
            fixture.proxy.cut();
            user.drop_future();
        }
    }
    fixture.heal();
    fixture.all_units_come_back();
}
