//! The state of a permit, on one thread. See [`threads`](super::threads) for several.

use std::fs;
use std::future::Future as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Wake};
use std::time::Duration;

use permits_testkit::wait;

use super::requested;
use crate::clock::Moment;
use crate::error::Lost;
use crate::protocol::Grant;
use crate::session::Requested;
use crate::session::permit_state::{HeldPermit, PermitState, PermitStatus};
use crate::sys::process::Process;

fn held(deadline_ms: u64) -> HeldPermit {
    held_until(at(deadline_ms)).0
}

/// A permit, as its holder sees it and as the engine sees it.
fn held_until(deadline: Moment) -> (HeldPermit, Arc<PermitState>) {
    let granted = (at(0), Duration::ZERO);
    let grant = Grant { token: 7, slot: 0 };
    let state = Arc::new(PermitState::new(requested(), grant, deadline, granted, Process::current()));
    (state.clone().into(), state)
}

fn at(milliseconds: u64) -> Moment {
    Moment::from_micros(milliseconds * 1000)
}

#[test]
fn a_loss_is_final() {
    let core = held(100);
    assert_eq!(core.deadline(at(99)), Some(at(100)));
    assert_eq!(core.deadline(at(100)), None);
    core.extend(at(500));
    assert_eq!(core.deadline(at(101)), None, "seen lost, it stays lost");
    assert_eq!(core.reason(), Some(Lost::Expired));
    assert!(core.cancellation_token().is_cancelled());
}

#[test]
fn a_thread_that_waits_for_the_loss_sees_the_deadline_pass_by_itself() {
    let _watchdog = watchdog_alone();
    let deadline = Moment::now() + Duration::from_millis(20);
    let core = held(u64::try_from(deadline.since(at(0)).as_millis()).expect("it is soon"));
    assert_eq!(core.lost_within(permits_testkit::HANGS), Some(Lost::Expired));
}

#[test]
fn an_extension_never_shortens() {
    let core = held(100);
    core.extend(at(300));
    core.extend(at(200));
    assert_eq!(core.deadline(at(0)), Some(at(300)));
}

/// The process has one watchdog. When it wakes for one deadline, it checks all that have passed. So the tests
/// that use it take turns: otherwise the deadline of one test could wake it for the permit of another.
fn watchdog_alone() -> MutexGuard<'static, ()> {
    static WATCHDOG: Mutex<()> = Mutex::new(());
    WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `then` when the permit is lost, on the thread that signals the loss.
fn when_lost(held: &HeldPermit, then: impl Fn() + Send + Sync + 'static) {
    struct Calls<F>(F);
    impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    let waker = Arc::new(Calls(then)).into();
    let mut lost = Box::pin(held.cancellation_token().cancelled_owned());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Await the loss until the process ends.
    std::mem::forget(lost);
}

/// The channel gets a message when the permit is lost.
fn signal_of_loss(held: &HeldPermit) -> mpsc::Receiver<()> {
    let (sender, signalled) = mpsc::channel();
    when_lost(held, move || {
        // The test may have ended: then nobody needs this.
        let _ = sender.send(());
    });
    signalled
}

/// Keeps the watchdog's thread busy with the loss of another permit, until the sender is dropped.
fn busy_watchdog() -> mpsc::Sender<()> {
    let (held, _) = held_until(Moment::now() + Duration::from_millis(20));
    let (sender, end) = mpsc::channel();
    let (began, begins) = mpsc::channel();
    let end = Mutex::new(end);
    when_lost(&held, move || {
        let _ = began.send(());
        let _ = end.lock().expect("not poisoned").recv();
    });
    begins.recv_timeout(permits_testkit::HANGS).expect("it is lost");
    sender
}

/// Waits until the watchdog's thread sleeps. It then knows each deadline, and before the earliest of
/// them it only looks if it is woken.
fn until_the_watchdog_sleeps() {
    let sleeps = || {
        // Only Linux tells. The name is cut off after 15 bytes.
        let Ok(threads) = fs::read_dir("/proc/self/task") else { return true };
        let state = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        threads.flatten().map(state).any(|state| state.contains("(permits-watchdo) S "))
    };
    assert!(wait::until(sleeps));
}

#[test]
fn a_shorter_lease_is_signalled_at_its_end_by_the_watchdog() {
    let _watchdog = watchdog_alone();
    let now = Moment::now();
    let hour = now + Duration::from_secs(3_600);
    for sooner in [0, 20].map(Duration::from_millis) {
        let (held, state) = held_until(hour);
        let signalled = signal_of_loss(&held);
        until_the_watchdog_sleeps();
        state.set_lease(Duration::from_secs(1), now + sooner);
        signalled.recv_timeout(permits_testkit::HANGS).expect("it is lost");
    }
}

/// The engine sets a lease while it holds its lock, and must not run wakers of the program meanwhile.
#[test]
fn whoever_sets_a_lease_that_has_ended_does_not_signal_it() {
    let _watchdog = watchdog_alone();
    let (held, state) = held_until(Moment::now() + Duration::from_secs(3_600));
    let busy = busy_watchdog();
    let signalled = signal_of_loss(&held);
    state.set_lease(Duration::from_secs(1), Moment::now());
    assert_eq!(signalled.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(busy);
    signalled.recv_timeout(permits_testkit::HANGS).expect("it is lost");
}

/// Even if the session's thread is stuck.
#[test]
fn the_end_of_a_lease_is_signalled_by_the_watchdog_before_a_longer_one_is_confirmed() {
    let _watchdog = watchdog_alone();
    let now = Moment::now();
    let (held, state) = held_until(now + Duration::from_millis(20));
    let signalled = signal_of_loss(&held);
    let hour = Duration::from_secs(3_600);
    state.set_lease(hour, now + hour);
    signalled.recv_timeout(permits_testkit::HANGS).expect("it is lost");
}

/// The session signals one loss after the other, and a signal may block.
#[test]
fn a_permit_that_the_session_has_ended_is_signalled_by_the_watchdog_too() {
    let _watchdog = watchdog_alone();
    let (held, state) = held_until(Moment::now() + Duration::from_millis(20));
    let signalled = signal_of_loss(&held);
    assert!(state.end_as_lost(Lost::Gone));
    signalled.recv_timeout(permits_testkit::HANGS).expect("it is lost");
    let (held, state) = held_until(Moment::now() + Duration::from_secs(3_600));
    assert!(state.end_as_lost(Lost::Gone));
    assert!(held.cancellation_token().is_cancelled(), "who waits from now on learns of it");
}

/// A lease may end in an outage, before the longest hold. The program then learns that the store was away,
/// and not that it was too slow.
#[test]
fn a_permit_that_ends_before_its_longest_hold_has_expired() {
    for (longest_ms, lost) in [(101, None), (100, Some(100))] {
        let max_hold = Some(Duration::from_millis(longest_ms));
        let requested = Requested { max_hold, ..requested() };
        let granted = (at(0), Duration::ZERO);
        let grant = Grant { token: 7, slot: 0 };
        let state = PermitState::new(requested, grant, at(100), granted, Process::current());
        let held = HeldPermit::from(Arc::new(state));
        assert_eq!(held.deadline(at(100)), None);
        let lost = lost.map_or(Lost::Expired, |ms| Lost::HeldTooLong { limit: Duration::from_millis(ms) });
        assert_eq!(held.reason(), Some(lost), "the longest hold is {longest_ms} ms");
    }
}

#[test]
fn a_release_is_no_loss() {
    let core = held(100);
    assert!(core.end());
    assert!(!core.end());
    assert_eq!((core.reason(), core.status(at(0))), (None, PermitStatus::Lost));
    assert!(!core.cancellation_token().is_cancelled());
}

#[test]
fn a_failed_renewal_is_a_doubt_until_the_next_success() {
    let core = held(100);
    core.mark_unsure(&"cut");
    assert_eq!(core.status(at(1)), PermitStatus::Unsure);
    core.extend(at(200));
    assert_eq!(core.status(at(1)), PermitStatus::Held);
}
