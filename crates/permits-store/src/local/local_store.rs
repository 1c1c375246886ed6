//! [`LocalStore`]: a session's access to a directory, by a thread that works with its files.
//!
//! A file may be locked by another process, and a disk may be slow, so the session's own thread must not do
//! this work. The thread sleeps until its [`Mailbox`] has something: a message of another process, or a byte
//! which says that the session has sent a command.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::directory::Directory;
use super::mailbox::Mailbox;
use super::queue::{Task, counts};
use super::thread::{FULL, Shared, Thread};
use crate::backend::{Executed, Report, Request, Store, StoreOptions};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::protocol::Name;

/// The timeout of opening a directory, while other processes have locks.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a session that ends waits for its thread at most, while other processes have locks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session's access to a directory.
pub(super) struct LocalStore {
    /// `None` only while the store is being dropped.
    tasks: Option<mpsc::Sender<Task>>,
    shared: Arc<Shared>,
    /// Closes when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl LocalStore {
    /// Opens the directory, and makes it if it does not exist.
    pub(super) fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let StoreOptions { session, prefix, sink, .. } = options;
        let directory = Directory::open(path, &prefix, Moment::now() + OPEN_TIMEOUT)?;
        let (mailbox, waker) =
            Mailbox::make(&directory, &session).map_err(|error| directory.failed(&error))?;
        let shared = Arc::new(Shared::new(waker));
        sink.report(&mut vec![Report::Up]);
        let (tasks, incoming) = mpsc::channel();
        let (ending, ended) = mpsc::channel();
        let thread = Thread::new(directory, session, sink, mailbox, shared.clone());
        std::thread::Builder::new()
            .name("permits-local".into())
            .spawn(move || {
                thread.serve(&incoming);
                drop(ending);
            })
            .map_err(|error| StoreError::Unreachable { reason: error.to_string() })?;
        Ok(Self { tasks: Some(tasks), shared, ended: Mutex::new(ended) })
    }

    /// Gives the thread a task. Returns false if the thread has ended.
    fn tell(&self, task: Task) -> bool {
        let told = self.tasks.as_ref().is_some_and(|tasks| tasks.send(task).is_ok());
        self.shared.wake();
        told
    }
}

impl Drop for LocalStore {
    /// Waits until the mailbox is removed, for [`CLOSE_TIMEOUT`] at most.
    fn drop(&mut self) {
        self.tasks = None;
        self.shared.wake();
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(CLOSE_TIMEOUT);
    }
}

impl Store for LocalStore {
    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>> {
        let Request { id, command, timeout, .. } = request;
        if counts(&command) {
            self.shared.commands.fetch_add(1, Ordering::AcqRel);
        }
        // End the wait for locks early enough to report that it has failed before the timeout.
        let deadline = Moment::now() + timeout * 7 / 8;
        let sent = self.tell(Task::Execute { id, command: Box::new(command), deadline, locked: None });
        (!sent).then(|| Err(thread_ended()))
    }

    fn is_full(&self) -> bool {
        self.shared.commands.load(Ordering::Acquire) >= FULL
    }

    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        self.tell(Task::List(answer));
        Box::pin(async move {
            match tokio::time::timeout(timeout, receiver).await {
                Ok(answered) => answered.unwrap_or_else(|_| Err(thread_ended())),
                Err(_) => Err(StoreError::NoAnswer { reason: format!("no answer within {timeout:?}") }),
            }
        })
    }
}

fn thread_ended() -> StoreError {
    StoreError::NoAnswer { reason: "the thread of the directory has ended".into() }
}

#[cfg(test)]
pub(super) mod tests {
    use permits_testkit::wait;

    use super::*;
    use crate::backend::Sink;
    use crate::protocol::{Command, Declaration, Operation, Recovery, SessionId};

    /// Keeps all reports.
    #[derive(Default)]
    pub(in super::super) struct Told(Mutex<Vec<Report>>);

    impl Sink for Told {
        fn report(&self, reports: &mut Vec<Report>) {
            self.0.lock().expect("no test panics").append(reports);
        }
    }

    #[test]
    fn a_command_whose_deadline_has_passed_is_not_executed() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let (session, told) = (SessionId::new("session").expect("valid"), Arc::new(Told::default()));
        let options =
            StoreOptions { session, prefix: "p".into(), lease: Duration::from_secs(1), sink: told.clone() };
        let store = LocalStore::open(&directory.path().join("new"), options).expect("there is room");
        let command = Command {
            semaphore: Name::new("s").expect("valid"),
            session: SessionId::new("session").expect("valid"),
            lease_ms: 1000,
            recovery: Recovery::Off,
            declaration: Declaration::Declare(1),
            operation: Operation::Renew(Vec::new()),
        };
        for (id, timeout) in [(1, Duration::ZERO), (2, Duration::from_secs(300))] {
            let request = Request { id, command: command.clone(), timeout, replicas: 0 };
            assert!(store.send(request).is_none());
        }
        // The thread ends when all is done.
        drop(store);
        let files = || std::fs::read_dir(directory.path().join("new")).expect("it was made").count();
        assert!(wait::until(|| files() == 2), "the marker and the semaphore, and no FIFO");
        let told = told.0.lock().expect("no test panics");
        assert!(
            matches!(
                &told[..],
                [
                    Report::Up,
                    Report::Outcome { id: 1, result: Err(StoreError::Unreachable { .. }) },
                    Report::Outcome { id: 2, result: Ok(_) },
                ]
            ),
            "{told:?}"
        );
    }
}
