//! Tracing events, emitted on a thread of their own.
//!
//! The program's subscriber may block on a full pipe, or panic. The session's thread renews permits and signals losses, so it
//! must not call the subscriber. It queues the event, and one thread of the process emits the queued events.
//!
//! The queue is bounded. While the subscriber blocks, events beyond [`QUEUE`] are dropped, and an event with their number
//! follows the next one that is emitted. If the subscriber panics, the event is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::process::PerProcess;

/// The capacity of the queue.
const QUEUE: usize = 1024;

/// The longest time that a closing session waits for the subscriber.
const FLUSH: Duration = Duration::from_millis(100);

type Emit = Box<dyn FnOnce() + Send>;

static EVENTS: PerProcess<Events> = PerProcess::new();

#[derive(Default)]
struct Events {
    /// `None` if the thread could not be started.
    queue: OnceLock<Option<SyncSender<Emit>>>,
    dropped: AtomicU64,
}

/// Emits an event of `tracing` on the events' thread: `emit!(WARN, [name = value], %name, "message")`. If the level is on, the
/// caller evaluates the values between the brackets, and they move to that thread.
macro_rules! emit {
    ($level:ident, [$($name:ident $(= $value:expr)?),* $(,)?], $($event:tt)+) => {
        if $crate::events::is_on(tracing::Level::$level) {
            $($(let $name = $value;)?)*
            $crate::events::queue(move || tracing::event!(tracing::Level::$level, $($event)+));
        }
    };
}
pub(crate) use emit;

/// Returns true if a subscriber has enabled events of this level. Reads an atomic, and calls no subscriber.
pub(crate) fn is_on(level: tracing::Level) -> bool {
    level <= tracing::level_filters::LevelFilter::current()
}

/// Queues an event. Never blocks.
pub(crate) fn queue(emit: impl FnOnce() + Send + 'static) {
    let events = EVENTS.get();
    let started = events.queue.get_or_init(|| {
        let (queue, queued) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("permits-events".into());
        thread.spawn(move || emit_all(&queued)).ok().map(|_| queue)
    });
    if started.as_ref().is_none_or(|queue| queue.try_send(Box::new(emit)).is_err()) {
        events.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until the queued events have been emitted, at most for [`FLUSH`], because a program that closes its client may end
/// next.
pub(crate) fn flush() {
    let Some(Some(queue)) = EVENTS.get().queue.get() else { return };
    let (emitted, all) = sync_channel::<()>(0);
    if queue.try_send(Box::new(move || drop(emitted))).is_ok() {
        let _ = all.recv_timeout(FLUSH);
    }
}

fn emit_all(queued: &Receiver<Emit>) {
    for emit in queued {
        // The subscriber has panicked, and the panic hook has reported it.
        let _ = catch_unwind(AssertUnwindSafe(emit));
        let dropped = EVENTS.get().dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let report = || tracing::warn!(dropped, "events were dropped: the subscriber was too slow");
            let _ = catch_unwind(report);
        }
    }
}
