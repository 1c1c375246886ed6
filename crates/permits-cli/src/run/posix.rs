//! The few calls that have no safe form: what a process does about a signal, and what a child does between
//! fork and exec. All of the crate's `unsafe` is here.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

/// Whether this process ignores `signal`. The one who started it said so (`nohup`, a shell's `&`), and it
/// holds for the command, too: so nobody may listen to the signal here.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the old one is written to a place that is ours and large enough, and
    // nothing else is done. All zeros is a valid value, should the call fail.
    let action = unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Whether this process ignored SIGPIPE when it started.
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);

/// Notes that before Rust's runtime starts, which ignores SIGPIPE in this process and sets it back to the default in
/// every child: after `main` has begun, what was inherited cannot be told.
// SAFETY: the section holds functions of this type, which the C runtime calls once before `main`. The function
// makes a system call and stores a flag; it uses nothing that Rust's runtime sets up.
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static NOTE_IGNORED_PIPE: extern "C" fn() = {
    extern "C" fn note() {
        IGNORED_PIPE.store(is_ignored(Signal::PIPE), Ordering::Relaxed);
    }
    note
};

/// Has the command ignore SIGPIPE if this process was started so, as by systemd. To be called between fork and exec.
pub(super) fn inherit_ignored_pipe() {
    if IGNORED_PIPE.load(Ordering::Relaxed) {
        // SAFETY: the signal is a valid one, ignoring it needs no handler, and the call is async-signal-safe.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
}

/// While it lives, this process does by default what `signal` asks for, whoever listens to it otherwise.
pub(crate) struct ByDefault {
    signal: Signal,
    before: libc::sigaction,
}

impl ByDefault {
    pub(crate) fn set(signal: Signal) -> io::Result<Self> {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros is a valid action: the default one, without flags or a mask. Both pointers are to
        // places that outlive the call.
        unsafe {
            let default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            if libc::sigaction(signal.as_raw(), &default, before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { signal, before: before.assume_init() })
        }
    }
}

impl Drop for ByDefault {
    fn drop(&mut self) {
        // SAFETY: the action is the one that the system gave us, and its handler is still there: handlers are
        // functions of this program.
        unsafe { libc::sigaction(self.signal.as_raw(), &self.before, ptr::null_mut()) };
    }
}

/// Does `work` while `signal` cannot reach this thread. Safe to be called between fork and exec.
pub(super) fn with_blocked<T>(signal: Signal, work: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the sets are ours and initialised before they are read; none of the calls can fail, the signal
    // being a valid one, and all of them are async-signal-safe.
    let before = unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        libc::sigemptyset(before.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let result = work();
    // SAFETY: the mask is the one that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    result
}

/// Has `command` call `prepare` in the child before it becomes the program. If that fails, so does the spawn.
///
/// `prepare` runs in a copy of a process with several threads: it may make system calls, and must neither
/// allocate nor take a lock.
pub(super) fn before_exec(
    command: &mut Command,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the one caller passes what keeps to the above.
    unsafe { command.pre_exec(prepare) };
}
