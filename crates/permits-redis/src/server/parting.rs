//! The end of a thread that has sent releases: it waits for their replies, for a moment at most.
//!
//! A process that ends has its socket closed by the system. If replies have arrived that were not read, the
//! system resets the connection, and the server, which cannot write to it any more, does not read what it has
//! received last. So a program that drops several permits and ends would lose some of their releases,
//! although all were written.
//!
//! The destructors of a thread's locals run when the thread ends, and also when it ends the process by `exit`
//! or by the return from `main`, with the C library of GNU. The connection's task runs meanwhile.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::state::Shared;
use permits_store::sys::process::Process;

/// The longest wait.
const LONGEST: Duration = Duration::from_millis(100);

/// The interval at which replies are looked for.
const EVERY: Duration = Duration::from_micros(50);

thread_local! {
    static RELEASES: RefCell<Releases> = const { RefCell::new(Releases(Vec::new())) };
}

/// The last release that the thread has sent on each connection.
struct Releases(Vec<Sent>);

struct Sent {
    /// The process that has sent it. A forked child has a copy of what the parent's thread has sent.
    process: Process,
    connection: Weak<Shared>,
    number: u64,
}

/// Notes that this thread has sent a release, as the command of this number.
pub(super) fn note(connection: &Arc<Shared>, number: u64) {
    // Fails if the thread is ending.
    let _ = RELEASES.try_with(|releases| {
        let Releases(all) = &mut *releases.borrow_mut();
        let connection = Arc::downgrade(connection);
        if let Some(sent) = all.iter_mut().find(|sent| sent.connection.ptr_eq(&connection)) {
            sent.number = number;
            return;
        }
        all.retain(|sent| sent.connection.strong_count() > 0);
        all.push(Sent { process: Process::current(), connection, number });
    });
}

impl Drop for Releases {
    fn drop(&mut self) {
        let until = Instant::now() + LONGEST;
        for Sent { process, connection, number } in self.0.drain(..) {
            let Some(connection) = connection.upgrade() else { continue };
            // A forked child shares the parent's connection, and has no task that reads from it.
            while !connection.has_reply(number) && Instant::now() < until && !process.is_forked() {
                std::thread::sleep(EVERY);
            }
        }
    }
}
