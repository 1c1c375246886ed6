//! [`LocalStore`]: a session's access to a file, by its [`FileThread`].

use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::file_thread::{FileThread, Request};
use crate::clock::Moment;
use crate::protocol::{Command, Name, Reply, RequestId};
use crate::store::backend::{Store, StoreOptions};
use crate::store::error::StoreError;

/// The longest time that a session which ends waits for its file to be closed, while other processes have locks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session's access to a file.
pub(super) struct LocalStore {
    /// `None` only while it is dropped.
    requests: Option<mpsc::Sender<Request>>,
    /// Closes when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl LocalStore {
    /// Opens the file, and makes it if there is none.
    pub(super) fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let (requests, incoming) = mpsc::channel();
        let ended = FileThread::start(path, options, incoming)?;
        Ok(Self { requests: Some(requests), ended: Mutex::new(ended) })
    }

    /// Sends a request. If the thread has ended, the request's answer channel closes.
    fn send(&self, request: Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request);
        }
    }
}

impl Drop for LocalStore {
    /// Waits until the file is closed, so that a program may fork after it has closed its client; at most
    /// [`CLOSE_TIMEOUT`].
    fn drop(&mut self) {
        self.requests = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(CLOSE_TIMEOUT);
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

/// The deadline of waits for other processes: early enough to report before `timeout` that the wait has failed.
fn deadline(timeout: Duration) -> Moment {
    Moment::now() + timeout * 7 / 8
}

async fn answered<T>(
    receiver: oneshot::Receiver<Result<T, StoreError>>,
    timeout: Duration,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, receiver).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(StoreError::NoAnswer { reason: "the file's thread has ended".into() }),
        Err(_) => Err(StoreError::NoAnswer { reason: format!("no answer within {timeout:?}") }),
    }
}
