//! [`Semaphore`] turns options into messages to the session, and replies into types. The methods for
//! operators are in `operator`; the same changes as one value are in `change`.

mod change;
mod operator;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::error::AdminError;
use crate::observe::meters::SemaphoreMeters;
use crate::options::{AcquireOptions, Limit};
use crate::protocol::{self, Declaration, InvalidInput, Name, Operation};
use crate::reply::Reply;
use crate::requests::Requests;
use crate::session::callers::{Message, Session};
use crate::session::shelf::Keep;
use crate::session::spec::LimitDeclaration;

pub use change::{Change, Changed};

/// A named line with a limit. You can clone it cheaply.
///
/// [`Client::semaphore`](crate::Client::semaphore) makes it. First come, first served: no request overtakes
/// an earlier one that still waits, even if it asks for fewer units, unless you ask for
/// [lanes](AcquireOptions::lane), [`keep`](Semaphore::keep) or [`supersede`](AcquireOptions::supersede).
#[derive(Clone)]
pub struct Semaphore {
    session: Session,
    name: Name,
    limit: Arc<LimitDeclaration>,
    meters: SemaphoreMeters,
    keep: Option<Keep>,
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit) = (self.name(), self.limit.first());
        f.debug_struct("Semaphore").field("name", &name).field("limit", &limit).finish()
    }
}

impl Semaphore {
    pub(crate) fn new(session: Session, name: &str, limit: Limit) -> Result<Self, InvalidInput> {
        let first = limit.declaration()?;
        let name = Name::new(name)?;
        let limit = session.declaration(&name, first);
        let meters = session.meters(&name);
        let idle = session.keep();
        Ok(Self { session, name, limit, meters, keep: None }.keep(idle))
    }

    /// Keeps permits: if you release a permit while no request waits, it stays with this client for `idle`,
    /// and is granted to the client's next request without a call to the store. A longer `idle` than a third
    /// of the lease is shortened to that; zero keeps no permit. The setting applies to this handle and its
    /// clones. Unless set, [`ClientBuilder::keep`](crate::ClientBuilder::keep) applies.
    ///
    /// The store counts a kept permit as held, and cannot tell it from a used one:
    /// [`HolderInfo::may_be_kept`](crate::HolderInfo::may_be_kept) marks both. When a request that reaches
    /// the store needs units, the limit changes, or an operator pauses, closes or deletes the semaphore or
    /// pins a lane, the store recalls kept permits by one message. This client then releases them, and keeps
    /// nothing until no request waits, no lane is pinned, no more than the limit is held, and the semaphore
    /// is neither paused nor closed nor recovering. So its own requests may overtake a waiter for as
    /// long as that message travels, but not afterwards. If the message is lost, that lasts until the next
    /// renewal, a third of the lease. A request that does not wait in line is queued for kept units
    /// nevertheless, for 50 ms at most. This client also releases what it keeps after a failed call or a lost
    /// connection.
    ///
    /// A kept permit serves a request for as many units, with the same lease, label and lane (with its share
    /// and bounds), from a handle that keeps permits and declares the same limit. The request must be renewed
    /// [automatically](AcquireOptions::auto_renew), and set no [`holder`](AcquireOptions::holder),
    /// [`at_least`](AcquireOptions::at_least), [`max_hold`](AcquireOptions::max_hold) or
    /// [`supersede`](AcquireOptions::supersede). Other requests go to the store. A permit whose
    /// weight, lease or renewal you have changed is not kept, and after 4,096 grants a kept permit is
    /// released once. Each grant has a higher
    /// [token](crate::Permit::token) than those before it in its slot; the permit keeps the holder's name of
    /// the store's grant.
    ///
    /// A client that is closed, or whose last handle is dropped, releases what it keeps. If your program ends
    /// without that, kept permits stay taken until their leases end.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 500)?.keep(Duration::from_millis(200));
    /// for _ in 0..100 {
    ///     let permit = api.acquire().await?;
    ///     // … the call
    ///     permit.release().await?;
    /// }
    /// assert!(api.inspect().await?.counts.grants < 100, "most were granted by this client");
    /// client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keep(mut self, idle: Duration) -> Self {
        let declaration = self.limit.first();
        let keep = || Keep { shelf: self.session.shelf(&self.name), idle, declaration };
        self.keep = (!idle.is_zero()).then(keep);
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Acquires one unit, waiting in line for it without limit.
    ///
    /// # Errors
    /// [`AcquireError`](crate::AcquireError). Of the errors that mean *not now*
    /// ([`is_not_now`](crate::AcquireError::is_not_now)), only `QueueFull`, `LineClosed` and, of a client
    /// with [`replicas`](crate::ClientBuilder::replicas), `NotReplicated` can occur. If the store cannot be
    /// reached, calls are retried for [`store_timeout`](crate::ClientBuilder::store_timeout).
    ///
    /// # Cancel safety
    /// If you drop it before it is ready, the request leaves the line; a permit that was granted meanwhile is
    /// released.
    pub fn acquire(&self) -> Acquire {
        self.acquire_with(AcquireOptions::new())
    }

    /// Acquires several units at once: all or none, for one permit of this weight.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]; [`AcquireError::ExceedsLimit`](crate::AcquireError::ExceedsLimit) if
    /// `units` is above the limit.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_many(&self, units: u32) -> Acquire {
        self.acquire_with(AcquireOptions::new().weight(units))
    }

    /// Acquires one unit if it is free now and no other request waits for it.
    ///
    /// # Errors
    /// [`AcquireError::NoPermits`](crate::AcquireError::NoPermits) if it is not; after 50 ms at most, if
    /// other clients may [keep](Semaphore::keep) units.
    /// `Cooling` or `Recovering` if time alone lets the request in, with the time until then
    /// ([`retry_after`](crate::AcquireError::retry_after)). `Paused` in a pause, with a time if the pause has
    /// an end and no holder has to leave first. Also `LineClosed`, `LaneFull` and `NotReplicated`.
    /// [`AcquireError::Store`](crate::AcquireError::Store) if the store does not answer within a fifth of the
    /// client's lease (250 ms to 3 s).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn try_acquire(&self) -> Acquire {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Acquires as the options say, but does not wait.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn try_acquire_with(&self, options: AcquireOptions) -> Acquire {
        self.acquire_with(options.no_wait())
    }

    /// Acquires as the options say.
    ///
    /// # Errors
    /// [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_with(&self, options: AcquireOptions) -> Acquire {
        let requests = Requests {
            session: self.session.clone(),
            semaphore: self.name.clone(),
            limit: self.limit.clone(),
            meters: self.meters.clone(),
            keep: self.keep.clone(),
        };
        Acquire::new(requests, options)
    }

    /// Declares the limit without acquiring: from now on [`Semaphore::inspect`] shows it. This counts like
    /// the declaration of an acquisition: an operator's pinned limit stays, and a higher limit grants at
    /// once. Returns the limit in force.
    ///
    /// The store forgets a semaphore that is not used, as after an acquisition, two to four times the longest
    /// lease or `at_least` after its last use: with the default lease, half a minute to a minute.
    ///
    /// # Errors
    /// [`AdminError::LimitMismatch`] if the limit is [`Limit::Exactly`] and another one is in force;
    /// [`AdminError::NoLimit`] if it is [`Limit::Stored`] and none is stored; [`AdminError`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the limit may have been declared.
    pub fn declare(&self) -> Reply<u32, AdminError> {
        let declared = self.limit.clone();
        // An empty batch of renewals applies the declaration, and grants what the new limit allows.
        self.administer(self.limit.first(), Operation::Renew(Vec::new()), move |name, reply| {
            let semaphore = name.to_string();
            match (declared.first(), reply.limit) {
                (_, 0) => Err(AdminError::NoLimit { semaphore }),
                (Declaration::Require(required), stored) if required != stored => {
                    Err(AdminError::LimitMismatch { semaphore, required, stored })
                }
                (_, limit) => {
                    declared.note_reply(reply.pinned);
                    Ok(limit)
                }
            }
        })
    }

    /// Executes an operation on the semaphore itself, and makes the result from the reply.
    fn administer<T: Send + 'static>(
        &self,
        declaration: Declaration,
        operation: Operation,
        result: impl FnOnce(Name, protocol::Reply) -> Result<T, AdminError> + Send + 'static,
    ) -> Reply<T, AdminError> {
        let (session, name, semaphore) = (self.session.clone(), self.name.clone(), self.name.clone());
        Reply::new(async move {
            let message = |answer| Message::Admin { semaphore, declaration, operation, answer };
            result(name, session.call(message).await?)
        })
    }
}
