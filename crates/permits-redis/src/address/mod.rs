//! Addresses of servers, parsed from a URL and shown without its password.
//!
//! `redis://host` is one server; `redis+sentinel://s1,s2/service` is the server that the sentinels name, and
//! `redis+cluster://h1,h2` are some nodes of a cluster, which name the others. User, database and
//! certificates in a URL apply to all servers behind it.
//!
//! - `parse`: a URL as an [`Address`].
//! - `url`: the parts of a URL, as text.
//! - `server`: one [`Server`], with its login. `tls`: its TLS settings. `verifier`: whom they trust.

mod parse;
mod server;
mod tls;
mod url;
#[cfg(feature = "tls")]
pub(crate) mod verifier;

pub(crate) use self::parse::{Address, Sentinels};
pub(crate) use self::server::{Login, Server, ServerAddress};
pub(crate) use self::tls::Secured;
#[cfg(feature = "tls")]
pub(crate) use self::tls::faults_of_variables;
