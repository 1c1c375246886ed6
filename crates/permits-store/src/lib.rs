//! The common part of the stores of [`permits`](https://docs.rs/permits), and the two stores that need no
//! server.
//!
//! | module | content |
//! |---|---|
//! | [`Store`], [`Location`], [`Backend`] | the interface that every store implements: a session's access, one parsed URL, a kind of store |
//! | [`StoreError`], [`AddressError`] | the errors of a call and of a URL |
//! | [`Finding`], [`self_test`] | what a diagnosis says about a store, and the part of it that is the same for all stores |
//! | [`open`](open()), [`direct`], [`options`], [`source`] | opening with retries; calls without a session; the options of URLs; a URL in a file |
//! | [`credentials`] | users and passwords that change while a client runs |
//! | [`observe`] | events, the span of an acquisition and metrics: their names, fields and levels |
//! | [`sys`] | threads and runtimes in the background, random numbers, the identity of the process |
//! | [`memory`], [`local`] | the stores that run the model: in this process, and in the files of a directory |
//!
//! A new store implements [`Backend`], [`Location`] and [`Store`], and has a line in the table of
//! `permits/src/store.rs`.
//!
//! Programs use `permits`; the interface of this crate may change at any time.
#![forbid(unsafe_code)]

mod backend;
pub mod credentials;
pub mod direct;
mod error;
mod finding;
#[cfg(all(feature = "local", unix))]
pub mod local;
pub mod memory;
pub mod observe;
mod open;
pub mod options;
pub mod self_test;
mod shell;
pub mod source;
pub mod sys;

use permits_core::{clock, model, protocol, timing};

pub use self::backend::{
    Backend, DiagnoseOptions, Executed, Location, ParsedUrl, Report, Request, Sink, Store, StoreOptions,
};
pub use self::error::{AddressError, StoreError};
pub use self::finding::{Finding, Severity};
pub use self::open::open;
