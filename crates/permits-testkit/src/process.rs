//! Child processes that cannot outlive the test which started them.
//!
//! A [`Guard`] owns one child from its start until it has been waited for. Signals go to that child alone, and
//! only while it has not been waited for: until then the system keeps its pid from being given to another
//! process, so no signal can hit a stranger.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::wait;

/// How long a signal may take to show its effect.
const SIGNAL_LIMIT: Duration = Duration::from_secs(10);

/// How many lines may wait unread; a child that prints more blocks on its pipe, as it would in a shell.
const LINES_BOUND: usize = 1024;

/// A child process which is killed, even when paused, when the guard is dropped.
///
/// # Examples
///
/// ```
/// use permits_testkit::Guard;
/// use std::process::{Command, Stdio};
/// use std::time::Duration;
///
/// let mut child = Guard::spawn(Command::new("echo").arg("ready").stdout(Stdio::piped()));
/// let lines = child.lines();
/// assert_eq!(lines.next_line(Duration::from_secs(10)).as_deref(), Some("ready"));
///
/// let status = child.wait_timeout(Duration::from_secs(10)).expect("it ends by itself");
/// assert!(status.success());
/// ```
#[derive(Debug)]
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Takes charge of a child that runs already.
    pub fn new(child: Child) -> Self {
        Self { child }
    }

    /// Starts `command` and takes charge of the child.
    ///
    /// # Panics
    ///
    /// If the program cannot be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        match command.spawn() {
            Ok(child) => Self::new(child),
            Err(error) => panic!("cannot start {:?}: {error}", command.get_program()),
        }
    }

    /// The process id; after the end of the child, the one it had.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the child has not ended; a paused one counts as running.
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Stops the child where it stands (SIGSTOP); returns once it is stopped.
    ///
    /// # Panics
    ///
    /// If the child has ended.
    #[track_caller]
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
        // The signal is only queued when kill returns, and a child on another processor runs on for a moment.
        // NOWAIT leaves the news in place, so that a second pause finds it too.
        let pid = WaitId::Pid(Pid::from_child(&self.child));
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let stopped = wait::until(SIGNAL_LIMIT, || matches!(waitid(pid.clone(), options), Ok(Some(_))));
        assert!(stopped, "process {} did not stop within {SIGNAL_LIMIT:?}", self.pid());
    }

    /// Lets a paused child go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// If the child has ended.
    #[track_caller]
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Asks the child to end (SIGTERM), without waiting for it.
    ///
    /// # Panics
    ///
    /// If the child has ended.
    #[track_caller]
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Kills the child (SIGKILL), paused or not, and waits for its end; nothing happens if it has ended.
    pub fn kill(&mut self) {
        // Neither call can fail in a way that leaves the child alive: it is ours, and SIGKILL is not refused,
        // not even by a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits up to `limit` for the child to end by itself; `None` if it runs on.
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        wait::until(limit, || {
            status = self.exit_status();
            status.is_some()
        });
        status
    }

    /// The lines of the child's standard output, read from now on by a thread.
    ///
    /// Dropping the [`Lines`] closes the pipe once the child has printed another line.
    ///
    /// # Panics
    ///
    /// If standard output was not piped, or has been taken by an earlier call.
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

    /// How the child ended, if it did.
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

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
    }
}

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
