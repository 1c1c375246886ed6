//! The local store: the model, and a file that many processes of one machine share. No server.
//!
//! Each command is one SQLite transaction. A grant for another process's waiter is left in a table that serves
//! as its letter box; that process sees a write of another by `PRAGMA data_version`, which takes a few
//! microseconds and no lock. A process with the first waiter looks every 2 to 5 ms, one whose waiters stand further back
//! more rarely, one that only holds ten times a second, and an idle one never.
//!
//! - `place`: where the file is, which files its names stand for, how it is made and deleted; `access`: users that may
//!   use it.
//! - `file`: how it is opened, followed when it is replaced, read and written; `tables`: what is in it.
//! - `clock`: time that goes on while the machine sleeps, is the same in every time namespace, and ends every lease when
//!   the machine restarts.
//! - `watch`: how often to look for news.
//! - `forks`: why a forked child may not open a file while its parent has one open.
//! - `busy`, `failure`: waiting for other processes, and what may go wrong.
//!
//! # What holds
//! - A process may be killed at any moment: the file is as some command left it. So it is after a loss of power,
//!   and what an operator set (a pinned limit, a pause) was on the disk before the answer, as far as the disk
//!   tells the truth.
//! - A restart of the machine ends all leases. The wall clock is read when a file is new or the machine has
//!   restarted, and never else: to set it changes nothing. Tokens rise even if it went back.
//! - A full disk does not take away what is held: the log is emptied and used again, so there is room to renew
//!   and to release, for a few hundred holders and waiters. (Not on a file system that never overwrites, such as
//!   btrfs.) To acquire may fail.
//! - A process that is stopped in the middle of a command (SIGSTOP, a debugger) holds up the others until it goes
//!   on or is killed: their commands fail as if the store were out of reach, and are tried again.
//! - Deleting the file, its `-wal` or its `-shm` makes the store forget. A process that notices deletes the rest; all
//!   users follow to the same new file, and come back if they fit. Sessions that hold nothing wait until a new file has
//!   been open for [`HOLDERS_FIRST`], so that holders go first. Only a holder that was stopped may come too late: then too
//!   many hold, for up to a lease.
//! - No wait is without a bound, whichever lock another program has.
//!
//! For one machine only. SQLite's locks and its shared memory do not work over network file systems; those that
//! are known as such are refused, and another machine that uses the file all the same is noticed by its boot.

#[cfg(unix)]
pub(crate) mod access;
mod backend;
pub(crate) mod busy;
pub(crate) mod clock;
pub(crate) mod failure;
pub(crate) mod file;
mod forks;
pub(crate) mod place;
pub(crate) mod tables;
mod watch;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

pub(crate) use self::backend::{FilePath, Local};
use self::file::{Database, OPENING};
use self::forks::Open;
use self::watch::Watch;
use super::{Store, StoreError, StoreEvent, StoreEvents, StoreOptions};
use crate::clock::Moment;
use crate::protocol::{Command, Name, Reply, RequestId, SessionId};

/// How long sessions that hold nothing stay away from a new file: longer than the holders of a deleted one take to
/// notice. Otherwise they would find it free.
const HOLDERS_FIRST: Duration = Duration::from_millis(300);

/// How long a look waits for other processes that follow to another file too. It delays the next command.
const FOLLOWING: Duration = Duration::from_millis(200);

/// How long a session that ends waits until its file is closed, while other processes hold locks.
const CLOSING: Duration = Duration::from_secs(1);

/// A session's access to a file.
pub(crate) struct LocalStore {
    /// Always there, until the drop.
    requests: Option<mpsc::Sender<Request>>,
    /// Closes when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// What to do, and until when to wait for other processes.
enum Request {
    Execute { command: Command, deadline: Moment, answer: Answer<Reply> },
    List { deadline: Moment, answer: Answer<Vec<Name>> },
    Forget { semaphore: Name, request: RequestId },
}

impl Request {
    fn deadline(&self) -> Option<Moment> {
        match self {
            Self::Execute { deadline, .. } | Self::List { deadline, .. } => Some(*deadline),
            Self::Forget { .. } => None,
        }
    }
}

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

impl LocalStore {
    /// Opens the file, making it if there is none.
    pub(crate) fn open(path: &std::path::Path, opening: StoreOptions) -> Result<Self, StoreError> {
        let open = Open::here()?;
        let database = Database::open(path, &opening.prefix, Moment::now() + OPENING)?;
        let (requests, incoming) = mpsc::channel();
        // A new channel has room, and if the session is gone nobody minds.
        let _ = opening.events.try_send(StoreEvent::Up);
        let clerk =
            Clerk { database, session: opening.session, signals: opening.events, watch: Watch::default() };
        // Waiting for a lock blocks, and must not hold up the session's own thread.
        let (ending, ended) = mpsc::channel();
        std::thread::Builder::new()
            .name("permits-local".into())
            .spawn(move || {
                clerk.serve(&incoming);
                drop((open, ending));
            })
            .map_err(|error| StoreError::Unreachable { reason: error.to_string() })?;
        Ok(Self { requests: Some(requests), ended: Mutex::new(ended) })
    }

    /// If the thread has ended, the answer's channel closes.
    fn send(&self, request: Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request);
        }
    }
}

impl Drop for LocalStore {
    /// Waits until the file is closed, so that a program may fork when its client is; at most for [`CLOSING`].
    fn drop(&mut self) {
        self.requests = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(CLOSING);
    }
}

impl Store for LocalStore {
    fn execute<'a>(
        &'a self,
        command: &'a Command,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        let (command, deadline) = (command.clone(), deadline(timeout));
        self.send(Request::Execute { command, deadline, answer });
        Box::pin(answered(receiver, timeout))
    }

    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        self.send(Request::List { deadline: deadline(timeout), answer });
        Box::pin(answered(receiver, timeout))
    }

    fn forget(&self, semaphore: &Name, request: &RequestId) {
        self.send(Request::Forget { semaphore: semaphore.clone(), request: request.clone() });
    }
}

/// Until when to wait for other processes, so that there is time to say that it was in vain.
fn deadline(timeout: Duration) -> Moment {
    Moment::now() + timeout * 7 / 8
}

async fn answered<T>(
    receiver: oneshot::Receiver<Result<T, StoreError>>,
    timeout: Duration,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, receiver).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(StoreError::NoAnswer { reason: "its thread has ended".into() }),
        Err(_) => Err(StoreError::NoAnswer { reason: format!("no answer within {timeout:?}") }),
    }
}

/// The thread that works with the file.
struct Clerk {
    database: Database,
    session: SessionId,
    signals: StoreEvents,
    watch: Watch,
}

impl Clerk {
    fn serve(mut self, requests: &mpsc::Receiver<Request>) {
        let (mut version, mut changed) = (None, Moment::now());
        self.let_holders_go_first();
        loop {
            let request = match self.watch.look_every(Moment::now().since(changed)) {
                Some(interval) => requests.recv_timeout(interval),
                None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let until = request
                .as_ref()
                .ok()
                .and_then(Request::deadline)
                .unwrap_or_else(|| Moment::now() + FOLLOWING);
            let followed = self.database.follow(until);
            if let Ok(true) = followed {
                // Another file: it may know nothing of us.
                self.let_holders_go_first();
                version = None;
                self.signal(StoreEvent::Up);
            }
            // Whoever asked may have run out of timeout.
            match request {
                Ok(Request::Execute { command, deadline, answer }) => {
                    let result = followed.and_then(|_| self.execute(&command, deadline));
                    let _ = answer.send(result);
                }
                Ok(Request::List { deadline, answer }) => {
                    let _ = answer.send(followed.and_then(|_| self.database.list(deadline)));
                }
                Ok(Request::Forget { semaphore, request }) => self.watch.forget(&semaphore, &request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // What cannot be read now is read the next time, or heals by a renewal.
            let current = self.database.version().ok();
            if current.is_none() || current != version {
                changed = Moment::now();
                if self.look().is_ok() {
                    version = current;
                }
            }
        }
    }

    /// Waits until a new file has been open for [`HOLDERS_FIRST`]: it may take the place of one that was deleted.
    fn let_holders_go_first(&self) {
        if !self.watch.holds() {
            std::thread::sleep(HOLDERS_FIRST.saturating_sub(self.database.age()));
        }
    }

    fn execute(&mut self, command: &Command, deadline: Moment) -> Result<Reply, StoreError> {
        let (reply, own_events) = self.database.execute(command, &self.session, deadline)?;
        self.watch.note(command, &reply.answers);
        for event in own_events {
            self.watch.hear(&event);
            self.signal(StoreEvent::Event(event));
        }
        Ok(reply)
    }

    /// Somebody has written: perhaps to us, and perhaps we stand further ahead now.
    fn look(&mut self) -> Result<(), StoreError> {
        busy::until(Moment::now());
        for event in self.database.news(&self.session)? {
            self.watch.hear(&event);
            self.signal(StoreEvent::Event(event));
        }
        let (database, session) = (&self.database, &self.session);
        self.watch.move_up(|semaphore| database.position(semaphore, session).ok().flatten());
        Ok(())
    }

    fn signal(&self, signal: StoreEvent) {
        // The session has ended: so does this thread, soon.
        let _ = self.signals.blocking_send(signal);
    }
}
