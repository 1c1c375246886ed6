//! The local store: the model, and a directory that many processes of one machine share, without a server.
//!
//! Each semaphore has a file. A command locks it, reads the state, applies the model, and writes the new
//! state beside the old one. A grant for another process's waiter is a message into the FIFO of that
//! process's session, so that a waiter sleeps until its turn has come.
//!
//! - `backend`: `local:` URLs.
//! - `directory`: the names of files, and how they are opened and locked; `access`: the users that may use
//!   them; `record`: a text in a file with two halves; `content`: that text.
//! - `semaphores`: executing commands; `idle`: the files that are over; `mailbox`: the FIFOs of sessions;
//!   `seen`: whether what a message says has happened; `untold`: what no message could say.
//! - `local_store`: a session's access; `thread`: the thread that works for it; `queue`: the tasks of that
//!   thread.
//! - `clock`: time that stands still while the machine sleeps, is the same in every time namespace, and ends
//!   every lease when the machine restarts.
//!
//! # Properties
//! - A process may be killed at any moment: each file has the state after some command, and a waiter that it
//!   granted learns of it, at the latest by the next renewal.
//! - A restart of the machine ends all leases, and nothing is left but what operators have set. Only that is
//!   on the disk before the reply. The store reads the wall clock only when the machine has restarted, so
//!   setting the clock changes nothing; tokens rise even if it was set back.
//! - A full disk ends no permit: renewals and releases overwrite what is there. (Not on a file system that
//!   never overwrites, such as btrfs.) Acquiring may fail.
//! - A process that is stopped in the middle of a command (SIGSTOP, a debugger) blocks the others' commands
//!   on that semaphore until it continues or is killed. They fail as if the store could not be reached, and
//!   are retried.
//! - If a file is deleted or cannot be read, only its semaphore is affected. If it is deleted, the state is
//!   lost: holders reclaim their permits with their next renewal, if those still fit.
//! - Every wait is bounded, whatever locks other programs hold.
//!
//! The store serves one machine only. It refuses the network file systems that it recognizes, and notices
//! another machine by its boot (`machine`).

mod access;
mod backend;
mod clock;
mod content;
mod diagnosis;
mod directory;
mod idle;
mod local_store;
mod machine;
mod mailbox;
mod queue;
mod record;
mod seen;
mod semaphores;
mod thread;
mod untold;

pub use self::backend::Local;
