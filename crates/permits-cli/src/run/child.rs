//! The command: started in a process group of its own, signalled as a group, and watched.
//!
//! It must not outlive the permit. While this process lives it sees to that itself; should it be killed, the
//! kernel does: the child asks for SIGKILL when its parent dies. Not SIGTERM, which may be caught: then
//! nobody would be left to insist, nobody renews, and the lease ends with the command still at work. The
//! kernel's help has its limits: it is Linux's alone, it does not reach the child's own children, and it is
//! forgotten when the command changes its user, as `sudo` does.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, wait,
};

use super::posix;
use super::terminal::Terminal;
use crate::exit;

/// A running command, leader of its process group.
pub(super) struct Child {
    pid: Pid,
    ended: Option<Ended>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// As a shell gives it.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => exit::from_signal(signal),
        }
    }

    pub(super) fn is_by(self, signal: Signal) -> bool {
        matches!(self, Self::Signal(raw) if raw == signal.as_raw())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What has become of a command.
pub(super) enum ChildChange {
    /// It has ended, and has been waited for.
    Ended(Ended),
    /// It is stopped, by this signal.
    Stopped(i32),
}

impl Child {
    /// Starts `command` (the program, then its arguments) with `environment` added to this process's own, in
    /// the foreground of `terminal` if one is given. To be called on the main thread.
    pub(super) fn spawn(
        command: &[OsString],
        environment: &[(&str, String)],
        terminal: Option<Terminal>,
    ) -> io::Result<Self> {
        let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let mut command_line = Command::new(program);
        command_line.args(command.iter().skip(1)).process_group(0);
        command_line.envs(environment.iter().map(|(name, value)| (name, value)));
        let parent = rustix::process::getpid();
        // System calls alone: see there.
        posix::before_exec(&mut command_line, move || {
            die_with_parent(parent)?;
            posix::inherit_ignored_pipe();
            if let Some(terminal) = &terminal {
                // Without the foreground the command still runs.
                let _ = terminal.give_to_caller();
            }
            Ok(())
        });
        let child = command_line.spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self { pid, ended: None })
    }

    /// The process group, which is the process id of its leader.
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// How it ended, if it has been seen to.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// What has become of it since the last call, if anything.
    ///
    /// Waits for any child: where this process is the first of a container it inherits the orphans, and they
    /// want to be buried.
    pub(super) fn next_change(&mut self) -> Option<ChildChange> {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid != self.pid {
                continue;
            }
            if let Some(signal) = status.stopping_signal() {
                return Some(ChildChange::Stopped(signal));
            }
            if let Some(ended) = ended(status) {
                self.ended = Some(ended);
                return Some(ChildChange::Ended(ended));
            }
        }
        None
    }

    /// Signals the process group.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process_group(self.pid, signal)?)
    }

    /// Whether there is anybody left in the process group.
    pub(super) fn group_is_alive(&self) -> bool {
        // Not allowed to signal them: they live.
        test_kill_process_group(self.pid) != Err(rustix::io::Errno::SRCH)
    }
}

fn ended(status: WaitStatus) -> Option<Ended> {
    let code = |code| Ended::Code(u8::try_from(code).unwrap_or(u8::MAX));
    status.exit_status().map(code).or(status.terminating_signal().map(Ended::Signal))
}

/// Has the kernel make this process the parent of what the command leaves behind, so that [`Child::next_change`]
/// buries them: nobody else may, and the dead count as members of their group.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() {
    // Without it, the end of the group is noticed later.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() {}

/// Has the kernel kill the calling process when the thread that forked it ends: the main thread of `parent`.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that; then no signal will come.
    if rustix::process::getppid() != Some(parent) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: Pid) -> io::Result<()> {
    Ok(())
}
