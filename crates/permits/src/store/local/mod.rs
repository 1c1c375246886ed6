//! The local store: the model, and a file that many processes of one machine share. No server.
//!
//! Each command is one SQLite transaction. A grant for another process's waiter is written to a table of
//! events. That process notices the write by `PRAGMA data_version`, which takes a few microseconds and no
//! lock. A process with the head of a queue polls every 2 to 5 ms, one with other waiters less often, one
//! with holders only ten times a second, and an idle one never.
//!
//! - `backend`: `local:` URLs. `path`: the names of a file and its companions; `access`: the users that may
//!   use it.
//! - `open`: an open file, and following to another when it is replaced; `connection`: SQLite's connections
//!   to it.
//! - `local_store`: a session's access; `file_thread`: the thread that works with the file; `poll_schedule`:
//!   how often it polls.
//! - `database`: executing commands; `schema`: the tables and their statements.
//! - `clock`: time that advances while the machine sleeps, is the same in every time namespace, and ends
//!   every lease when the machine restarts.
//! - `forks`: the count of open files, which a forked child must not inherit.
//! - `busy`, `error`: the wait for other processes, and the errors of SQLite and the system.
//!
//! # Properties
//! - A process may be killed at any moment: the file is in the state after some command. After a loss of
//!   power too, and a pinned limit or a pause was on the disk before the reply, unless the disk reports
//!   writes too early.
//! - A restart of the machine ends all leases. The store reads the wall clock only when the file is new or
//!   the machine has restarted, so setting the wall clock changes nothing. Tokens rise even if it was set
//!   back.
//! - A full disk ends no permit: SQLite empties the log and uses it again, so there is room to renew and to
//!   release, for a few hundred holders and waiters. (Not on a file system that never overwrites, such as
//!   btrfs.) Acquiring may fail.
//! - A process that is stopped in the middle of a command (SIGSTOP, a debugger) blocks the others until it
//!   continues or is killed. Their commands fail as if the store could not be reached, and are retried.
//! - If the file, its `-wal` or its `-shm` is deleted, the store loses its state. The first process that
//!   notices deletes the rest; all users follow to the same new file, and holders reclaim their permits if
//!   those still fit. Sessions that hold nothing wait until a new file has been open for
//!   [`HOLDERS_FIRST`](file_thread::HOLDERS_FIRST), so that holders go first; a session that connects does so
//!   before it is connected. Only a holder that was stopped may come too late: then too many hold, for up to
//!   a lease.
//! - Every wait is bounded, whichever lock another program has.
//!
//! For one machine only. SQLite's locks and its shared memory do not work over network file systems. The
//! store refuses those that it recognizes; on others it notices another machine by its boot.

#[cfg(unix)]
pub(crate) mod access;
mod backend;
pub(crate) mod busy;
pub(crate) mod clock;
pub(crate) mod connection;
mod database;
pub(crate) mod error;
mod file_thread;
mod forks;
mod local_store;
mod open;
pub(crate) mod path;
mod poll_schedule;
pub(crate) mod schema;

pub(crate) use self::backend::{Local, LocalFile};
