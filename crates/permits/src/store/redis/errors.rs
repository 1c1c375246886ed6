//! What a failed call means: not asked, no answer, or a refusal, and of which kind.

use redis::RedisError;

use crate::protocol::Name;
use crate::store::StoreError;

/// The server cannot serve this now, has done nothing, and will later or elsewhere.
const NOT_NOW: [&str; 8] =
    ["LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS", "MISCONF"];

/// Why a node did not execute a command.
pub(crate) enum Failure {
    /// The slot has moved to the node at this address.
    Moved(String),
    /// The slot is moving, and what is asked for is at this address already.
    Ask(String),
    Store(StoreError),
}

impl Failure {
    /// What `error` means for a command to `semaphore`.
    pub(crate) fn of(error: &RedisError, semaphore: &Name) -> Self {
        match (error.redirect_node(), error.code()) {
            (Some((to, _)), Some("ASK")) => Self::Ask(to.to_owned()),
            (Some((to, _)), _) => Self::Moved(to.to_owned()),
            (None, _) => Self::Store(of_command(error, semaphore)),
        }
    }
}

impl From<Failure> for StoreError {
    /// For a server that is no node of a cluster, as far as we know.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Moved(to) | Failure::Ask(to) => {
                let reason =
                    format!("it belongs to a cluster, with a node at {to}: connect with redis+cluster://");
                Self::Unsupported { reason }
            }
            Failure::Store(error) => error,
        }
    }
}

/// Whether the script must be sent whole.
pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// What `error`, returned by a command on a connection that was up, means for `semaphore`.
fn of_command(error: &RedisError, semaphore: &Name) -> StoreError {
    match (error.code(), error.detail()) {
        (Some(code), detail) => {
            let reason = format!("{code} {}", detail.unwrap_or_default());
            if has(&reason, "WRONGTYPE") {
                return StoreError::WrongType { semaphore: semaphore.to_string(), reason };
            }
            of_server(reason)
        }
        // The connection broke: what was sent on it may have been executed.
        (None, _) => StoreError::NoAnswer { reason: error.to_string() },
    }
}

/// What `error`, returned by a command about no semaphore in particular, means.
pub(crate) fn of_listing(error: &RedisError) -> StoreError {
    match (error.code(), error.detail()) {
        (Some(code), detail) => of_server(format!("{code} {}", detail.unwrap_or_default())),
        (None, _) => StoreError::NoAnswer { reason: error.to_string() },
    }
}

/// What `error`, returned while a connection was being made, means.
pub(crate) fn of_connecting(error: &RedisError) -> StoreError {
    let said = match (error.code(), error.detail()) {
        (Some(code), detail) => format!("{code} {}", detail.unwrap_or_default()),
        (None, detail) => detail.unwrap_or_default().to_owned(),
    };
    match of_server(said) {
        denied @ StoreError::Denied { .. } => denied,
        _ if error.kind() == redis::ErrorKind::AuthenticationFailed => {
            StoreError::Denied { reason: error.to_string() }
        }
        _ => StoreError::Unreachable { reason: error.to_string() },
    }
}

/// Whether the connection is of no use any more: broken, or to a server that may not write.
pub(crate) fn needs_reconnect(error: &RedisError) -> bool {
    error.code().is_none() || has(error.code().unwrap_or_default(), "READONLY")
}

fn of_server(reason: String) -> StoreError {
    // Before 7.0 the error of a command in a script comes inside a text that begins with ERR.
    if NOT_NOW.iter().any(|code| has(&reason, code)) {
        StoreError::Unreachable { reason }
    } else if ["NOAUTH", "WRONGPASS", "NOPERM"].iter().any(|code| has(&reason, code))
        // In a script before 7.0; and when the client selects a database, of which error it keeps the text alone.
        || ["can't run this command", "can't access at least one", "has no permissions"]
            .iter()
            .any(|text| reason.contains(text))
    {
        StoreError::Denied { reason }
    } else if has(&reason, "OOM") {
        StoreError::OutOfMemory { reason }
    } else {
        StoreError::Rejected { reason }
    }
}

/// Whether `code` stands in `reason` as a word of its own.
fn has(reason: &str, code: &str) -> bool {
    reason.split(|character: char| !character.is_ascii_uppercase()).any(|word| word == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_where_each_version_puts_them() {
        let old = "ERR Error running script (call to f_6b): @user_script:7: -OOM command not allowed";
        assert!(matches!(of_server(old.into()), StoreError::OutOfMemory { .. }));
        let new = "OOM command not allowed when used memory > 'maxmemory'. script: 6b, on @user_script:7.";
        assert!(matches!(of_server(new.into()), StoreError::OutOfMemory { .. }));
        assert!(matches!(of_server("BUSY Redis is busy".into()), StoreError::Unreachable { .. }));
        assert!(matches!(of_server("ERR BUSYNESS".into()), StoreError::Rejected { .. }));
    }
}
