//! Where semaphores live. A [`Store`] executes commands and signals what it was not asked for; it knows no
//! session, no waiting and no retrying. Few methods, never one per operation: all that a semaphore does is in
//! [`crate::protocol`].

mod error;
#[cfg(feature = "local")]
pub(crate) mod local;
mod memory;
mod options;
#[cfg(feature = "redis")]
pub mod redis;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::error::AddressError;
pub use self::error::StoreError;
use self::memory::MemoryStore;
use self::options::{Known, Options, RECOVERY};
use crate::events::emit;
use crate::protocol::{Command, Event, Name, Recovery, Reply, RequestId, SessionId};

/// How long one attempt to open a store may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The first and the longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A call to a store, in progress.
pub type Executing<'a> = Pin<Box<dyn Future<Output = Result<Reply, StoreError>> + Send + 'a>>;

/// A call to a store with a confirmation by replicas, in progress.
pub type Confirming<'a> = Pin<Box<dyn Future<Output = Result<(Reply, u32), StoreError>> + Send + 'a>>;

/// A list of names, on its way.
pub type Listing<'a> = Pin<Box<dyn Future<Output = Result<Vec<Name>, StoreError>> + Send + 'a>>;

/// Executes commands, each at once or not at all, in the order of their calls as long as it stays connected.
pub trait Store: Send + Sync {
    /// Executes `command`, giving up after `timeout`. Dropped before it is ready, it may still be executed.
    fn execute<'a>(&'a self, command: &'a Command, timeout: Duration) -> Executing<'a>;

    /// Executes `command`, and tells on how many replicas all is that it and every command before it has written,
    /// waiting for `replicas` of them as long as `timeout` allows. A store without replicas has nothing to wait
    /// for.
    fn confirm<'a>(&'a self, command: &'a Command, _replicas: u32, timeout: Duration) -> Confirming<'a> {
        Box::pin(async move { Ok((self.execute(command, timeout).await?, u32::MAX)) })
    }

    /// The semaphores that there are, each once, sorted. One that is made or ends meanwhile may be missing.
    fn list(&self, timeout: Duration) -> Listing<'_>;

    /// Notes that a permit of the session was handed over, so that its events are not the session's any more. A store
    /// that keeps no list of its sessions' permits has nothing to do.
    fn forget(&self, _semaphore: &Name, _request: &RequestId) {}
}

/// What a store tells the session without being asked.
#[derive(Debug)]
pub enum StoreEvent {
    /// Something happened to an entry of the session.
    Event(Event),
    /// The store can be reached (again), or events may have been lost: ask how everything stands.
    Up,
    /// The store cannot be reached; it is being tried again.
    Down(StoreError),
}

/// Signals on their way to a session. Bounded: a slow session holds its store back and loses nothing.
pub type StoreEvents = tokio::sync::mpsc::Sender<StoreEvent>;

/// How many signals may be on their way.
pub const EVENT_BUFFER: usize = 1024;

/// What a session tells a store when it opens.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The session's id.
    pub session: SessionId,
    /// The first part of every key.
    pub prefix: String,
    /// The usual lease: it scales how fast a lost connection must be noticed and replaced.
    pub lease: Duration,
    /// Where signals go.
    pub events: StoreEvents,
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
    /// Parses a URL, with the recovery that it asks for. No error repeats the URL, as it may have a password.
    pub(crate) fn parse(url: &str) -> Result<(Self, Option<Recovery>), AddressError> {
        let invalid = |reason| AddressError::Invalid { reason };
        let scheme = url.split(':').next().unwrap_or_default();
        if let Some(rest) = url.strip_prefix("memory:") {
            let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
            let options = Options::parse(query, &[Known { name: RECOVERY, refused: None }]);
            let recovery = options.and_then(|options| options.recovery()).map_err(invalid)?;
            return Ok((Self::Memory(name.to_owned()), recovery));
        }
        #[cfg(feature = "local")]
        if let Some(path) = url.strip_prefix("local:") {
            return local::parse(path).map(|path| (Self::Local(path), None)).map_err(invalid);
        }
        #[cfg(feature = "redis")]
        if url[scheme.len()..].starts_with("://") && redis::Address::serves(scheme) {
            let (address, recovery) = redis::Address::parse(url).map_err(invalid)?;
            return Ok((Self::Redis(Box::new(address)), recovery));
        }
        let local = if cfg!(feature = "local") { "local:, " } else { "" };
        #[cfg(feature = "redis")]
        let others = redis::Address::SCHEMES.map(|scheme| format!(", {scheme}://")).concat();
        #[cfg(not(feature = "redis"))]
        let others = "";
        let known = format!("{local}memory:{others}");
        // Only what a `://` follows is a scheme. Anything else may be a part of a password.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
        if !url[scheme.len()..].starts_with("://") || !scheme.bytes().all(plain) {
            let reason = match is_address(url) {
                true => format!("it has no scheme: did you mean redis://{url}?"),
                false => format!("it begins with none of {known}: did you mean redis://HOST:PORT?"),
            };
            return Err(AddressError::Invalid { reason });
        }
        Err(AddressError::UnknownScheme { scheme: scheme.to_owned(), known })
    }
}

/// Whether `text` is the address of a server, certainly without a password: an IP address or this machine, and
/// perhaps a port.
fn is_address(text: &str) -> bool {
    let text = text.trim_end_matches('/');
    let host = match text.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => text,
    };
    host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}

/// Opens a store for a session, trying again with growing pauses while the store is away. The first attempt takes
/// 5 seconds at most. No other begins when `within` has passed, and none goes on then. Must be called on the
/// session's runtime.
pub(crate) async fn open(
    address: &Address,
    opening: StoreOptions,
    within: Duration,
) -> Result<Arc<dyn Store>, StoreError> {
    let began = Instant::now();
    let mut pause = PAUSES.0;
    let mut earlier: Option<StoreError> = None;
    loop {
        let limit = match &earlier {
            None => ATTEMPT,
            Some(_) => within.saturating_sub(began.elapsed()).min(ATTEMPT),
        };
        let error = match timeout(limit, open_once(address, opening.clone())).await {
            Ok(Err(error)) if error.is_temporary() => error,
            Ok(result) => return result,
            Err(_) => match &earlier {
                // An attempt that was cut short tells less than the one before it.
                Some(earlier) if limit < ATTEMPT => earlier.clone(),
                _ => {
                    let reason = format!("{address}: no connection within {limit:?}");
                    StoreError::Unreachable { reason }
                }
            },
        };
        if earlier.is_none() && !within.is_zero() {
            emit!(
                WARN,
                [store = address.to_string(), error = error.clone(), within],
                %store,
                %error,
                ?within,
                "not connected yet: trying again"
            );
        }
        let delay = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        if began.elapsed() + delay >= within {
            return Err(error);
        }
        earlier = Some(error);
        sleep(delay).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn open_once(address: &Address, opening: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
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
