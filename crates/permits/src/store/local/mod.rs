//! The local store: the model, and a file that many processes of one machine share. No server.
//!
//! Each command is one SQLite transaction. A grant for another process's waiter is left in a table that serves
//! as its letter box; that process sees that somebody wrote by `PRAGMA data_version`, which costs a few
//! microseconds and no lock, and is looked at every 2 ms while it waits. Nobody polls who does not wait.
//!
//! - `file`: where it is, who may use it, what is in it.
//! - `clock`: time that goes on while the machine sleeps, and ends every lease when it restarts.
//! - `examination`: what is wrong with a file.
//!
//! For one machine only: SQLite's locks and its shared memory do not work over network file systems.

mod clock;
pub(super) mod examination;
mod file;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::oneshot;

use self::file::Database;
pub(crate) use self::file::default_path;
use super::{Executing, Listing, Opening, Signal, Signals, Store, StoreError};
use crate::protocol::{Acquired, Answers, Command, Event, Id, Name, News, Operation, Renewed, Reply};

/// How often to look for news while waiting in line.
const WAITING_EVERY: Duration = Duration::from_millis(2);

/// How often to look for news while only holding: a revocation is the only news then.
const HOLDING_EVERY: Duration = Duration::from_millis(100);

/// A session's access to a file.
pub(crate) struct LocalStore {
    requests: mpsc::Sender<Request>,
}

enum Request {
    Execute { command: Command, answer: Answer<Reply> },
    List { answer: Answer<Vec<Name>> },
}

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

impl LocalStore {
    /// Opens the file, making it if there is none.
    pub(crate) fn open(path: &std::path::Path, opening: Opening) -> Result<Self, StoreError> {
        let database = Database::open(path, &opening.prefix)?;
        let (requests, incoming) = mpsc::channel();
        // A new channel has room, and if the session is gone nobody minds.
        let _ = opening.signals.try_send(Signal::Up);
        let clerk =
            Clerk { database, session: opening.session, signals: opening.signals, ours: Ours::default() };
        // Waiting for a lock blocks, and must not hold up the session's own thread.
        std::thread::Builder::new()
            .name("permits-local".into())
            .spawn(move || clerk.serve(&incoming))
            .map_err(|error| StoreError::Unreachable { reason: error.to_string() })?;
        Ok(Self { requests })
    }
}

impl Store for LocalStore {
    fn execute<'a>(&'a self, command: &'a Command, patience: Duration) -> Executing<'a> {
        let (answer, receiver) = oneshot::channel();
        // If the thread has ended, the answer's channel closes.
        let _ = self.requests.send(Request::Execute { command: command.clone(), answer });
        Box::pin(answered(receiver, patience))
    }

    fn list(&self, patience: Duration) -> Listing<'_> {
        let (answer, receiver) = oneshot::channel();
        let _ = self.requests.send(Request::List { answer });
        Box::pin(answered(receiver, patience))
    }
}

async fn answered<T>(
    receiver: oneshot::Receiver<Result<T, StoreError>>,
    patience: Duration,
) -> Result<T, StoreError> {
    match tokio::time::timeout(patience, receiver).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(StoreError::NoAnswer { reason: "its thread has ended".into() }),
        Err(_) => Err(StoreError::NoAnswer { reason: format!("no answer within {patience:?}") }),
    }
}

/// The thread that works with the file.
struct Clerk {
    database: Database,
    session: Id,
    signals: Signals,
    ours: Ours,
}

impl Clerk {
    fn serve(mut self, requests: &mpsc::Receiver<Request>) {
        let mut version = None;
        loop {
            let request = match self.ours.look_every() {
                Some(interval) => requests.recv_timeout(interval),
                None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match request {
                Ok(Request::Execute { command, answer }) => self.execute(&command, answer),
                // Whoever asked may have run out of patience.
                Ok(Request::List { answer }) => drop(answer.send(self.database.list())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // What cannot be read now is read the next time, or heals by a renewal.
            let current = self.database.version().ok();
            if current.is_some() && current == version {
                continue;
            }
            if let Ok(news) = self.database.take_news(&self.session) {
                version = current;
                for event in news {
                    self.tell(event);
                }
            }
        }
    }

    fn execute(&mut self, command: &Command, answer: Answer<Reply>) {
        let result = self.database.execute(command, &self.session);
        let result = result.map(|(reply, own_events)| {
            self.ours.note(&command.operation, &reply.answers);
            for event in own_events {
                self.tell(event);
            }
            reply
        });
        // Whoever asked may have run out of patience.
        let _ = answer.send(result);
    }

    fn tell(&mut self, event: Event) {
        match event.news {
            News::Granted(_) => self.ours.set(&event.request, Some(Standing::Holds)),
            News::Revoked(_) | News::Refused => self.ours.set(&event.request, None),
        }
        // The session has ended: so does this thread, soon.
        let _ = self.signals.blocking_send(Signal::Event(event));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waits,
    Holds,
}

/// Our own requests, as far as it matters for how often to look for news.
#[derive(Default)]
struct Ours {
    standing: std::collections::HashMap<Id, Standing>,
    waiting: usize,
}

impl Ours {
    fn look_every(&self) -> Option<Duration> {
        match (self.waiting, self.standing.len()) {
            (_, 0) => None,
            (0, _) => Some(HOLDING_EVERY),
            _ => Some(WAITING_EVERY),
        }
    }

    fn set(&mut self, request: &Id, standing: Option<Standing>) {
        let before = match standing {
            Some(standing) => self.standing.insert(request.clone(), standing),
            None => self.standing.remove(request),
        };
        self.waiting -= usize::from(before == Some(Standing::Waits));
        self.waiting += usize::from(standing == Some(Standing::Waits));
    }

    fn note(&mut self, operation: &Operation, answers: &Answers) {
        match (operation, answers) {
            (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) => {
                for (request, acquired) in requests.iter().zip(answers) {
                    let standing = match acquired {
                        Acquired::Granted(_) => Some(Standing::Holds),
                        Acquired::Waiting { .. } => Some(Standing::Waits),
                        Acquired::Refused(_) => None,
                    };
                    self.set(&request.request, standing);
                }
            }
            (Operation::Renew(requests), Answers::Renew(answers)) => {
                for (renew, renewed) in requests.iter().zip(answers) {
                    let standing = match renewed {
                        Renewed::Held | Renewed::Granted(_) => Some(Standing::Holds),
                        Renewed::Waiting { .. } => Some(Standing::Waits),
                        Renewed::Lost | Renewed::Again | Renewed::ExceedsLimit => None,
                    };
                    self.set(&renew.request, standing);
                }
            }
            (Operation::Adopt(adopt), Answers::Adopt(true)) => {
                self.set(&adopt.new_request, Some(Standing::Holds));
            }
            (Operation::Release(requests), _) => {
                for release in requests {
                    self.set(&release.request, None);
                }
            }
            _ => {}
        }
    }
}
