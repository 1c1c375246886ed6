//! Child processes that cannot outlive the test which started them.
//!
//! A [`ChildGuard`] owns one child from its start until it has been waited for. Signals go to that child
//! alone, and only while it has not been waited for: until then the system gives its pid to no other process.
//!
//! A test process that is killed drops no guards. So on Linux the system is asked to kill the child when its
//! parent dies. It takes for the parent the *thread* that started the child, and the thread of a test ends
//! long before a server that many tests share: so one thread, which ends with the process, starts all
//! children.
//!
//! A child inherits the environment of the tests. With SIGINT ignored, as under `nohup` or in the background
//! of a script, no Ctrl-C of a test would reach it. So a child starts with the default action for every
//! signal, and without the variables that the command `permits` reads.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::mem;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::wait::{self, HANGS};

/// The highest of the classic signals; no test sends the ones above.
const LAST_SIGNAL: libc::c_int = 31;

/// The beginning of the variables that `permits` reads.
const VARIABLES: &str = "PERMITS_";

/// The beginning of the variables that the tests read, and their children inherit.
const TEST_VARIABLES: &str = "PERMITS_TEST_";

/// The lines that may wait unread. A child that prints more blocks on its pipe, as it would in a shell.
const LINES_BOUND: usize = 1024;

/// A child process which is killed, even when paused, when the guard is dropped.
#[derive(Debug)]
pub struct ChildGuard {
    child: Child,
}

impl ChildGuard {
    /// Takes charge of a child that runs already.
    ///
    /// The child ends with the guard, but not when the test process is killed: only [`spawn`](Self::spawn)
    /// binds a child to the test process.
    pub fn new(child: Child) -> Self {
        Self { child }
    }

    /// Starts `command` and takes charge of the child; on Linux it is also killed when this process dies.
    ///
    /// The child starts with the default action for every signal. It inherits no variable `PERMITS_…` except
    /// `PERMITS_TEST_…`, and gets the variables that `command` sets.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        match spawn_bound(command) {
            Ok(child) => Self::new(child),
            Err(error) => panic!("cannot start {:?}: {error}", command.get_program()),
        }
    }

    /// The process id; after the end of the child, the one it had.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the child has not ended; a paused one counts as running.
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Returns whether the child is stopped, by [`pause`](Self::pause) or otherwise.
    pub fn is_paused(&self) -> bool {
        // NOWAIT leaves the status in place, so that the next call finds it again.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), options), Ok(Some(_)))
    }

    /// Stops the child where it stands (SIGSTOP); returns once it is stopped.
    #[track_caller]
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
        // The signal is only queued when kill returns, and a child on another processor runs on for a moment.
        let stopped = wait::until(|| self.is_paused());
        assert!(stopped, "process {} did not stop within {HANGS:?}", self.pid());
    }

    /// Lets a paused child continue (SIGCONT).
    #[track_caller]
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Asks the child to end (SIGTERM), without waiting for it.
    #[track_caller]
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Kills the child (SIGKILL), paused or not, and waits for its end; nothing happens if it has ended.
    pub fn kill(&mut self) {
        // Neither call can fail and leave the child alive: it is ours, and even a stopped process does not
        // refuse SIGKILL.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits up to `limit` for the child to end by itself; `None` if it still runs.
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        wait::within(limit, || {
            status = self.exit_status();
            status.is_some()
        });
        status
    }

    /// The lines of the child's standard output, which a thread reads from now on.
    ///
    /// Dropping the [`Lines`] closes the pipe once the child has printed another line.
    #[track_caller]
    pub fn lines(&mut self) -> Lines {
        let Some(stdout) = self.child.stdout.take() else {
            panic!("standard output of process {} is not piped, or was taken before", self.pid());
        };
        let (sender, receiver) = sync_channel(LINES_BOUND);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Lines { receiver }
    }

    /// The child's standard input, to write to; it ends when this is dropped.
    #[track_caller]
    pub fn stdin(&mut self) -> ChildStdin {
        let Some(stdin) = self.child.stdin.take() else {
            panic!("standard input of process {} is not piped, or was taken before", self.pid());
        };
        stdin
    }

    /// The exit status of the child, if it has ended.
    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours can be waited for")
    }

    #[track_caller]
    fn signal(&mut self, signal: Signal) {
        let pid = self.pid();
        if let Some(status) = self.exit_status() {
            panic!("process {pid} has ended ({status}) and takes no signal");
        }
        if let Err(error) = kill_process(Pid::from_child(&self.child), signal) {
            panic!("cannot signal process {pid}: {error}");
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command on its way to the thread that starts it, and the channel for its child.
struct Order {
    command: Command,
    done: SyncSender<(Command, io::Result<Child>)>,
}

/// Starts `command` such that the child does not outlive this process.
fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    static ORDERS: OnceLock<SyncSender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, receiver) = sync_channel::<Order>(0);
        thread::Builder::new()
            .name("permits-spawner".to_owned())
            .spawn(move || {
                for Order { mut command, done } in receiver {
                    forget_caller(&mut command);
                    die_with_parent(&mut command);
                    let child = command.spawn();
                    // The caller waits for it.
                    let _ = done.send((command, child));
                }
            })
            .expect("the system has a thread to give");
        sender
    });
    let (done, finished) = sync_channel(1);
    let taken = mem::replace(command, Command::new(""));
    orders.send(Order { command: taken, done }).expect("the spawner never ends");
    let (returned, child) = finished.recv().expect("the spawner answers every order");
    *command = returned;
    child
}

/// Removes settings of the caller's environment from the child's.
#[expect(unsafe_code, reason = "the child of a fork sets its own signals, before the program starts")]
fn forget_caller(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    let set: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with(VARIABLES) && !text.starts_with(TEST_VARIABLES) && !set.contains(&name) {
            command.env_remove(&name);
        }
    }
    // SAFETY: the closure makes system calls alone; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(|| {
            for signal in 1..=LAST_SIGNAL {
                // Refused for SIGKILL and SIGSTOP, which nothing can ignore.
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Lets the system kill the child with the thread that starts it.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "nothing else reaches the child between fork and exec")]
fn die_with_parent(command: &mut Command) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
    use std::os::unix::process::CommandExt;

    let parent = getpid();
    // SAFETY: the closure makes system calls alone; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent died before the call, no signal comes any more.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
        });
    }
}

/// Elsewhere there is no such service, and a killed test process leaves its children behind.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command) {}

/// The standard output of a child, line by line.
#[derive(Debug)]
pub struct Lines {
    receiver: Receiver<String>,
}

impl Lines {
    /// The next line without its end; `None` after `limit`, or when the output has ended.
    pub fn next_line(&self, limit: Duration) -> Option<String> {
        self.receiver.recv_timeout(limit).ok()
    }
}

/// The path by which a program starts itself again, also after a build has replaced its file (on Linux).
pub fn own_program() -> PathBuf {
    // The path names the process by number, because a program such as taskset may start this one.
    let running = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    if running.exists() { running } else { env::current_exe().expect("a program knows where it is") }
}
