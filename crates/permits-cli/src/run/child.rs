//! The command: started in a process group of its own, signalled as a group, and watched.
//!
//! The command must not outlive the permit. While this process lives, it ends the command itself. If this
//! process is killed, the kernel does it: the child asks for SIGKILL when its parent dies. SIGTERM would not
//! do, because a command may catch it, and no process would be left to send SIGKILL when the lease ends. The
//! kernel's help is limited: it exists on Linux only, it does not reach the child's own children, and it ends
//! when the command changes its user, as `sudo` does.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::process::Command;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, setpgid, test_kill_process_group,
    wait,
};

use super::terminal::Terminal;
use crate::exit;
use crate::posix::{self, NumberedExec};

/// A running command, leader of its process group.
pub(super) struct Child {
    pid: Pid,
    ended: Option<Ended>,
}

/// The end of a command.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    /// The command exited with this code.
    Code(u8),
    /// The command was ended by this signal.
    Signal(i32),
}

impl Ended {
    /// The exit code as in a shell.
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

/// Why a command was not started.
pub(super) enum NotStarted {
    /// The program cannot be executed.
    Program(io::Error),
    /// The system refuses this call, which prepares the child for any program.
    Call(&'static str, io::Error),
}

impl NotStarted {
    fn of(error: io::Error) -> Self {
        let step = |step: &Step| error.raw_os_error().is_some_and(|raw| raw / Step::UNIT == *step as i32);
        match [Step::Group, Step::Death].into_iter().find(step) {
            None => Self::Program(error),
            Some(step) => {
                let raw = error.raw_os_error().unwrap_or_default() % Step::UNIT;
                Self::Call(step.call(), io::Error::from_raw_os_error(raw))
            }
        }
    }
}

/// A step between fork and exec. Of an error there only the number reaches the parent, so the number has the
/// step, too.
#[derive(Clone, Copy)]
enum Step {
    Group = 1,
    Death = 2,
}

impl Step {
    /// More than any error number of a system.
    const UNIT: i32 = 1 << 16;

    fn failed(self, error: rustix::io::Errno) -> io::Error {
        io::Error::from_raw_os_error(self as i32 * Self::UNIT + error.raw_os_error())
    }

    fn call(self) -> &'static str {
        match self {
            Self::Group => "setpgid, which gives the command a process group",
            Self::Death => "prctl(PR_SET_PDEATHSIG), by which the command ends if permits is killed",
        }
    }
}

/// A change of a command's state.
pub(super) enum ChildChange {
    /// The command has ended and has been waited for.
    Ended(Ended),
    /// The command was stopped by this signal.
    Stopped(i32),
}

impl Child {
    /// Starts `command` (the program, then its arguments) with `environment` added to this process's own. The
    /// variables `numbered` get the process id of the command. If there is a `terminal`, the command gets its
    /// foreground. Call it on the main thread.
    pub(super) fn spawn(
        command: &[OsString],
        environment: &[(&str, String)],
        numbered: &[&str],
        terminal: Option<Terminal>,
    ) -> Result<Self, NotStarted> {
        let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let mut command_line = Command::new(program);
        command_line.args(command.iter().skip(1));
        command_line.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut numbered_exec = match numbered {
            [] => None,
            names => Some(NumberedExec::new(command, environment, names).map_err(NotStarted::Program)?),
        };
        let parent = rustix::process::getpid();
        // System calls only, as `before_exec` demands.
        posix::before_exec(&mut command_line, move || {
            setpgid(None, None).map_err(|error| Step::Group.failed(error))?;
            die_with_parent(parent).map_err(|error| Step::Death.failed(error))?;
            posix::inherit();
            if let Some(terminal) = &terminal {
                // The command runs without the foreground, too.
                let _ = terminal.give_to_caller();
            }
            // The number is known only here, when the standard library has made the environment.
            numbered_exec.as_mut().map_or(Ok(()), |exec| Err(exec.exec()))
        });
        let child = command_line.spawn().map_err(NotStarted::of)?;
        let pid = Pid::from_child(&child);
        Ok(Self { pid, ended: None })
    }

    /// The process group, whose number is the process id of its leader.
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// The end of the command, if `next_change` has seen it.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The next change since the last call, if there is one.
    ///
    /// Waits for any child, because the first process of a container inherits orphans and has to reap them.
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

    /// Signals the process group; the command alone if it has moved to another group, by setpgid(2).
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match kill_process_group(self.pid, signal) {
            Err(rustix::io::Errno::SRCH) if self.ended.is_none() => Ok(kill_process(self.pid, signal)?),
            signalled => Ok(signalled?),
        }
    }

    /// Returns true if the command is in a wait that no signal interrupts, so that it cannot stop.
    #[cfg(target_os = "linux")]
    pub(super) fn cannot_stop(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()));
        // The state follows the name, which may contain any character.
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D')))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn cannot_stop(&self) -> bool {
        false
    }

    /// Signals the process group, and the command. An error if the command itself was not signalled, such as
    /// `sudo`, or if it has ended and the rest of its group was not signalled.
    pub(super) fn kill(&self) -> io::Result<()> {
        let group = kill_process_group(self.pid, Signal::KILL);
        if self.ended.is_none() {
            return Ok(kill_process(self.pid, Signal::KILL)?);
        }
        Ok(group?)
    }

    /// True while the process group has members.
    pub(super) fn group_is_alive(&self) -> bool {
        // A group that may not be signalled is alive.
        test_kill_process_group(self.pid) != Err(rustix::io::Errno::SRCH)
    }
}

fn ended(status: WaitStatus) -> Option<Ended> {
    let code = |code| Ended::Code(u8::try_from(code).unwrap_or(u8::MAX));
    status.exit_status().map(code).or(status.terminating_signal().map(Ended::Signal))
}

/// Makes this process the parent of the processes that the command leaves behind, so that
/// [`Child::next_change`] reaps them. Otherwise they might stay zombies, which count as members of their
/// group.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() {
    // If the call fails, the end of the group is only noticed later.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() {}

/// Makes the kernel kill the calling process when the thread that forked it ends: the main thread of
/// `parent`.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the call; then no signal will come.
    if rustix::process::getppid() != Some(parent) {
        return Err(rustix::io::Errno::SRCH);
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: Pid) -> rustix::io::Result<()> {
    Ok(())
}
