//! The Redis and Valkey store of [`permits`](https://docs.rs/permits): each command is one Lua script,
//! executed on one connection to the server that has the semaphore.
//!
//! - `address`: the servers that a URL names.
//! - `server`: connections to one server. `sentinel`: the server that sentinels name now. `cluster`:
//!   connections to each node, and the map of hash slots.
//! - `script`: the Lua, and the encoding of commands and replies. `call`: one call of a script.
//! - `store`: the store itself.
//! - `keys`: the names of keys and channels. `listing`: the semaphores that exist.
//! - `resp`: the protocol: commands as bytes, bytes as values.
//! - `acl`: the commands, keys and channels that a user needs.
//! - `error`: the meaning of a failed call.
//! - `diagnosis`: the faults of servers, their configuration and the rights of a user.
//! - `testing` (a feature): decoders on any input, and a fixed clock.
//!
//! Redis 6.2 or newer, in a cluster 7.0, or Valkey. No type of `resp` leaves this crate.
//!
//! The interface of this crate is not stable. Programs use `permits`.
#![forbid(unsafe_code)]

mod acl;
mod address;
mod backend;
mod call;
mod cluster;
mod diagnosis;
mod error;
mod keys;
mod listing;
mod resp;
mod script;
mod sentinel;
mod server;
mod store;
mod subscriptions;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::acl::{AclRules, acl_rules};
pub use self::backend::Redis;

use permits_core::{clock, model, protocol, timing};
