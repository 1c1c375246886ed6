//! The meaning of a failed call: not sent, no reply, or a refusal, and of which kind; and its message.
//!
//! Kinds come from error codes of the server and from typed errors of the libraries. A message never repeats
//! the text of a library's error. It repeats the server's text, without the parts about scripts and
//! arguments.

use std::io;

use super::resp::RespError;
use crate::protocol::{Name, layout};
use permits_store::StoreError;

/// Codes of a server that cannot execute the command now, and has not: a retry may succeed, here or
/// elsewhere. UNBLOCKED is about a WAIT: what it waits for may be repeated.
const NOT_NOW: [&str; 9] = [
    "LOADING",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "READONLY",
    "BUSY",
    "NOREPLICAS",
    "MISCONF",
    "UNBLOCKED",
];

/// The server's text for a WAIT on a server that has become a replica.
const NO_WAIT_ON_REPLICA: &str = "cannot be used with replica";

/// The failure of a command on one node.
pub(crate) enum Failure {
    /// The hash slot has moved to the node at this address.
    Moved(String),
    /// The hash slot is moving, and the keys are at this address already.
    Ask(String),
    /// Any other failure.
    Store(StoreError),
}

impl Failure {
    /// The meaning of `error` for a command on `semaphore`.
    pub(crate) fn of(error: &RespError, semaphore: &Name) -> Self {
        match (error.redirect_node(), error.code()) {
            (Some(to), Some("ASK")) => Self::Ask(to.to_owned()),
            (Some(to), _) => Self::Moved(to.to_owned()),
            (None, _) => Self::Store(of_command(error, semaphore)),
        }
    }
}

impl From<Failure> for StoreError {
    /// Converts a failure at a server whose URL does not say that it belongs to a cluster.
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

/// The cause and the remedy, if a server runs no scripts.
pub(crate) const LUA_IS_OFF: &str = "Lua scripting is switched off, and every operation is a script: give EVAL and EVALSHA \
                                     their names back (rename-command), or load Valkey's module with the Lua engine";

/// Returns true if the server does not run the scripts: the commands are unknown, or their engine is missing.
fn is_without_lua(reason: &str) -> bool {
    let is_unknown =
        ["EVAL'", "EVALSHA'", "EVAL`", "EVALSHA`"].iter().any(|name| reason.to_uppercase().contains(name));
    reason.contains("scripting engine") || (reason.contains("unknown command") && is_unknown)
}

/// Returns true if the script must be sent as text.
pub(crate) fn is_no_script(error: &RespError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// The meaning of `error`, returned by a command on an open connection, for `semaphore`.
fn of_command(error: &RespError, semaphore: &Name) -> StoreError {
    let StoreError::Rejected { reason } = of_listing(error) else { return of_listing(error) };
    let semaphore = semaphore.to_string();
    if has(&reason, "WRONGTYPE") {
        return StoreError::WrongType { semaphore, reason };
    }
    if let Some(found) = layout_in(&reason) {
        let what = format!("semaphore {semaphore:?}");
        return StoreError::OtherLayout { what, found, supported: layout().into() };
    }
    // The last fault is of a script that unpacks a value which is shorter than it says. Any other fault of a
    // script does not come from the data.
    if ["UNREADABLE", "to 'unpack'"].iter().any(|fault| reason.contains(fault)) {
        let reason = reason.rsplit_once("UNREADABLE ").map_or(&*reason, |(_, fault)| fault).into();
        return StoreError::Unreadable { semaphore, reason };
    }
    StoreError::Rejected { reason }
}

/// The layout that a script has found, and does not read.
fn layout_in(reason: &str) -> Option<u32> {
    let (_, found) = reason.rsplit_once("LAYOUT ")?;
    found.split_whitespace().next()?.parse().ok()
}

/// The meaning of `error`, returned by a command that names no semaphore.
pub(crate) fn of_listing(error: &RespError) -> StoreError {
    match error.code() {
        Some(_) => of_server(text(error)),
        // The connection broke: the command may have been executed.
        None => StoreError::NoAnswer { reason: text(error) },
    }
}

/// The error of a connection to a node of a cluster other than the session's.
pub(crate) fn other_cluster() -> StoreError {
    let reason = "a node of another cluster answers at this address, which may have been given away";
    StoreError::Unreachable { reason: reason.into() }
}

/// The meaning of `error`, returned while connecting. An error that is not known to last counts as temporary.
pub(crate) fn of_connecting(error: &RespError) -> StoreError {
    if error.code().is_some() {
        return match of_server(text(error)) {
            denied @ StoreError::Denied { .. } => denied,
            StoreError::Rejected { reason } if is_without_lua(&reason) => {
                StoreError::Unsupported { reason: format!("it says \"{reason}\": {LUA_IS_OFF}") }
            }
            StoreError::Rejected { reason } if reason.contains("unknown command") => {
                let reason =
                    format!("it says \"{reason}\": was the command renamed or removed (rename-command)?");
                StoreError::Unsupported { reason }
            }
            other => StoreError::Unreachable { reason: other.into_reason() },
        };
    }
    let Some(io) = error.io() else {
        return StoreError::Unreachable { reason: text(error) };
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

/// The meaning of a refused login.
pub(crate) fn of_login(refusal: &RespError) -> StoreError {
    match of_connecting(refusal) {
        StoreError::Unreachable { reason } if reason.contains("without any password configured") => {
            let reason = "the server has no password: leave it out of the URL, or give the user's name";
            StoreError::Denied { reason: reason.into() }
        }
        StoreError::Unreachable { reason } if is_refusal(refusal, &reason) => StoreError::Denied { reason },
        other => other,
    }
}

/// Returns true if the server refused this command, and would not refuse every command.
pub(crate) fn is_refusal(error: &RespError, reason: &str) -> bool {
    error.code() == Some("ERR") && !reason.contains("max number of clients")
}

/// The meaning of a TLS error.
#[cfg(feature = "tls")]
fn of_tls(error: &rustls::Error) -> StoreError {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};

    use super::address::faults_of_variables;
    use super::address::verifier::IS_AUTHORITY;

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
            // BadSignature if another authority has the same name.
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                let reason = "the server's certificate is from an authority that is not trusted: name the authority's \
                              certificate with ?tls_ca=/path/ca.pem";
                let Some(faults) = faults_of_variables() else {
                    return StoreError::Tls { reason: reason.into() };
                };
                return StoreError::Tls { reason: format!("{reason} ({faults})") };
            }
            Certificate::Other(fault) if fault.to_string() == IS_AUTHORITY => {
                "the server's certificate is an authority's, as openssl req -x509 makes it: name this very \
                 certificate with ?tls_ca=/path/server.pem"
            }
            Certificate::Revoked => "the server's certificate has been revoked",
            Certificate::InvalidPurpose | Certificate::InvalidPurposeContext { .. } => {
                "the server's certificate is not for a server: its extendedKeyUsage lacks serverAuth"
            }
            other => {
                let reason = format!("the server's certificate cannot be used: {other}");
                return StoreError::Tls { reason };
            }
        },
        Error::AlertReceived(alert) => match alert {
            Alert::CertificateRequired => {
                "the server requires a client's certificate: ?tls_cert=/path/client.pem&tls_key=/path/client.key"
            }
            // A missing certificate gives this alert in TLS 1.2, too.
            Alert::HandshakeFailure => {
                "the server refuses the TLS handshake: it may require a client's certificate \
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

/// The message of `error`, for people.
pub(crate) fn text(error: &RespError) -> String {
    if let Some(code) = error.code() {
        return of_parts(code, error.detail().unwrap_or_default());
    }
    if let Some(io) = error.io() {
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
            // A timeout with a text comes from this crate.
            io::ErrorKind::TimedOut if io.get_ref().is_none() => "the connection timed out".into(),
            // The system's message, without the number.
            _ => {
                let message = io.to_string();
                message.split(" (os error").next().unwrap_or_default().to_owned()
            }
        };
    }
    "a reply that is not in the protocol of Redis: is it a Redis or Valkey server?".into()
}

/// Returns true if the connection was closed without a valid reply, as when one side speaks TLS and the other
/// does not.
pub(crate) fn is_speechless(error: &RespError) -> bool {
    match error.io() {
        Some(io) => !matches!(io.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
        None => error.code().is_none(),
    }
}

#[cfg(feature = "tls")]
fn tls_error(io: &io::Error) -> Option<&rustls::Error> {
    io.get_ref()?.downcast_ref()
}

/// The message of the server's error.
fn of_parts(code: &str, whole: &str) -> String {
    let detail = bare(whole);
    // The text of an error in a script contains its code on servers before 7.0.
    let has_code = whole.contains("@user_script:") && detail.split(' ').next().is_some_and(is_code);
    match detail {
        "" => code.to_owned(),
        _ if code == "ERR" && has_code => detail.to_owned(),
        _ => format!("{code} {detail}"),
    }
}

/// The server's text without its additions: the line of the script, and the arguments, one of which may be a
/// password.
fn bare(detail: &str) -> &str {
    let detail = detail.split(", with args beginning with").next().unwrap_or_default();
    let detail = match detail.find(" script: ") {
        Some(at) if detail.contains("@user_script") => &detail[..at],
        _ => detail,
    };
    // A server before 7.0 says `Error running script (call to f_6b…): @user_script:7: @user_script: 7: -OOM
    // command not allowed`, with the line only once if the command itself has failed.
    match detail.rsplit_once("@user_script:") {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, text)| text).trim_start_matches('-'),
        None => detail,
    }
}

/// Returns true if the connection must be replaced: it is broken, or to a server that cannot write.
pub(crate) fn needs_reconnect(error: &RespError) -> bool {
    // Before 7.0 an error inside of a script has the code ERR, and READONLY is in its text. A WAIT that is
    // blocked ends with UNBLOCKED when its server becomes a replica.
    let text = text(error);
    let is_replica = ["READONLY", "UNBLOCKED"].iter().any(|code| has(&text, code));
    error.code().is_none() || is_replica || text.contains(NO_WAIT_ON_REPLICA)
}

fn of_server(reason: String) -> StoreError {
    // A text that begins with ERR contains the error of a command in a script on servers before 7.0.
    let passing = ["max number of clients", NO_WAIT_ON_REPLICA];
    if NOT_NOW.iter().any(|code| has(&reason, code)) || passing.iter().any(|text| reason.contains(text)) {
        StoreError::Unreachable { reason }
    } else if ["NOAUTH", "WRONGPASS", "NOPERM", "DENIED"].iter().any(|code| has(&reason, code))
        // Scripts before 7.0, and the selection of a database, give these texts without a code.
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

/// The message of a denial, with a remedy.
fn denied(text: String) -> String {
    if has(&text, "NOAUTH") {
        "the server requires a password: write redis://USER:PASSWORD@HOST, both percent-encoded".into()
    } else if ["'eval'", "'evalsha'"].iter().any(|name| text.contains(name)) {
        format!("{text}: every operation is a Lua script, so allow +eval and +evalsha (permits doctor --acl)")
    } else if text.starts_with("DENIED") {
        "the server is in protected mode and lets no other machine in: give it a password, or bind it to an address \
         that only its users reach"
            .into()
    } else if has(&text, "WRONGPASS") {
        "the user or the password is wrong (in a URL both are percent-encoded)".into()
    } else {
        text
    }
}

/// Returns true if a word is like the code of an error.
fn is_code(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Returns true if `reason` contains `code` as a whole word.
fn has(reason: &str, code: &str) -> bool {
    reason.split(|character: char| !character.is_ascii_uppercase()).any(|word| word == code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{FromValue, Parser, Value};

    #[test]
    fn codes_are_found_where_each_version_puts_them() {
        let old = "ERR Error running script (call to f_6b): @user_script:7: -OOM command not allowed";
        assert!(matches!(of_server(old.into()), StoreError::OutOfMemory { .. }));
        let new = "OOM command not allowed when used memory > 'maxmemory'. script: 6b, on @user_script:7.";
        assert!(matches!(of_server(new.into()), StoreError::OutOfMemory { .. }));
        assert!(matches!(of_server("BUSY Redis is busy".into()), StoreError::Unreachable { .. }));
        assert!(matches!(of_server("ERR BUSYNESS".into()), StoreError::Rejected { .. }));
        let protected = "DENIED Redis is running in protected mode because";
        assert!(matches!(of_server(protected.into()), StoreError::Denied { .. }));
    }

    /// A WAIT for replicas: it was blocked when its server became a replica, or came after that.
    #[test]
    fn a_wait_on_a_server_that_has_become_a_replica_is_tried_elsewhere() {
        for text in [
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            "ERR WAIT cannot be used with replica instances. Please also note that",
        ] {
            assert!(matches!(of_server(text.into()), StoreError::Unreachable { .. }), "{text}");
            let mut values = Vec::new();
            Parser::default().feed(format!("-{text}\r\n").as_bytes(), &mut values).expect("it is valid");
            let failed = <Value as FromValue>::from_value(values.remove(0)).map(drop);
            assert!(needs_reconnect(&failed.expect_err("it is an error")), "{text}");
        }
    }

    #[test]
    fn the_code_of_an_error_in_a_script_is_the_same_in_each_version() {
        let old = "Error running script (call to f_6b): @user_script:7: WRONGTYPE Operation";
        for (code, whole, expected) in [
            ("ERR", old, "WRONGTYPE Operation"),
            ("WRONGTYPE", "Operation script: 6b, on @user_script:7.", "WRONGTYPE Operation"),
            ("ERR", "value is not a float script: 6b, on @user_script:7.", "ERR value is not a float"),
            ("ERR", "DB index is out of range", "ERR DB index is out of range"),
            ("ERR", "", "ERR"),
        ] {
            assert_eq!(of_parts(code, whole), expected);
        }
    }

    #[test]
    fn the_servers_text_is_repeated_without_its_additions() {
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
            assert_eq!(bare(detail), expected);
        }
    }

    #[test]
    fn a_server_without_lua_is_named() {
        let error = |text: &str| {
            let mut values = Vec::new();
            Parser::default().feed(format!("-{text}\r\n").as_bytes(), &mut values).expect("it is valid");
            let value = values.pop().expect("it is whole");
            of_connecting(&<Value as FromValue>::from_value(value).map(drop).expect_err("it is an error"))
        };
        for text in [
            "ERR unknown command 'EVALSHA', with args beginning with: 'x' '0' ",
            "ERR unknown command `eval`, with args beginning with: 'eval'",
            "ERR Could not find scripting engine 'lua'",
        ] {
            let StoreError::Unsupported { reason } = error(text) else { panic!("{:?}", error(text)) };
            assert!(reason.contains("Lua scripting is switched off"), "{reason}");
        }
        let other = error("ERR unknown command 'INFO', with args beginning with: 'eval'");
        assert!(matches!(&other, StoreError::Unsupported { reason } if !reason.contains("Lua")), "{other:?}");
        let denied = error("NOPERM User app has no permissions to run the 'eval' command");
        assert!(matches!(&denied, StoreError::Denied { reason } if reason.contains("+eval")), "{denied:?}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn errors_of_tls_have_messages_of_this_crate() {
        use rustls::{AlertDescription, CertificateError, Error, OtherError, PeerMisbehaved};

        let other = OtherError(std::sync::Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (error, expected) in [
            (
                Error::InvalidCertificate(CertificateError::Other(other)),
                "the server's certificate is an authority's",
            ),
            (Error::InvalidCertificate(CertificateError::Expired), "has expired"),
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                "it may require a client's certificate",
            ),
            (Error::AlertReceived(AlertDescription::ProtocolVersion), "protocol versions"),
            (Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments), "the TLS handshake fails"),
        ] {
            let original = format!("{error} {error:?}");
            let wrapped = RespError::from(io::Error::new(io::ErrorKind::InvalidData, error));
            let StoreError::Tls { reason } = of_connecting(&wrapped) else { panic!("{original}") };
            assert!(reason.contains(expected) && !reason.contains("Entity"), "{original}: {reason}");
        }
    }
}
