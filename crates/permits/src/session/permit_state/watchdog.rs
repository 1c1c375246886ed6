//! The watchdog: a thread that ends a permit at its deadline when nothing else does.
//!
//! Normally the session's thread ends its permits. But it may be stuck, in a subscriber's lock or a waker of
//! the program, or stopped by a panic hook that blocks. A task that awaits the loss of its permit would then
//! wait forever. So the first such task of a process starts one thread, which knows the permits whose loss is
//! awaited and their deadlines. It needs no session and no runtime.
//!
//! If a permit was extended meanwhile, the watchdog checks it again at its new deadline.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::clock::Moment;
use crate::session;
use crate::session::timers::{Key, Timers};
use crate::sys::process::PerProcess;

static WATCHDOG: PerProcess<Watchdog> = PerProcess::new();

/// The longest sleep of the thread. In unit tests it is longer than any of them runs, so that a test fails if
/// the thread is not woken for an earlier deadline.
const LONGEST_SLEEP: Duration = if cfg!(test) { Duration::from_secs(3_600) } else { session::LONGEST_SLEEP };

/// Something with a deadline, at which the watchdog lets it signal its end.
pub(super) trait Watched: Send + Sync {
    /// The time until the deadline, by the clock of the session; `None` if it has passed. This call then
    /// signals it.
    fn left(&self) -> Option<Duration>;

    /// The place for the watchdog's timer, while it watches.
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
    /// The time at which the thread wakes; `None` while it sleeps without a limit.
    wakes_at: Option<Moment>,
}

/// Watches a permit until the permit has ended, or its key is [forgotten](forget). The deadline is in `left`.
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
        // If no thread can be started, the session's own thread still ends the permit. The next permit tries
        // again.
        watched.running = thread.spawn(|| WATCHDOG.get().run()).is_ok();
    }
    watchdog.wake_before(&watched, deadline);
}

/// If a permit is watched, watches it until its new deadline, in `left` from now. This signals nothing.
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
            // The check may run wakers of the program, so no lock is held. If one panics, the other permits
            // are unharmed.
            let checked = catch_unwind(AssertUnwindSafe(|| permit.left()));
            let mut watched = self.lock();
            let mut key = permit.timer().lock().unwrap_or_else(PoisonError::into_inner);
            *key = match checked {
                Ok(Some(left)) => Some(watched.deadlines.set(Moment::now() + left, Arc::downgrade(&permit))),
                Ok(None) | Err(_) => None,
            };
            drop((key, watched));
            // The reference may be the last one, and the drop of a permit takes the lock. So drop it after
            // the guard.
            drop(permit);
        }
    }

    /// Waits until a deadline passes, and returns its permit.
    fn next(&self) -> Weak<dyn Watched> {
        let mut watched = self.lock();
        loop {
            let now = Moment::now();
            if let Some(permit) = watched.deadlines.due(now) {
                return permit;
            }
            // The condition's clock stands still while the machine is suspended, and the leases run on. So
            // sleep in short steps.
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
