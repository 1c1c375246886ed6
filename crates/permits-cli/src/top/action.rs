//! An operator's actions on the screen, and their wording.

use permits::{AdminError, Client, Limit};

use crate::administer::revoke_one;

/// An action on a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) semaphore: String,
    pub(super) kind: ActionKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ActionKind {
    Pause,
    Resume,
    SetLimit(u32),
    Unpin,
    /// With the reason.
    Close(String),
    Open,
    Delete,
    /// A holder or waiter by name, and true if it held when it was selected.
    Revoke(String, bool),
}

impl Action {
    /// The question before it. `told` makes a text of a holder.
    pub(super) fn question(&self, told: impl Fn(&str) -> String) -> String {
        let Self { semaphore, kind } = self;
        match kind {
            ActionKind::Pause => format!("pause {semaphore:?}: grant nothing until it is resumed?"),
            ActionKind::Delete => format!("delete {semaphore:?}: forget its limit, state and counts?"),
            ActionKind::Revoke(holder, true) => format!("take the permit of {} away?", told(holder)),
            ActionKind::Revoke(holder, false) => format!("take the place in line of {} away?", told(holder)),
            // Asked about a mutex only.
            ActionKind::SetLimit(_) => {
                format!("{}: admit several at once, in place of one?", self.describe())
            }
            _ => format!("{}?", self.describe()),
        }
    }

    /// The action as a command.
    pub(super) fn describe(&self) -> String {
        let Self { semaphore, kind } = self;
        match kind {
            ActionKind::Pause => format!("pause {semaphore:?}"),
            ActionKind::Resume => format!("resume {semaphore:?}"),
            ActionKind::SetLimit(limit) => format!("set the limit of {semaphore:?} to {limit}"),
            ActionKind::Unpin => format!("unpin the limit of {semaphore:?}"),
            ActionKind::Close(_) => format!("close the line of {semaphore:?}"),
            ActionKind::Open => format!("open the line of {semaphore:?}"),
            ActionKind::Delete => format!("delete {semaphore:?}"),
            ActionKind::Revoke(holder, _) => format!("revoke {holder:?}"),
        }
    }

    /// The message after the action. `taken` is false for a revocation that found neither a permit nor a
    /// waiter.
    pub(super) fn outcome(&self, taken: bool) -> String {
        let Self { semaphore, kind } = self;
        match kind {
            ActionKind::Pause => format!("paused {semaphore:?}"),
            ActionKind::Resume => format!("resumed {semaphore:?}"),
            ActionKind::SetLimit(limit) => format!("the limit of {semaphore:?} is {limit}, and pinned"),
            ActionKind::Unpin => format!("programs declare the limit of {semaphore:?} again"),
            ActionKind::Close(_) => format!("closed the line of {semaphore:?}"),
            ActionKind::Open => format!("opened the line of {semaphore:?}"),
            ActionKind::Delete => format!("deleted {semaphore:?}"),
            ActionKind::Revoke(holder, _) if taken => format!("revoked {holder:?}"),
            ActionKind::Revoke(holder, _) => format!("{holder:?} no longer holds or waits"),
        }
    }

    /// Performs the action. Returns false for a revocation that found neither a permit nor a waiter.
    pub(super) async fn perform(&self, client: &Client) -> Result<bool, AdminError> {
        let semaphore = client.semaphore(&self.semaphore, Limit::Stored)?;
        match &self.kind {
            ActionKind::Pause => semaphore.pause("").await?,
            ActionKind::Resume => semaphore.resume().await?,
            ActionKind::SetLimit(limit) => drop(semaphore.set_limit(*limit).await?),
            ActionKind::Unpin => drop(semaphore.unpin().await?),
            ActionKind::Close(reason) => semaphore.close_line(reason).await?,
            ActionKind::Open => semaphore.open_line().await?,
            ActionKind::Delete => drop(semaphore.delete().await?),
            ActionKind::Revoke(holder, _) => return revoke_one(&semaphore, holder, "").await,
        }
        Ok(true)
    }
}
