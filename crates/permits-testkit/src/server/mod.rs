//! Real servers, each with a directory of its own, that can be killed, restarted and paused.
//!
//! A [`Server`] owns one server process and everything that outlives it: the port or socket, the directory
//! with its append-only file, and the log. So a restart is a restart of the same server, as its clients see
//! it. Configuration and launch are in `launch`.

pub(crate) mod launch;
pub(crate) mod ports;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use launch::ServerBuilder;

use crate::process::ChildGuard;
use crate::resp::{Connection, Resp};
use launch::{Endpoint, Site};

/// A free address on loopback, for a program that a test starts. No test gives it to a server while this
/// process lives.
pub fn own_address() -> SocketAddr {
    ports::own(false)
}

/// A running `redis-server` or `valkey-server` of its own, killed when dropped.
///
/// The program is the one named by the environment variable `PERMITS_TEST_SERVER`, else `redis-server`, else
/// `valkey-server` in `PATH`. It listens on loopback only.
#[derive(Debug)]
pub struct Server {
    // Declared before the site: the process ends before its directory is removed.
    process: Mutex<ChildGuard>,
    site: Site,
}

impl Server {
    /// Starts a server on a free port, with nothing kept on disk; returns once it answers.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server to be configured before its start.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    /// The URL for a client: `redis://127.0.0.1:port/`, `rediss://` if the server speaks TLS, or
    /// `redis+unix:///path`; with the password if there is one.
    pub fn url(&self) -> String {
        self.site.url()
    }

    /// The address at which it listens.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        match &self.site.endpoint {
            Endpoint::Tcp(address) => *address,
            Endpoint::Unix(path) => panic!("the server listens on the socket {path:?} and has no address"),
        }
    }

    /// The port at which it listens.
    #[track_caller]
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    /// The process id; while it is down, the last one.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Returns whether its process runs and is not paused.
    pub fn is_up(&self) -> bool {
        let mut process = self.process();
        process.is_running() && !process.is_paused()
    }

    /// The directory in which it runs, removed with the server.
    pub fn dir(&self) -> &Path {
        self.site.dir.path()
    }

    /// The log so far, over all restarts.
    pub fn log(&self) -> String {
        self.site.log()
    }

    /// Kills it (SIGKILL) and waits for its end; nothing happens if it is down.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Starts it again, after [`kill`](Self::kill), at the same place in the same
    /// directory; returns once it answers.
    ///
    /// Settings made by `CONFIG SET` are lost, unless `CONFIG REWRITE` kept them.
    #[track_caller]
    pub fn restart(&self) {
        let mut process = self.process();
        assert!(!process.is_running(), "the server runs: kill it before the restart");
        *process = self.site.relaunch();
    }

    /// Freezes it (SIGSTOP): connections stay open without replies. Returns once it is frozen.
    #[track_caller]
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Lets it continue after [`pause`](Self::pause) (SIGCONT).
    #[track_caller]
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Opens a connection, authenticated if there is a password.
    ///
    /// # Errors
    ///
    /// If the server is down, or paused and there is a password.
    pub fn connect(&self) -> io::Result<Connection> {
        self.site.connect()
    }

    /// Runs one command over a connection of its own; an error of the server is a reply, [`Resp::Error`].
    #[track_caller]
    pub fn command(&self, arguments: &[&str]) -> Resp {
        match self.connect().and_then(|mut connection| connection.call(arguments)) {
            Ok(reply) => reply,
            Err(error) => panic!("{arguments:?} got no reply: {error}; log of the server:\n{}", self.log()),
        }
    }

    /// The value of one field of `INFO`, such as `run_id` or `master_link_status`; `None` without such a
    /// field.
    #[track_caller]
    pub fn info(&self, field: &str) -> Option<String> {
        let reply = self.command(&["INFO"]);
        launch::info_field(reply.text(), field).map(str::to_owned)
    }

    fn process(&self) -> MutexGuard<'_, ChildGuard> {
        // A test that panicked with the lock held, for example in a refused restart, leaves a usable guard
        // behind.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
