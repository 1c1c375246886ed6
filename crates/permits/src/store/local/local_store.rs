//! [`LocalStore`]: a session's access to a file, by its [`FileThread`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::file_thread::{FileThread, Load, Message};
use crate::clock::Moment;
use crate::protocol::{Name, RequestId};
use crate::store::backend::{Executed, Request, Store, StoreOptions};
use crate::store::error::StoreError;

/// The longest time that a session which ends waits for its file to be closed, while other processes have
/// locks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session's access to a file.
pub(super) struct LocalStore {
    /// `None` only while it is dropped.
    messages: Option<mpsc::Sender<Message>>,
    /// Closes when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    load: Arc<Load>,
}

impl LocalStore {
    /// Opens the file, and makes it if there is none. Waits while a new file is for holders alone: here, so
    /// that the timeout of no request ends in that time.
    pub(super) async fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let (messages, incoming) = mpsc::channel();
        let load = Arc::new(Load::default());
        let (ended, holders_first) = FileThread::start(path, options, incoming, load.clone())?;
        let store = Self { messages: Some(messages), ended: Mutex::new(ended), load };
        // A sleep takes a millisecond at least.
        if !holders_first.is_zero() {
            tokio::time::sleep(holders_first).await;
        }
        Ok(store)
    }

    /// Returns false if the thread has ended.
    fn tell(&self, message: Message) -> bool {
        self.messages.as_ref().is_some_and(|messages| messages.send(message).is_ok())
    }
}

impl Drop for LocalStore {
    /// Waits until the file is closed, so that a program may fork after it has closed its client; at most
    /// [`CLOSE_TIMEOUT`].
    fn drop(&mut self) {
        self.messages = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(CLOSE_TIMEOUT);
    }
}

impl Store for LocalStore {
    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>> {
        let Request { id, command, timeout, .. } = request;
        self.load.add(&command);
        let (command, deadline) = (Box::new(command), deadline(timeout));
        let sent = self.tell(Message::Execute { id, command, deadline });
        (!sent).then(|| Err(thread_ended()))
    }

    fn is_full(&self) -> bool {
        self.load.is_full()
    }

    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        self.tell(Message::List { deadline: deadline(timeout), answer });
        Box::pin(answered(receiver, timeout))
    }

    fn forget(&self, semaphore: &Name, request: &RequestId) {
        self.tell(Message::Forget { semaphore: semaphore.clone(), request: request.clone() });
    }
}

/// The deadline of waits for other processes: early enough to report before `timeout` that the wait has
/// failed.
fn deadline(timeout: Duration) -> Moment {
    Moment::now() + timeout * 7 / 8
}

async fn answered<T>(
    receiver: oneshot::Receiver<Result<T, StoreError>>,
    timeout: Duration,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, receiver).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(thread_ended()),
        Err(_) => Err(StoreError::NoAnswer { reason: format!("no answer within {timeout:?}") }),
    }
}

fn thread_ended() -> StoreError {
    StoreError::NoAnswer { reason: "the file's thread has ended".into() }
}
