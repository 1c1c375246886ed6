//! Where semaphores live. A [`Store`] executes commands and signals what it was not asked for; it knows no
//! session, no waiting and no retrying. Few methods, never one per operation: all that a semaphore does is in
//! [`crate::protocol`].

#[cfg(feature = "local")]
mod local;
mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "local", feature = "redis"))]
mod trial;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use self::memory::MemoryStore;
use crate::error::ConnectError;
use crate::examine::Finding;
use crate::protocol::{Command, Event, Id, Name, Reply};

/// A call to a store, in progress.
pub type Executing<'a> = Pin<Box<dyn Future<Output = Result<Reply, StoreError>> + Send + 'a>>;

/// A call to a store with a confirmation by replicas, in progress.
pub type Confirming<'a> = Pin<Box<dyn Future<Output = Result<(Reply, u32), StoreError>> + Send + 'a>>;

/// A list of names, on its way.
pub type Listing<'a> = Pin<Box<dyn Future<Output = Result<Vec<Name>, StoreError>> + Send + 'a>>;

/// Executes commands, each at once or not at all, in the order of their calls as long as it stays connected.
pub trait Store: Send + Sync {
    /// Executes `command`, giving up after `patience`. Dropped before it is ready, it may still be executed.
    fn execute<'a>(&'a self, command: &'a Command, patience: Duration) -> Executing<'a>;

    /// Executes `command`, and tells on how many replicas all is that it and every command before it has written,
    /// waiting for `replicas` of them as long as `patience` allows. A store without replicas has nothing to wait
    /// for.
    fn confirm<'a>(&'a self, command: &'a Command, _replicas: u32, patience: Duration) -> Confirming<'a> {
        Box::pin(async move { Ok((self.execute(command, patience).await?, u32::MAX)) })
    }

    /// The semaphores that there are, each once, sorted. One that is made or ends meanwhile may be missing.
    fn list(&self, patience: Duration) -> Listing<'_>;

    /// Notes that a permit of the session was handed over, so that its events are not the session's any more. A store
    /// that keeps no list of its sessions' permits has nothing to do.
    fn forget(&self, _semaphore: &Name, _request: &Id) {}
}

/// What a store tells the session without being asked.
#[derive(Debug)]
pub enum Signal {
    /// Something happened to an entry of the session.
    Event(Event),
    /// The store can be reached (again), or events may have been lost: ask how everything stands.
    Up,
    /// The store cannot be reached; it is being tried again.
    Down(StoreError),
}

/// Signals on their way to a session. Bounded: a slow session holds its store back and loses nothing.
pub type Signals = tokio::sync::mpsc::Sender<Signal>;

/// How many signals may be on their way.
pub const SIGNALS: usize = 1024;

/// What a session tells a store when it opens.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The session's id.
    pub session: Id,
    /// The first part of every key.
    pub prefix: String,
    /// The usual lease: it scales how fast a lost connection must be noticed and replaced.
    pub lease: Duration,
    /// Where signals go.
    pub signals: Signals,
}

/// Where a store is, parsed from a URL.
pub(crate) enum Address {
    Memory(String),
    #[cfg(feature = "local")]
    Local(std::path::PathBuf),
    #[cfg(feature = "redis")]
    Redis(Box<redis::Address>),
}

impl Address {
    /// Parses a URL. No error repeats it, as it may have a password.
    pub(crate) fn parse(url: &str) -> Result<Self, ConnectError> {
        let scheme = url.split(':').next().unwrap_or_default();
        if let Some(name) = url.strip_prefix("memory:") {
            return Ok(Self::Memory(name.to_owned()));
        }
        #[cfg(feature = "local")]
        if let Some(path) = url.strip_prefix("local:") {
            return local::parse(path).map(Self::Local).map_err(|reason| ConnectError::Url { reason });
        }
        #[cfg(feature = "redis")]
        if redis::Address::SCHEMES.contains(&scheme) {
            return redis::Address::parse(url)
                .map(|address| Self::Redis(Box::new(address)))
                .map_err(|reason| ConnectError::Url { reason });
        }
        let local = if cfg!(feature = "local") { "local: " } else { "" };
        #[cfg(feature = "redis")]
        let others = redis::Address::SCHEMES.map(|scheme| format!(" {scheme}://")).concat();
        #[cfg(not(feature = "redis"))]
        let others = "";
        let known = format!("{local}memory:{others}");
        // Only what a `://` follows is a scheme. Anything else may be a part of a password.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
        if !url[scheme.len()..].starts_with("://") || !scheme.bytes().all(plain) {
            let reason = format!("it does not begin with one of {known}");
            return Err(ConnectError::Url { reason });
        }
        Err(ConnectError::UnknownScheme { scheme: scheme.to_owned(), known })
    }
}

/// Opens a store for a session. Must be called on the session's runtime.
pub(crate) async fn open(address: &Address, opening: Opening) -> Result<Arc<dyn Store>, StoreError> {
    match address {
        Address::Memory(name) => Ok(Arc::new(MemoryStore::open(name, &opening))),
        #[cfg(feature = "local")]
        Address::Local(path) => Ok(Arc::new(local::LocalStore::open(path, opening)?)),
        #[cfg(feature = "redis")]
        Address::Redis(address) => Ok(Arc::new(redis::RedisStore::connect(address, opening).await?)),
    }
}

impl fmt::Display for Address {
    /// Without any password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(name) => write!(f, "memory:{name}"),
            #[cfg(feature = "local")]
            Self::Local(path) => write!(f, "{}", path.display()),
            #[cfg(feature = "redis")]
            Self::Redis(address) => write!(f, "{address}"),
        }
    }
}

/// Looks for what is wrong with a store. `lease` is the usual one of whoever asks.
#[cfg_attr(not(any(feature = "local", feature = "redis")), expect(unused_variables))]
pub(crate) async fn examine(address: &Address, prefix: &str, lease: Duration) -> Vec<Finding> {
    match address {
        Address::Memory(_) => {
            vec![Finding::fine("store", "the memory of this process, which nobody else sees")]
        }
        #[cfg(feature = "local")]
        Address::Local(path) => local::examination::examine(address, path, prefix, lease).await,
        #[cfg(feature = "redis")]
        Address::Redis(server) => redis::examination::examine(address, server, prefix, lease).await,
    }
}

/// Why the store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It was not asked: there is no connection, or it cannot serve now. Nothing has happened; tried again.
    #[error("the store cannot be reached: {reason}")]
    Unreachable {
        /// What failed.
        reason: String,
    },
    /// It was asked and did not answer: it may have happened. Tried again with the same request.
    #[error("the store did not answer: {reason}")]
    NoAnswer {
        /// What failed.
        reason: String,
    },
    /// It does not let us in, or not do this.
    #[error("the store denies access: {reason}")]
    Denied {
        /// The store's words.
        reason: String,
    },
    /// A key of the semaphore holds something else.
    #[error(
        "a key of semaphore {semaphore:?} holds something that is not permits': {reason}; delete it or use another prefix"
    )]
    WrongType {
        /// The semaphore.
        semaphore: String,
        /// The store's words.
        reason: String,
    },
    /// It has no memory left for this.
    #[error("the store is out of memory: {reason}")]
    OutOfMemory {
        /// The store's words.
        reason: String,
    },
    /// It is too old, or otherwise not able to.
    #[error("the store is not supported: {reason}")]
    Unsupported {
        /// What is missing.
        reason: String,
    },
    /// It rejected the command for another reason.
    #[error("the store rejected the command: {reason}")]
    Rejected {
        /// The store's words.
        reason: String,
    },
    /// It said something that makes no sense.
    #[error("the store answered nonsense: {reason}")]
    Malformed {
        /// What.
        reason: String,
    },
}

impl StoreError {
    /// Whether trying again can help.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoAnswer { .. })
    }

    /// Whether the command may have been executed.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::NoAnswer { .. } | Self::Malformed { .. })
    }
}
