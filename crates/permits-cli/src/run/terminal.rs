//! The controlling terminal and its foreground.
//!
//! A terminal has one *foreground* process group: only this group may read, and gets Ctrl-C, Ctrl-\ and
//! Ctrl-Z. The command has a process group of its own, so that it can be signalled as a whole. So if this
//! process is in the foreground, it puts the command's group there, and its own again when the command has
//! ended or is suspended, as a shell does for its jobs.
//!
//! Other processes of this process's group, such as a pager in the same pipeline, are in the background
//! meanwhile. If one of them uses the terminal, the kernel stops the whole group. So a command gets the
//! foreground at once only if this process is [alone](is_alone) in its group, and otherwise when it asks. A
//! neighbour that asks gets it back.

#[cfg(target_os = "linux")]
use std::fs;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use rustix::process::{Pid, Signal, getpgrp, getpid};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::posix;

/// True if no other process is in this process's group.
///
/// A neighbour may be started later, since a shell starts the members of a pipeline one after the other, or
/// be hidden from this user. So a wrong answer does no harm: the neighbour gets the foreground when it asks.
/// A process that has ended, and that its parent has not waited for, is no neighbour.
#[cfg(target_os = "linux")]
pub(super) fn is_alone() -> bool {
    let (own, group) = (getpid(), getpgrp());
    // The first process of a job gives its group the number. Mostly true, and spares a look at all processes.
    if own != group {
        return false;
    }
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    !numbers.filter(|number| *number != own.as_raw_pid()).any(|number| is_member(number, group))
}

/// True if the process is alive and in `group`.
#[cfg(target_os = "linux")]
fn is_member(process: i32, group: Pid) -> bool {
    stat(process).is_some_and(|stat| stat.is_alive && stat.group == group.as_raw_pid())
}

/// The parts in use of a process's line `pid (name) state parent group …`.
#[cfg(target_os = "linux")]
struct Stat {
    is_alive: bool,
    parent: i32,
    group: i32,
}

#[cfg(target_os = "linux")]
fn stat(process: i32) -> Option<Stat> {
    let line = fs::read(format!("/proc/{process}/stat")).ok()?;
    let line = String::from_utf8_lossy(&line);
    // The name may have any character.
    let mut fields = line.rsplit(')').next()?.split_ascii_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    Some(Stat { is_alive, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// True if `process` is a child of `ancestor`, or of a process that is.
#[cfg(target_os = "linux")]
fn is_below(process: Pid, ancestor: Pid) -> bool {
    let parent = |process: &i32| stat(*process).map(|stat| stat.parent);
    let ancestors = std::iter::successors(Some(process.as_raw_pid()), parent).skip(1);
    ancestors.take(MAX_DEPTH).any(|it| it == ancestor.as_raw_pid())
}

#[cfg(not(target_os = "linux"))]
fn is_below(_: Pid, _: Pid) -> bool {
    false
}

/// More than the generations between a command and a process in it.
#[cfg(target_os = "linux")]
const MAX_DEPTH: usize = 1000;

/// The process group that has the terminal's foreground.
pub(super) enum Foreground {
    /// The group of this process.
    Own,
    /// The command's group.
    Command,
    /// A group that a process of the command has made, such as a `permits run` inside the command.
    Below,
    /// Another job's group, or no group.
    Elsewhere,
}

/// Unknown here. A neighbour gets the foreground when it asks.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_alone() -> bool {
    getpid() == getpgrp()
}

/// Leaves the alternate screen and shows the cursor. The first code saves the cursor's place, because 1049
/// puts the cursor at the place saved last, also for a program that was not on the alternate screen. Each
/// screen has a place of its own. Code 1047 would leave the cursor alone, but Alacritty and Windows Terminal
/// ignore it.
const LEAVE_SCREEN: &[u8] = b"\x1b7\x1b[?1049l\x1b[?25h";

/// The terminal that controls this process. Cheap to clone.
#[derive(Clone)]
pub(super) struct Terminal {
    device: Arc<File>,
    own_group: Pid,
    /// The modes at the start, such as echo.
    modes: Option<Termios>,
}

impl Terminal {
    /// The controlling terminal, if there is one. Ctrl-C and Ctrl-Z come from it even if all standard streams
    /// are redirected.
    pub(super) fn controlling() -> Option<Self> {
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let device = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty").ok()?;
        let modes = tcgetattr(&device).ok();
        Some(Self { device: Arc::new(device), own_group: getpgrp(), modes })
    }

    /// True if this process is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.is_of(self.own_group)
    }

    /// True if `group` is in the foreground.
    pub(super) fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&*self.device) == Ok(group)
    }

    /// Returns which group has the foreground. `command` is the leader of the command's group.
    pub(super) fn foreground(&self, command: Pid) -> Foreground {
        match tcgetpgrp(&*self.device) {
            Ok(group) if group == self.own_group => Foreground::Own,
            Ok(group) if group == command => Foreground::Command,
            // The first process of a group gives it the number.
            Ok(group) if is_below(group, command) => Foreground::Below,
            _ => Foreground::Elsewhere,
        }
    }

    /// Puts this process into the foreground, and is stopped by SIGTTOU until it is there. The kernel signals
    /// all of this process's group. An error if no process could continue it.
    pub(super) fn ask(&self) -> io::Result<()> {
        Ok(tcsetpgrp(&*self.device, self.own_group)?)
    }

    /// True if standard input is this terminal.
    pub(super) fn is_stdin(&self) -> bool {
        // Fails for anything but the controlling terminal.
        tcgetpgrp(io::stdin()).is_ok()
    }

    /// Puts `group` into the foreground.
    pub(super) fn give_to(&self, group: Pid) -> io::Result<()> {
        // A background process gets SIGTTOU for this call, which would suspend it.
        posix::with_blocked(Signal::TTOU, || tcsetpgrp(&*self.device, group))?;
        Ok(())
    }

    /// Puts the calling process, the leader of a group, into the foreground. The child calls it before exec,
    /// because a command may read at once.
    pub(super) fn give_to_caller(&self) -> io::Result<()> {
        self.give_to(getpid())
    }

    /// Puts this process into the foreground again if `group` is there, and leaves any other group there.
    pub(super) fn take_back_from(&self, group: Pid) {
        if self.is_of(group) {
            self.take_back();
        }
    }

    /// Restores the modes of the start, after the end of a command that could not do so itself. If it had
    /// raw mode, it may have left the alternate screen and a hidden cursor, too. For a process in the
    /// foreground: the modes of other jobs are theirs.
    pub(super) fn restore_modes(&self) {
        let (Some(before), Ok(now)) = (&self.modes, tcgetattr(&*self.device)) else { return };
        // The modes are set at once, and not after the output, which Ctrl-S may hold up.
        let set = || tcsetattr(&*self.device, OptionalActions::Now, before);
        // Fails if the terminal is gone.
        let _ = posix::with_blocked(Signal::TTOU, set);
        let was_raw = |modes: &Termios| !modes.local_modes.contains(LocalModes::ICANON);
        if was_raw(&now) && !was_raw(before) {
            let _ = posix::with_blocked(Signal::TTOU, || (&*self.device).write_all(LEAVE_SCREEN));
        }
    }

    /// Puts this process into the foreground again.
    pub(super) fn take_back(&self) {
        // Fails if the terminal is gone.
        let _ = self.give_to(self.own_group);
    }
}
