//! Semaphores in a directory, used by real processes.
//!
//! As in the suite of faults, workers run in processes of their own, and one clock outside checks them. The
//! faults concern files: their users die or stop at any moment (`crashes`) and at each system call
//! (`killed`), the machine restarts or a process is in a time namespace (`time`), a file is another program's
//! or damaged (`files`), another user's or not writable (`rights`), its disk is full (`full`), it is deleted
//! (`deleted`), a message does not arrive (`mailbox`), or there are very many users (`crowd`) or idle ones
//! (`idle`). Only on Linux can a file distinguish one boot of the machine from another.

mod child_task;
mod crashes;
mod crowd;
mod deleted;
mod files;
mod fixture;
mod full;
mod idle;
mod killed;
mod mailbox;
mod rights;
mod time;

/// A pool starts this executable again with this name, as a worker.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn worker_process() {
    permits_testkit::worker::run_if_started();
}

/// `child_task` starts this executable again with this name.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn child_task_process() {
    child_task::run_if_told();
}
