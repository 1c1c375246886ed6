//! The core of [`permits`](https://docs.rs/permits): what a session and a store say to each other, what a
//! store does with it, and what a client concludes. Data and arithmetic; no I/O, no threads, no runtime.
//!
//! | module | content |
//! |---|---|
//! | [`protocol`] | commands, replies and events, the names and bounds of what they carry |
//! | [`model`] | a semaphore in a store, as a function from a state and a command to the next state and a reply |
//! | [`acquisition`], [`keeping`] | the life of an acquisition and of a kept permit, as a client knows it |
//! | [`timing`] | the intervals that follow from a lease |
//! | [`clock`] | moments of the machine that runs the client |
//!
//! The compiler keeps the floor: nothing here imports a session or a store.
//!
//! The interface of this crate is not stable. Programs use `permits`.
#![forbid(unsafe_code)]

pub mod acquisition;
pub mod clock;
pub mod keeping;
pub mod model;
pub mod protocol;
pub mod timing;
