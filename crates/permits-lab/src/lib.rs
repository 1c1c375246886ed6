//! The part of the lab that its tests share: the published recipes for semaphores on Redis, the experiments
//! with them and with `permits`, and the means of every benchmark: modes, aims, medians, pages.
//!
//! The recipes are implemented as published, for reading and measuring; a program should not use them.

pub mod aims;
pub mod modes;
pub mod page;
pub mod recipes;
pub mod stats;

/// An error of any part of the lab: a benchmark that cannot run has no result.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
