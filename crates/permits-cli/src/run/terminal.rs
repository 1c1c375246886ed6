//! The controlling terminal and its foreground.
//!
//! A terminal has one *foreground* process group: only this group may read, and gets Ctrl-C, Ctrl-\ and
//! Ctrl-Z. The command has a process group of its own, so that it can be signalled as a whole. So if this
//! process is in the foreground, it puts the command's group there, and its own again when the command has
//! ended or is suspended, as a shell does for its jobs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use rustix::process::{Pid, Signal, getpgrp, getpid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::posix;

/// The terminal that controls this process. Cheap to clone.
#[derive(Clone)]
pub(super) struct Terminal {
    device: Arc<File>,
    own_group: Pid,
}

impl Terminal {
    /// The controlling terminal, if there is one. Ctrl-C and Ctrl-Z come from it even if all standard streams
    /// are redirected.
    pub(super) fn controlling() -> Option<Self> {
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let device = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty").ok()?;
        Some(Self { device: Arc::new(device), own_group: getpgrp() })
    }

    /// True if this process is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.is_of(self.own_group)
    }

    /// True if `group` is in the foreground.
    pub(super) fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&*self.device) == Ok(group)
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

    /// Puts this process into the foreground again.
    pub(super) fn take_back(&self) {
        // Fails if the terminal is gone.
        let _ = self.give_to(self.own_group);
    }
}
