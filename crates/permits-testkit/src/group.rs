//! Servers of one deployment: the common part of clusters and sentinels.
//!
//! The module has the options that they share, and the one way to wait for their agreement: a poll of all
//! members that names the first difference.

use std::time::{Duration, Instant};
use std::{fmt, thread};

use crate::resp::Resp;
use crate::server::Server;
use crate::server::launch::{ServerBuilder, quoted};
use crate::wait::HANGS;

/// The time between two polls. A poll takes a connection to each member, and agreement takes tenths of a
/// second and more.
const INTERVAL: Duration = Duration::from_millis(10);

/// The options that clusters and sets of sentinels share.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) directives: Vec<(String, String)>,
    pub(crate) password: Option<String>,
}

impl Options {
    /// Configures one of the servers that hold data.
    pub(crate) fn apply(&self, mut server: ServerBuilder) -> ServerBuilder {
        if let Some(password) = &self.password {
            server = server.password(password).arg("masterauth", &quoted(password));
        }
        self.directives.iter().fold(server, |server, (key, value)| server.arg(key, value))
    }
}

/// The methods of a builder that set its [`Options`].
macro_rules! deployment_options {
    () => {
        /// Adds a directive to the configuration of every server that holds data, as
        /// [`ServerBuilder::arg`](crate::ServerBuilder::arg) does for one.
        pub fn arg(mut self, key: &str, value: &str) -> Self {
            self.options.directives.push((key.to_owned(), value.to_owned()));
            self
        }

        /// Requires `password` of every client of the servers that hold data, the other servers included.
        pub fn password(mut self, password: &str) -> Self {
            self.options.password = Some(password.to_owned());
            self
        }
    };
}
pub(crate) use deployment_options;

/// The indexes of the servers that run and are not paused.
pub(crate) fn up(servers: &[Server]) -> impl Iterator<Item = usize> {
    (0..servers.len()).filter(|server| servers[*server].is_up())
}

/// Sends a command to a server that may die or be paused meanwhile.
pub(crate) fn ask(server: &Server, command: &[&str]) -> Result<Resp, String> {
    let reply = server.connect().and_then(|mut connection| connection.call(command));
    reply.map_err(|error| format!("{} does not answer: {error}", server.address()))
}

/// Sends a command to such a server, whose reply is a text.
pub(crate) fn ask_text(server: &Server, command: &[&str]) -> Result<String, String> {
    match ask(server, command)? {
        Resp::Text(text) => Ok(text),
        other => Err(format!("{} answers {other:?}", server.address())),
    }
}

/// Sends a command that the server must not refuse.
#[track_caller]
pub(crate) fn order(server: &Server, command: &[&str]) {
    let reply = server.command(command);
    assert_eq!(reply, Resp::Text("OK".to_owned()), "{} refuses {command:?}", server.address());
}

/// Waits until `condition` succeeds; returns its result.
#[track_caller]
pub(crate) fn wait_for<'a, T>(
    what: impl fmt::Display,
    servers: impl Iterator<Item = &'a Server>,
    mut condition: impl FnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + HANGS;
    loop {
        match condition() {
            Ok(found) => return found,
            Err(_) if Instant::now() < deadline => thread::sleep(INTERVAL),
            Err(reason) => {
                let logs: Vec<String> = servers.map(Server::log).collect();
                panic!("not within {HANGS:?}: {what} ({reason}); the logs:\n{}", logs.join("\n---\n"));
            }
        }
    }
}
