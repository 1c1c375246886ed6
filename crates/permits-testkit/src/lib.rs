//! Real servers, a network that fails on demand, and worker processes, for the tests of `permits`.
//!
//! A mock fails only in the ways that its author thought of. So nearly everything here is real: [`Server`]
//! runs a `redis-server` (or `valkey-server`) of its own on loopback, [`Cluster`] and [`Sentinels`] run
//! deployments of many servers, [`Proxy`] stands between a client and a server and loses, delays or cuts
//! the bytes, and [`ChildGuard`] holds a child process that may be paused and killed. [`FencedResource`]
//! is the kind of thing that permits protect: it refuses a late holder by its token.
//!
//! Three habits hold throughout:
//!
//! - **Bounded.** Every wait has a stated limit, and then panics with details, such as the log of the server.
//! - **Blocking.** The helpers use the standard library's blocking calls and threads of their own, so they
//!   serve synchronous and asynchronous tests alike.
//! - **Done when it returns.** After [`Server::pause`] the process is stopped; after [`Proxy::cut`] no byte
//!   passes. A test needs no sleep to let a fault take hold.
//!
//! Nothing is left behind: a child process ends with its guard, also when the test panics, and on Linux also
//! when the test process is killed.
//!
//! A failure of the kit itself panics, and the docs of its items do not repeat that. Examples: a missing
//! program, a server that does not start or answer, a process that has ended, a wait that hangs.
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
//! - [`cluster`]: primaries and replicas that share the hash slots: failover, slots that move.
//! - [`sentinel`]: a primary with replicas, and sentinels that replace it.
//! - [`fake_server`]: a server that sends garbage on request, where a real one cannot serve.
//! - [`proxy`]: the network between: cut, refuse, delay, swallow, stall.
//! - [`tls`]: certificates for servers that speak TLS.
//! - [`fence`]: a resource that refuses stale tokens, in the process and over a socket.
//! - [`process`]: child processes that cannot outlive their test.
//! - [`fork`]: children by fork(2) alone, with a copy of the memory of their parent.
//! - [`trace`]: threads that are killed, with their process, at a chosen system call.
//! - [`worker`]: worker processes: clients that a test commands, and that report their events.
//! - [`faults`]: the fault matrix: a row for each kind of fault, with its promise.
//! - [`history`]: the steps of a store and the events of its clients, and the checks of both.
//! - [`mutants`]: defects that the checks have to find.
//! - [`resp`]: a tiny client, so that tests observe a server independently of the client that they test.
//! - [`requests`]: the table of requests, which the tests of every door walk, and what arrives at a server.
//! - [`random`]: the seed of a random test, and the number of its cases.
//! - [`documents`]: the tables of the documents, which tests compare with the programs, and their blocks.
//! - [`sound`]: steps that cannot fail in a sound test.
//! - [`skip`]: tests that the server under test cannot run.
//! - [`wait`]: bounded polling, and the one limit of every wait.
//! - [`real_time`]: stories that a slow machine may change.

#![deny(unsafe_code)]

mod group;
mod monitor;

pub mod cluster;
pub mod documents;
pub mod driver;
pub mod fake_server;
pub mod faults;
pub mod fence;
pub mod fork;
pub mod history;
pub mod mutants;
pub mod process;
pub mod proxy;
pub mod random;
pub mod real_time;
pub mod requests;
pub mod resp;
pub mod sentinel;
pub mod server;
pub mod skip;
pub mod sound;
pub mod tls;
#[cfg(target_os = "linux")]
pub mod trace;
pub mod wait;
pub mod worker;

pub use cluster::{Cluster, ClusterBuilder};
pub use fake_server::{FakeServer, Garbage};
pub use fence::{FencedClient, FencedResource, FencedServer, Stale};
pub use monitor::Monitor;
pub use process::{ChildGuard, Lines, own_program};
pub use proxy::Proxy;
pub use real_time::{awaited_in_real_time, in_real_time};
pub use resp::{Connection, Resp};
pub use sentinel::{Sentinels, SentinelsBuilder};
pub use server::{Server, ServerBuilder};
pub use tls::{Certificates, ClientCertificates};
pub use wait::{HANGS, HOUR};

/// The example of the README, compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
