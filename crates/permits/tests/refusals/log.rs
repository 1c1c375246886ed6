//! The log lines of the library.

use std::fmt::Debug;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex, PoisonError};

use permits_testkit::wait;

/// The log lines of the library in this process, from the first [`Log::begin`] on.
pub(crate) struct Log;

static LINES: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

impl Log {
    /// Begins to collect lines, unless another test has.
    pub(crate) fn begin() -> Self {
        // Fails only if another test has installed it.
        let _ = tracing::subscriber::set_global_default(Self);
        Self
    }

    /// The lines that name this server and contain `text`. Events are emitted in order, by a thread of their
    /// own, so it waits until there are `count`.
    #[track_caller]
    pub(crate) fn about(&self, server: &SocketAddr, text: &str, count: usize) -> Vec<String> {
        let server = server.to_string();
        let mut found = Vec::new();
        wait::until(|| {
            let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            let about = |line: &&String| line.contains(&server) && line.contains(text);
            found = lines.iter().filter(about).cloned().collect();
            found.len() >= count
        });
        found
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("permits")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                let _ = write!(self.0, " {field}={value:?}");
            }
        }
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
