//! The controlling terminal, and whose turn it is to use it.
//!
//! A terminal has one *foreground* process group: it may read, and Ctrl-C, Ctrl-\ and Ctrl-Z reach it and
//! nobody else. The command has a process group of its own, so that it can be signalled as a whole. So if
//! this process is in the foreground, the command's group has to be put there, and this one's again when the
//! command has ended or is suspended: what a shell does for its jobs, one floor down.

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
    /// The controlling terminal, if there is one, be it that all of the standard streams are redirected:
    /// Ctrl-C and Ctrl-Z come from it all the same.
    pub(super) fn controlling() -> Option<Self> {
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let device = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty").ok()?;
        Some(Self { device: Arc::new(device), own_group: getpgrp() })
    }

    /// Whether this process is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.is_of(self.own_group)
    }

    /// Whether `group` is in the foreground.
    pub(super) fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&*self.device) == Ok(group)
    }

    /// Whether this process reads from it.
    pub(super) fn is_stdin(&self) -> bool {
        // Fails for what is not a terminal, and for a terminal that is not the controlling one.
        tcgetpgrp(io::stdin()).is_ok()
    }

    /// Puts `group` into the foreground.
    pub(super) fn give_to(&self, group: Pid) -> io::Result<()> {
        // Whoever is not in the foreground is suspended for asking, unless it does not hear the signal.
        posix::with_blocked(Signal::TTOU, || tcsetpgrp(&*self.device, group))?;
        Ok(())
    }

    /// Puts the calling process into the foreground, which leads a group of its own. For the child, before it
    /// becomes the command: later would be too late for one that reads at once.
    pub(super) fn give_to_caller(&self) -> io::Result<()> {
        self.give_to(getpid())
    }

    /// Puts this process into the foreground again, if `group` is there. Somebody else's turn is respected.
    pub(super) fn take_back_from(&self, group: Pid) {
        if self.is_of(group) {
            self.take_back();
        }
    }

    /// Puts this process into the foreground again.
    pub(super) fn take_back(&self) {
        // It fails if the terminal is gone; then it is nobody's.
        let _ = self.give_to(self.own_group);
    }
}
