//! The end of a thread that has sent releases: it waits for their replies, for a moment at most.
//!
//! When a process ends, its system closes the socket. If replies have arrived that were not read, the system resets the
//! connection, and the server, which cannot write to it any more, does not read what it has received last. So a program
//! that drops several permits and ends would lose some of their releases, although all were written.
//!
//! The destructors of a thread's locals run when the thread ends, and also when it ends the process by `exit` or by the
//! return from `main`, with the C library of GNU. The connection's task runs meanwhile.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::state::Shared;
use crate::process::Process;

/// The longest wait.
const LONGEST: Duration = Duration::from_millis(100);

/// The interval at which replies are looked for.
const EVERY: Duration = Duration::from_micros(50);

thread_local! {
    static RELEASES: RefCell<Releases> = const { RefCell::new(Releases { process: None, last: Vec::new() }) };
}

/// The last release that the thread has sent on each connection.
struct Releases {
    /// The process that has sent them.
    process: Option<Process>,
    last: Vec<(Weak<Shared>, u64)>,
}

/// Notes that this thread has sent a release, as the command of this number.
pub(super) fn note(connection: &Arc<Shared>, number: u64) {
    // Fails if the thread is ending.
    let _ = RELEASES.try_with(|releases| {
        let mut releases = releases.borrow_mut();
        let connection = Arc::downgrade(connection);
        if let Some((_, last)) = releases.last.iter_mut().find(|(of, _)| of.ptr_eq(&connection)) {
            *last = number;
            return;
        }
        releases.last.retain(|(of, _)| of.strong_count() > 0);
        releases.process.get_or_insert_with(Process::current);
        releases.last.push((connection, number));
    });
}

impl Drop for Releases {
    fn drop(&mut self) {
        let until = Instant::now() + LONGEST;
        for (connection, number) in self.last.drain(..) {
            let Some(connection) = connection.upgrade() else { continue };
            // A forked child shares the connection, and has no task that reads.
            while !connection.has_reply(number)
                && Instant::now() < until
                && !self.process.is_none_or(Process::is_forked)
            {
                std::thread::sleep(EVERY);
            }
        }
    }
}
