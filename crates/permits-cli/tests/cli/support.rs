//! Starting the command, and looking at what it does, in bounded time.

use std::ffi::OsStr;
use std::fs::File;
use std::io::PipeWriter;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use permits_testkit::{Guard, Server, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// More than anything here should take, on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A URL where nobody listens.
pub(crate) const CLOSED_PORT: &str = "redis://127.0.0.1:1/";

/// A right call of each verb that asks a store once.
pub(crate) const EVERY_VERB: &[&[&str]] = &[
    &["run", "x", "--limit", "1", "--", "true"],
    &["status", "x"],
    &["status", "x", "--json"],
    &["list"],
    &["list", "--json"],
    &["limit", "x", "2"],
    &["limit", "x", "--unpin"],
    &["pause", "x"],
    &["resume", "x"],
    &["revoke", "x", "h", "--reason", "r"],
];

/// Where semaphores live.
pub(crate) trait Store {
    fn url(&self) -> String;
}

impl Store for Server {
    fn url(&self) -> String {
        Self::url(self)
    }
}

/// A local store of its own.
pub(crate) struct Local {
    directory: TempDir,
}

impl Local {
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }
}

impl Store for Local {
    fn url(&self) -> String {
        format!("local:{}", self.directory.path().join("semaphores.db").display())
    }
}

/// Makes two tests of each case, which takes a store and the name of a semaphore that grants at once: one on a
/// local store, one on a server.
macro_rules! on_both_stores {
    ($($case:ident,)*) => {
        mod on_local {
            $(#[test]
            fn $case() {
                super::$case(&crate::support::Local::new(), "semaphore");
            })*
        }

        mod on_redis {
            $(#[test]
            fn $case() {
                let (server, name) = crate::support::fresh();
                super::$case(&server, &name);
            })*
        }
    };
}
pub(crate) use on_both_stores;

/// A server, and a semaphore in it that grants at once.
#[track_caller]
pub(crate) fn fresh() -> (Server, String) {
    let (server, name) = (Server::start(), "semaphore".to_owned());
    prepare(&server, &name);
    (server, name)
}

/// Uses a semaphore, so that it grants at once. Otherwise nothing is granted for a while, for all it knows
/// because the server has just lost its state.
#[track_caller]
pub(crate) fn prepare(store: &dyn Store, name: &str) {
    let builder = permits::Client::builder(store.url()).recovery(permits::Recovery::Off);
    let client = permits::blocking::Client::connect_with(builder).expect("the server is up");
    let permit = client.semaphore(name, 1).try_acquire().expect("nobody holds it");
    permit.release().expect("it is held");
    client.close().expect("nothing is left");
}

/// The command with some arguments.
pub(crate) fn permits<S: AsRef<OsStr>>(url: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_permits"));
    command.args(arguments).env("PERMITS_URL", url).env_remove("TERM").stdin(Stdio::null());
    without_home(&mut command);
    command
}

/// Where the default store cannot be, so that no test meets the one of whoever runs it.
pub(crate) fn without_home(command: &mut Command) -> &mut Command {
    command.env("HOME", "/dev/null").env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR")
}

/// `permits run NAME OPTIONS -- sh -c SCRIPT`. The script knows a directory as `$DIR` if one is set.
pub(crate) fn run(store: &dyn Store, name: &str, options: &str, script: &str) -> Command {
    let mut command = permits(&store.url(), ["run", name]);
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
    command
}

/// A command under way. Its output goes to files, which nobody has to read for it to go on.
pub(crate) struct Running {
    pub(crate) guard: Guard,
    stdout: File,
    stderr: File,
}

/// What a command has done.
#[derive(Debug)]
pub(crate) struct Output {
    /// As a shell gives it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let [stdout, stderr] = [(), ()].map(|()| tempfile::tempfile().expect("a temporary file"));
        let stdio = |file: &File| Stdio::from(file.try_clone().expect("a file can be shared"));
        let guard = Guard::spawn(command.stdout(stdio(&stdout)).stderr(stdio(&stderr)));
        Self { guard, stdout, stderr }
    }

    /// Starts it, and waits until it has printed `text`.
    #[track_caller]
    pub(crate) fn until(command: &mut Command, text: &str) -> Self {
        let running = Self::start(command);
        running.prints(text);
        running
    }

    /// Waits until it has printed `text`.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        let printed = wait::until(TIMEOUT, || contents(&self.stdout).contains(text));
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

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Output {
        let Some(status) = self.guard.wait_timeout(TIMEOUT) else {
            panic!("it goes on: {:?}, {:?}", self.stdout(), self.stderr());
        };
        Output { code: code(status), stdout: self.stdout(), stderr: self.stderr() }
    }
}

/// Read by position: the writer's place is the same file's.
fn contents(file: &File) -> String {
    let mut bytes = vec![0; usize::try_from(file.metadata().expect("a file of ours").len()).expect("small")];
    let read = file.read_at(&mut bytes, 0).expect("a file can be read");
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// Gives the command an input that goes on until the writer is dropped.
pub(crate) fn gate(command: &mut Command) -> PipeWriter {
    let (reader, writer) = std::io::pipe().expect("the system has a pipe to give");
    command.stdin(reader);
    writer
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    Running::start(command).finish()
}

/// The code as a shell gives it.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("it has ended"))
}

/// Signals a process that is ours, and alive or not yet waited for.
#[track_caller]
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("a process of ours");
}

/// Whether a process runs. A zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// `permits status --json`.
#[track_caller]
pub(crate) fn status(store: &dyn Store, name: &str) -> Value {
    json(&mut permits(&store.url(), ["status", "--json", "--", name]))
}

/// Runs a command that prints one line of JSON.
#[track_caller]
pub(crate) fn json(command: &mut Command) -> Value {
    let output = output(command);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(output.stdout.lines().count(), 1, "{}", output.stdout);
    serde_json::from_str(&output.stdout).expect("it is JSON")
}

/// How many hold and how many wait.
#[track_caller]
pub(crate) fn counts(store: &dyn Store, name: &str) -> (usize, usize) {
    let status = status(store, name);
    let count = |what: &str| status[what].as_array().expect("a list").len();
    (count("holders"), count("waiters"))
}

/// Waits until so many hold and so many wait.
#[track_caller]
pub(crate) fn until_counts(store: &dyn Store, name: &str, expected: (usize, usize)) {
    let reached = wait::until(TIMEOUT, || counts(store, name) == expected);
    assert!(reached, "{:?} instead of {expected:?}", counts(store, name));
}

/// Takes away what `holder` has, as an operator would.
#[track_caller]
pub(crate) fn revoke(store: &dyn Store, name: &str, holder: &str, reason: &str) {
    let client = permits::blocking::Client::connect(&store.url()).expect("the store is up");
    assert_eq!(client.open(name).revoke(holder, reason), Ok(true));
}

/// Every line is the command's own.
#[track_caller]
pub(crate) fn assert_own_lines(stderr: &str) {
    assert!(!stderr.is_empty());
    for line in stderr.lines() {
        assert!(line.starts_with("permits: "), "{stderr}");
    }
}
