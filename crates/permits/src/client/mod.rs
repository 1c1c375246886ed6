//! [`Client`]: one session with a store.

pub(crate) mod builder;

use crate::error::{AdminError, CloseError};
use crate::options::{AcquireOptions, Limit};
use crate::protocol::{InvalidInput, Name};
use crate::reply::Reply;
use crate::semaphore::Semaphore;
use crate::session::callers::{Message, Session};
use crate::several::AcquireAll;

/// A session with a store. Cheap to clone; all clones are one session.
///
/// A client has a background thread that keeps its connection and renews its permits, independent of the
/// program's own threads and runtimes. The client ends when its last clone, semaphore, acquisition, reply and
/// permit are dropped. A semaphore in a static or in a layer keeps it open: [`Client::close`] ends it.
///
/// A client belongs to the process that connected it. In a forked child every operation fails at once, with
/// [`Ended::Forked`](crate::Ended::Forked), or with [`Lost::Forked`](crate::Lost::Forked) if it is one of a
/// permit, and a drop does nothing: connect in the child.
///
/// One thread of the process passes the events of all clients to the subscriber of `tracing`, so that a
/// subscriber that blocks or panics delays nothing. At most 1,024 events wait for it, and those of the level
/// debug only while fewer than 512 do. The others are dropped, and a warning says how many. The span
/// `acquire` is opened by the caller itself.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = permits::Client::connect("memory:").await?;
/// let exports = client.semaphore("exports", 4)?;
/// let permit = exports.acquire().await?;
/// // … at most 4 of these run at once, anywhere
/// permit.release().await?;
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) session: Session,
}

impl Client {
    /// Returns the semaphore `name` (1–200 bytes of printable UTF-8). `limit` is a number, at least 1, or
    /// another [`Limit`].
    ///
    /// Nothing is sent until you use it.
    ///
    /// # Errors
    /// [`InvalidInput`] if the name or the limit is not valid.
    pub fn semaphore(
        &self,
        name: impl AsRef<str>,
        limit: impl Into<Limit>,
    ) -> Result<Semaphore, InvalidInput> {
        Semaphore::new(self.session.clone(), name.as_ref(), limit.into())
    }

    /// Acquires permits of several semaphores, all or none. Give each semaphore with its options; they may
    /// belong to several clients. If there are no requests, you get an empty set at once.
    ///
    /// The semaphores are acquired one after the other, in an order that all programs share: names with more
    /// `/` first, then by name. So programs that ask for several at once do not block one another forever,
    /// and a request that waits in the line `api/tenant-7` holds no unit of `api`. Each request waits in the
    /// line of its semaphore, in strict order. The shortest
    /// [`AcquireOptions::timeout`](crate::AcquireOptions::timeout) limits the whole wait; if one request does
    /// not wait, none of them does.
    ///
    /// Programs that acquire the same semaphores one by one, in an order of their own, can block one another.
    /// Each lease begins with its grant, so a permit that is [not renewed](crate::AcquireOptions::auto_renew)
    /// can end while the set waits for the others, and so can one with a
    /// [`max_hold`](crate::AcquireOptions::max_hold), which counts from its own grant. The time of a grant
    /// with [`at_least`](crate::AcquireOptions::at_least) begins when all are held. The client tells the
    /// store before the set is ready: if it does not reply, the error comes up to 3 s after the timeout. If
    /// the set fails, none of its units cool.
    ///
    /// # Errors
    /// [`AcquireAllError`](crate::AcquireAllError): a request failed, a permit was lost while the set waited
    /// for others, or a semaphore is there twice. The permits that were acquired are then released, as by a
    /// drop. Requests that are not valid fail before any is sent.
    ///
    /// # Cancel safety
    /// If you drop it before it is ready, it leaves the line that it waits in, and releases what it has
    /// acquired.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use permits::AcquireOptions;
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let all = client.semaphore("api", 100)?;
    /// let tenant = client.semaphore("api/tenant-7", 10)?;
    /// let options = AcquireOptions::new();
    /// let permits = client.acquire_all([(all, options.clone()), (tenant, options)]).await?;
    /// assert_eq!(permits.permits()[0].semaphore(), "api/tenant-7");
    /// permits.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_all(&self, requests: impl IntoIterator<Item = (Semaphore, AcquireOptions)>) -> AcquireAll {
        AcquireAll::new(requests)
    }

    /// Lists the names of the semaphores that the store has, sorted: those in use, those that it has not
    /// forgotten yet, two to four times the longest lease or `at_least` after the last use, and those for
    /// which an operator has set something. A semaphore that begins or ends meanwhile may be missing.
    ///
    /// Redis has to walk over all keys of the server for this, which it does in steps (SCAN, never KEYS).
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn list(&self) -> Reply<Vec<String>, AdminError> {
        let session = self.session.clone();
        Reply::new(async move {
            let names: Vec<Name> = session.call(|answer| Message::List { answer }).await?;
            Ok(names.into_iter().map(|name| name.to_string()).collect())
        })
    }

    /// Ends the session: waiting acquisitions fail with [`Ended::Closed`](crate::Ended::Closed), permits that
    /// are still held are lost with [`Lost::Closed`](crate::Lost::Closed), and everything is released. An
    /// operation that is not answered yet fails, too, unless it is a release; the store may have executed it.
    /// A second call, by a clone, does nothing.
    ///
    /// Call this before your program ends, to learn of what could not be released. Even if you don't, permits
    /// that were dropped are released, if the store is a server and the connection is up.
    ///
    /// Once the reply is ready, the connections are closed and the background thread is ending, so your
    /// program may fork.
    ///
    /// # Errors
    /// [`CloseError`] if the store did not confirm every release within 5 seconds, in a forked child, or if
    /// the client has panicked inside.
    ///
    /// # Cancel safety
    /// If you drop the reply after you have polled it, closing continues in the background.
    pub fn close(self) -> Reply<(), CloseError> {
        Reply::new(async move { self.session.close().await })
    }
}
