//! `permits hold --listen`.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Local, Running, Store, against_schema, counts, on_a_server, output, permits, prepare, until_counts,
    without_home,
};
use permits_testkit::{HANGS, skip};

on_a_server! {
    programs_share_the_command_and_have_ids_of_their_own,
    the_end_of_a_connection_releases_its_permits,
    a_signal_ends_all,
}

/// A running `permits hold --listen`.
struct Listening {
    running: Running,
    path: PathBuf,
    _directory: TempDir,
}

/// A program that is connected.
struct Program {
    stream: BufReader<UnixStream>,
}

fn listen(store: &dyn Store, path: &Path) -> Command {
    permits(&store.url(), ["hold".to_owned(), "--listen".to_owned(), format!("unix:{}", path.display())])
}

impl Listening {
    #[track_caller]
    fn start(store: &dyn Store) -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("socket");
        let running = Running::until(&mut listen(store, &path), "listening on unix:");
        Self { running, path, _directory: directory }
    }

    /// A program that was greeted.
    #[track_caller]
    fn connect(&self) -> Program {
        let mut program = self.knock();
        let hello = program.read();
        assert_eq!((&hello["event"], &hello["lines"]), (&json!("hello"), &json!(1)), "{hello}");
        program
    }

    /// A program that has read nothing yet.
    #[track_caller]
    fn knock(&self) -> Program {
        let stream = UnixStream::connect(&self.path).expect("it listens");
        stream.set_read_timeout(Some(HANGS)).expect("it is not zero");
        Program { stream: BufReader::new(stream) }
    }

    /// Ends it by SIGTERM.
    #[track_caller]
    fn end(self) {
        self.running.signal(Signal::TERM);
        self.running.finish().ends(143);
        assert!(!self.path.exists(), "the socket is removed");
    }
}

impl Program {
    #[track_caller]
    fn write(&mut self, line: &Value) {
        writeln!(self.stream.get_mut(), "{line}").expect("it takes a line");
    }

    /// The next event; null at the end.
    #[track_caller]
    fn read(&mut self) -> Value {
        let mut line = String::new();
        match self.stream.read_line(&mut line).expect("it answers") {
            0 => Value::Null,
            _ => serde_json::from_str(&line).expect("it is JSON"),
        }
    }

    /// Writes a line, and demands that the next event of its id has this name.
    #[track_caller]
    fn expect(&mut self, line: &Value, event: &str) {
        self.write(line);
        let found = self.read();
        assert_eq!((&found["id"], &found["event"]), (&line["id"], &json!(event)), "{found}");
    }
}

fn programs_share_the_command_and_have_ids_of_their_own(store: &dyn Store, name: &str) {
    let listening = Listening::start(store);
    let (mut one, mut other) = (listening.connect(), listening.connect());
    one.expect(&json!({"id": 1, "acquire": name, "limit": 1}), "granted");
    other.expect(&json!({"id": 1, "acquire": name}), "waiting");
    other.expect(&json!({"id": 2, "release": true}), "invalid");
    one.expect(&json!({"id": 1, "release": true}), "released");
    assert_eq!(other.read()["event"], "granted");
    other.expect(&json!({"id": 1, "release": true}), "released");
    assert_eq!(counts(store, name), (0, 0));
    listening.end();
}

fn the_end_of_a_connection_releases_its_permits(store: &dyn Store, name: &str) {
    let listening = Listening::start(store);
    let (mut one, mut other) = (listening.connect(), listening.connect());
    one.expect(&json!({"id": 1, "acquire": name, "limit": 2}), "granted");
    other.expect(&json!({"id": 1, "acquire": name}), "granted");
    one.expect(&json!({"id": 2, "acquire": name}), "waiting");
    drop(one);
    until_counts(store, name, (1, 0));
    other.expect(&json!({"id": 1, "renew": true}), "held");
    // The program ends its lines, and reads on.
    other.stream.get_ref().shutdown(std::net::Shutdown::Write).expect("it is connected");
    let released = other.read();
    assert_eq!(
        (&released["event"], &released["reason"]),
        (&json!("released"), &json!("the connection is closed"))
    );
    assert_eq!(other.read(), Value::Null);
    until_counts(store, name, (0, 0));
    listening.end();
}

fn a_signal_ends_all(store: &dyn Store, name: &str) {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let listening = Listening::start(store);
        let (mut one, mut other) = (listening.connect(), listening.connect());
        one.expect(&json!({"id": 1, "acquire": name, "limit": 1}), "granted");
        other.expect(&json!({"id": 1, "acquire": name}), "waiting");
        listening.running.signal(signal);
        for program in [&mut one, &mut other] {
            let released = program.read();
            assert_eq!(released["reason"], format!("signal {}", signal.as_raw()), "{released}");
            assert_eq!(program.read(), Value::Null);
        }
        listening.running.finish().ends(code);
        assert!(!listening.path.exists(), "the socket is removed");
        assert_eq!(counts(store, name), (0, 0));
    }
}

#[test]
fn only_the_user_can_connect() {
    let (store, directory) = (Local::new(), TempDir::new().expect("a directory"));
    let path = directory.path().join("socket");
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$0\" hold --listen \"unix:$1\""]);
    shell.arg(env!("CARGO_BIN_EXE_permits")).arg(&path).env("PERMITS_URL", store.url());
    let running = Running::until(without_home(&mut shell), "listening on unix:");
    let file = fs::symlink_metadata(&path).expect("it is there");
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o7777, 0o600);
    running.signal(Signal::TERM);
    running.finish().ends(143);
}

#[test]
fn the_members_of_a_group_can_connect() {
    let (store, directory) = (Local::new(), TempDir::new().expect("a directory"));
    let path = directory.path().join("socket");
    let own = fs::metadata(directory.path()).expect("it is there").gid();
    let running =
        Running::until(listen(&store, &path).args(["--group", &own.to_string()]), "listening on unix:");
    let file = fs::symlink_metadata(&path).expect("it is there");
    assert_eq!((file.permissions().mode() & 0o7777, file.gid()), (0o660, own));
    running.signal(Signal::TERM);
    running.finish().ends(143);

    // The group has a name, too, unless it comes from elsewhere.
    let groups = fs::read_to_string("/etc/group").expect("there are groups");
    let has_id = |line: &&str| line.split(':').nth(2) == Some(&*own.to_string());
    if let Some(name) = groups.lines().find(has_id).and_then(|line| line.split(':').next()) {
        let running = Running::until(listen(&store, &path).args(["--group", name]), "listening on unix:");
        assert_eq!(fs::symlink_metadata(&path).expect("it is there").gid(), own);
        running.signal(Signal::TERM);
        running.finish().ends(143);
    }
    let unknown = output(listen(&store, &path).args(["--group", "no-such-group"]));
    unknown.ends(64);
    assert!(unknown.stderr.contains("no such group: make it with groupadd"), "{}", unknown.stderr);
    let without = output(&mut permits(&store.url(), ["hold", "--many", "--group", "0"]));
    without.ends(64);
    assert!(without.stderr.contains("--listen"), "{}", without.stderr);
}

/// Root may give a socket to any group, so it loses that capability.
#[test]
fn a_socket_is_given_only_to_a_group_of_the_user() {
    let program = "setpriv";
    if skip::without_program(program) {
        return;
    }
    let (store, directory) = (Local::new(), TempDir::new().expect("a directory"));
    let path = directory.path().join("socket");
    let mut command = Command::new(program);
    command.arg("--bounding-set=-chown");
    if !rustix::process::geteuid().is_root() {
        command = Command::new("env");
    }
    command.arg(env!("CARGO_BIN_EXE_permits")).args(["hold", "--group", "54321", "--listen"]);
    command.arg(format!("unix:{}", path.display())).env("PERMITS_URL", store.url());
    let refused = output(without_home(&mut command));
    refused.ends(71);
    assert!(refused.stderr.contains("make the user a member of the group"), "{}", refused.stderr);
    assert!(!path.exists(), "the socket is removed");
}

/// `permits hold` as systemd starts it: a program has bound the socket, which is descriptor 3, sets the
/// variables, and becomes `permits`.
fn activated(store: &dyn Store, listener: impl Into<OwnedFd>, variables: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{variables} exec \"$0\" hold --listen systemd 3<&0 </dev/null")]);
    shell.arg(env!("CARGO_BIN_EXE_permits")).env("PERMITS_URL", store.url()).stdin(listener.into());
    without_home(&mut shell);
    shell
}

#[test]
fn systemd_may_make_the_socket_and_keeps_it() {
    let (store, directory) = (Local::new(), TempDir::new().expect("a directory"));
    prepare(&store, "x");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("it can be bound");
    // A program that connects before the command is started waits.
    let stream = UnixStream::connect(&path).expect("it is bound");
    stream.set_read_timeout(Some(HANGS)).expect("it is not zero");
    let mut early = Program { stream: BufReader::new(stream) };
    for _ in 0..2 {
        let listener = listener.try_clone().expect("it can be shared");
        let mut command = activated(&store, listener, "LISTEN_PID=$$ LISTEN_FDS=1");
        let running = Running::until(&mut command, &format!("listening on unix:{}", path.display()));
        assert_eq!(early.read()["event"], "hello");
        early.expect(&json!({"id": 1, "acquire": "x", "limit": 1}), "granted");
        running.signal(Signal::TERM);
        assert_eq!(early.read()["event"], "released");
        running.finish().ends(143);
        assert!(path.exists(), "the socket is there for the next start");
        let stream = UnixStream::connect(&path).expect("it is still bound");
        stream.set_read_timeout(Some(HANGS)).expect("it is not zero");
        early = Program { stream: BufReader::new(stream) };
    }
}

#[test]
fn what_is_no_socket_of_systemd_is_refused() {
    let (store, directory) = (Local::new(), TempDir::new().expect("a directory"));
    let refused = |listener: OwnedFd, variables: &str, reason: &str| {
        let refused = output(&mut activated(&store, listener, variables));
        refused.ends(71);
        let said = &refused.stderr;
        assert!(said.contains(reason) && said.contains("--listen unix:PATH"), "{said}");
    };
    let bound = |name: &str| -> OwnedFd {
        UnixListener::bind(directory.path().join(name)).expect("it can be bound").into()
    };
    refused(bound("a"), "", "LISTEN_PID and LISTEN_FDS are not set");
    refused(bound("b"), "LISTEN_PID=1 LISTEN_FDS=1", "LISTEN_PID is 1, and this is ");
    refused(bound("c"), "LISTEN_PID=$$ LISTEN_FDS=2", "LISTEN_FDS is 2");
    let (connected, _other) = UnixStream::pair().expect("a pair");
    refused(connected.into(), "LISTEN_PID=$$ LISTEN_FDS=1", "descriptor 3 does not listen");
    let datagrams = UnixDatagram::bind(directory.path().join("d")).expect("it can be bound");
    refused(datagrams.into(), "LISTEN_PID=$$ LISTEN_FDS=1", "descriptor 3 does not listen");
    let file = File::open("/dev/null").expect("it is there");
    refused(file.into(), "LISTEN_PID=$$ LISTEN_FDS=1", "descriptor 3 does not listen");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("it can be bound");
    refused(tcp.into(), "LISTEN_PID=$$ LISTEN_FDS=1", "descriptor 3 is no Unix socket");

    let grouped = output(&mut permits(&store.url(), ["hold", "--listen", "systemd", "--group", "0"]));
    grouped.ends(64);
    assert!(grouped.stderr.contains("SocketGroup="), "{}", grouped.stderr);
}

#[test]
fn the_socket_of_a_dead_process_is_replaced_and_no_other_file() {
    let store = Local::new();
    prepare(&store, "x");
    let first = Listening::start(&store);
    let refused = output(&mut listen(&store, &first.path));
    refused.ends(71);
    assert!(refused.stderr.contains("another process listens there: end it"), "{}", refused.stderr);
    first.connect().expect(&json!({"id": 1, "acquire": "x", "limit": 1}), "granted");

    first.running.signal(Signal::KILL);
    let Listening { running, path, _directory: directory } = first;
    assert_eq!((running.finish().code, path.exists()), (137, true));
    let running = Running::until(&mut listen(&store, &path), "listening on unix:");
    Listening { running, path, _directory: directory }.end();

    // One that has taken its path meanwhile keeps the path.
    let replaced = Listening::start(&store);
    fs::remove_file(&replaced.path).expect("it is there");
    let _other = UnixListener::bind(&replaced.path).expect("the path is free");
    replaced.running.signal(Signal::TERM);
    replaced.running.finish().ends(143);
    assert!(replaced.path.exists(), "the socket of the other is there");

    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "text").expect("it can be written");
    let refused = output(&mut listen(&store, &file));
    refused.ends(71);
    assert!(refused.stderr.contains("the file is no socket: remove it"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "text");

    let refused = output(&mut listen(&store, &directory.path().join("none/socket")));
    refused.ends(71);
    assert!(refused.stderr.contains("its directory cannot be opened"), "{}", refused.stderr);
}

#[test]
fn a_program_that_does_not_read_delays_no_other() {
    let store = Local::new();
    prepare(&store, "x");
    let listening = Listening::start(&store);
    let slow = listening.connect();
    slow.stream.get_ref().set_nonblocking(true).expect("it can be");
    let mut slow_writer = slow.stream.get_ref();
    let line = json!({"id": 1, "renew": true}).to_string() + "\n";
    // The answers fill its buffers, and then its lines are no longer read.
    let mut written = 0_usize;
    while let Ok(bytes) = slow_writer.write(line.repeat(100).as_bytes()) {
        written += bytes;
        assert!(written < 64 << 20, "its lines are read without end");
    }
    let mut other = listening.connect();
    for id in 0..100 {
        other.expect(&json!({"id": id, "acquire": "x", "limit": 1}), "granted");
        other.expect(&json!({"id": id, "release": true}), "released");
    }
    drop(slow);
    listening.end();
}

#[test]
fn files_are_kept_for_the_store() {
    let store = Local::new();
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("socket");
    let hold = listen(&store, &path);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 80; exec \"$0\" \"$@\""]).arg(hold.get_program()).args(hold.get_args());
    limited.env("PERMITS_URL", store.url());
    let running = Running::until(without_home(&mut limited), "listening on unix:");
    let listening = Listening { running, path, _directory: directory };
    let _programs: Vec<Program> = (0..16).map(|_| listening.connect()).collect();
    assert_eq!(listening.knock().read()["reason"], "16 programs are connected already");
    listening.end();
}

#[test]
fn a_connection_too_many_is_refused() {
    let store = Local::new();
    prepare(&store, "x");
    let listening = Listening::start(&store);
    let mut programs: Vec<Program> = (0..256).map(|_| listening.connect()).collect();
    let mut refused = listening.knock();
    let failed = refused.read();
    assert_eq!(failed["reason"], "256 programs are connected already");
    assert_eq!(against_schema("hold.schema.json", &failed), Ok(()));
    assert_eq!(refused.read(), Value::Null);
    let last = programs.last_mut().expect("there are many");
    last.expect(&json!({"id": 1, "acquire": "x", "limit": 1}), "granted");
    let _ = (File::open("/dev/null"), refused.stream.read(&mut [0]));
    listening.end();
}
