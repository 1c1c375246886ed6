//! The lines that are not about a permit: each is one call to the store, and has one event, its answer.

use permits::{Change, Changed, Client, Limit};

use super::events::Event;
use crate::exit::Failure;

/// The most calls of a program at once. Their answers are not bounded by what the program has read, so this
/// bounds them.
pub(super) const MAX_CALLS: usize = 64;

/// A call to the store.
#[derive(Debug)]
pub(super) enum Call {
    /// An inspection that lists at most `max` holders and `max` waiters.
    Inspect {
        name: String,
        max: Option<u32>,
    },
    List,
    Change {
        name: String,
        change: Change,
    },
}

impl Call {
    /// The answer of the store.
    ///
    /// # Errors
    /// The failure that `permits status`, `permits list` or the verb of the change would end with.
    pub(super) async fn answer(self, client: &Client) -> Result<Event<'static>, Failure> {
        Ok(match self {
            Self::Inspect { name, max } => {
                let semaphore = client.semaphore(&name, Limit::Stored)?;
                let inspection = match max {
                    Some(max) => semaphore.inspect_up_to(max).await?,
                    None => semaphore.inspect().await?,
                };
                Event::Inspected { inspection: Box::new(inspection) }
            }
            Self::List => Event::Listed { names: client.list().await? },
            Self::Change { name, change } => {
                let changed = client.semaphore(&name, Limit::Stored)?.change(change).await?;
                let Changed { found, limit, limit_version, .. } = changed;
                Event::Changed { found, limit, limit_version }
            }
        })
    }
}
