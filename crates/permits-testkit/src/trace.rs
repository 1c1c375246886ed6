//! Threads that are killed, with their process, at a chosen system call, by ptrace(2).
//!
//! A kill at a random moment hardly ever meets the instant between two particular writes. A traced thread
//! stops at the entry of its system calls, so a test can kill the process there, before the call has any
//! effect, and repeat that for each call of a command.

use std::path::PathBuf;
use std::{fs, io, mem, ptr};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

use crate::process::ChildGuard;
use crate::wait;

/// Calls that read, wait or concern the process alone. Their number depends on the other threads, and a kill
/// at one of them has the effect of a kill at the next call that counts.
const UNCOUNTED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_geteuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_statx,
];

/// The signal of a stop at a system call, by `PTRACE_O_TRACESYSGOOD`.
const SYSTEM_CALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// A thread of a child, stopped. The child is killed when this is dropped.
///
/// The system takes requests from the thread alone that attached.
#[derive(Debug)]
pub struct TracedThread<'a> {
    child: &'a mut ChildGuard,
    thread: Pid,
    /// The signal that the thread gets when it continues; 0: none.
    signal: i32,
}

impl<'a> TracedThread<'a> {
    /// Stops the thread of this name, at any point. The other threads continue.
    #[track_caller]
    pub fn attach(child: &'a mut ChildGuard, name: &str) -> Self {
        let thread = thread_of(child.pid(), name);
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        request(libc::PTRACE_SEIZE, thread, 0, options as usize).expect("a parent may trace its child");
        let traced = Self { child, thread, signal: 0 };
        request(libc::PTRACE_INTERRUPT, thread, 0, 0).expect("it is traced");
        traced.next_stop().expect("it runs");
        traced
    }

    /// Lets the thread run to the entry of the next system call by which it may change something outside its
    /// process. Returns false if the thread has ended. Waits without a limit: the child has to end by itself.
    pub fn next_call(&mut self) -> bool {
        loop {
            let signal = mem::take(&mut self.signal) as usize;
            // Refused if the thread was killed; then the wait reports that.
            let _ = request(libc::PTRACE_SYSCALL, self.thread, 0, signal);
            let Some(status) = self.next_stop() else { return false };
            match status.stopping_signal() {
                Some(SYSTEM_CALL_STOP) if self.enters_a_counted_call() => return true,
                Some(SYSTEM_CALL_STOP) => {}
                // A signal that is to be delivered. The status of any other stop has an event in its upper
                // half.
                Some(signal) if status.as_raw() >> 16 == 0 => self.signal = signal,
                _ => {}
            }
        }
    }

    /// Returns false at the exit from a call, and for a thread that was killed.
    #[expect(unsafe_code, reason = "the system fills in a union")]
    fn enters_a_counted_call(&self) -> bool {
        // SAFETY: it consists of numbers, for which zero is valid.
        let mut info: libc::ptrace_syscall_info = unsafe { mem::zeroed() };
        let (size, place) = (size_of_val(&info), ptr::from_mut(&mut info).expose_provenance());
        request(libc::PTRACE_GET_SYSCALL_INFO, self.thread, size, place).is_ok()
            && info.op == libc::PTRACE_SYSCALL_INFO_ENTRY
            // SAFETY: every member is of numbers, and initialized.
            && !UNCOUNTED.contains(&unsafe { info.u.entry.nr as libc::c_long })
    }

    /// Waits until the thread stops; `None` if it has ended.
    fn next_stop(&self) -> Option<WaitStatus> {
        let (_, status) = waitpid(Some(self.thread), WaitOptions::empty()).ok().flatten()?;
        status.stopped().then_some(status)
    }
}

impl Drop for TracedThread<'_> {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_raw(self.child.pid() as i32).expect("it is a child"), Signal::KILL);
        // First the thread: the system reports the end of a process once its traced threads were waited for.
        while self.next_stop().is_some() {}
        self.child.kill();
    }
}

/// The thread of this name. A new thread takes its name when it first runs.
#[track_caller]
fn thread_of(process: u32, name: &str) -> Pid {
    let named = || {
        let mut threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
        let is_named = |path: PathBuf| Some(fs::read_to_string(path.join("comm")).ok()?.trim_end() == name);
        let thread = threads.find(|thread| is_named(thread.path()) == Some(true))?;
        Pid::from_raw(thread.file_name().to_str()?.parse().ok()?)
    };
    let mut thread = None;
    wait::until(|| {
        thread = named();
        thread.is_some()
    });
    thread.unwrap_or_else(|| panic!("process {process} has no thread {name}"))
}

#[expect(unsafe_code, reason = "no other interface stops a thread at its system calls")]
fn request(request: libc::c_uint, thread: Pid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: one of the requests made here writes to this process: at most `address` bytes at `data`.
    match unsafe { libc::ptrace(request, thread.as_raw_nonzero().get(), address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
