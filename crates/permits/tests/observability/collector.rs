//! The subscriber of these tests: it collects events and spans of the library.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use permits_testkit::wait;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// The fields of an event or a span, by name.
pub(crate) type Fields = BTreeMap<String, String>;

#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    pub(crate) target: String,
    pub(crate) level: String,
    pub(crate) message: String,
    pub(crate) fields: Fields,
    /// The span that it is part of.
    pub(crate) span: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Span {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    /// The fields that it has, also those that have no value.
    pub(crate) declared: Vec<String>,
    pub(crate) fields: Fields,
    pub(crate) closed: bool,
}

#[derive(Default)]
struct Collected {
    events: Vec<Emitted>,
    spans: Vec<Span>,
    /// True while events block their subscriber.
    blocked: bool,
}

static COLLECTED: LazyLock<(Mutex<Collected>, Condvar)> = LazyLock::new(Default::default);

fn collected() -> MutexGuard<'static, Collected> {
    COLLECTED.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a test that uses the subscriber.
pub(crate) struct Turn {
    _alone: MutexGuard<'static, ()>,
}

/// Begins to collect, unless another test has. The other tests that use the subscriber wait until the turn is
/// dropped.
pub(crate) fn begin() -> Turn {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Fails only if another test has installed it.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Collector));
    Turn { _alone }
}

/// Blocks the subscriber in its next event, or unblocks it.
pub(crate) fn block(on: bool) {
    collected().blocked = on;
    COLLECTED.1.notify_all();
}

pub(crate) fn events() -> Vec<Emitted> {
    collected().events.clone()
}

pub(crate) fn spans() -> Vec<Span> {
    collected().spans.clone()
}

/// Waits for an event. Events are emitted by a thread of their own.
#[track_caller]
pub(crate) fn wait_for(what: &str, is_it: impl Fn(&Emitted) -> bool) -> Emitted {
    wait::until(|| collected().events.iter().any(&is_it));
    let found = events().into_iter().find(is_it);
    found.unwrap_or_else(|| panic!("no event of {what}: {:#?}", events()))
}

/// The event with this target about this semaphore.
#[track_caller]
pub(crate) fn about(semaphore: &str, target: &str) -> Emitted {
    wait_for(&format!("{target} about {semaphore}"), |event| {
        event.target == target && event.fields.get("semaphore").is_some_and(|name| name == semaphore)
    })
}

struct Collector;

#[derive(Default)]
struct Visited(Fields);

impl Visit for Visited {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if !metadata.target().starts_with("permits::") {
            return;
        }
        let mut visited = Visited::default();
        event.record(&mut visited);
        let message = visited.0.remove("message").unwrap_or_default();
        let mut collected = collected();
        while collected.blocked {
            collected = COLLECTED.1.wait(collected).unwrap_or_else(PoisonError::into_inner);
        }
        collected.events.push(Emitted {
            target: metadata.target().to_owned(),
            level: metadata.level().to_string().to_lowercase(),
            message,
            fields: visited.0,
            span: context.event_span(event).map(|span| span.id().into_u64()),
        });
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut visited = Visited::default();
        attributes.record(&mut visited);
        let parent = context.span(id).and_then(|span| span.parent().map(|parent| parent.name().to_owned()));
        let mut declared: Vec<String> =
            attributes.metadata().fields().iter().map(|field| field.name().to_owned()).collect();
        declared.sort();
        let name = attributes.metadata().name().to_owned();
        let (fields, id) = (visited.0, id.into_u64());
        collected().spans.push(Span { id, name, parent, declared, fields, closed: false });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut visited = Visited::default();
        values.record(&mut visited);
        with_span(id, |span| span.fields.extend(visited.0));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        with_span(&id, |span| span.closed = true);
    }
}

/// The span that is open with this id. Ids of closed spans may be used again.
fn with_span(id: &Id, change: impl FnOnce(&mut Span)) {
    if let Some(span) =
        collected().spans.iter_mut().rev().find(|span| span.id == id.into_u64() && !span.closed)
    {
        change(span);
    }
}
