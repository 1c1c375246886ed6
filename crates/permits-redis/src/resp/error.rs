//! The failure of a command or of a connection. Its meaning and its message are
//! [`error`](crate::error)'s.

use std::io;
use std::sync::Arc;

/// The failure of a command or of a connection.
#[derive(Debug, Clone)]
pub(crate) enum RespError {
    /// The server's reply is an error.
    Server(ServerError),
    /// The connection is broken, or was ended by this side.
    Io(Arc<io::Error>),
    /// Bytes that are not in the protocol, or a reply of another type than the command has.
    Malformed,
}

pub(crate) type RespResult<T> = Result<T, RespError>;

/// An error that a server has sent: a code, a space, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerError(Arc<str>);

impl ServerError {
    pub(crate) fn new(line: &[u8]) -> Self {
        Self(String::from_utf8_lossy(line).into())
    }

    fn split(&self) -> (&str, Option<&str>) {
        self.0.split_once(' ').map_or((&self.0, None), |(code, text)| (code, Some(text)))
    }
}

impl RespError {
    /// The code of the server's error, such as `ERR`.
    pub(crate) fn code(&self) -> Option<&str> {
        self.server().map(|error| error.split().0)
    }

    /// The text behind the code of the server's error.
    pub(crate) fn detail(&self) -> Option<&str> {
        self.server()?.split().1
    }

    /// The address of the node that serves the hash slot, if the server redirects.
    pub(crate) fn redirect_node(&self) -> Option<&str> {
        let (Some("MOVED" | "ASK"), Some(detail)) = (self.code(), self.detail()) else { return None };
        let mut words = detail.split_ascii_whitespace();
        words.next()?.parse::<u16>().ok()?;
        words.next()
    }

    /// The error of the system or of TLS.
    pub(crate) fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }

    fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for RespError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl From<ServerError> for RespError {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_code_a_text_and_perhaps_an_address() {
        for (line, code, detail, address) in [
            ("ERR unknown command 'X'", "ERR", Some("unknown command 'X'"), None),
            ("NOSCRIPT", "NOSCRIPT", None, None),
            ("", "", None, None),
            ("MOVED 3999 10.0.0.1:6381", "MOVED", Some("3999 10.0.0.1:6381"), Some("10.0.0.1:6381")),
            ("ASK 3999 :6381", "ASK", Some("3999 :6381"), Some(":6381")),
            ("ASK 99999 :6381", "ASK", Some("99999 :6381"), None),
            ("MOVED 3999", "MOVED", Some("3999"), None),
            ("ERR 3999 10.0.0.1:6381", "ERR", Some("3999 10.0.0.1:6381"), None),
        ] {
            let error = RespError::from(ServerError::new(line.as_bytes()));
            assert_eq!((error.code(), error.detail()), (Some(code), detail));
            assert_eq!(error.redirect_node(), address, "{line}");
        }
    }
}
