//! [`FileThread`]: the thread of a session that works with the file.
//!
//! Waiting for a lock of the file blocks, so it must not run on the session's own thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::busy;
use super::database::Database;
use super::forks::FileCount;
use super::open::OPEN_TIMEOUT;
use super::poll_schedule::PollSchedule;
use crate::clock::Moment;
use crate::protocol::{Command, Name, Reply, RequestId, SessionId};
use crate::store::backend::{Executed, Report, Sink, StoreOptions};
use crate::store::error::StoreError;

/// The age that a new file must have before sessions without permits use it. Holders of a deleted file take less time to
/// follow; other sessions would find their units free.
///
/// This holds for every new file, also in a directory that this process has just made: the directory may have been deleted
/// beside a holder, which follows when it is there again.
pub(super) const HOLDERS_FIRST: Duration = Duration::from_millis(300);

/// The longest time that a poll waits for other processes that follow to another file. It delays the next command.
const FOLLOWING: Duration = Duration::from_millis(200);

/// A message to the thread, and the deadline of its waits for other processes.
pub(super) enum Message {
    /// Execute a command, and report the outcome of the request `id`.
    Execute {
        id: u64,
        command: Command,
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
}

/// The state of the thread.
pub(super) struct FileThread {
    database: Database,
    session: SessionId,
    sink: Arc<dyn Sink>,
    /// The next reports.
    reports: Vec<Report>,
    schedule: PollSchedule,
}

impl FileThread {
    /// Opens the file, and starts the thread. The thread ends when the sender of `messages` is dropped, and drops the sender of
    /// the returned channel when it has closed the file. Returns also the time for which the session is to send nothing yet,
    /// because the file is new.
    pub(super) fn start(
        path: &Path,
        options: StoreOptions,
        messages: mpsc::Receiver<Message>,
    ) -> Result<(mpsc::Receiver<()>, Duration), StoreError> {
        let count = FileCount::increment()?;
        let database = Database::open(path, &options.prefix, Moment::now() + OPEN_TIMEOUT)?;
        let holders_first = HOLDERS_FIRST.saturating_sub(database.age());
        let StoreOptions { session, sink, .. } = options;
        sink.report(&mut vec![Report::Up]);
        let (reports, schedule) = (Vec::new(), PollSchedule::default());
        let thread = Self { database, session, sink, reports, schedule };
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
        loop {
            let message = match self.schedule.interval(Moment::now().since(changed)) {
                Some(interval) => messages.recv_timeout(interval),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let deadline = message.as_ref().ok().and_then(Message::deadline);
            let followed = self.database.follow(deadline.unwrap_or_else(|| Moment::now() + FOLLOWING));
            if let Ok(true) = followed {
                // The new file may lack this session's entries.
                self.let_holders_go_first();
                version = None;
                self.reports.push(Report::Up);
            }
            match message {
                Ok(Message::Execute { id, command, deadline }) => {
                    let result = followed.and_then(|_| self.execute(&command, deadline));
                    let result = result.map(|reply| Executed { reply, confirmed: u32::MAX });
                    self.reports.push(Report::Outcome { id, result });
                }
                // A caller that has given up is ignored.
                Ok(Message::List { deadline, answer }) => {
                    drop(answer.send(followed.and_then(|_| self.database.list(deadline))));
                }
                Ok(Message::Forget { semaphore, request }) => self.schedule.forget(&semaphore, &request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
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

    /// Waits until a new file has been open for [`HOLDERS_FIRST`], because it may replace a file that was deleted.
    fn let_holders_go_first(&self) {
        if !self.schedule.has_holders() {
            std::thread::sleep(HOLDERS_FIRST.saturating_sub(self.database.age()));
        }
    }

    fn execute(&mut self, command: &Command, deadline: Moment) -> Result<Reply, StoreError> {
        let (reply, own_events) = self.database.execute(command, &self.session, deadline)?;
        self.schedule.on_reply(command, &reply.answers);
        for event in own_events {
            self.schedule.on_event(&event);
            self.reports.push(Report::Event(event));
        }
        Ok(reply)
    }

    /// Reads new events and positions, without waiting for other processes.
    fn poll(&mut self) -> Result<(), StoreError> {
        busy::set_deadline(Moment::now());
        for event in self.database.new_events(&self.session)? {
            self.schedule.on_event(&event);
            self.reports.push(Report::Event(event));
        }
        self.report();
        let (database, session) = (&self.database, &self.session);
        self.schedule.update_positions(|semaphore| database.position(semaphore, session).ok().flatten());
        Ok(())
    }

    fn report(&mut self) {
        if !self.reports.is_empty() {
            self.sink.report(&mut self.reports);
        }
    }
}
