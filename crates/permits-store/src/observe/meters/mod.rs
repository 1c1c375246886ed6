//! Metrics: what a session and its semaphores count and measure.
//!
//! If the feature `metrics` is on, `recorded` records them by the facade crate `metrics`. If it is off,
//! `unrecorded` has the same types without contents. `docs/reference/metrics.md` lists the metrics.

#[cfg(feature = "metrics")]
mod names;
#[cfg(feature = "metrics")]
mod recorded;
#[cfg(not(feature = "metrics"))]
mod unrecorded;

#[cfg(feature = "metrics")]
pub use self::recorded::{Counted, SemaphoreMeters, SessionMeters, Tally};
#[cfg(not(feature = "metrics"))]
pub use self::unrecorded::{Counted, SemaphoreMeters, SessionMeters, Tally};
