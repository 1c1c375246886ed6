//! Children by fork(2) alone, as prefork servers and daemons make them, without exec.
//!
//! A child has a copy of its parent's memory, the parent's descriptors, and of its threads only the one that
//! forked. A wait in the child may never end, so every wait for a child is bounded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::wait;

/// The exit code of a child whose work panicked.
const PANICKED: i32 = 101;

/// A forked child, which is killed when this is dropped.
#[derive(Debug)]
pub struct Forked {
    /// `None` once it has been waited for.
    pid: Option<Pid>,
}

/// Forks. The child runs `work` and ends with exit code 0, or 101 if that panics; it runs no destructor of
/// the parent's.
#[expect(unsafe_code, reason = "fork is what is tested")]
pub fn fork(work: impl FnOnce()) -> Forked {
    // SAFETY: the child may allocate, because glibc repairs its allocator after a fork. A wait for a lock of
    // the parent is a failure of the test, which the bounded wait for the child reports.
    match unsafe { libc::fork() } {
        0 => {
            let code = catch_unwind(AssertUnwindSafe(work)).map_or(PANICKED, |()| 0);
            // SAFETY: it ends the process.
            unsafe { libc::_exit(code) }
        }
        pid => Forked { pid: Some(Pid::from_raw(pid).expect("the system can fork")) },
    }
}

/// Forks, with the child as the first process of a pid namespace: its pid is 1, like the pid of a parent that
/// is the first of another namespace. From now on the caller can start no thread.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library knows no namespaces")]
pub fn fork_into_namespace(work: impl FnOnce()) -> Forked {
    // SAFETY: it changes where children are made, and nothing in this process.
    let refused = unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0;
    assert!(!refused, "no pid namespace: {}", std::io::Error::last_os_error());
    fork(work)
}

impl Forked {
    /// Waits up to `limit` for the end of the child. Returns its exit code; `None` if it still runs, or was
    /// killed.
    pub fn wait(&mut self, limit: Duration) -> Option<i32> {
        let mut code = None;
        wait::within(limit, || {
            let Some(pid) = self.pid else { return true };
            match waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(None) => false,
                Ok(Some((_, status))) => {
                    code = status.exit_status();
                    self.pid = None;
                    true
                }
                Err(_) => true,
            }
        });
        code
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            // Nobody has waited for the child yet, so the pid is still the child's.
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}
