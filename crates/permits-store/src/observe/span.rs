//! The span `acquire`: from the request to its outcome.
//!
//! The caller opens the span, so its parent is the caller's current span. The span is not entered: no code of
//! the program runs inside of it, and each poll would call the subscriber twice. Events name it as their
//! parent instead.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::field::Empty;
use tracing::span::Id;
use tracing::{Span, info_span};

/// The span of an acquisition. Dropping it closes it: the caller does that, or the thread that emits events.
#[derive(Debug)]
pub struct AcquireSpan(Span);

impl Drop for AcquireSpan {
    /// Closes the span. Calls the subscriber, as [`AcquireSpan::record`] does.
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        if !span.is_disabled() {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(span)));
        }
    }
}

impl AcquireSpan {
    /// Opens the span. Calls the subscriber.
    pub fn open(semaphore: &str, weight: u32, wait: impl std::fmt::Display) -> Self {
        Self(info_span!(
            target: "permits::acquire",
            "acquire",
            semaphore,
            // The integers of OpenTelemetry are signed.
            weight = i64::from(weight),
            wait = %wait,
            position = Empty,
            outcome = Empty,
        ))
    }

    /// `None` if no subscriber has enabled the span.
    pub fn id(&self) -> Option<Id> {
        self.0.id()
    }

    /// Records the outcome, and the position at which the request was queued, if it was. Calls the
    /// subscriber. If that panics, the outcome is lost: an acquisition may end in a drop, where a panic would
    /// end the process.
    pub fn record(&self, outcome: &str, position: Option<u64>) {
        if self.0.is_disabled() {
            return;
        }
        // The panic hook has reported it.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(position) = position {
                self.0.record("position", i64::try_from(position).unwrap_or(i64::MAX));
            }
            self.0.record("outcome", outcome);
        }));
    }
}
