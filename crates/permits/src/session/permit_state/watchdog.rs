//! The watchdog: ends a permit at its deadline when nothing else does.
//!
//! The session's thread ends its permits itself. It may be stuck, in a subscriber's lock or a waker of the
//! program, or stopped by a panic hook that blocks; then a task that awaits the loss would wait forever. So
//! the first such task of a process starts one thread, which knows the permits whose loss is awaited and
//! their deadlines. It asks nothing of any session and of no runtime.
//!
//! A permit extended meanwhile is checked again at its new deadline.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::clock::Moment;
use crate::session;
use crate::session::timers::{Key, Timers};
use crate::sys::process::PerProcess;

static WATCHDOG: PerProcess<Watchdog> = PerProcess::new();

/// The longest time for which the thread sleeps. In unit tests it sleeps for longer than any of them runs, so
/// that one fails if the thread is not woken for an earlier deadline.
const LONGEST_SLEEP: Duration = if cfg!(test) { Duration::from_secs(3_600) } else { session::LONGEST_SLEEP };

/// A lease with a deadline at which something is to be signalled.
pub(super) trait Watched: Send + Sync {
    /// The time until its deadline, by the clock of its session; `None` if that has passed, which is
    /// signalled then.
    fn left(&self) -> Option<Duration>;

    /// The timer of the watchdog, while it watches.
    fn timer(&self) -> &Mutex<Option<Key>>;
}

#[derive(Default)]
struct Watchdog {
    watched: Mutex<Watching>,
    sooner: Condvar,
}

#[derive(Default)]
struct Watching {
    deadlines: Timers<Weak<dyn Watched>>,
    running: bool,
    /// When the thread wakes; `None` while it sleeps without a limit.
    wakes_at: Option<Moment>,
}

/// Watches a permit until the key is [forgotten](forget), or the permit has ended. Its deadline is in `left`.
pub(super) fn watch(permit: &Arc<dyn Watched>, left: Duration) {
    let deadline = Moment::now() + left;
    let watchdog = WATCHDOG.get();
    let mut watched = watchdog.lock();
    let mut key = permit.timer().lock().unwrap_or_else(PoisonError::into_inner);
    if key.is_some() {
        return;
    }
    *key = Some(watched.deadlines.set(deadline, Arc::downgrade(permit)));
    drop(key);
    if !watched.running {
        let thread = std::thread::Builder::new().name("permits-watchdog".into());
        // Without another thread, the session's own is left; the next permit retries.
        watched.running = thread.spawn(|| WATCHDOG.get().run()).is_ok();
    }
    watchdog.wake_before(&watched, deadline);
}

/// Watches a permit whose deadline is in `left` from now on, if it is watched. Signals nothing itself.
pub(super) fn watch_until(permit: &Arc<dyn Watched>, left: Duration) {
    let deadline = Moment::now() + left;
    let watchdog = WATCHDOG.get();
    let mut watched = watchdog.lock();
    let mut key = permit.timer().lock().unwrap_or_else(PoisonError::into_inner);
    if key.is_some() {
        watched.deadlines.remove(key.take());
        *key = Some(watched.deadlines.set(deadline, Arc::downgrade(permit)));
        watchdog.wake_before(&watched, deadline);
    }
}

/// Forgets a permit.
pub(super) fn forget(key: Key) {
    WATCHDOG.get().lock().deadlines.remove(Some(key));
}

impl Watchdog {
    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_before(&self, watched: &Watching, deadline: Moment) {
        if watched.wakes_at.is_none_or(|at| deadline < at) {
            self.sooner.notify_one();
        }
    }

    fn run(&self) {
        loop {
            let due = self.next();
            let Some(permit) = due.upgrade() else { continue };
            // Under no lock: this may run the wakers of the program. One that panics harms no other permit.
            let checked = catch_unwind(AssertUnwindSafe(|| permit.left()));
            let mut watched = self.lock();
            let mut key = permit.timer().lock().unwrap_or_else(PoisonError::into_inner);
            *key = match checked {
                Ok(Some(left)) => Some(watched.deadlines.set(Moment::now() + left, Arc::downgrade(&permit))),
                Ok(None) | Err(_) => None,
            };
            drop((key, watched));
            // Perhaps the last one: the drop of a permit takes the lock.
            drop(permit);
        }
    }

    /// Waits for the next deadline that has passed.
    fn next(&self) -> Weak<dyn Watched> {
        let mut watched = self.lock();
        loop {
            let now = Moment::now();
            if let Some(permit) = watched.deadlines.due(now) {
                return permit;
            }
            // The condition's clock stands still while the machine is suspended, the leases don't.
            let sleep = watched.deadlines.next().map(|at| at.since(now).min(LONGEST_SLEEP));
            watched.wakes_at = sleep.map(|sleep| now + sleep);
            watched = match sleep {
                Some(sleep) => {
                    self.sooner.wait_timeout(watched, sleep).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.sooner.wait(watched).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
