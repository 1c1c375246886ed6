//! A connection to one server that is checked, replaced when it breaks, and subscribed to a session's
//! channels.
//!
//! The modules, from the bytes up:
//! - `stream`: the bytes, over TCP, a Unix socket or TLS.
//! - `connection`: commands, replies and messages over a stream. Its parts: `state`, which callers and the
//!   task share, `reader`, the task, and `parting`, the end of a thread that has sent releases.
//! - `login`: a connection that the server has let in. `relogin`: it logs in again. `info`: the checks of a
//!   server by its INFO.
//! - `handshake`: a connection that is checked and subscribed, as a session needs it.
//! - `managed`: such a connection, replaced when it breaks. Its parts: `link`, the connection that there is
//!   now, and `confirmation`, the calls that replicas confirm.

mod confirmation;
pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod info;
pub(crate) mod link;
pub(crate) mod login;
pub(crate) mod managed;
mod parting;
mod reader;
mod relogin;
pub(crate) mod state;
mod stream;
#[cfg(test)]
mod tests;
