//! An operator's action on the screen, and its wording.

use std::fmt;

use permits::{AdminError, Change, Client, Limit};

use crate::administer;

/// A change of a semaphore. As text, `"exports": pause`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) semaphore: String,
    pub(super) change: Change,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.semaphore, self.change)
    }
}

impl Action {
    /// The message after the action. `found` is false if there was nothing to revoke or to delete.
    pub(super) fn outcome(&self, found: bool) -> String {
        format!("{self}: {}", if found { "done" } else { "there is none any more" })
    }

    /// Performs the action. Returns false if there was nothing to revoke or to delete.
    pub(super) async fn perform(&self, client: &Client) -> Result<bool, AdminError> {
        administer::make(&client.semaphore(&self.semaphore, Limit::Stored)?, &self.change).await
    }
}
