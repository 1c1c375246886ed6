//! The calls that have no safe form: a process's reaction to a signal, its state before `main`, and a child's
//! work between fork and exec. All of the crate's `unsafe` is here.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;

/// The reaction of this process to `signal`.
fn reaction(signal: Signal) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the old one is written to a place that is ours and large enough, and
    // nothing else is done. All zeros is a valid value, should the call fail.
    let action = unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction
}

/// True if this process ignores `signal`. The parent chose that (`nohup`, a shell's `&`) for the command as
/// well, so this process must not listen to the signal.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    reaction(signal) == libc::SIG_IGN
}

/// The signals from SIGRTMIN to SIGRTMAX. The C library keeps the ones below for itself.
#[cfg(target_os = "linux")]
pub(crate) fn real_time_signals() -> Vec<Signal> {
    let all = libc::SIGRTMIN()..=libc::SIGRTMAX();
    // SAFETY: the numbers are ones of signals that the C library leaves to programs.
    all.map(|raw| unsafe { Signal::from_raw_unchecked(raw) }).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn real_time_signals() -> Vec<Signal> {
    Vec::new()
}

/// Takes a listening stream socket that the parent has handed over, and hides it from children. Call it once.
/// `None` if the descriptor is something else.
pub(crate) fn inherited_listener(number: RawFd) -> Option<OwnedFd> {
    let option = |name| {
        let (mut value, mut size) = (0, 4);
        // SAFETY: the value is written to a place that is ours and has this size.
        let result = unsafe {
            libc::getsockopt(
                number,
                libc::SOL_SOCKET,
                name,
                ptr::from_mut::<i32>(&mut value).cast(),
                &mut size,
            )
        };
        (result == 0).then_some(value)
    };
    let listens = option(libc::SO_ACCEPTCONN) == Some(1) && option(libc::SO_TYPE) == Some(libc::SOCK_STREAM);
    // SAFETY: the call has no effect on memory.
    if !listens || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return None;
    }
    // SAFETY: it is open, and nothing else here owns it: this process itself has made no socket that listens.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The signals below 64 that came from processes, a bit each. [`note_senders`] says which signals are noted.
static SENT: AtomicU64 = AtomicU64::new(0);

/// As [`SENT`], for signals from the kernel, which the driver of a terminal sends.
static RAISED: AtomicU64 = AtomicU64::new(0);

/// The kinds of senders of a signal since the last call of [`senders`].
pub(crate) struct Senders {
    pub(crate) process: bool,
    pub(crate) kernel: bool,
}

fn bit(signal: Signal) -> u64 {
    1 << signal.as_raw()
}

/// Notes from now on who sends `signal`, which this process catches for good.
pub(crate) fn note_senders(signal: Signal) -> io::Result<()> {
    if is_ignored(signal) {
        return Ok(());
    }
    let bit = bit(signal);
    // SAFETY: the action changes an atomic number, and so is async-signal-safe.
    unsafe {
        signal_hook_registry::register_sigaction(signal.as_raw(), move |info| {
            let senders = if is_by_process(info) { &SENT } else { &RAISED };
            senders.fetch_or(bit, Ordering::SeqCst);
        })?;
    }
    Ok(())
}

/// True if a process sent the signal, to this process or to one thread of it.
#[cfg(target_os = "linux")]
fn is_by_process(info: &libc::siginfo_t) -> bool {
    matches!(info.si_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL)
}

/// True if a process sent the signal. macOS says that process 0 sent the signal of a terminal.
#[cfg(not(target_os = "linux"))]
fn is_by_process(info: &libc::siginfo_t) -> bool {
    info.si_pid != 0
}

/// Returns who has sent `signal` since the last call.
pub(crate) fn senders(signal: Signal) -> Senders {
    let take = |senders: &AtomicU64| senders.fetch_and(!bit(signal), Ordering::SeqCst) & bit(signal) != 0;
    Senders { process: take(&SENT), kernel: take(&RAISED) }
}

/// Runs `write`, which may write to a terminal. A terminal with `stty tostop` signals a process in the
/// background that writes, and the system then repeats the write of a process that catches the signal, for
/// ever. So it is blocked meanwhile.
pub(crate) fn while_writing<T>(write: impl FnOnce() -> T) -> T {
    match reaction(Signal::TTOU) {
        libc::SIG_DFL | libc::SIG_IGN => write(),
        _ => with_blocked(Signal::TTOU, write),
    }
}

/// True if this process ignored SIGPIPE when it started.
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);

/// True if standard output was closed when this process started.
static CLOSED_STDOUT: AtomicBool = AtomicBool::new(false);

/// The signals that were blocked when this process started.
static BLOCKED: OnceLock<libc::sigset_t> = OnceLock::new();

/// Notes inherited state before `main`, because Rust's runtime changes it: it ignores SIGPIPE in this process
/// and resets it to the default in every child, and it opens a closed standard output as /dev/null, which a
/// caller may have chosen, too. [`unblock`] changes the blocked signals.
// SAFETY: the section holds functions of this type, which the C runtime calls once before `main`. The
// function makes three system calls and stores what they return; it uses nothing that Rust's runtime sets up.
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static NOTE_INHERITED: extern "C" fn() = {
    extern "C" fn note() {
        IGNORED_PIPE.store(is_ignored(Signal::PIPE), Ordering::Relaxed);
        // SAFETY: the call reads the flags of a descriptor, which need not be open.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        CLOSED_STDOUT.store(flags == -1, Ordering::Relaxed);
        // SAFETY: without a new mask, the one in force is written to a place that is ours.
        let blocked = unsafe {
            let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), blocked.as_mut_ptr());
            blocked.assume_init()
        };
        let _ = BLOCKED.set(blocked);
    }
    note
};

/// True if standard output was closed when this process started: what is written there is lost.
pub(crate) fn is_stdout_closed() -> bool {
    CLOSED_STDOUT.load(Ordering::Relaxed)
}

/// Ignores SIGPIPE in the command if this process was started so, as by systemd, and blocks the signals that
/// were blocked then. Call it between fork and exec.
pub(crate) fn inherit() {
    if let Some(blocked) = BLOCKED.get() {
        // SAFETY: the mask is one that the system gave us, and the call is async-signal-safe.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, blocked, ptr::null_mut()) };
    }
    if IGNORED_PIPE.load(Ordering::Relaxed) {
        // SAFETY: the signal is a valid one, ignoring it needs no handler, and the call is async-signal-safe.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
}

/// Sets the default reaction of this process to `signal` until it is dropped, in place of any listener.
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

/// Blocks or unblocks `signal` on this thread. Returns the mask that was in force before. Safe to call
/// between fork and exec.
fn change_mask(how: libc::c_int, signal: Signal) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the sets are ours and initialised before they are read; none of the calls can fail, the signal
    // being a valid one, and all of them are async-signal-safe.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        libc::sigemptyset(before.as_mut_ptr());
        libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Lets this thread receive `signal`, which the parent may have blocked.
pub(crate) fn unblock(signal: Signal) {
    let _ = change_mask(libc::SIG_UNBLOCK, signal);
}

/// Runs `work` while `signal` is blocked on this thread. Safe to call between fork and exec.
pub(crate) fn with_blocked<T>(signal: Signal, work: impl FnOnce() -> T) -> T {
    let before = change_mask(libc::SIG_BLOCK, signal);
    let result = work();
    // SAFETY: the mask is the one that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    result
}

/// Makes `command` call `prepare` in the child between fork and exec. The spawn fails if `prepare` fails.
///
/// `prepare` runs in a copy of a process with several threads: it may make system calls, and must neither
/// allocate nor take a lock.
pub(crate) fn before_exec(
    command: &mut Command,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the only caller passes a closure that keeps to the rule above.
    unsafe { command.pre_exec(prepare) };
}

/// The bytes of a number of a process, as text, with the zero at the end.
const NUMBER: usize = 12;

/// A call of exec whose environment has the number of the calling process.
pub(crate) struct NumberedExec {
    /// The program and its arguments, then the variables, each with a zero at the end.
    strings: Vec<Vec<u8>>,
    /// The strings for the system, then a null pointer, for the arguments and for the variables.
    pointers: [Vec<*const libc::c_char>; 2],
    /// The places in `strings` of the variables that get the number, and where it begins in each.
    numbers: Vec<(usize, usize)>,
}

// SAFETY: the pointers are to `strings`, whose bytes are on the heap and which no method but `exec` changes.
unsafe impl Send for NumberedExec {}
// SAFETY: a shared reference gives no access.
unsafe impl Sync for NumberedExec {}

impl NumberedExec {
    /// `environment` is added to this process's own, and so are the variables of these `names`.
    ///
    /// # Errors
    /// A word of the command that has a zero.
    pub(crate) fn new(
        command: &[OsString],
        environment: &[(&str, String)],
        names: &[&str],
    ) -> io::Result<Self> {
        let is_new = |name: &OsStr| {
            environment.iter().any(|(new, _)| name == *new) || names.iter().any(|new| name == *new)
        };
        let own = env::vars_os().filter(|(name, _)| !is_new(name));
        let added = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let word = |word: &OsStr| Ok(CString::new(word.as_bytes())?.into_bytes_with_nul());
        let mut strings = command.iter().map(|it| word(it)).collect::<io::Result<Vec<_>>>()?;
        let arguments = strings.len();
        for (mut variable, value) in own.chain(added) {
            variable.push("=");
            variable.push(value);
            strings.push(word(&variable)?);
        }
        let mut numbers = Vec::new();
        for name in names {
            numbers.push((strings.len(), name.len() + 1));
            strings.push([name.as_bytes(), b"=", &[0; NUMBER]].concat());
        }
        Ok(Self { strings, pointers: [Vec::new(), Vec::new()], numbers }.pointing(arguments))
    }

    fn pointing(mut self, arguments: usize) -> Self {
        // Mutable ones, because `exec` writes the number.
        let mut all: Vec<_> =
            self.strings.iter_mut().map(|it| it.as_mut_ptr().cast_const().cast::<libc::c_char>()).collect();
        let mut variables = all.split_off(arguments);
        all.push(ptr::null());
        variables.push(ptr::null());
        self.pointers = [all, variables];
        self
    }

    /// Executes the program. Returns only an error. Call it between fork and exec.
    pub(crate) fn exec(&mut self) -> io::Error {
        let own = rustix::process::getpid().as_raw_pid();
        for &(variable, at) in &self.numbers {
            let mut place = &mut self.strings[variable][at..];
            // Neither allocates nor fails: the place has room for any number.
            let _ = write!(place, "{own}");
        }
        let [arguments, variables] = &self.pointers;
        // SAFETY: this process has one thread, and it ends by exec or at once, so that nothing reads the
        // environment meanwhile. Both lists end with a null pointer, and their strings with a zero. The
        // standard library calls the same two.
        unsafe {
            environ = variables.as_ptr();
            libc::execvp(arguments[0], arguments.as_ptr());
        }
        io::Error::last_os_error()
    }
}

// SAFETY: the C library's list of variables has this name and type on every Unix but for programs of macOS in
// a library, which this one is not.
unsafe extern "C" {
    static mut environ: *const *const libc::c_char;
}
