//! What can be done to a semaphore from the screen, and how that is put into words.

use permits::{AdminError, Client};

/// Something to do to a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) semaphore: String,
    pub(super) deed: Deed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    Pause,
    Resume,
    SetLimit(u32),
    Unpin,
    /// Who, and whether it held when it was selected.
    Revoke(String, bool),
}

impl Action {
    pub(super) fn question(&self) -> String {
        let Self { semaphore, deed } = self;
        match deed {
            Deed::Pause => format!("pause {semaphore:?}: grant nothing until it is resumed?"),
            Deed::Revoke(holder, true) => format!("take the permit of {holder:?} away?"),
            Deed::Revoke(holder, false) => format!("take the place in line of {holder:?} away?"),
            _ => format!("{}?", self.what()),
        }
    }

    /// As a command.
    pub(super) fn what(&self) -> String {
        let Self { semaphore, deed } = self;
        match deed {
            Deed::Pause => format!("pause {semaphore:?}"),
            Deed::Resume => format!("resume {semaphore:?}"),
            Deed::SetLimit(limit) => format!("set the limit of {semaphore:?} to {limit}"),
            Deed::Unpin => format!("unpin the limit of {semaphore:?}"),
            Deed::Revoke(holder, _) => format!("revoke {holder:?}"),
        }
    }

    /// When it is done; for a revocation, whether there was anything to take.
    pub(super) fn done(&self, taken: bool) -> String {
        let Self { semaphore, deed } = self;
        match deed {
            Deed::Pause => format!("paused {semaphore:?}"),
            Deed::Resume => format!("resumed {semaphore:?}"),
            Deed::SetLimit(limit) => format!("the limit of {semaphore:?} is {limit}, and pinned"),
            Deed::Unpin => format!("programs declare the limit of {semaphore:?} again"),
            Deed::Revoke(holder, _) if taken => format!("revoked {holder:?}"),
            Deed::Revoke(holder, _) => format!("{holder:?} had nothing any more"),
        }
    }

    /// Does it. For a revocation, whether there was anything to take.
    pub(super) async fn perform(&self, client: &Client) -> Result<bool, AdminError> {
        let semaphore = client.open(&self.semaphore);
        match &self.deed {
            Deed::Pause => semaphore.pause().await?,
            Deed::Resume => semaphore.resume().await?,
            Deed::SetLimit(limit) => drop(semaphore.set_limit(*limit).await?),
            Deed::Unpin => drop(semaphore.unpin().await?),
            Deed::Revoke(holder, _) => return semaphore.revoke(holder, "").await,
        }
        Ok(true)
    }
}
