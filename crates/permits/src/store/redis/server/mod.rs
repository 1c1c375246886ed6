//! One server: connections to it, checked, kept up, and subscribed to a session's channels.
//!
//! - `login`: one connection, opened and logged in.
//! - `info`: the checks of a server by its INFO.
//! - `handshake`: connections as a session needs them, and the checks before the first use.
//! - `subscriber`: a connection that receives messages.
//! - `connection`: two connections to a server, one for commands and one for messages, replaced when they break.

pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod info;
pub(crate) mod login;
pub(crate) mod subscriber;
