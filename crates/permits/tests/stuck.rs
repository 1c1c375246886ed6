//! Programs that block the library's threads: subscribers and wakers that block or panic. They delay no loss,
//! no renewal and no grant.
//!
//! A process has one subscriber, so the tests share one, which behaves as the running test sets it.

use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use permits::{AcquireError, AcquireOptions, Client, Lost, Permit, PermitStatus, Recovery};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, Server, in_real_time, wait};

const LEASE: Duration = Duration::from_millis(900);

/// The behaviour of the subscriber.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Nothing,
    Block,
    Panic,
}

static BEHAVIOUR: (Mutex<Behaviour>, Condvar) = (Mutex::new(Behaviour::Nothing), Condvar::new());
static EVENTS: AtomicUsize = AtomicUsize::new(0);
/// The number of dropped events that the library has reported.
static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Subscriber;

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if !event.metadata().target().starts_with("permits") {
            return;
        }
        EVENTS.fetch_add(1, Ordering::SeqCst);
        event.record(&mut Dropped);
        let mut behaviour = lock(&BEHAVIOUR.0);
        while *behaviour == Behaviour::Block {
            behaviour = BEHAVIOUR.1.wait(behaviour).unwrap_or_else(PoisonError::into_inner);
        }
        let panics = *behaviour == Behaviour::Panic;
        drop(behaviour);
        assert!(!panics, "a subscriber that panics");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

struct Dropped;

impl tracing::field::Visit for Dropped {
    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}

    fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
        if field.name() == "dropped" {
            DROPPED.fetch_add(value, Ordering::SeqCst);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A behaviour of the subscriber, until this is dropped.
struct Behaving {
    _alone: MutexGuard<'static, ()>,
    events_before: usize,
}

impl Behaving {
    fn begin(behaviour: Behaviour) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = lock(&ALONE);
        // Fails only if another test has done the same.
        let _ = tracing::subscriber::set_global_default(Subscriber);
        *lock(&BEHAVIOUR.0) = behaviour;
        Self { _alone, events_before: EVENTS.load(Ordering::SeqCst) }
    }

    #[track_caller]
    fn assert_reached(&self, events: usize) {
        let reached = || EVENTS.load(Ordering::SeqCst) >= self.events_before + events;
        assert!(wait::until(reached), "the subscriber was not reached {events} times");
    }
}

impl Drop for Behaving {
    fn drop(&mut self) {
        *lock(&BEHAVIOUR.0) = Behaviour::Nothing;
        BEHAVIOUR.1.notify_all();
    }
}

/// A waker that unparks a thread, as in executors without a runtime.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a runtime. Returns `None` if it is not ready within [`HANGS`].
fn block_on<F: Future>(future: F) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let end = Instant::now() + HANGS;
    while Instant::now() < end {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        thread::park_timeout(end.saturating_duration_since(Instant::now()));
    }
    None
}

async fn connect(url: &str, lease: Duration) -> Client {
    let builder = Client::builder(url).lease(lease).recovery(Recovery::Off);
    builder.connect().succeeds().await
}

/// Asserts that a permit is acquired, renewed, granted to a waiter and lost as usual.
fn assert_undisturbed() {
    let server = Server::start();
    let all_went_well = block_on(async {
        let client = connect(&server.url(), LEASE).await;
        let semaphore = client.named("stuck", 1);
        let permit = semaphore.acquire().succeeds().await;
        let until = Instant::now() + 3 * LEASE;
        let held = poll_fn(|_| if Instant::now() < until { Poll::Pending } else { Poll::Ready(()) });
        let waker = thread::current();
        thread::spawn(move || {
            thread::sleep(3 * LEASE);
            waker.unpark();
        });
        permit.run(held).succeeds().await;
        let mut next = Box::pin(semaphore.acquire());
        let released = poll_fn(|context| {
            assert!(next.as_mut().poll(context).is_pending(), "it is held");
            Poll::Ready(permit.is_held())
        });
        assert!(released.await);
        permit.release().succeeds().await;
        let permit = next.succeeds().await;
        server.kill();
        assert_eq!(permit.lost().await, Lost::Expired);
    });
    assert!(all_went_well.is_some(), "not within {HANGS:?}");
}

#[test]
fn a_subscriber_that_blocks_delays_no_renewal_no_grant_and_no_loss() {
    in_real_time(|| {
        let behaving = Behaving::begin(Behaviour::Block);
        assert_undisturbed();
        behaving.assert_reached(1);
    });
}

#[test]
fn a_subscriber_that_panics_delays_no_renewal_no_grant_and_no_loss() {
    in_real_time(|| {
        let behaving = Behaving::begin(Behaviour::Panic);
        assert_undisturbed();
        behaving.assert_reached(4);
    });
}

#[test]
fn events_beyond_the_bound_of_the_queue_are_dropped_and_counted() {
    let behaving = Behaving::begin(Behaviour::Block);
    let granted = block_on(async {
        let client = connect("memory:dropped", LEASE).await;
        let semaphore = client.named("dropped", 1);
        // Each makes one event.
        for _ in 0..1200 {
            semaphore.acquire().succeeds().await.release().succeeds().await;
        }
    });
    assert!(granted.is_some(), "not within {HANGS:?}");
    drop(behaving);
    // The subscriber has one event, and the queue 1024.
    assert!(wait::until(|| DROPPED.load(Ordering::SeqCst) >= 175), "{DROPPED:?}");
}

/// A waker that runs a function on the session's thread, if that wakes it.
struct Trap {
    woken_by_session: Mutex<Option<bool>>,
    trap: fn(),
}

impl Wake for Trap {
    fn wake(self: Arc<Self>) {
        let is_session = thread::current().name() == Some("permits");
        *lock(&self.woken_by_session) = Some(is_session);
        if is_session {
            (self.trap)();
        }
    }
}

/// Makes the session's thread wake a waker of this kind: by a grant to a waiter, which the store pushes.
/// Returns the acquisition.
fn spring(client: &Client, trap: fn()) -> impl Future<Output = Result<Permit, AcquireError>> + use<> {
    let semaphore = client.named("trap", 1);
    loop {
        let trap = Arc::new(Trap { woken_by_session: Mutex::new(None), trap });
        let waker = Waker::from(trap.clone());
        let held = block_on(semaphore.acquire()).expect("in time").expect("it is free");
        let mut acquiring = Box::pin(semaphore.acquire());
        assert!(acquiring.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(held);
        assert!(wait::until(|| lock(&trap.woken_by_session).is_some()), "it is woken");
        // A renewal that falls due now is sent by this thread, and brings the grant, too.
        if *lock(&trap.woken_by_session) == Some(true) {
            return acquiring;
        }
    }
}

#[test]
fn a_loss_is_signalled_while_the_sessions_thread_is_stuck() {
    in_real_time(|| {
        fn forever() {
            loop {
                thread::park();
            }
        }
        let client = block_on(connect("memory:stuck", LEASE)).expect("the store is there");
        let semaphore = client.named("stuck", 4);
        let acquire = || block_on(semaphore.acquire()).expect("in time").expect("it is free");
        let (awaited, run, watched) = (acquire(), acquire(), acquire());
        let blocking = Client::builder("memory:stuck").lease(LEASE).recovery(Recovery::Off).connect().wait();
        let blocking = blocking.expect("the store is there");
        let early = watched.cancellation_token();
        let renewed = blocking.named("renewed", 1).acquire().wait().expect("it is free");
        assert_eq!(renewed.lost_within(2 * LEASE), None);
        assert!(!early.is_cancelled(), "it is renewed past the deadline that it had");
        let _kept = spring(&client, forever);

        assert_eq!(block_on(early.cancelled()), Some(()));
        assert_eq!(block_on(awaited.lost()), Some(Lost::Expired));
        assert_eq!(block_on(run.run(std::future::pending::<()>())), Some(Err(Lost::Expired)));
        assert_eq!(block_on(watched.cancellation_token().cancelled()), Some(()));
        assert_eq!(renewed.status(), PermitStatus::Held, "another session's is renewed as ever");
    });
}

#[test]
fn a_waker_that_panics_harms_no_other_call() {
    in_real_time(|| {
        let client = block_on(connect("memory:panics", LEASE)).expect("the store is there");
        let semaphore = client.named("panics", 1);
        let held = block_on(semaphore.acquire()).expect("in time").expect("it is free");
        let waiter = {
            let semaphore = semaphore.clone();
            thread::spawn(move || block_on(semaphore.acquire()).map(|result| result.map(drop)))
        };
        // `resume_unwind` skips the hook of panics, which prints a backtrace: that may take the session's
        // thread longer than a lease.
        let trapped = spring(&client, || resume_unwind(Box::new("a waker that panics")));

        thread::sleep(2 * LEASE);
        assert_eq!(held.status(), PermitStatus::Held, "it is renewed");
        drop(held);
        assert_eq!(waiter.join().expect("no panic"), Some(Ok(())));
        assert!(block_on(trapped).expect("in time").is_ok(), "its own permit waits for it");
        assert_eq!(block_on(client.close()), Some(Ok(())));
    });
}

/// The program's code runs when the session's lock is free: in a waker, and in a subscriber, a permit can be
/// acquired, dropped and inspected.
#[test]
fn a_waker_can_use_permits_itself() {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    static USED: AtomicUsize = AtomicUsize::new(0);
    fn use_permits() {
        let semaphore = CLIENT.get().expect("it is set").named("in a waker", 1);
        // The replies come behind the messages that have woken this waker. Each request is given up or its
        // permit dropped, whichever it has by then.
        for _ in 0..2 {
            let mut acquiring = Box::pin(semaphore.acquire());
            let polled = acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending | Poll::Ready(Ok(_))), "{polled:?}");
        }
        let requests: [_; 2] = std::array::from_fn(|_| {
            let mut acquiring = Box::pin(semaphore.acquire());
            let polled = acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            (acquiring, polled)
        });
        assert!(matches!(requests[1].1, Poll::Pending), "it waits behind the other one");
        drop(requests);
        USED.fetch_add(1, Ordering::SeqCst);
    }
    let client = block_on(connect("memory:wakers", LEASE)).expect("the store is there");
    let _ = CLIENT.set(client.clone());
    drop(spring(&client, use_permits));
    assert!(wait::until(|| USED.load(Ordering::SeqCst) == 1));
    let semaphore = client.named("in a waker", 1);
    assert!(block_on(semaphore.acquire()).expect("in time").is_ok(), "nothing was left behind");
}

/// Several answers to callers of one runtime are delivered by a task of it. A runtime that runs no task
/// delays them only for a moment, because their callers may wait on another executor.
#[test]
fn answers_do_not_wait_for_a_runtime_that_runs_no_task() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the system has room");
    let _entered = runtime.enter();
    let client = block_on(connect("memory:no-tasks", LEASE)).expect("the store is there");
    let semaphore = client.named("no tasks", 2);
    let both = AcquireOptions::new().weight(2);
    let held = block_on(semaphore.acquire_with(both)).expect("in time").expect("it is free");
    let (mut first, mut second) = (Box::pin(semaphore.acquire()), Box::pin(semaphore.acquire()));
    for waiter in [&mut first, &mut second] {
        assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(held);
    assert!(block_on(first).expect("in time").is_ok());
    assert!(block_on(second).expect("in time").is_ok());
}
