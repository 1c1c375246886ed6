//! The thread that emits the events.
//!
//! The program's subscriber may block on a full pipe, or panic. The session's thread renews permits and
//! signals losses, so it must not call the subscriber. It queues the event, and one thread of the process
//! emits the queued events.
//!
//! The queue is bounded. While the subscriber blocks, events beyond [`QUEUE`] are dropped, and an event with
//! their number follows the next one that is emitted. Events of the level debug may fill only half of the
//! queue, so that a crowd of waiters cannot push out the warning of a loss. If the subscriber panics, the
//! event is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::sys::process::PerProcess;

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
    /// The number of events in the queue.
    queued: AtomicUsize,
    dropped: AtomicU64,
}

/// Returns true if a subscriber has enabled events of this level. Reads an atomic, and calls no subscriber.
pub(super) fn is_on(level: Level) -> bool {
    level <= LevelFilter::current()
}

/// Queues an event. Never blocks.
pub(super) fn queue(level: Level, emit: impl FnOnce() + Send + 'static) {
    let events = EVENTS.get();
    let started = events.queue.get_or_init(|| {
        let (queue, queued) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("permits-events".into());
        thread.spawn(move || emit_all(&queued)).ok().map(|_| queue)
    });
    let room = if level >= Level::DEBUG { QUEUE / 2 } else { QUEUE };
    let queued = started.as_ref().is_some_and(|queue| {
        let has_room = events.queued.fetch_add(1, Ordering::Relaxed) < room;
        let queued = has_room && queue.try_send(Box::new(emit)).is_ok();
        if !queued {
            events.queued.fetch_sub(1, Ordering::Relaxed);
        }
        queued
    });
    if !queued {
        events.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until the queued events have been emitted, for `FLUSH` at most. A program that closes its client may
/// end next.
pub fn flush() {
    let Some(Some(queue)) = EVENTS.get().queue.get() else { return };
    let (emitted, all) = sync_channel::<()>(0);
    EVENTS.get().queued.fetch_add(1, Ordering::Relaxed);
    if queue.try_send(Box::new(move || drop(emitted))).is_ok() {
        let _ = all.recv_timeout(FLUSH);
    } else {
        EVENTS.get().queued.fetch_sub(1, Ordering::Relaxed);
    }
}

fn emit_all(queued: &Receiver<Emit>) {
    let events = EVENTS.get();
    for emit in queued {
        events.queued.fetch_sub(1, Ordering::Relaxed);
        // The subscriber has panicked, and the panic hook has reported it.
        let _ = catch_unwind(AssertUnwindSafe(emit));
        let dropped = events.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let _ = catch_unwind(|| emit_dropped(dropped));
        }
    }
}

/// The table of [`events`](super::events) leaves this event out, because it does not pass the queue.
fn emit_dropped(dropped: u64) {
    tracing::warn!(target: "permits::dropped", dropped, "events were dropped: the subscriber was too slow");
}
