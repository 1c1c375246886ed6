//! Observation: everything that the library emits for a subscriber of `tracing`, and for a recorder of
//! metrics.
//!
//! - [`events`]: the table of events, a function for each: target, level, fields and message.
//! - [`span`]: the span `acquire`.
//! - `queue`: the thread that emits the events, because a subscriber may block or panic.
//! - [`meters`]: the metrics, with the feature `metrics`; without it, types of no size whose methods do
//!   nothing.
//!
//! Invariant: a subscriber and a recorder are code of the program, so neither is called under the session's
//! lock. Events are queued. The caller opens the span and records the metrics of acquisitions and permits, or
//! the thread that signals a loss does. What the engine finds out is tallied, and recorded when the lock is
//! free.
//!
//! A test compares `docs/reference/metrics.md` with what a program emits.

pub mod events;
pub mod meters;
mod queue;
pub mod span;

pub use self::queue::flush;
