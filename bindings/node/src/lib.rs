//! The native half of the npm package `permits`: the public API of the library, as calls that the event loop
//! polls.
//!
//! An operation is a `Call`: a future of the library. Only the thread of the event loop polls it, takes its
//! result and drops it. A waker, which any thread may call, notes the call in a `Mailbox` and calls one
//! threadsafe function. So a program that blocks its event loop delays no renewal, and an idle client does
//! not keep the process alive.
//!
//! Names, defaults and documentation for users are in the TypeScript half, `lib/`.
#![deny(unsafe_code)]
// napi-rs exports nothing in a build for tests, which clippy makes, so all code looks dead there.
#![cfg_attr(test, allow(dead_code))]

mod failure;
mod mailbox;
mod objects;

use napi_derive::napi;

/// The version of the library.
#[napi]
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
