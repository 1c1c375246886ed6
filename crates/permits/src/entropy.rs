//! Session ids, from the entropy of the operating system.

use crate::protocol::SessionId;

/// A session id that no other process has. A generator in this process would not do: a forked child and a restored
/// snapshot have a copy of its state.
///
/// # Errors
/// The operating system's, if it gives no entropy.
pub(crate) fn session_id() -> Result<SessionId, getrandom::Error> {
    let mut bytes = [0; 9];
    getrandom::fill(&mut bytes)?;
    Ok(SessionId::from_entropy(bytes))
}
