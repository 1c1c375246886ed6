//! [`LocalStore`]: a session's access to a directory, by a thread that works with its files.
//!
//! A file may be locked by another process, and a disk may be slow, so this must not run on the session's own
//! thread. The thread sleeps until its [`Mailbox`] has something: a message of another process, or a byte
//! that says that the session has sent a command.
//!
//! Each command reads and writes the whole state of a semaphore. With thousands of waiters a command takes
//! milliseconds, and a session may hand over many at once. No permit may be lost because of them, so its
//! renewal goes ahead: see [`Queue`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::directory::Directory;
use super::mailbox::{self, Mailbox, Message, Received};
use super::semaphores::{self, Seen};
use crate::clock::Moment;
use crate::protocol::{Command, Name, Operation, SessionId};
use crate::store::backend::{Executed, Report, Request, Sink, Store, StoreOptions};
use crate::store::error::StoreError;

/// The timeout of opening a directory, while other processes have locks.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time that a session which ends waits for its thread, while other processes have locks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time from a message to the end of the command that has sent it. After that the session asks by
/// its renewals.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);

/// The longest time for which the thread waits for the lock of a file, before it works for other semaphores.
const LOCK_PATIENCE: Duration = Duration::from_millis(20);

/// The number of commands of a session in the thread from which on the session keeps what it has to send.
/// Kept requests travel together in fewer commands.
const FULL: usize = 16;

/// A session's access to a directory.
pub(super) struct LocalStore {
    /// `None` only while it is dropped.
    tasks: Option<mpsc::Sender<Task>>,
    shared: Arc<Shared>,
    /// Closes when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// The state that a session and its thread share.
struct Shared {
    /// The number of commands that the thread has to execute, without renewals: a session sends few of them
    /// at once, and the thread never keeps it from sending one.
    commands: AtomicUsize,
    /// The thread has been woken, and has not looked since.
    woken: AtomicBool,
    /// Wakes the thread.
    waker: Mutex<File>,
}

/// A task of the thread, and the deadline of its waits for other processes.
enum Task {
    /// Execute a command, and report the outcome of the request `id`.
    Execute {
        id: u64,
        command: Box<Command>,
        deadline: Moment,
        /// The error of the last wait for a lock, if it has waited.
        locked: Option<StoreError>,
    },
    List(oneshot::Sender<Result<Vec<Name>, StoreError>>),
}

impl LocalStore {
    /// Opens the directory, and makes it if there is none.
    pub(super) fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let StoreOptions { session, prefix, sink, .. } = options;
        let directory = Directory::open(path, &prefix, Moment::now() + OPEN_TIMEOUT)?;
        let (mailbox, waker) =
            Mailbox::make(&directory, &session).map_err(|error| directory.failed(&error))?;
        let (commands, woken, waker) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(waker));
        let shared = Arc::new(Shared { commands, woken, waker });
        sink.report(&mut vec![Report::Up]);
        let (tasks, incoming) = mpsc::channel();
        let (ending, ended) = mpsc::channel();
        let thread =
            Thread { directory, session, sink, mailbox, shared: shared.clone(), reports: Vec::new() };
        std::thread::Builder::new()
            .name("permits-local".into())
            .spawn(move || {
                thread.serve(&incoming);
                drop(ending);
            })
            .map_err(|error| StoreError::Unreachable { reason: error.to_string() })?;
        Ok(Self { tasks: Some(tasks), shared, ended: Mutex::new(ended) })
    }

    /// Returns false if the thread has ended.
    fn tell(&self, task: Task) -> bool {
        let told = self.tasks.as_ref().is_some_and(|tasks| tasks.send(task).is_ok());
        self.shared.wake();
        told
    }
}

impl Shared {
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            mailbox::wake(&self.waker());
        }
    }

    fn waker(&self) -> MutexGuard<'_, File> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocalStore {
    /// Waits until the mailbox is removed, at most [`CLOSE_TIMEOUT`].
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
        // Early enough to report before the timeout that the wait has failed.
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

fn counts(command: &Command) -> bool {
    !matches!(command.operation, Operation::Renew(_))
}

fn thread_ended() -> StoreError {
    StoreError::NoAnswer { reason: "the thread of the directory has ended".into() }
}

impl Task {
    /// Returns true if it renews a permit that is held. The renewal of a waiter names no grant.
    fn renews_a_permit(&self) -> bool {
        let Self::Execute { command, .. } = self else { return false };
        let Operation::Renew(requests) = &command.operation else { return false };
        requests.iter().any(|renew| renew.grant.is_some())
    }

    fn semaphore(&self) -> Option<&Name> {
        match self {
            Self::Execute { command, .. } => Some(&command.semaphore),
            Self::List(_) => None,
        }
    }
}

/// The tasks that wait, in the order in which they were sent.
///
/// A renewal of a permit goes ahead of what was sent before it. It never meets its own release or its own
/// acquisition there: a session renews neither a request that is in flight nor a permit that it has released.
/// What others wait for is not changed by an extension, and of two renewals of permits the one that was sent
/// first goes first.
///
/// Of two tasks in succession one at most overtakes. So the oldest is handled next, or after one other, also
/// if there is always another renewal.
///
/// A semaphore whose file another process has locked keeps no other from its turn: its tasks come again when
/// each other semaphore has had one.
#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// The last task overtook others.
    overtook: bool,
    /// The semaphores whose files were locked, since the tasks of all others were handled.
    locked: BTreeSet<Name>,
}

impl Queue {
    fn next(&mut self) -> Option<Task> {
        let is_free =
            |locked: &BTreeSet<Name>, task: &Task| !task.semaphore().is_some_and(|of| locked.contains(of));
        if !self.tasks.iter().any(|task| is_free(&self.locked, task)) {
            self.locked.clear();
        }
        let free = |task: &Task| is_free(&self.locked, task);
        let oldest = self.tasks.iter().position(free)?;
        let renewal = self.tasks.iter().position(|task| free(task) && task.renews_a_permit());
        let ahead = renewal.filter(|position| *position > oldest && !self.overtook);
        self.overtook = ahead.is_some();
        self.tasks.remove(ahead.unwrap_or(oldest))
    }

    /// Takes back a task, whose file is locked.
    fn put_back(&mut self, task: Task) {
        self.locked.extend(task.semaphore().cloned());
        self.tasks.push_front(task);
    }
}

/// The state of the thread.
struct Thread {
    directory: Directory,
    session: SessionId,
    sink: Arc<dyn Sink>,
    mailbox: Mailbox,
    shared: Arc<Shared>,
    /// The next reports.
    reports: Vec<Report>,
}

impl Thread {
    /// Works until the sender of `tasks` is dropped and all of them are done.
    fn serve(mut self, tasks: &mpsc::Receiver<Task>) {
        let mut queue = Queue::default();
        loop {
            let received = self.mailbox.receive();
            // Before the tasks are taken, so that none comes unnoticed.
            self.shared.woken.store(false, Ordering::SeqCst);
            self.receive(received);
            let ended = loop {
                match tasks.try_recv() {
                    Ok(task) => queue.tasks.push_back(task),
                    Err(error) => break error == TryRecvError::Disconnected,
                }
            };
            match queue.next() {
                Some(Task::Execute { id, command, deadline, locked }) => {
                    let executed = self.execute(&command, deadline, locked);
                    match executed {
                        Ok(result) => self.report_outcome(id, &command, result),
                        Err(locked) => {
                            let locked = Some(locked);
                            queue.put_back(Task::Execute { id, command, deadline, locked });
                        }
                    }
                }
                // A caller that has given up is ignored.
                Some(Task::List(answer)) => drop(answer.send(semaphores::list(&self.directory))),
                None if !self.reports.is_empty() => {}
                None if ended => return,
                None => self.mailbox.wait(),
            }
            if !self.reports.is_empty() {
                self.sink.report(&mut self.reports);
            }
        }
    }

    fn receive(&mut self, received: Received) {
        let mut lost = received.lost;
        // All their senders had the lock, so each semaphore is read once; `None` if that fails.
        let mut semaphores: BTreeMap<Name, Option<Seen>> = BTreeMap::new();
        for message in received.messages {
            let happened = match &message {
                Message::Event(event, half) => {
                    let read =
                        || Seen::of(&self.directory, &event.semaphore, Moment::now() + CONFIRM_TIMEOUT).ok();
                    let seen = semaphores.entry(event.semaphore.clone()).or_insert_with(read);
                    seen.as_mut().and_then(|seen| seen.has(&self.directory, event, *half).ok())
                }
                Message::Recall(_) => Some(true),
            };
            match happened {
                Some(true) => self.reports.push(report(message)),
                Some(false) => {}
                None => lost = true,
            }
        }
        if lost {
            self.reports.push(Report::Up);
        }
    }

    /// Executes a command, unless its deadline passed while it waited: its session has sent it again, or soon
    /// will. Fails if the file is locked, and the deadline is not over.
    fn execute(
        &mut self,
        command: &Command,
        deadline: Moment,
        locked: Option<StoreError>,
    ) -> Result<Result<Executed, StoreError>, StoreError> {
        let now = Moment::now();
        if deadline <= now {
            let reason = "the directory is too slow for all that this session asks of it".into();
            return Ok(Err(locked.unwrap_or(StoreError::Unreachable { reason })));
        }
        if matches!(command.operation, Operation::Renew(_)) && !self.mailbox.is_named() {
            self.replace_mailbox();
        }
        let patience = deadline.min(now + LOCK_PATIENCE);
        match semaphores::execute(&self.directory, command, &self.session, patience) {
            Ok((reply, messages)) => {
                self.reports.extend(messages.into_iter().map(report));
                Ok(Ok(Executed { reply, confirmed: u32::MAX }))
            }
            // One that took so long has waited for the lock.
            Err(error) if patience <= Moment::now() && patience < deadline => Err(error),
            Err(error) => Ok(Err(error)),
        }
    }

    fn report_outcome(&mut self, id: u64, command: &Command, result: Result<Executed, StoreError>) {
        self.reports.push(Report::Outcome { id, result });
        if counts(command) && self.shared.commands.fetch_sub(1, Ordering::AcqRel) == FULL {
            self.reports.push(Report::Writable);
        }
    }

    /// Gives the session a mailbox again that others can find, because it was deleted.
    fn replace_mailbox(&mut self) {
        if let Ok((mailbox, waker)) = Mailbox::make(&self.directory, &self.session) {
            (self.mailbox, *self.shared.waker()) = (mailbox, waker);
        }
    }
}

fn report(message: Message) -> Report {
    match message {
        Message::Event(event, _) => Report::Event(event),
        Message::Recall(semaphore) => Report::Recall(semaphore),
    }
}

#[cfg(test)]
mod tests {
    use permits_testkit::wait;

    use super::*;
    use crate::protocol::{
        Declaration, Grant, Holder, PermitTerms, Recovery, RenewRequest, RequestId, RequestKey,
    };

    fn execute(id: u64, operation: Operation) -> Task {
        let command = Box::new(Command {
            semaphore: Name::new("s").expect("valid"),
            session: SessionId::new("session").expect("valid"),
            lease_ms: 1000,
            recovery: Recovery::Off,
            declaration: Declaration::Declare(1),
            operation,
        });
        Task::Execute { id, command, deadline: Moment::now(), locked: None }
    }

    /// The renewal of a permit, or of a waiter.
    fn renew(id: u64, grant: Option<Grant>) -> Task {
        let renew = RenewRequest {
            holder: Holder::new("h").expect("valid"),
            request: RequestId::new("s.1").expect("valid"),
            terms: PermitTerms::new(1, 1000),
            lease_version: 0,
            grant,
            by_handle: false,
        };
        execute(id, Operation::Renew(vec![renew]))
    }

    fn release(id: u64) -> Task {
        let (holder, request) = (Holder::new("other").expect("valid"), RequestId::new("s.2").expect("valid"));
        execute(id, Operation::Release(vec![RequestKey { holder, request }.into()]))
    }

    const GRANT: Option<Grant> = Some(Grant { token: 7, slot: 0 });

    /// The ids of all messages, in the order in which they are handled.
    fn order(messages: impl IntoIterator<Item = Task>) -> Vec<u64> {
        ids(Queue { tasks: messages.into_iter().collect(), ..Queue::default() })
    }

    fn ids(mut queue: Queue) -> Vec<u64> {
        let id = |task| match task {
            Task::Execute { id, .. } => id,
            Task::List(_) => panic!("there is none"),
        };
        std::iter::from_fn(|| queue.next().map(id)).collect()
    }

    #[test]
    fn renewals_of_permits_go_ahead_in_their_order() {
        let messages = [release(1), release(2), renew(3, None), renew(4, GRANT), renew(5, GRANT), release(6)];
        assert_eq!(order(messages), [4, 1, 5, 2, 3, 6]);
        let declaration = execute(2, Operation::Renew(Vec::new()));
        assert_eq!(order([release(1), declaration, renew(3, None)]), [1, 2, 3], "nothing else does");
    }

    #[test]
    fn the_oldest_message_is_handled_although_there_is_always_a_renewal() {
        let mut queue = Queue { tasks: [release(1), release(2)].into(), ..Queue::default() };
        let mut releases = 0;
        for id in 3..7 {
            queue.tasks.push_back(renew(id, GRANT));
            let Some(message) = queue.next() else { panic!("there are some") };
            releases += usize::from(!message.renews_a_permit());
        }
        assert_eq!(releases, 2);
    }

    #[test]
    fn the_tasks_of_a_locked_file_come_again_in_their_order_behind_those_of_others() {
        let mut other = release(3);
        if let Task::Execute { command, .. } = &mut other {
            command.semaphore = Name::new("other").expect("valid");
        }
        let mut queue = Queue { tasks: [release(1), release(2), other].into(), ..Queue::default() };
        let first = queue.next().expect("there is one");
        queue.put_back(first);
        assert_eq!(ids(queue), [3, 1, 2]);
    }

    /// Keeps all reports.
    #[derive(Default)]
    struct Told(Mutex<Vec<Report>>);

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
        let Task::Execute { command, .. } = execute(1, Operation::Renew(Vec::new())) else {
            panic!("it is one")
        };
        for (id, timeout) in [(1, Duration::ZERO), (2, Duration::from_secs(300))] {
            let request = Request { id, command: (*command).clone(), timeout, replicas: 0 };
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
