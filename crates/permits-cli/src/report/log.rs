//! Reports the library's `tracing` events as lines on standard error.
//!
//! A subscriber of our own takes a screenful of code, the usual one a stack of crates.

use std::fmt::{Debug, Write as _};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::{Filter, LogFormat, format, redacted, say, say_json};

/// Reports the events that the filter shows.
pub(crate) fn install(filter: Filter) {
    // Fails only if a subscriber is set, and this function is called once.
    let _ = tracing::subscriber::set_global_default(LogSubscriber { filter });
}

/// Turns events of the library into lines.
struct LogSubscriber {
    filter: Filter,
}

impl Subscriber for LogSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.filter.shows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.max_level())
    }

    fn event(&self, event: &Event<'_>) {
        match format() {
            LogFormat::Text => say_event(event),
            LogFormat::Json => say_event_as_json(event),
        }
    }

    // Spans are not reported.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn say_event(event: &Event<'_>) {
    let mut line = EventText::default();
    event.record(&mut line);
    let level = match *event.metadata().level() {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        _ => "debug",
    };
    let EventText { message, fields } = line;
    let fields = if fields.is_empty() { fields } else { format!(" ({fields})") };
    say(format_args!("{level}: {message}{fields}"));
}

fn say_event_as_json(event: &Event<'_>) {
    let mut line = EventObject::default();
    event.record(&mut line);
    let metadata = event.metadata();
    say_json(json!({
        "level": metadata.level().as_str().to_lowercase(),
        "target": metadata.target(),
        "message": line.message,
        "fields": line.fields,
    }));
}

/// The text of an event.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let comma = if self.fields.is_empty() { "" } else { ", " };
            write!(self.fields, "{comma}{}={value:?}", field.name())
        };
    }
}

/// An event for a JSON object.
#[derive(Default)]
struct EventObject {
    message: String,
    fields: Map<String, Value>,
}

impl Visit for EventObject {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = redacted(&format!("{value:?}"));
        if field.name() == "message" {
            self.message = text;
        } else {
            self.fields.insert(field.name().to_owned(), text.into());
        }
    }

    // The library has no other integers.
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}
