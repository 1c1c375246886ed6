//! The operations of a client on a permit that was handed over: by its handle, which no session holds.

use std::time::Duration;

use crate::client::Client;
use crate::error::{AdminError, AdoptError};
use crate::handle::PermitHandle;
use crate::permit::Permit;
use crate::protocol::{
    AdoptRequest, Answers, Declaration, Operation, ReleaseOutcome, RenewOutcome, Reply, RequestKey,
};
use crate::session::callers::{Message, PermitGuard};
use crate::session::reply::PendingReply;

impl Client {
    /// Takes over a permit that another process handed over with [`Permit::hand_over`].
    ///
    /// A handle is valid once: the first process that adopts it has the permit.
    ///
    /// # Errors
    /// [`AdoptError::Gone`] if its lease has ended, or it was released or adopted already.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the permit may have been taken over; then it is released.
    pub async fn adopt(&self, handle: &PermitHandle) -> Result<Permit, AdoptError> {
        self.start_adopt(handle).await
    }

    /// Renews the permit of a handle for another lease, and leaves it to the handle. Returns false if the
    /// store no longer has the permit: its lease ended, or it was released, revoked or adopted.
    ///
    /// The handle must be renewed before each end of the lease, since no client does so in the background.
    ///
    /// # Errors
    /// [`AdminError::Recovering`] if the store lost its state and cannot put the permit back yet: retry
    /// before the lease ends. [`AdminError::Store`] if the store did not confirm the renewal.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the permit may have been renewed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = permits::Client::connect("memory:").await?;
    /// let permit = client.semaphore("build", 1)?.acquire().await?;
    /// let handle = permit.hand_over().await?;
    /// // … in any process that has the text of the handle:
    /// assert!(client.renew(&handle).await?);
    /// assert!(client.release(&handle).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self, handle: &PermitHandle) -> Result<bool, AdminError> {
        self.start_renew(handle).await
    }

    pub(crate) fn start_renew(&self, handle: &PermitHandle) -> PendingReply<Reply, AdminError, bool> {
        let semaphore = handle.semaphore.to_string();
        self.operate(handle, Operation::Renew(vec![handle.renewal()])).and_then(move |reply| {
            match reply.answers {
                Answers::Renew(outcomes) if outcomes == [RenewOutcome::RetryLater] => {
                    Err(AdminError::Recovering {
                        semaphore,
                        remaining: Duration::from_millis(reply.recovering_ms),
                    })
                }
                answers => Ok(answers == Answers::Renew(vec![RenewOutcome::Held])),
            }
        })
    }

    /// Releases the permit of a handle: the next in line is granted in the same moment. Returns false if the
    /// store no longer has the permit: its lease ended, so that another holder may have been granted its
    /// units, or it was released, revoked or adopted. A call whose reply was lost is sent again, and returns
    /// true if the store then no longer has the permit, because the first one may have released it.
    ///
    /// # Errors
    /// [`AdminError::Store`] if the store did not confirm the release; without it, the units are free when
    /// the lease ends.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the permit may have been released.
    pub async fn release(&self, handle: &PermitHandle) -> Result<bool, AdminError> {
        self.start_release(handle).await
    }

    pub(crate) fn start_release(&self, handle: &PermitHandle) -> PendingReply<Reply, AdminError, bool> {
        let PermitHandle { holder, request, .. } = handle.clone();
        let release = Operation::Release(vec![RequestKey { holder, request }]);
        self.operate(handle, release)
            .and_then(|reply| Ok(reply.answers == Answers::Release(vec![ReleaseOutcome::Held])))
    }

    /// Executes an operation on the permit of a handle.
    fn operate(&self, handle: &PermitHandle, operation: Operation) -> PendingReply<Reply, AdminError> {
        let (semaphore, declaration) = (handle.semaphore.clone(), Declaration::Stored);
        self.session.call(|answer| Message::Admin { semaphore, declaration, operation, answer })
    }

    pub(crate) fn start_adopt(&self, handle: &PermitHandle) -> PendingReply<PermitGuard, AdoptError, Permit> {
        let PermitHandle { semaphore, holder, request, terms, grant } = handle.clone();
        let new_request = self.session.new_request();
        // The session finds its metrics when the reply comes.
        self.session.meters(&semaphore);
        let adopt = Box::new(AdoptRequest { holder, request, terms, grant, new_request });
        let call = self.session.call(|answer| Message::Adopt { semaphore, adopt, answer });
        call.and_then(|guard| {
            guard.state.observe_adoption();
            Ok(Permit::new(guard))
        })
    }
}
