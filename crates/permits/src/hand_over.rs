//! Operations on a permit that was handed over: the client has only its handle, and no session holds it.

use std::time::Duration;

use crate::client::Client;
use crate::error::{AdminError, AdoptError};
use crate::handle::PermitHandle;
use crate::permit::Permit;
use crate::protocol::{
    self, AdoptRequest, Answers, Declaration, Operation, ReleaseOutcome, ReleaseRequest, RenewOutcome,
};
use crate::reply::Reply;
use crate::session::callers::Message;

impl Client {
    /// Takes over a permit that another process handed over with [`Permit::hand_over`].
    ///
    /// A handle is valid once: the first process that adopts it has the permit. The permit is renewed in the
    /// background, even if it was not before, and a [`max_hold`](crate::AcquireOptions::max_hold) of its
    /// request no longer applies.
    ///
    /// # Errors
    /// [`AdoptError::Gone`] if the lease has ended, or the permit was released or adopted already; also if
    /// the store lost it and does not know that it did: see [`PermitHandle`].
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the permit may have been taken over; then it is released.
    pub fn adopt(&self, handle: &PermitHandle) -> Reply<Permit, AdoptError> {
        let PermitHandle { semaphore, holder, request, terms, grant, last_token, counted: _ } =
            handle.clone();
        let new_request = self.session.new_request();
        // Register the metrics now, under no lock: the session needs them when the reply comes.
        self.session.meters(&semaphore);
        let adopt = Box::new(AdoptRequest { holder, request, terms, grant, new_request, last_token });
        let session = self.session.clone();
        Reply::new(async move {
            let guard = session.call(|answer| Message::Adopt { semaphore, adopt, answer }).await?;
            guard.state.pass_tokens(last_token.unwrap_or(0));
            guard.state.observe_adoption();
            Ok(Permit::new(guard))
        })
    }

    /// Renews the permit of a handle for another lease, and leaves it to the handle. Returns false if the
    /// store no longer has the permit: its lease ended, it was released, revoked or adopted, or the store
    /// lost it and does not know that it did: see [`PermitHandle`].
    ///
    /// The permit of a handle is not renewed in the background: call this before each end of the lease.
    ///
    /// # Errors
    /// [`AdminError::Recovering`] if the store lost its state and cannot put the permit back yet: retry
    /// before the lease ends. [`AdminError::Store`] if the store did not confirm the renewal.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the permit may have been renewed.
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
    pub fn renew(&self, handle: &PermitHandle) -> Reply<bool, AdminError> {
        let semaphore = handle.semaphore.to_string();
        self.operate(handle, Operation::Renew(vec![handle.renewal()]), |reply| match reply.answers {
            Answers::Renew(outcomes) if outcomes == [RenewOutcome::RetryLater] => {
                let remaining = Duration::from_millis(reply.recovering_ms);
                Err(AdminError::Recovering { semaphore, remaining })
            }
            answers => Ok(answers == Answers::Renew(vec![RenewOutcome::Held])),
        })
    }

    /// Releases the permit of a handle: the next in line is granted in the same moment, or, if the permit was
    /// acquired with `at_least`, once that time has passed. Returns false if the
    /// store no longer has the permit: its lease ended, so that another holder may have been granted its
    /// units, or it was released, revoked or adopted. A call whose reply was lost is sent again, and returns
    /// true if the store then no longer has the permit, because the first one may have released it.
    ///
    /// # Errors
    /// [`AdminError::Store`] if the store did not confirm the release; without it, the units are free when
    /// the lease ends.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the permit may have been released.
    pub fn release(&self, handle: &PermitHandle) -> Reply<bool, AdminError> {
        let PermitHandle { semaphore: _, holder, request, terms: _, grant: _, last_token, counted } =
            handle.clone();
        let release = Operation::Release(vec![ReleaseRequest { holder, request, last_token, counted }]);
        self.operate(handle, release, |reply| {
            Ok(reply.answers == Answers::Release(vec![ReleaseOutcome::Held]))
        })
    }

    /// Executes an operation on the permit of a handle, and makes the result of the reply.
    fn operate(
        &self,
        handle: &PermitHandle,
        operation: Operation,
        result: impl FnOnce(protocol::Reply) -> Result<bool, AdminError> + Send + 'static,
    ) -> Reply<bool, AdminError> {
        let (session, semaphore) = (self.session.clone(), handle.semaphore.clone());
        let declaration = Declaration::Stored;
        Reply::new(async move {
            let message = |answer| Message::Admin { semaphore, declaration, operation, answer };
            result(session.call(message).await?)
        })
    }
}
