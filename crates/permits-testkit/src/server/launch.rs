//! The configuration, the program and the launch of a server.
//!
//! The [`Site`] of a server stays the same over restarts. The configuration goes through a file and not the
//! command line, because a value of several words (`client-output-buffer-limit`) would arrive as one quoted
//! word, and because `CONFIG REWRITE` and Sentinel need a file.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Server, ports};
use crate::process::ChildGuard;
use crate::resp::{Connection, Resp};
use crate::tls::{Certificates, ClientCertificates};
use crate::wait::{self, HANGS};

/// The environment variable that names the server program.
const PROGRAM_VARIABLE: &str = "PERMITS_TEST_SERVER";

/// The programs looked for in `PATH` otherwise.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// The ports that are tried when the server exits at once.
const START_ATTEMPTS: usize = 8;

/// A server to be configured; made by [`Server::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct ServerBuilder {
    directives: Vec<(String, String)>,
    environment: Vec<(String, OsString)>,
    role: Role,
    unix_socket: bool,
    in_memory: bool,
    password: Option<String>,
    tls: Option<(Certificates, ClientCertificates)>,
}

/// The role of a server process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// A server on its own, a primary or a replica.
    Store,
    /// A node of a cluster: it takes a second port.
    Node,
    /// A sentinel: it knows few of the directives.
    Sentinel,
}

impl ServerBuilder {
    pub(crate) fn new() -> Self {
        Self::of(Role::Store)
            .arg("save", "")
            .arg("appendonly", "no")
            // A replica whose first copy did not come from a file says that its link is up, and is sent no
            // write for another second, until it says that again. A failover meanwhile would lose those
            // writes.
            .arg("repl-diskless-sync", "no")
    }

    /// A node of a cluster to be formed, which fails over once a node was silent for `node_timeout`.
    pub(crate) fn node(node_timeout: Duration) -> Self {
        let mut builder = Self::new();
        builder.role = Role::Node;
        builder
            .arg("cluster-enabled", "yes")
            .arg("cluster-config-file", "nodes.conf")
            .arg("cluster-node-timeout", &node_timeout.as_millis().to_string())
    }

    /// A sentinel that watches no primary yet.
    pub(crate) fn sentinel() -> Self {
        Self::of(Role::Sentinel)
    }

    fn of(role: Role) -> Self {
        Self {
            directives: Vec::new(),
            environment: Vec::new(),
            role,
            unix_socket: false,
            in_memory: false,
            password: None,
            tls: None,
        }
    }

    /// Adds a directive of the configuration file, such as `.arg("maxmemory", "10mb")`.
    ///
    /// A value may hold several words, as in the file itself; one word with a space in it has to be quoted. A
    /// later directive overrides an earlier one of the same name, where the server does not collect them.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        let value = if value.is_empty() { "\"\"" } else { value };
        self.directives.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Sets a variable of the environment of its program.
    pub fn env(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((key.to_owned(), value.into()));
        self
    }

    /// Keeps the data in an append-only file, synced every second. Data older than two seconds survives the
    /// death of the process: while the disk is busy with the last sync, Redis does not even write. With
    /// `.arg("appendfsync", "always")` everything that was answered survives.
    pub fn append_only(self) -> Self {
        self.arg("appendonly", "yes").arg("appendfsync", "everysec")
    }

    /// Keeps its directory in memory, where the system has such a place: its files outlive the process, and
    /// no disk delays it.
    pub fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// Listens on a Unix socket in its directory, and not on TCP.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Requires `password` of every client.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.arg("requirepass", &quoted(password))
    }

    /// Speaks TLS alone on its port, with a certificate of `certificates`, and asks its clients for theirs by
    /// `clients`.
    ///
    /// The kit itself reaches it over a Unix socket.
    pub fn tls(mut self, certificates: &Certificates, clients: ClientCertificates) -> Self {
        self.tls = Some((certificates.clone(), clients));
        self
    }

    /// Makes it a replica of `primary`.
    ///
    /// The replica answers before it has its first copy. When the link is up, [`Server::info`] gives `up` for
    /// `master_link_status`.
    #[track_caller]
    pub fn replica_of(self, primary: &Server) -> Self {
        assert!(primary.site.tls.is_none(), "replication over TLS is not set up here");
        let address = primary.address();
        let builder = self.arg("replicaof", &format!("{} {}", address.ip(), address.port()));
        match &primary.site.password {
            Some(password) => builder.arg("masterauth", &quoted(password)),
            None => builder,
        }
    }

    /// Starts the server; returns once it answers.
    #[track_caller]
    pub fn start(self) -> Server {
        self.attempt().unwrap_or_else(|site| site.give_up())
    }

    /// Starts the server; returns its site with the log if it does not answer.
    pub(crate) fn attempt(self) -> Result<Server, Box<Site>> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("permits-server-");
        let in_memory = if self.in_memory { builder.tempdir_in("/dev/shm").ok() } else { None };
        let dir = in_memory.unwrap_or_else(|| builder.tempdir().expect("a temporary directory can be made"));
        let endpoint = self.endpoint(dir.path());
        let mut site = Site {
            dir,
            endpoint,
            sentinel: self.role == Role::Sentinel,
            password: self.password.clone(),
            tls: self.tls.clone(),
            environment: self.environment.clone(),
            program: program(),
        };
        for _ in 0..START_ATTEMPTS {
            site.configure(&self.directives);
            match site.launch() {
                Ok(process) => return Ok(Server { process: Mutex::new(process), site }),
                // Most likely another program took the port between the check and the launch.
                Err(Failure::Exited) => site.endpoint = self.endpoint(site.dir.path()),
                Err(Failure::Silent) => break,
            }
        }
        Err(Box::new(site))
    }

    fn endpoint(&self, dir: &Path) -> Endpoint {
        if self.unix_socket {
            Endpoint::Unix(socket(dir))
        } else {
            Endpoint::Tcp(ports::own(self.role == Role::Node))
        }
    }
}

/// The endpoint of a server.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The reasons why a launch failed.
enum Failure {
    /// The process ended before it answered.
    Exited,
    /// The server runs, and did not answer in time.
    Silent,
}

/// The parts of a server that stay the same over restarts.
#[derive(Debug)]
pub(crate) struct Site {
    pub(super) dir: TempDir,
    pub(super) endpoint: Endpoint,
    pub(super) password: Option<String>,
    sentinel: bool,
    tls: Option<(Certificates, ClientCertificates)>,
    environment: Vec<(String, OsString)>,
    program: PathBuf,
}

impl Site {
    pub(super) fn url(&self) -> String {
        let password = self.password.as_deref().map(percent_encoded);
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match (&self.endpoint, password) {
            (Endpoint::Tcp(address), None) => format!("{scheme}://{address}/"),
            (Endpoint::Tcp(address), Some(password)) => format!("{scheme}://:{password}@{address}/"),
            (Endpoint::Unix(path), None) => format!("redis+unix://{}", path.display()),
            (Endpoint::Unix(path), Some(password)) => {
                format!("redis+unix://{}?pass={password}", path.display())
            }
        }
    }

    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(self.dir.path().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The kit's own way to the server: past TLS, by a socket.
    pub(super) fn connect(&self) -> io::Result<Connection> {
        let mut connection = match &self.endpoint {
            Endpoint::Tcp(address) if self.tls.is_none() => Connection::connect(*address)?,
            Endpoint::Tcp(_) => Connection::connect_unix(&socket(self.dir.path()))?,
            Endpoint::Unix(path) => Connection::connect_unix(path)?,
        };
        if let Some(password) = &self.password
            && let Resp::Error(message) = connection.call(&["AUTH", password])?
        {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(connection)
    }

    /// Launches the server again, at its place. Another program may have its port for a moment, so it retries
    /// for as long as a start may take.
    #[track_caller]
    pub(super) fn relaunch(&self) -> ChildGuard {
        let deadline = Instant::now() + HANGS;
        while Instant::now() < deadline {
            match self.launch() {
                Ok(process) => return process,
                Err(Failure::Exited) => {}
                Err(Failure::Silent) => break,
            }
        }
        self.give_up()
    }

    #[track_caller]
    fn launch(&self) -> Result<ChildGuard, Failure> {
        // Standard output, standard error and all restarts share one file, because the output from before the
        // server opens its own log explains a failed start.
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("server.log"))
            .expect("a file in the server's own directory can be opened");
        let errors = log.try_clone().expect("an open file can be duplicated");
        let mut process = ChildGuard::spawn(
            Command::new(&self.program)
                .arg(self.dir.path().join("server.conf"))
                .args(self.sentinel.then_some("--sentinel"))
                .envs(self.environment.iter().map(|(key, value)| (key, value)))
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(errors),
        );
        let pid = process.pid();
        let mut exited = false;
        let settled = wait::until(|| {
            exited = !process.is_running();
            exited || self.answers(pid)
        });
        match (settled, exited) {
            (true, false) => Ok(process),
            (true, true) => Err(Failure::Exited),
            (false, _) => Err(Failure::Silent),
        }
    }

    /// Returns whether the server with this pid is ready for commands.
    fn answers(&self, pid: u32) -> bool {
        let Ok(mut connection) = self.connect() else {
            return false;
        };
        match connection.call(&["PING"]) {
            Ok(Resp::Text(_)) => {}
            // The kit does not know a password that is given as a plain directive.
            Ok(Resp::Error(message)) => return message.starts_with("NOAUTH"),
            _ => return false,
        }
        // If another server won the race for the port, that one answers, while ours is about to exit.
        match connection.call(&["INFO", "server"]) {
            Ok(Resp::Text(info)) => info_field(&info, "process_id") == Some(&pid.to_string()),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// Writes the configuration file.
    fn configure(&self, directives: &[(String, String)]) {
        let mut text = String::new();
        let mut line =
            |key: &str, value: &str| writeln!(text, "{key} {value}").expect("a string takes any text");
        line("bind", "127.0.0.1");
        line("dir", &quoted(&self.dir.path().to_string_lossy()));
        let tls_only = self.tls.is_some();
        match &self.endpoint {
            Endpoint::Tcp(address) if tls_only => line("tls-port", &address.port().to_string()),
            Endpoint::Tcp(address) => line("port", &address.port().to_string()),
            Endpoint::Unix(_) => {}
        }
        if tls_only || matches!(self.endpoint, Endpoint::Unix(_)) {
            line("port", "0");
            line("unixsocket", &quoted(&socket(self.dir.path()).to_string_lossy()));
        }
        if let Some((certificates, clients)) = &self.tls {
            for (key, path) in certificates.directives() {
                line(key, &quoted(&path.to_string_lossy()));
            }
            line("tls-auth-clients", clients.directive());
        }
        for (key, value) in directives {
            line(key, value);
        }
        fs::write(self.dir.path().join("server.conf"), text)
            .expect("the server's own directory can be written");
    }

    #[track_caller]
    pub(crate) fn give_up(&self) -> ! {
        panic!("{} did not start, or not in time; its log:\n{}", self.program.display(), self.log())
    }
}

/// The value of `field` in a reply to `INFO`.
pub(crate) fn info_field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}

/// The server program of this machine.
#[track_caller]
fn program() -> PathBuf {
    if let Some(program) = env::var_os(PROGRAM_VARIABLE).filter(|value| !value.is_empty()) {
        return program.into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = PROGRAMS.iter().find_map(|name| {
        env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
    });
    let Some(program) = found else {
        panic!(
            "neither redis-server nor valkey-server is in PATH: install one (apt install redis-server, \
             dnf install valkey, brew install redis) or set {PROGRAM_VARIABLE} to the program"
        );
    };
    program
}

/// The Unix socket of the server in `dir`.
fn socket(dir: &Path) -> PathBuf {
    dir.join("server.sock")
}

/// A value between quotes, in the syntax of the configuration file.
pub(crate) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A text in the syntax of a URL.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes any text");
        }
    }
    encoded
}
