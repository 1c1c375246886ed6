//! The limit as programs declare it.

use super::execution::Execution;
use crate::protocol::{Declaration, Refusal};

impl Execution<'_> {
    /// The limit by which the command's declaration replaces the stored one, if it does.
    pub(super) fn declared(&self) -> Result<Option<u32>, Refusal> {
        let state = &self.state;
        match self.command.declaration {
            Declaration::Stored if state.limit == 0 => Err(Refusal::NoLimit),
            Declaration::Require(limit) if state.limit != 0 && state.limit != limit => {
                Err(Refusal::LimitMismatch)
            }
            Declaration::Stored => Ok(None),
            Declaration::Declare(limit) => Ok((state.limit != limit && !state.pinned).then_some(limit)),
            Declaration::Fallback(limit) | Declaration::Require(limit) => {
                Ok((state.limit == 0).then_some(limit))
            }
        }
    }

    /// Puts a declared limit in force.
    pub(super) fn replace_limit(&mut self, limit: u32) {
        self.replaced_limit = Some(self.state.limit).filter(|replaced| *replaced > 0);
        self.state.limit = limit;
        self.state.limit_version += 1;
    }
}
