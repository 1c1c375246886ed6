//! The events of the library, for the logger of a language: what a program has to know although it asked for
//! nothing. For example, that an operator's limit replaces its own, or that a server came back empty.
//!
//! The library emits them on a thread of its own, which must not enter an interpreter. So they wait here, and
//! a [`Call`] returns the events that have come.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use serde_json::{Value as Json, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::call::{Call, Value};
use crate::failure::Failure;

/// How many events can wait. If a program takes none, the oldest are dropped.
const WAITING: usize = 256;

/// The events of a process that the program has not taken.
struct Waiting {
    /// The process that this belongs to. A forked child has a copy, whose lock may be taken.
    process: u32,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Json>,
    dropped: u64,
    /// The wakers of all calls that wait. Each worker thread of Node has a call, and the first one takes all
    /// events.
    wakers: Vec<Waker>,
}

static EVENTS: OnceLock<Waiting> = OnceLock::new();

/// The queue of this process. `None` in a process that was forked after the first call for events: that
/// process reports no events.
fn queue() -> Option<MutexGuard<'static, Queue>> {
    let events = EVENTS.get().filter(|events| events.process == std::process::id())?;
    Some(events.queue.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Collects the events of the levels error, warn and info.
struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("permits::")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let event = json!({
            "event": metadata.target().rsplit("::").next(),
            "level": metadata.level().as_str().to_lowercase(),
            "message": fields.message,
            "fields": fields.others,
        });
        let Some(mut queue) = queue() else { return };
        queue.events.push_back(event);
        if queue.events.len() > WAITING {
            queue.events.pop_front();
            queue.dropped += 1;
        }
        let wakers = std::mem::take(&mut queue.wakers);
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields {
    message: String,
    /// The other fields, in the order of the event.
    others: Vec<(&'static str, Json)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Json) {
        self.others.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}").into()),
        }
    }
}

/// The events since the last call, once there is one, as a text with a list in JSON. Each event has its name
/// in `event`, a `level`, a `message`, and `fields`, which are pairs of a name and a value.
pub fn events() -> Call {
    EVENTS.get_or_init(|| {
        // Setting the default cannot fail: the library has its own copy of `tracing`, in which no program has
        // set a subscriber.
        let _ = tracing::subscriber::set_global_default(Collector);
        Waiting { process: std::process::id(), queue: Mutex::default() }
    });
    Call::new(async {
        let taken = poll_fn(|context| {
            let Some(mut queue) = queue() else { return Poll::Pending };
            if queue.events.is_empty() {
                queue.wakers.retain(|waker| !waker.will_wake(context.waker()));
                queue.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
            let dropped = std::mem::take(&mut queue.dropped);
            let mut events: Vec<Json> = queue.events.drain(..).collect();
            if dropped > 0 {
                events.insert(
                    0,
                    json!({
                        "event": "dropped",
                        "level": "warn",
                        "message": "events were dropped: the program was too slow",
                        "fields": [["dropped", dropped]],
                    }),
                );
            }
            Poll::Ready(Json::from(events).to_string())
        });
        Ok::<_, Failure>(Value::Text(taken.await))
    })
}
