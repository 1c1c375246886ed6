//! `permits serve`: requests over real connections, on a local store and on a server.

mod access;
mod events;
mod http;
mod limits;
pub(crate) mod metrics;
mod page;
mod read;
mod slow;
mod webdriver;
mod write;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use permits_testkit::wait;
use rustix::process::Signal;
use tempfile::NamedTempFile;

use crate::support::{Output, Running, Store, permits};
use http::{Reply, Request};

/// The token of the servers with one.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The body of a change.
const PAUSE: &str = r#"{"change":"pause"}"#;

/// A server of the command.
pub(crate) struct Serve {
    running: Running,
    pub(crate) address: SocketAddr,
    /// The token file must last as long as its server may read it.
    _token: Option<NamedTempFile>,
}

impl Serve {
    /// Starts a server on a free port with these options.
    #[track_caller]
    pub(crate) fn start(store: &dyn Store, options: &[&str]) -> Self {
        let mut command = permits(&store.url(), ["serve", "--listen", "127.0.0.1:0", "--interval", "100ms"]);
        Self::of(command.args(options), None)
    }

    /// Starts a server with [`TOKEN`], which may change semaphores.
    #[track_caller]
    pub(crate) fn writable(store: &dyn Store) -> Self {
        let file = token_file(TOKEN, 0o600);
        let mut command = permits(&store.url(), ["serve", "--listen", "127.0.0.1:0", "--interval", "100ms"]);
        command.arg("--allow-write").arg("--token-file").arg(file.path());
        Self::of(&mut command, Some(file))
    }

    #[track_caller]
    pub(crate) fn of(command: &mut Command, token: Option<NamedTempFile>) -> Self {
        let running = Running::until(command, "listening on http://");
        let line = || running.stdout().lines().next().map(str::to_owned);
        assert!(wait::until(|| running.stdout().ends_with('\n')), "{:?}", running.stdout());
        let line = line().expect("a line");
        let address = line.strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix('/'));
        let address = address.and_then(|address| address.parse().ok());
        Self { running, address: address.unwrap_or_else(|| panic!("{line}")), _token: token }
    }

    /// A GET request with this path.
    pub(crate) fn get(&self, path: &str) -> Request {
        Request::new(self.address, "GET", path)
    }

    /// A POST request with [`TOKEN`] and a body in JSON.
    pub(crate) fn post(&self, path: &str, body: &str) -> Request {
        let request = Request::new(self.address, "POST", path).bearer(TOKEN);
        request.header("Content-Type", "application/json").body(body)
    }

    /// The reply to a GET request.
    #[track_caller]
    pub(crate) fn read(&self, path: &str) -> Reply {
        self.get(path).send()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.guard.pid()
    }

    pub(crate) fn stderr(&self) -> String {
        self.running.stderr()
    }

    #[track_caller]
    pub(crate) fn end(self, signal: Signal) -> Output {
        self.running.signal(signal);
        self.running.finish()
    }
}

/// A file with this token and this mode.
#[track_caller]
pub(crate) fn token_file(token: &str, mode: u32) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), format!("{token}\n")).expect("it can be written");
    std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).expect("it is ours");
    file
}
