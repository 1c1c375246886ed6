//! Servers that belong together: what clusters and sentinels have in common.
//!
//! It owns the members with the proxies before them, and the one way to wait for what they agree on: look at
//! all, say what is amiss, look again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use crate::proxy::Proxy;
use crate::resp::Resp;
use crate::server::Server;

/// How long to sleep between two looks. One look takes a connection to each member, and what is waited for takes
/// them from tenths of a second on.
const INTERVAL: Duration = Duration::from_millis(10);

/// Servers, each with a proxy before it if that was asked for.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) servers: Vec<Server>,
    proxies: Vec<Proxy>,
}

impl Group {
    pub(crate) fn new(servers: Vec<Server>, proxied: bool) -> Self {
        let before = if proxied { &servers[..] } else { &[] };
        let proxies = before.iter().map(|server| Proxy::start(server.address())).collect();
        Self { servers, proxies }
    }

    /// The proxy before a member.
    #[track_caller]
    pub(crate) fn proxy(&self, member: usize) -> &Proxy {
        self.proxies.get(member).expect("it was built with proxies")
    }

    pub(crate) fn is_proxied(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// The address at which a member is known to clients and to the other members.
    pub(crate) fn announced(&self, member: usize) -> SocketAddr {
        self.proxies.get(member).map_or_else(|| self.servers[member].address(), Proxy::address)
    }

    /// The indexes of the members that run and are not paused.
    pub(crate) fn up(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|member| self.servers[*member].is_up())
    }
}

/// Asks a server that may die or be paused meanwhile.
pub(crate) fn ask(server: &Server, command: &[&str]) -> Result<Resp, String> {
    let reply = server.connect().and_then(|mut connection| connection.call(command));
    reply.map_err(|error| format!("{} does not answer: {error}", server.address()))
}

/// Asks such a server for a text.
pub(crate) fn ask_text(server: &Server, command: &[&str]) -> Result<String, String> {
    match ask(server, command)? {
        Resp::Text(text) => Ok(text),
        other => Err(format!("{} answers {other:?}", server.address())),
    }
}

/// Gives a server an order that it must not refuse.
#[track_caller]
pub(crate) fn order(server: &Server, command: &[&str]) {
    let reply = server.command(command);
    assert_eq!(reply, Resp::Text("OK".to_owned()), "{} refuses {command:?}", server.address());
}

/// Waits until `condition`, which says what is amiss, is content; returns what it found.
///
/// # Panics
///
/// If `limit` passes before: with what was amiss, and with the logs of `servers`.
#[track_caller]
pub(crate) fn wait_for<'a, T>(
    what: impl fmt::Display,
    limit: Duration,
    servers: impl Iterator<Item = &'a Server>,
    mut condition: impl FnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match condition() {
            Ok(found) => return found,
            Err(_) if Instant::now() < deadline => thread::sleep(INTERVAL),
            Err(reason) => {
                let logs: Vec<String> = servers.map(Server::log).collect();
                panic!("not within {limit:?}: {what} ({reason}); the logs:\n{}", logs.join("\n---\n"));
            }
        }
    }
}
