//! `permits serve`: requests over real connections, on a local store and on a server.

mod access;
pub(crate) mod acquire;
mod events;
pub(crate) mod http;
mod limits;
pub(crate) mod metrics;
mod page;
mod read;
mod slow;
mod webdriver;
mod write;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use permits_testkit::wait;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
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
    token: Option<NamedTempFile>,
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

    /// Starts a server with this text as its file of tokens, and these options.
    #[track_caller]
    pub(crate) fn acquiring(url: &str, tokens: &str, options: &[&str]) -> Self {
        let file = token_file(tokens, 0o600);
        let mut command = permits(url, ["serve", "--listen", "127.0.0.1:0", "--acquire", "--acquire-tokens"]);
        Self::of(command.arg(file.path()).args(options), Some(file))
    }

    #[track_caller]
    pub(crate) fn of(command: &mut Command, token: Option<NamedTempFile>) -> Self {
        let running = Running::until(command, "listening on http://");
        let line = || running.stdout().lines().next().map(str::to_owned);
        assert!(wait::until(|| running.stdout().ends_with('\n')), "{:?}", running.stdout());
        let line = line().expect("a line");
        let address = line.strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix('/'));
        let address = address.and_then(|address| address.parse().ok());
        Self { running, address: address.unwrap_or_else(|| panic!("{line}")), token }
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

    /// The path of the file of tokens.
    pub(crate) fn tokens(&self) -> &Path {
        self.token.as_ref().expect("it has one").path()
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

/// Lets this process open so many files, which all tests share.
#[track_caller]
pub(crate) fn allow_open_files(most: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let most = most as u64;
    if current.is_some_and(|current| current < most) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum });
        raised.unwrap_or_else(|error| panic!("{error}: this test needs {most} open files, ulimit -Hn"));
    }
}
