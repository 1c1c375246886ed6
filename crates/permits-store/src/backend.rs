//! The interface of stores. A [`Store`] executes requests and reports to its session. It knows no session,
//! never waits for units, and never retries. It has few methods, and no method for a particular operation,
//! because [`crate::protocol`] defines the operations.
//!
//! A kind of store implements [`Backend`] (its URLs), [`Location`] (one parsed URL) and [`Store`] (one
//! session's access), and has a line in the table of `permits/src/store.rs`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::credentials::CredentialSource;
use crate::error::StoreError;
use crate::finding::Finding;
use crate::protocol::{Command, Event, Name, Recovery, Reply, SessionId};

/// A session's access to a store. The store executes each command at once or not at all. While it stays
/// connected, it executes commands about one semaphore in the order in which they were sent; only a renewal
/// of permits may overtake.
pub trait Store: Send + Sync {
    /// Sends a request, without blocking. Returns the result if it is known at once. Otherwise the store
    /// reports the result later, at most once, and at once when the connection breaks.
    ///
    /// The caller holds the session's lock meanwhile. Any thread may call this, with or without a runtime.
    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>>;

    /// Returns true while too much is buffered. The session then sends nothing until [`Report::Writable`].
    fn is_full(&self) -> bool {
        false
    }

    /// Returns true if the store reports the outcome of every request by itself. With other stores, the
    /// session gives requests up when their timeouts end.
    fn reports_all(&self) -> bool {
        false
    }

    /// Asks each connection whether it lives, and replaces the connections whose servers do not reply within
    /// [`PROBE_TIMEOUT`](crate::timing::PROBE_TIMEOUT). The caller holds the session's lock meanwhile.
    fn probe(&self) {}

    /// Lists the semaphores that exist, sorted and without duplicates. A semaphore that begins or ends
    /// meanwhile may be missing.
    fn list(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>>;
}

/// A command on its way to a store.
#[derive(Debug)]
pub struct Request {
    /// The number of the request in its session. The outcome names it.
    pub id: u64,
    /// The command.
    pub command: Command,
    /// A store that works reports some outcome within this time: of this request, or of one before it.
    pub timeout: Duration,
    /// The number of replicas that must acknowledge the writes of this and earlier commands.
    pub replicas: u32,
}

/// A command that the store has executed.
#[derive(Debug)]
pub struct Executed {
    /// The store's reply.
    pub reply: Reply,
    /// The number of replicas that have the write, if the request waited for replicas; `u32::MAX` if the
    /// store has no replicas.
    pub confirmed: u32,
}

/// A report of a store to its session.
#[derive(Debug)]
pub enum Report {
    /// The outcome of a request.
    Outcome {
        /// The number of the request.
        id: u64,
        /// The reply, or the failure.
        result: Result<Executed, StoreError>,
    },
    /// Something has happened to a request or permit of the session.
    Event(Event),
    /// Others need what the session keeps of this semaphore.
    Recall(Name),
    /// The store can be reached (again), or events may have been lost: the session must renew everything.
    Up,
    /// The store cannot be reached; it reconnects.
    Down(StoreError),
    /// [`Store::is_full`] has become false.
    Writable,
}

/// A session, as its store sees it.
pub trait Sink: Send + Sync {
    /// Takes all reports out of `reports`, in their order.
    ///
    /// The session sends further requests meanwhile. So the store must call this on tasks or threads of its
    /// own: never from within [`Store::send`], and under no lock that the methods of the store take.
    fn report(&self, reports: &mut Vec<Report>);
}

/// The options with which a session opens a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// The session's id.
    pub session: SessionId,
    /// The first part of every key.
    pub prefix: String,
    /// The usual lease. From it, a store with connections derives how fast it detects and replaces a broken
    /// connection.
    pub lease: Duration,
    /// The session.
    pub sink: Arc<dyn Sink>,
}

/// A kind of store.
pub trait Backend: Sync {
    /// The beginnings of the URLs of this kind, such as `redis://`, for error messages.
    fn schemes(&self) -> Vec<String>;

    /// Parses a URL; `None` if the URL's scheme belongs to no store of this kind.
    fn parse(&self, url: &str) -> Option<ParsedUrl>;
}

/// The location and the recovery that a URL asks for, or what is wrong with the URL. The message repeats
/// nothing that may be a password.
pub type ParsedUrl = Result<(Box<dyn Location>, Option<Recovery>), String>;

/// The location of a store, parsed from a URL. Displaying it shows no password.
pub trait Location: fmt::Display + Send + Sync {
    /// How many waiters the store can queue for a semaphore, even if a client asks for more.
    fn max_waiters(&self) -> u32 {
        u32::MAX
    }

    /// Returns true if a session's access uses sockets, so that its runtime has to poll them.
    fn uses_sockets(&self) -> bool {
        true
    }

    /// Reads the user and the password of each new connection from the URL in this file from now on.
    fn follow(&mut self, _: &Arc<Path>) {}

    /// Takes the password of each new connection from this source. The error is the fault of the URL.
    fn log_in_with(&mut self, source: &Arc<CredentialSource>) -> Result<(), String> {
        Err(format!("its store has no passwords, and one is to come from {source}: leave that out"))
    }

    /// Returns true while a source of credentials is asked, which has a time limit of its own.
    fn awaits_credentials(&self) -> bool {
        false
    }

    /// Tries once to open the store for a session. Call this on the session's runtime.
    fn open(&self, options: StoreOptions) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>>;

    /// Looks for faults of the store, without a session. Unless `inspection` forbids writing, it also
    /// executes every operation on a semaphore of its own, which it deletes.
    fn diagnose<'a>(&'a self, inspection: DiagnoseOptions<'a>) -> BoxFuture<'a, Vec<Finding>>;
}

/// How [`Location::diagnose`] inspects a store.
#[derive(Debug, Clone, Copy)]
pub struct DiagnoseOptions<'a> {
    /// The first part of every key.
    pub prefix: &'a str,
    /// The caller's usual lease. The round trips are judged by it.
    pub lease: Duration,
    /// Whether to execute every operation once, on a semaphore that is deleted afterwards.
    pub self_test: bool,
}
