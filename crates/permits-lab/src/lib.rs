//! What the benchmarks of `permits` and their tests share: the published recipes for semaphores on Redis, and the
//! experiments that are made on each of them and on `permits`.
//!
//! The recipes are implemented as published, to be looked at and measured; nothing here is meant to be used.

pub mod recipes;
pub mod stats;

/// What any part of the lab may fail with: a benchmark that cannot run is no result.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
