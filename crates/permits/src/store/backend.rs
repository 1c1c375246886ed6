//! The interface of stores. A [`Store`] executes commands and sends events; it knows no session, never waits for units and
//! never retries. It has few methods, and none for a single operation, because [`crate::protocol`] defines the operations.
//!
//! A kind of store implements [`Backend`] (its URLs), [`Location`] (one parsed URL) and [`Store`] (one session's access),
//! and has a line in the table of `store/mod.rs`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::error::StoreError;
use crate::protocol::{Command, Event, Name, Recovery, Reply, RequestId, SessionId};

/// A session's access to a store. It executes each command at once or not at all, and in the order of the calls while it
/// stays connected.
pub trait Store: Send + Sync {
    /// Executes `command`, and fails after `timeout`. If the future is dropped, the command may still be executed.
    fn execute<'a>(
        &'a self,
        command: &'a Command,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, StoreError>>;

    /// Executes `command`, and waits within `timeout` until `replicas` replicas have all that this and earlier commands wrote.
    /// Returns the number of replicas that confirmed it; `u32::MAX` from a store without replicas.
    fn confirm<'a>(
        &'a self,
        command: &'a Command,
        _replicas: u32,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(Reply, u32), StoreError>> {
        Box::pin(async move { Ok((self.execute(command, timeout).await?, u32::MAX)) })
    }

    /// The semaphores that exist, sorted and without duplicates. A semaphore that begins or ends meanwhile may be missing.
    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>>;

    /// Notes that the session has handed a permit over, so that further events of this request are not the session's. A
    /// store that keeps no list of its session's requests ignores it.
    fn forget(&self, _semaphore: &Name, _request: &RequestId) {}
}

/// A message from a store to its session.
#[derive(Debug)]
pub enum StoreEvent {
    /// An entry of the session has changed.
    Event(Event),
    /// The store can be reached (again), or events may have been lost: the session must renew everything.
    Up,
    /// The store cannot be reached; it reconnects.
    Down(StoreError),
}

/// The sender of store events to a session. The channel is bounded: a slow session blocks its store and loses no event.
pub type StoreEvents = tokio::sync::mpsc::Sender<StoreEvent>;

/// The capacity of a channel of store events.
pub const EVENT_BUFFER: usize = 1024;

/// The options with which a session opens a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The session's id.
    pub session: SessionId,
    /// The first part of every key.
    pub prefix: String,
    /// The usual lease. A store with connections derives from it how fast it detects and replaces a broken one.
    pub lease: Duration,
    /// The channel to the session.
    pub events: StoreEvents,
}

/// A kind of store.
pub(crate) trait Backend: Sync {
    /// The beginnings of its URLs, such as `redis://`, for error messages.
    fn schemes(&self) -> Vec<String>;

    /// Parses a URL; `None` if the URL's scheme belongs to no store of this kind.
    fn parse(&self, url: &str) -> Option<ParsedUrl>;
}

/// A location and the recovery that its URL asks for, or the fault of the URL. The fault repeats nothing that may be a
/// password.
pub(crate) type ParsedUrl = Result<(Box<dyn Location>, Option<Recovery>), String>;

/// The location of a store, parsed from a URL. Displayed without any password.
pub(crate) trait Location: Any + fmt::Display + Send + Sync {
    /// Opens the store for a session: one attempt. Must be called on the session's runtime.
    fn open(&self, options: StoreOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>>;
}
