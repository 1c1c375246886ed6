//! Helpers that start the command and observe it in bounded time.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use permits_testkit::sound::Named as _;
use permits_testkit::{ChildGuard, HANGS, Server, wait};
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The URL of a closed port.
pub(crate) const CLOSED_PORT: &str = "redis://127.0.0.1:1/";

/// A store.
pub(crate) trait Store {
    fn url(&self) -> String;
}

impl Store for Server {
    fn url(&self) -> String {
        Self::url(self)
    }
}

/// A local store in a directory of its own.
pub(crate) struct Local {
    directory: TempDir,
}

impl Local {
    #[track_caller]
    pub(crate) fn new() -> Self {
        // Keep the store in memory, where the system has such a place. A disk to which other programs write
        // may hold a command up for seconds, and the command then says that the store does not answer.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self { directory: directory.expect("a directory") }
    }
}

impl Store for Local {
    fn url(&self) -> String {
        format!("local:{}", self.directory.path().join("permits").display())
    }
}

/// Makes a test of each case on a server. A case takes the store and the name of a semaphore that grants at
/// once. That the stores agree is the subject of the library's conformance suite, not of these cases.
macro_rules! on_a_server {
    ($($case:ident,)*) => {
        mod on_a_server {
            $(#[test]
            fn $case() {
                let (server, name) = crate::support::fresh();
                super::$case(&server, &name);
            })*
        }
    };
}
pub(crate) use on_a_server;

/// Makes two tests of each case, one on a server and one on a local store: of a case for each kind of verb.
macro_rules! on_both_stores {
    ($($case:ident,)*) => {
        mod on_both_stores {
            $(mod $case {
                #[test]
                fn on_local() {
                    super::super::$case(&crate::support::Local::new(), "semaphore");
                }

                #[test]
                fn on_a_server() {
                    let (server, name) = crate::support::fresh();
                    super::super::$case(&server, &name);
                }
            })*
        }
    };
}
pub(crate) use on_both_stores;

/// A server, and a semaphore on it that grants at once.
#[track_caller]
pub(crate) fn fresh() -> (Server, String) {
    let (server, name) = (Server::start(), "semaphore".to_owned());
    prepare(&server, &name);
    (server, name)
}

/// Uses a semaphore, so that it grants at once. A new semaphore grants nothing at first, because the server
/// may have just lost its state.
#[track_caller]
pub(crate) fn prepare(store: &dyn Store, name: &str) {
    let builder = permits::Client::builder(store.url()).recovery(permits::Recovery::Off);
    let client = builder.connect().wait().expect("the server is up");
    let permit = client.named(name, 1).try_acquire().wait().expect("no holders");
    permit.release().wait().expect("it is held");
    client.close().wait().expect("nothing is left");
}

/// The command with `arguments`. Its acquisitions have no label, because the default one has the user's name.
pub(crate) fn permits<S: AsRef<OsStr>>(url: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_permits"));
    command.args(arguments).env("PERMITS_URL", url).env("PERMITS_LABEL", "");
    command.env_remove("TERM").stdin(Stdio::null());
    without_home(&mut command);
    command
}

/// Removes the default store, so that no test uses the store of the user that runs it.
pub(crate) fn without_home(command: &mut Command) -> &mut Command {
    command.env("HOME", "/dev/null").env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR")
}

/// A script of bash that finds `permits`.
pub(crate) fn shell(url: &str, script: &str) -> Command {
    let mut shell = in_path(Command::new("bash"), url);
    shell.args(["-c", script]);
    shell
}

/// A command that finds `permits`, with this store.
pub(crate) fn in_path(mut command: Command, url: &str) -> Command {
    let permits = Path::new(env!("CARGO_BIN_EXE_permits")).parent().expect("it is in a directory");
    let path = format!("{}:{}", permits.display(), std::env::var("PATH").expect("there is one"));
    without_home(&mut command).env("PATH", path).env("PERMITS_URL", url).stdin(Stdio::null());
    command
}

/// Makes a program of this text.
#[track_caller]
pub(crate) fn add_program(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("it can be written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
}

/// `permits run NAME OPTIONS -- sh -c SCRIPT`.
pub(crate) fn run(store: &dyn Store, name: &str, options: &str, script: &str) -> Command {
    let mut command = permits(&store.url(), ["run", name]);
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
    command
}

/// `permits run NAME OPTIONS -- echo ran`, when the semaphore has these numbers of holders and of waiters.
#[track_caller]
pub(crate) fn waiter(store: &dyn Store, name: &str, options: &str, expected: (usize, usize)) -> Running {
    let waiter = Running::start(&mut run(store, name, options, "echo ran"));
    until_counts(store, name, expected);
    waiter
}

/// A running command. Its output goes to files, so that it never blocks on a reader.
pub(crate) struct Running {
    pub(crate) guard: ChildGuard,
    stdout: File,
    stderr: File,
}

/// A command that holds a permit until it is released.
pub(crate) struct Holder {
    running: Running,
    gate: PipeWriter,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Output {
    /// The exit code as in a shell.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Asserts the exit code; a failure prints what the command said.
    #[track_caller]
    pub(crate) fn ends(&self, code: i32) {
        assert_eq!(self.code, code, "it ended so: {self:?}");
    }

    /// Asserts the exit code and standard output; a failure prints what the command said.
    #[track_caller]
    pub(crate) fn prints(&self, code: i32, stdout: &str) {
        assert_eq!((self.code, &*self.stdout), (code, stdout), "on standard error: {}", self.stderr);
    }
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let [stdout, stderr] = [(), ()].map(|()| tempfile::tempfile().expect("a temporary file"));
        let stdio = |file: &File| Stdio::from(file.try_clone().expect("a file can be shared"));
        let guard = ChildGuard::spawn(command.stdout(stdio(&stdout)).stderr(stdio(&stderr)));
        Self { guard, stdout, stderr }
    }

    /// Starts the command and waits until it has printed `text`.
    #[track_caller]
    pub(crate) fn until(command: &mut Command, text: &str) -> Self {
        let running = Self::start(command);
        running.prints(text);
        running
    }

    /// Waits until the command has printed `text`.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        let printed = wait::until(|| contents(&self.stdout).contains(text));
        assert!(printed, "no {text:?}: {:?}, {:?}", contents(&self.stdout), contents(&self.stderr));
    }

    pub(crate) fn stdout(&self) -> String {
        contents(&self.stdout)
    }

    pub(crate) fn stderr(&self) -> String {
        contents(&self.stderr)
    }

    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.guard.pid(), signal);
    }

    /// Waits for the end of the command.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Output {
        let Some(status) = self.guard.wait_timeout(HANGS) else {
            panic!("still running: {:?}, {:?}", self.stdout(), self.stderr());
        };
        Output { code: code(status), stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Holder {
    /// `permits run NAME OPTIONS`, when it holds.
    #[track_caller]
    pub(crate) fn start(store: &dyn Store, name: &str, options: &str) -> Self {
        let mut command = run(store, name, options, "echo ready; read x; exit 3");
        let gate = gate(&mut command);
        Self { running: Running::until(&mut command, "ready"), gate }
    }

    /// Ends the command, and waits until the permit is released.
    #[track_caller]
    pub(crate) fn release(self) {
        drop(self.gate);
        assert_eq!(self.running.finish().code, 3, "it ran to its end");
    }

    /// Waits until the command was ended, because it has lost its permit.
    #[track_caller]
    pub(crate) fn finish(self) -> Output {
        self.running.finish()
    }
}

/// The contents of a file. Reads by position, because the writer shares the file offset.
fn contents(file: &File) -> String {
    let mut bytes = vec![0; usize::try_from(file.metadata().expect("a file of ours").len()).expect("small")];
    let read = file.read_at(&mut bytes, 0).expect("a file can be read");
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// Gives the command an input that stays open until the writer is dropped.
pub(crate) fn gate(command: &mut Command) -> PipeWriter {
    let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
    command.stdin(reader);
    writer
}

/// A pipe that is full, and its reader, which reads nothing.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("the system has a pipe to give");
    rustix::io::ioctl_fionbio(&writer, true).expect("it is a pipe");
    while writer.write(&[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("it is a pipe");
    (reader, writer)
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    Running::start(command).finish()
}

/// The exit code as in a shell.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("it has ended"))
}

/// Signals a child that has not been waited for.
#[track_caller]
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("a process of ours");
}

/// True if a process runs. A zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    !matches!(state(pid), ' ' | 'Z' | 'X')
}

/// The letter of a process's state, and a blank if there is no such process.
pub(crate) fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).unwrap_or(' ')
}

/// `permits status --json`, also of a semaphore that the store does not know.
#[track_caller]
pub(crate) fn status(store: &dyn Store, name: &str) -> Value {
    let output = output(&mut permits(&store.url(), ["status", "--json", "--", name]));
    assert!(matches!((output.code, output.stderr.as_str()), (0, "") | (66, _)), "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("it is JSON")
}

/// The text without the ages of holders.
pub(crate) fn ageless(text: &str) -> String {
    let age = Regex::new(r" for \d+ [smhd]\b").expect("it is valid");
    age.replace_all(text, "").into_owned()
}

/// Runs a command that prints one line of JSON.
#[track_caller]
pub(crate) fn json(command: &mut Command) -> Value {
    let output = output(command);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(output.stdout.lines().count(), 1, "{}", output.stdout);
    serde_json::from_str(&output.stdout).expect("it is JSON")
}

/// The numbers of holders and of waiters.
#[track_caller]
pub(crate) fn counts(store: &dyn Store, name: &str) -> (usize, usize) {
    let status = status(store, name);
    let count = |list: &str| status[list].as_array().expect("a list").len();
    (count("holders"), count("waiters"))
}

/// Waits for these numbers of holders and of waiters.
#[track_caller]
pub(crate) fn until_counts(store: &dyn Store, name: &str, expected: (usize, usize)) {
    let reached = wait::until(|| counts(store, name) == expected);
    assert!(reached, "{:?} instead of {expected:?}", counts(store, name));
}

/// Revokes `holder` as an operator does.
#[track_caller]
pub(crate) fn revoke(store: &dyn Store, name: &str, holder: &str, reason: &str) {
    let client = permits::Client::connect(&store.url()).wait().expect("the store is up");
    assert_eq!(client.named(name, permits::Limit::Stored).revoke(holder, reason).wait(), Ok(true));
}

/// Demands that every line is the command's own.
#[track_caller]
pub(crate) fn assert_own_lines(stderr: &str) {
    assert!(!stderr.is_empty());
    for line in stderr.lines() {
        assert!(line.starts_with("permits: "), "{stderr}");
    }
}

/// Demands that `value` matches the schema, and that the schema has every field of it.
#[track_caller]
pub(crate) fn assert_matches_schema(schema: &str, value: &Value) {
    assert_eq!(against_schema(schema, value), Ok(()), "{value}");
    let mut value = value.clone();
    let schema = match (schema, value["event"].as_str()) {
        ("watch.schema.json", Some("state")) => {
            let fields = value.as_object_mut().expect("it has an event");
            fields.retain(|field, _| !["event", "at_ms"].contains(&field.as_str()));
            "status.schema.json"
        }
        _ => schema,
    };
    assert_known(&read_schema(schema), &value);
}

/// The result of the validation of `value` against a schema of the HTTP endpoints.
#[track_caller]
pub(crate) fn against_openapi(schema: &str, value: &Value) -> Result<(), String> {
    against_schema(&format!("openapi.json#/components/schemas/{schema}"), value)
}

/// The result of the validation of `value`.
#[track_caller]
pub(crate) fn against_schema(schema: &str, value: &Value) -> Result<(), String> {
    let (mut compiler, mut schemas) = (boon::Compiler::new(), boon::Schemas::new());
    let url = |schema: &str| format!("http://localhost/{schema}");
    let (file, _) = schema.split_once('#').unwrap_or((schema, ""));
    // Others refer to it.
    for schema in BTreeSet::from([file, "status.schema.json"]) {
        compiler.add_resource(&url(schema), read_schema(schema)).expect("it is a resource");
    }
    let compiled = compiler.compile(&url(schema), &mut schemas).expect("it is a schema");
    schemas.validate(value, compiled).map_err(|error| error.to_string())
}

#[track_caller]
pub(crate) fn read_schema(schema: &str) -> Value {
    let path = format!("{}/../../docs/reference/{schema}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("it is there")).expect("it is JSON")
}

/// The lines that are whole, each of which matches the schema.
#[track_caller]
pub(crate) fn json_lines(schema: &str, stdout: &str) -> Vec<Value> {
    let whole = stdout.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let lines: Vec<Value> = whole.map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    lines.iter().for_each(|line| assert_matches_schema(schema, line));
    lines
}

#[track_caller]
fn assert_known(schema: &Value, value: &Value) {
    if let Some((file, path)) = schema["$ref"].as_str().and_then(|to| to.split_once('#')) {
        // References within a file are to numbers and texts, which have no fields.
        if !file.is_empty() {
            assert_known(read_schema(file).pointer(path).expect("it is there"), value);
        }
        return;
    }
    // An object of another schema.
    if schema["additionalProperties"] == true {
        return;
    }
    for (field, value) in value.as_object().into_iter().flatten() {
        let schema = schema["properties"].get(field).unwrap_or_else(|| panic!("no {field} in the schema"));
        assert_known(schema, value);
    }
    value.as_array().into_iter().flatten().for_each(|item| assert_known(&schema["items"], item));
}
