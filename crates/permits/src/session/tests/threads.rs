//! Checks the state that threads share without the lock of the session, under every order of their steps, and
//! with every value that the memory may show them. The threads are the engine, which holds that lock and
//! learns of extensions and losses, and callers.
//!
//! The shelf and the state of permits are compiled a second time here, with the primitives of loom.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use self::permit_state::{Check, PermitState};
use self::shelf::{Keep, Shelf};
use super::super::{Map, Requested, timers};
use super::requested;
use crate::clock::Moment;
use crate::error::Lost;
use crate::keeping::Notice;
use crate::protocol::{Declaration, Grant};
use crate::sys::process::Process;

mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard, atomic};
}

#[path = "../permit_state/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "only what threads share is used")]
mod permit_state;
#[path = "../shelf.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "only what threads share is used")]
mod shelf;

/// The deadline of the permits here.
const DEADLINE: Moment = Moment::from_micros(100_000);

/// A permit that is granted at the beginning of the clock, as the engine and its holder have it.
fn granted() -> [Arc<PermitState>; 2] {
    let grant = Grant { token: 7, slot: 0 };
    let granted = (Moment::from_micros(0), Duration::ZERO);
    let permit = PermitState::new(requested(), grant, DEADLINE, granted, Process::current());
    let permit = Arc::new(permit);
    [permit.clone(), permit]
}

/// An open shelf with this permit.
fn keeping(permit: &Arc<PermitState>) -> Keep {
    let shelf: Arc<Shelf> = Arc::default();
    assert!(shelf.note(Notice::Reply { keepable: true, limit: 1, in_order: true }).is_empty());
    let keep = Keep { shelf, idle: Duration::from_secs(60), declaration: Declaration::Stored };
    assert!(keep.put_back(permit, Moment::from_micros(50_000)));
    keep
}

fn take(keep: &Keep, now: Moment) -> Option<Arc<PermitState>> {
    keep.shelf.take(Declaration::Stored, |_| true, || now)
}

#[test]
fn a_permit_that_was_seen_lost_is_not_extended() {
    loom::model(|| {
        let [permit, holder] = granted();
        let checking = thread::spawn(move || matches!(holder.check(DEADLINE), Check::Held(_)));
        permit.extend(DEADLINE + Duration::from_secs(1));
        let was_held = checking.join().expect("it does not panic");
        let is_held = matches!(permit.check(DEADLINE), Check::Held(_));
        assert_eq!(is_held, was_held);
    });
}

#[test]
fn a_loss_is_signalled_by_one_thread() {
    loom::model(|| {
        let [permit, holder] = granted();
        let checking = thread::spawn(move || matches!(holder.check(DEADLINE), Check::Expired));
        let lost = permit.end_as_lost(Lost::Gone);
        let expired = checking.join().expect("it does not panic");
        assert_eq!([lost, expired].iter().filter(|signals| **signals).count(), 1);
    });
}

/// The reply to a renewal and a request come together at the very end of the lease. If the engine renewed the
/// permit although no request gets it, it would do so for as long as the session lives.
#[test]
fn a_kept_permit_that_no_request_gets_is_lost() {
    loom::model(|| {
        let [permit, holder] = granted();
        let keep = keeping(&holder);
        drop(holder);
        let taking = thread::spawn(move || take(&keep, DEADLINE));
        permit.extend(DEADLINE + Duration::from_secs(1));
        let taken = taking.join().expect("it does not panic");
        let is_held = matches!(permit.check(DEADLINE), Check::Held(_));
        assert_eq!(is_held, taken.is_some());
    });
}

#[test]
fn a_kept_permit_goes_to_one_of_two_requests_or_is_released() {
    loom::model(|| {
        let [permit, holder] = granted();
        let keep = keeping(&holder);
        drop((permit, holder));
        let takers = [keep.clone(), keep.clone()];
        let now = Moment::from_micros(60_000);
        let taking = takers.map(|keep| thread::spawn(move || take(&keep, now)));
        let released = keep.shelf.note(Notice::Recall);
        let taken = taking.map(|thread| thread.join().expect("it does not panic"));
        assert_eq!(taken.iter().flatten().count() + released.len(), 1);
        assert!(taken.iter().flatten().all(|permit| permit.grant().token == 8));
    });
}

#[test]
fn a_permit_that_is_put_back_after_a_recall_is_released() {
    loom::model(|| {
        let [_engine, holder] = granted();
        let keep = keeping(&holder);
        let shelf = keep.shelf.clone();
        let now = Moment::from_micros(60_000);
        drop(holder);
        let holder = take(&keep, now).expect("it is kept");
        let returning = thread::spawn(move || keep.put_back(&holder, now));
        let released = shelf.note(Notice::Recall);
        let kept = returning.join().expect("it does not panic");
        assert_eq!(released.len(), usize::from(kept));
        assert!(shelf.next_idle().is_none());
    });
}
