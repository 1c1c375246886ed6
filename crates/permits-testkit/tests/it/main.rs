//! The test kit itself: the parts that a verdict rests on, and a smoke test for each deployment.
//!
//! `recording` is a program of its own: the clients of its process send scripts that record.

mod client_checks;
mod deployments;
mod environment;
mod inspections;
mod limits;
mod links;
mod processes;
mod proxy;
mod replaying;
mod throttle;
mod tidy;
