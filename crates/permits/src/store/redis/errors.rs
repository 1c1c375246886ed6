//! What a failed call means: not sent, no answer, or a refusal, and of which kind; and how that is told.
//!
//! Kinds come from error codes of the server and from typed errors of the libraries. What a library says of itself is
//! never repeated; the server's words are, without what it adds about scripts and arguments.

use std::io;

use redis::{ErrorKind, RedisError};

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
                Self::Mismatch { reason }
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
    match of_listing(error) {
        StoreError::Rejected { reason } if has(&reason, "WRONGTYPE") => {
            StoreError::WrongType { semaphore: semaphore.to_string(), reason }
        }
        other => other,
    }
}

/// What `error`, returned by a command about no semaphore in particular, means.
pub(crate) fn of_listing(error: &RedisError) -> StoreError {
    match error.code() {
        Some(_) => of_server(text(error)),
        // The connection broke: what was sent on it may have been executed.
        None => StoreError::NoAnswer { reason: text(error) },
    }
}

/// What `error`, returned while a connection was being made, means. What is not known to last is tried again.
pub(crate) fn of_connecting(error: &RedisError) -> StoreError {
    if error.code().is_some() {
        return match of_server(text(error)) {
            denied @ StoreError::Denied { .. } => denied,
            StoreError::Rejected { reason } if reason.contains("unknown command") => {
                let reason =
                    format!("it says \"{reason}\": was the command renamed or removed (rename-command)?");
                StoreError::Unsupported { reason }
            }
            other => StoreError::Unreachable { reason: other.into_reason() },
        };
    }
    let Some(io) = io_error(error) else {
        #[cfg(feature = "tls")]
        if source::<rustls::pki_types::InvalidDnsNameError>(error).is_some() {
            let reason = "no certificate can have the host's name: name the host, or its address in full";
            return StoreError::Mismatch { reason: reason.into() };
        }
        return match error.kind() {
            ErrorKind::RESP3NotSupported => {
                StoreError::Unsupported { reason: "it does not speak RESP3: is a proxy before it?".into() }
            }
            ErrorKind::InvalidClientConfig => {
                StoreError::Tls { reason: "tls_cert and tls_key do not belong together".into() }
            }
            _ => StoreError::Unreachable { reason: text(error) },
        };
    };
    #[cfg(feature = "tls")]
    if let Some(tls) = tls_error(io) {
        return of_tls(tls);
    }
    match io.kind() {
        io::ErrorKind::PermissionDenied => StoreError::Denied { reason: text(error) },
        io::ErrorKind::InvalidInput => StoreError::Mismatch { reason: text(error) },
        _ => StoreError::Unreachable { reason: text(error) },
    }
}

/// What a failure of TLS means.
#[cfg(feature = "tls")]
fn of_tls(error: &rustls::Error) -> StoreError {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};

    let reason = match error {
        Error::InvalidCertificate(reason) => match reason {
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "the server's certificate has expired"
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: is this machine's clock right?"
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "the server's certificate is for another host than the URL names"
            }
            // The latter if another authority has the same name.
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                "the server's certificate is from an authority that is not trusted: name the authority's \
                 certificate with ?tls_ca=/path/ca.pem"
            }
            _ => {
                "the server's certificate is not one of a server (an authority's own certificate is none), or it \
                 is damaged or revoked"
            }
        },
        Error::AlertReceived(alert) => match alert {
            Alert::CertificateRequired => {
                "the server wants a client's certificate: ?tls_cert=/path/client.pem&tls_key=/path/client.key"
            }
            // In TLS 1.2 it stands for a certificate that is missing, too.
            Alert::HandshakeFailure => {
                "the server refuses the TLS handshake: it may want a client's certificate \
                 (?tls_cert=/path/client.pem&tls_key=/path/client.key), or other ciphers"
            }
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateRevoked
            | Alert::AccessDenied
            | Alert::DecryptError => "the server does not accept the certificate in tls_cert",
            Alert::CertificateExpired => "the server says that the certificate in tls_cert has expired",
            _ => "the server ends the TLS handshake: do its protocol versions (1.2, 1.3) and ciphers fit?",
        },
        Error::InvalidMessage(_) => {
            let reason = "the server does not speak TLS: write redis:// instead of rediss://";
            return StoreError::Mismatch { reason: reason.into() };
        }
        _ => "the TLS handshake fails: do the protocol versions (1.2, 1.3) and ciphers of both sides fit?",
    };
    StoreError::Tls { reason: reason.into() }
}

/// What `error` says, in words for people.
pub(crate) fn text(error: &RedisError) -> String {
    if let Some(code) = error.code() {
        let said = said(error.detail().unwrap_or_default());
        return if said.is_empty() { code.to_owned() } else { format!("{code} {said}") };
    }
    if let Some(io) = io_error(error) {
        #[cfg(feature = "tls")]
        if let Some(tls) = tls_error(io) {
            return of_tls(tls).into_reason();
        }
        return match io.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused: does a server run there?".into(),
            io::ErrorKind::NotFound => "there is no such socket: does a server run there?".into(),
            io::ErrorKind::PermissionDenied => {
                "this user may not use the socket (see its mode and owner)".into()
            }
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => "the connection was closed by the other side".into(),
            io::ErrorKind::TimedOut => "the connection timed out".into(),
            // The system's words, without the number.
            _ => {
                let words = io.to_string();
                words.split(" (os error").next().unwrap_or_default().to_owned()
            }
        };
    }
    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            "an answer that is not in the protocol of Redis: is it a Redis or Valkey server?".into()
        }
        ErrorKind::Io if std::error::Error::source(error).is_some() => {
            "the system's certificates cannot be read: name an authority with ?tls_ca=/path/ca.pem".into()
        }
        _ => "the connection was closed".into(),
    }
}

/// Whether the connection was closed, or the answer was none, as when one side speaks TLS and the other does not.
pub(crate) fn is_speechless(error: &RedisError) -> bool {
    match io_error(error) {
        Some(io) => !matches!(io.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
        None => error.code().is_none(),
    }
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    source(error)
}

/// The error that the `redis` crate has wrapped, if it is a `T`.
fn source<T: std::error::Error + 'static>(error: &RedisError) -> Option<&T> {
    type Shared = std::sync::Arc<dyn std::error::Error + Send + Sync>;
    std::error::Error::source(error)?.downcast_ref::<Shared>()?.downcast_ref()
}

#[cfg(feature = "tls")]
fn tls_error(io: &io::Error) -> Option<&rustls::Error> {
    io.get_ref()?.downcast_ref()
}

/// The server's words, without what it adds: where in which script, and the arguments, of which one may be a password.
fn said(detail: &str) -> &str {
    let detail = detail.split(", with args beginning with").next().unwrap_or_default();
    let detail = match detail.find(" script: ") {
        Some(at) if detail.contains("@user_script") => &detail[..at],
        _ => detail,
    };
    // Before 7.0: `Error running script (call to f_6b…): @user_script:7: @user_script: 7: -OOM command not allowed`, and
    // the place once only where the command itself has failed.
    match detail.rsplit_once("@user_script:") {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, words)| words).trim_start_matches('-'),
        None => detail,
    }
}

/// Whether the connection is of no use any more: broken, or to a server that may not write.
pub(crate) fn needs_reconnect(error: &RedisError) -> bool {
    error.code().is_none() || has(error.code().unwrap_or_default(), "READONLY")
}

fn of_server(reason: String) -> StoreError {
    // Before 7.0 the error of a command in a script comes inside a text that begins with ERR.
    if NOT_NOW.iter().any(|code| has(&reason, code)) || reason.contains("max number of clients") {
        StoreError::Unreachable { reason }
    } else if ["NOAUTH", "WRONGPASS", "NOPERM"].iter().any(|code| has(&reason, code))
        // In a script before 7.0; and when the client selects a database, of which error it keeps the text alone.
        || ["can't run this command", "can't access at least one", "has no permissions"]
            .iter()
            .any(|text| reason.contains(text))
    {
        StoreError::Denied { reason: denied(reason) }
    } else if has(&reason, "OOM") {
        StoreError::OutOfMemory { reason }
    } else {
        StoreError::Rejected { reason }
    }
}

/// A denial, with what to do about it.
fn denied(said: String) -> String {
    if has(&said, "NOAUTH") {
        "the server wants a password: write redis://USER:PASSWORD@HOST, both percent-encoded".into()
    } else if has(&said, "WRONGPASS") {
        "the user or the password is wrong (in a URL both are percent-encoded)".into()
    } else {
        said
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

    #[test]
    fn the_servers_words_are_told_without_what_it_adds() {
        for (detail, expected) in [
            (
                "Operation against a key holding the wrong kind of value script: 0c44, on @user_script:36.",
                "Operation against a key holding the wrong kind of value",
            ),
            (
                "Error running script (call to f_6b): @user_script:7: -OOM command not allowed",
                "OOM command not allowed",
            ),
            (
                "Error running script (call to f_6b): @user_script:7: @user_script: 7: -OOM command not allowed",
                "OOM command not allowed",
            ),
            ("unknown command 'AUTH', with args beginning with: 'secret' ", "unknown command 'AUTH'"),
            (
                "this user has no permissions to run the 'hset' command",
                "this user has no permissions to run the 'hset' command",
            ),
        ] {
            assert_eq!(said(detail), expected);
        }
    }
    #[cfg(feature = "tls")]
    #[test]
    fn errors_of_tls_are_told_in_words_of_ours() {
        use rustls::{AlertDescription, CertificateError, Error, OtherError, PeerMisbehaved};

        let other = OtherError(std::sync::Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (error, expected) in [
            (
                Error::InvalidCertificate(CertificateError::Other(other)),
                "an authority's own certificate is none",
            ),
            (Error::InvalidCertificate(CertificateError::Expired), "has expired"),
            (Error::AlertReceived(AlertDescription::HandshakeFailure), "it may want a client's certificate"),
            (Error::AlertReceived(AlertDescription::ProtocolVersion), "protocol versions"),
            (Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments), "the TLS handshake fails"),
        ] {
            let said = format!("{error} {error:?}");
            let wrapped = RedisError::from(io::Error::new(io::ErrorKind::InvalidData, error));
            let StoreError::Tls { reason } = of_connecting(&wrapped) else { panic!("{said}") };
            assert!(reason.contains(expected) && !reason.contains("Entity"), "{said}: {reason}");
        }
    }
}
