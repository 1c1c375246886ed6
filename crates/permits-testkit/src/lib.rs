//! What the tests of `permits` run against: real servers, a network that fails on demand, and processes that
//! can be frozen or killed.
//!
//! A semaphore is judged by what it does when things break, and a mock breaks only in the ways its author
//! thought of. So everything here is real: [`Server`] runs a `redis-server` (or `valkey-server`) of its own on
//! loopback, [`Cluster`] and [`Sentinels`] run many of them that belong together, [`Proxy`] stands between a
//! client and a server and loses, delays, slows or cuts what passes, and [`Guard`] holds a child process that may
//! be paused and killed like any other. [`FencedResource`] is what permits protect: it tells a late holder by its
//! token.
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
//! Nothing is left behind: what a test started ends with its guard, also when the test panics, and on Linux also
//! when the test process is killed.
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
//! - [`cluster`]: primaries and replicas that share the slots: failover, slots that move.
//! - [`sentinel`]: a primary with replicas, and sentinels that replace it.
//! - [`skip`]: tests that the server under test is not meant for.
//! - [`tls`]: certificates for servers that speak TLS.
//! - [`proxy`]: the network between: cut, refuse, delay, limit, swallow, stall.
//! - [`fence`]: a resource that refuses stale tokens, in the process and over a socket.
//! - [`fork`]: children by fork(2) alone, with a copy of the memory of their parent.
//! - [`history`]: what the store did and what its clients saw, recorded, and the judges of both.
//! - [`process`]: child processes that cannot outlive their test.
//! - [`random`]: the seed of a random test, and how many cases it tries.
//! - [`resp`]: a tiny client, so that the tests do not look at a server through the client they test.
//! - [`wait`]: bounded polling.

#![deny(unsafe_code)]

mod group;

pub mod cluster;
pub mod faults;
pub mod fence;
pub mod fork;
pub mod history;
pub mod mutants;
pub mod process;
pub mod proxy;
pub mod random;
pub mod resp;
pub mod sentinel;
pub mod server;
pub mod skip;
pub mod tls;
pub mod wait;
pub mod worker;

pub use cluster::{Cluster, ClusterBuilder};
pub use fence::{FencedClient, FencedResource, FencedServer, Stale};
pub use process::{ChildGuard, Lines};
pub use proxy::Proxy;
pub use resp::{Connection, Resp};
pub use sentinel::{Sentinels, SentinelsBuilder};
pub use server::{Server, ServerBuilder};
pub use tls::{Certificates, ClientCertificates};

/// The example of the README, compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
