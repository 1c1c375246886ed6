//! The Redis and Valkey store: each command is one Lua script, executed on one connection to the server that
//! has the semaphore.
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
//! - `testing` (a feature): recordings and a fixed clock.
//!
//! Redis 6.2 or newer, in a cluster 7.0, or Valkey. No type of `resp` leaves this module.

pub(crate) mod acl;
pub(crate) mod address;
mod backend;
mod call;
pub(crate) mod cluster;
pub(crate) mod error;
pub(crate) mod keys;
mod listing;
pub(crate) mod resp;
mod script;
pub(crate) mod sentinel;
pub(crate) mod server;
mod store;
mod subscriptions;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::acl::{AclRules, acl_rules};
pub(crate) use self::backend::Redis;
pub(crate) use self::store::RedisStore;
