//! RESP3, the protocol of Redis and Valkey: commands as bytes, and bytes as replies and messages.
//!
//! Written here because the libraries for it do not fit. `redis-protocol` (6.0) recurses without a bound,
//! so a read full of `*1` overflows the stack and aborts the program, and it decodes a reply again from its
//! first byte with each read. The crate `redis` brings its whole client, with a parser of URLs.
//!
//! - `command`: a command and its words.
//! - `parser`: the bytes of a connection as values.
//! - `value`: a value, and its conversion to the types that callers read.
//! - `error`: the failure of a command or of a connection.

mod command;
mod error;
mod parser;
mod value;

pub(crate) use self::command::{Cmd, cmd};
pub(crate) use self::error::{RespError, RespResult};
pub(crate) use self::parser::Parser;
pub(crate) use self::value::{FromValue, Value};
