//! [`FileThread`]: the thread of a session that works with the file.
//!
//! Waiting for a lock of the file blocks, so it must not run on the session's own thread.
//!
//! Each command reads and writes the whole state of a semaphore. With thousands of waiters a command takes
//! milliseconds, and a session may hand over many at once. No permit may be lost because of them, so its
//! renewal goes ahead: see [`Queue`].

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::busy;
use super::database::Database;
use super::forks::FileCount;
use super::open::OPEN_TIMEOUT;
use super::poll_schedule::PollSchedule;
use super::schema::News;
use crate::clock::Moment;
use crate::protocol::{Command, Name, Operation, Reply, RequestId, SessionId};
use crate::store::backend::{Executed, Report, Sink, StoreOptions};
use crate::store::error::StoreError;

/// The age that a new file must have before sessions without permits use it. Holders of a deleted file take
/// less time to follow; other sessions would find their units free.
///
/// This holds for every new file, also in a directory that this process has just made: the directory may have
/// been deleted beside a holder, which follows when it is there again.
pub(super) const HOLDERS_FIRST: Duration = Duration::from_millis(300);

/// The longest time that a poll waits for other processes that follow to another file. It delays the next
/// command.
const FOLLOWING: Duration = Duration::from_millis(200);

/// The number of commands of a session in the thread from which on the session keeps what it has to send.
/// Kept requests travel together in fewer commands.
const FULL: usize = 16;

/// A message to the thread, and the deadline of its waits for other processes.
pub(super) enum Message {
    /// Execute a command, and report the outcome of the request `id`.
    Execute {
        id: u64,
        command: Box<Command>,
        deadline: Moment,
    },
    List {
        deadline: Moment,
        answer: oneshot::Sender<Result<Vec<Name>, StoreError>>,
    },
    Forget {
        semaphore: Name,
        request: RequestId,
    },
}

impl Message {
    fn deadline(&self) -> Option<Moment> {
        match self {
            Self::Execute { deadline, .. } | Self::List { deadline, .. } => Some(*deadline),
            Self::Forget { .. } => None,
        }
    }

    /// Returns true if it renews a permit that is held. The renewal of a waiter names no grant.
    fn renews_a_permit(&self) -> bool {
        let Self::Execute { command, .. } = self else { return false };
        let Operation::Renew(requests) = &command.operation else { return false };
        requests.iter().any(|renew| renew.grant.is_some())
    }
}

/// The messages that wait, in the order in which they were sent.
///
/// A renewal of a permit goes ahead of what was sent before it. It never meets its own release or its own
/// acquisition there: a session renews neither a request that is in flight nor a permit that it has released.
/// What others wait for is not changed by an extension, and of two renewals of permits the one that was sent
/// first goes first.
///
/// Of two messages in succession one at most overtakes. So the oldest is handled next, or after one other,
/// also if there is always another renewal.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// The last message overtook others.
    overtook: bool,
}

impl Queue {
    fn next(&mut self) -> Option<Message> {
        let renewal = self.messages.iter().position(Message::renews_a_permit);
        let ahead = renewal.filter(|position| *position > 0 && !self.overtook);
        self.overtook = ahead.is_some();
        self.messages.remove(ahead.unwrap_or(0))
    }
}

/// The number of a session's commands that the thread has to execute, without renewals: a session sends few
/// of them at once, and the thread never keeps it from sending one.
#[derive(Debug, Default)]
pub(super) struct Load(AtomicUsize);

impl Load {
    pub(super) fn add(&self, command: &Command) {
        if counts(command) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.load(Ordering::Acquire) >= FULL
    }

    /// Returns true if it is no longer full.
    fn remove(&self, command: &Command) -> bool {
        counts(command) && self.0.fetch_sub(1, Ordering::AcqRel) == FULL
    }
}

fn counts(command: &Command) -> bool {
    !matches!(command.operation, Operation::Renew(_))
}

/// The state of the thread.
pub(super) struct FileThread {
    database: Database,
    session: SessionId,
    sink: Arc<dyn Sink>,
    /// The next reports.
    reports: Vec<Report>,
    schedule: PollSchedule,
    load: Arc<Load>,
}

impl FileThread {
    /// Opens the file, and starts the thread. The thread ends when the sender of `messages` is dropped, and
    /// drops the sender of the returned channel when it has closed the file. Returns also the time for which
    /// the session is to send nothing yet, because the file is new.
    pub(super) fn start(
        path: &Path,
        options: StoreOptions,
        messages: mpsc::Receiver<Message>,
        load: Arc<Load>,
    ) -> Result<(mpsc::Receiver<()>, Duration), StoreError> {
        let count = FileCount::increment()?;
        let database = Database::open(path, &options.prefix, Moment::now() + OPEN_TIMEOUT)?;
        let holders_first = HOLDERS_FIRST.saturating_sub(database.age());
        let StoreOptions { session, sink, .. } = options;
        sink.report(&mut vec![Report::Up]);
        let (reports, schedule) = (Vec::new(), PollSchedule::default());
        let thread = Self { database, session, sink, reports, schedule, load };
        let (ending, ended) = mpsc::channel();
        std::thread::Builder::new()
            .name("permits-local".into())
            .spawn(move || {
                thread.serve(&messages);
                drop((count, ending));
            })
            .map_err(|error| StoreError::Unreachable { reason: error.to_string() })?;
        Ok((ended, holders_first))
    }

    fn serve(mut self, messages: &mpsc::Receiver<Message>) {
        let (mut version, mut changed) = (None, Moment::now());
        let mut queue = Queue::default();
        loop {
            if queue.messages.is_empty() {
                let received = match self.schedule.interval(Moment::now().since(changed)) {
                    Some(interval) => messages.recv_timeout(interval),
                    None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match received {
                    Err(RecvTimeoutError::Disconnected) => return,
                    received => queue.messages.extend(received),
                }
            }
            queue.messages.extend(messages.try_iter());
            let message = queue.next();
            let deadline = message.as_ref().and_then(Message::deadline);
            let followed = self.database.follow(deadline.unwrap_or_else(|| Moment::now() + FOLLOWING));
            if let Ok(true) = followed {
                // The new file may lack this session's entries.
                self.let_holders_go_first();
                version = None;
                self.reports.push(Report::Up);
            }
            match message {
                Some(Message::Execute { id, command, deadline }) => {
                    let result = followed.and_then(|_| self.execute(&command, deadline));
                    let result = result.map(|reply| Executed { reply, confirmed: u32::MAX });
                    self.reports.push(Report::Outcome { id, result });
                    if self.load.remove(&command) {
                        self.reports.push(Report::Writable);
                    }
                }
                // A caller that has given up is ignored.
                Some(Message::List { deadline, answer }) => {
                    drop(answer.send(followed.and_then(|_| self.database.list(deadline))));
                }
                Some(Message::Forget { semaphore, request }) => self.schedule.forget(&semaphore, &request),
                None => {}
            }
            self.report();
            // After a failure the next poll reads the same, or a renewal gets the same answer.
            let current = self.database.data_version().ok();
            if current.is_none() || current != version {
                changed = Moment::now();
                if self.poll().is_ok() {
                    version = current;
                }
            }
        }
    }

    /// Waits until a new file has been open for [`HOLDERS_FIRST`], because it may replace a file that was
    /// deleted.
    fn let_holders_go_first(&self) {
        if !self.schedule.has_holders() {
            std::thread::sleep(HOLDERS_FIRST.saturating_sub(self.database.age()));
        }
    }

    /// Executes a command, unless its deadline passed while it waited: its session has sent it again, or soon
    /// will.
    fn execute(&mut self, command: &Command, deadline: Moment) -> Result<Reply, StoreError> {
        if deadline <= Moment::now() {
            let reason = "the file is too slow for all that this session asks of it".into();
            return Err(StoreError::Unreachable { reason });
        }
        let (reply, news) = self.database.execute(command, &self.session, deadline)?;
        self.schedule.on_reply(command, &reply.answers);
        self.tell(news);
        Ok(reply)
    }

    /// Reads new events and positions, without waiting for other processes.
    fn poll(&mut self) -> Result<(), StoreError> {
        busy::set_deadline(Moment::now());
        let news = self.database.news(&self.session)?;
        self.tell(news);
        self.report();
        let (database, session) = (&self.database, &self.session);
        self.schedule.update_positions(|semaphore| database.position(semaphore, session).ok().flatten());
        Ok(())
    }

    fn tell(&mut self, news: Vec<News>) {
        for news in news {
            self.reports.push(match news {
                News::Event(event) => {
                    self.schedule.on_event(&event);
                    Report::Event(event)
                }
                News::Recall(semaphore) => Report::Recall(semaphore),
            });
        }
    }

    fn report(&mut self) {
        if !self.reports.is_empty() {
            self.sink.report(&mut self.reports);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Declaration, Grant, Holder, PermitTerms, Recovery, RenewRequest, RequestKey};

    fn execute(id: u64, operation: Operation) -> Message {
        let command = Box::new(Command {
            semaphore: Name::new("s").expect("valid"),
            session: SessionId::new("session").expect("valid"),
            lease_ms: 1000,
            recovery: Recovery::Off,
            declaration: Declaration::Declare(1),
            operation,
        });
        Message::Execute { id, command, deadline: Moment::now() }
    }

    /// The renewal of a permit, or of a waiter.
    fn renew(id: u64, grant: Option<Grant>) -> Message {
        let renew = RenewRequest {
            holder: Holder::new("h").expect("valid"),
            request: RequestId::new("s.1").expect("valid"),
            terms: PermitTerms::new(1, 1000),
            lease_version: 0,
            grant,
        };
        execute(id, Operation::Renew(vec![renew]))
    }

    fn release(id: u64) -> Message {
        let (holder, request) = (Holder::new("other").expect("valid"), RequestId::new("s.2").expect("valid"));
        execute(id, Operation::Release(vec![RequestKey { holder, request }.into()]))
    }

    const GRANT: Option<Grant> = Some(Grant { token: 7, slot: 0 });

    /// The ids of all messages, in the order in which they are handled.
    fn order(messages: impl IntoIterator<Item = Message>) -> Vec<u64> {
        let mut queue = Queue { messages: messages.into_iter().collect(), overtook: false };
        let id = |message| match message {
            Message::Execute { id, .. } => id,
            Message::List { .. } | Message::Forget { .. } => panic!("there is none"),
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
        let mut queue = Queue { messages: [release(1), release(2)].into(), overtook: false };
        let mut releases = 0;
        for id in 3..7 {
            queue.messages.push_back(renew(id, GRANT));
            let Some(message) = queue.next() else { panic!("there are some") };
            releases += usize::from(!message.renews_a_permit());
        }
        assert_eq!(releases, 2);
    }

    struct Ignored;

    impl Sink for Ignored {
        fn report(&self, reports: &mut Vec<Report>) {
            reports.clear();
        }
    }

    #[test]
    fn a_command_whose_deadline_has_passed_is_not_executed() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let path = directory.path().join("semaphores.db");
        let mut thread = FileThread {
            database: Database::open(&path, "p", Moment::now() + OPEN_TIMEOUT).expect("it is new"),
            session: SessionId::new("session").expect("valid"),
            sink: Arc::new(Ignored),
            reports: Vec::new(),
            schedule: PollSchedule::default(),
            load: Arc::default(),
        };
        let declaration = || execute(1, Operation::Renew(Vec::new()));
        let Message::Execute { command, .. } = declaration() else { panic!("it is one") };
        let refused = thread.execute(&command, Moment::now());
        assert!(matches!(refused, Err(StoreError::Unreachable { .. })), "{refused:?}");
        let names =
            |thread: &FileThread| thread.database.list(Moment::now() + OPEN_TIMEOUT).expect("it is ours");
        assert_eq!(names(&thread), []);
        thread.execute(&command, Moment::now() + OPEN_TIMEOUT).expect("there is time");
        assert_eq!(names(&thread).len(), 1);
    }
}
