//! Session ids, from the entropy of the operating system.

use crate::protocol::SessionId;

/// A session id that no other process has. It does not come from a generator in this process, because a forked child and a
/// restored snapshot have a copy of the generator's state.
///
/// # Errors
/// The operating system's error, if it provides no entropy.
pub(crate) fn session_id() -> Result<SessionId, getrandom::Error> {
    let mut bytes = [0; 9];
    getrandom::fill(&mut bytes)?;
    Ok(SessionId::from_entropy(bytes))
}
