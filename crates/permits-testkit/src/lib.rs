//! What the tests of `permits` run against: real servers, a network that fails on demand, and processes that
//! can be frozen or killed.
//!
//! A semaphore is judged by what it does when things break, and a mock breaks only in the ways its author
//! thought of. So everything here is real: [`Server`] runs a `redis-server` (or `valkey-server`) of its own on
//! loopback, [`Proxy`] stands between a client and a server and loses, delays or cuts what passes, and
//! [`Guard`] holds a child process that may be paused and killed like any other.
//!
//! Three habits hold throughout:
//!
//! - **Bounded.** Whatever waits, waits up to a stated limit and then panics with what it knows, such as the
//!   log of the server.
//! - **Blocking.** The helpers use the standard library's blocking calls and threads of their own, so they
//!   serve synchronous and asynchronous tests alike.
//! - **Done when it returns.** After [`Server::pause`] the process is stopped; after [`Proxy::cut`] no byte
//!   passes. A test needs no sleep to let a fault take hold.
//!
//! Failures of the kit itself panic: in a test there is nobody to handle them.
//!
//! # Examples
//!
//! A reply is lost after the server has acted on the request:
//!
//! ```
//! use permits_testkit::{Connection, Proxy, Server};
//!
//! let server = Server::start();
//! let proxy = Proxy::start(server.address());
//! let mut client = Connection::connect(proxy.address()).expect("the proxy accepts");
//!
//! proxy.swallow_reply_to(b"INCR");
//! assert!(client.call(&["INCR", "visits"]).is_err(), "the connection was cut");
//!
//! assert_eq!(proxy.swallowed(), 1);
//! assert_eq!(server.command(&["GET", "visits"]).text(), "1");
//! ```
//!
//! # Modules
//!
//! - [`server`]: real servers: start, kill, restart, pause.
//! - [`proxy`]: the network between: cut, refuse, delay, swallow, stall.
//! - [`process`]: child processes that cannot outlive their test.
//! - [`resp`]: a tiny client, so that the tests do not look at a server through the client they test.
//! - [`wait`]: bounded polling.

#![forbid(unsafe_code)]

pub mod process;
pub mod proxy;
pub mod resp;
pub mod server;
pub mod wait;

pub use process::{Guard, Lines};
pub use proxy::Proxy;
pub use resp::{Connection, Resp};
pub use server::{Server, ServerBuilder};
