//! [`Access`]: which requests are answered.
//!
//! Three checks, in this order. *Host*: the request names this server, because a page of another site whose
//! name resolves to this address (DNS rebinding) sends its own name. *Origin*: a request of a page comes from
//! this server's own page; there are no CORS headers, so other pages cannot read replies either. *Token*: if
//! there is a token file, the request shows the token; a header, and no cookie, because a browser adds
//! cookies to the requests of other pages.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Version};
use subtle::ConstantTimeEq as _;

use crate::exit::{Failure, USAGE};
use crate::text::shell_word;

/// The shortest token, in bytes.
const MIN_TOKEN: usize = 16;

/// The longest token, in bytes.
const MAX_TOKEN: usize = 1024;

/// The secret that requests show.
pub(super) struct Token(Vec<u8>);

/// A refused request: the status and the reason.
pub(super) type Refusal = (StatusCode, String);

/// The rules of this server.
pub(super) struct Access {
    /// The address that the server listens on.
    address: IpAddr,
    /// The names of `--host`, in lower case.
    hosts: Vec<String>,
    token: Option<Token>,
    allow_write: bool,
}

/// A file of secrets, open: what is said of it, and what is read, is about this file, because the path may
/// lead to another one by now.
pub(super) struct SecretFile<'a> {
    path: &'a Path,
    file: File,
    pub(super) metadata: Metadata,
}

impl<'a> SecretFile<'a> {
    /// Opens a file to which not all users have access.
    pub(super) fn open(path: &'a Path) -> Result<Self, Failure> {
        let unreadable = |error: std::io::Error| wrong(path, &format!("cannot be read: {error}"));
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let mode = metadata.mode();
        if mode & 0o007 != 0 {
            let remedy = format!("chmod 600 {}", shell_word(&path.to_string_lossy()));
            let problem = format!("has mode {:03o}, so every user has access: {remedy}", mode & 0o777);
            return Err(wrong(path, &problem));
        }
        Ok(Self { path, file, metadata })
    }

    /// The text, of which at most `most` bytes are read.
    pub(super) fn read(self, most: usize) -> Result<String, Failure> {
        let mut text = String::new();
        let read = self.file.take(most as u64).read_to_string(&mut text);
        read.map_err(|error| wrong(self.path, &format!("cannot be read: {error}")))?;
        Ok(text)
    }
}

/// The failure of a file with tokens.
pub(super) fn wrong(path: &Path, problem: &str) -> Failure {
    Failure::new(USAGE, format!("the token file {} {problem}", path.display()))
}

impl Token {
    /// Reads the file of `--token-file`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = SecretFile::open(path)?.read(2 * MAX_TOKEN)?;
        Self::new(text.trim_end_matches(['\n', '\r'])).map_err(|problem| wrong(path, &problem))
    }

    /// A token of this text, or what is wrong with the file that has it.
    pub(super) fn new(token: &str) -> Result<Self, String> {
        if !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) {
            let create = "create one with: openssl rand -hex 32";
            let range = format!("a token of {MIN_TOKEN} to {MAX_TOKEN}");
            return Err(format!("has {} bytes in place of {range}: {create}", token.len()));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("has other characters than printable ASCII without spaces".to_owned());
        }
        Ok(Self(token.as_bytes().to_vec()))
    }

    /// Compares in a time that is independent of the position of the first difference.
    pub(super) fn matches(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

/// The token that a request shows.
pub(super) fn shown(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    let Some(shown) = headers.get(AUTHORIZATION) else {
        let reason =
            "this request needs a token (a program sends it as a header, Authorization: Bearer TOKEN)";
        return Err((StatusCode::UNAUTHORIZED, reason.to_owned()));
    };
    let scheme = b"Bearer ";
    match shown.as_bytes().split_at_checked(scheme.len()) {
        Some((named, shown)) if named.eq_ignore_ascii_case(scheme) => Ok(shown),
        _ => Err(unknown_token()),
    }
}

/// The refusal of a token that is not known.
pub(super) fn unknown_token() -> Refusal {
    (StatusCode::UNAUTHORIZED, "the token is not one of this server".to_owned())
}

impl Access {
    pub(super) fn new(address: IpAddr, hosts: Vec<String>, token: Option<Token>, allow_write: bool) -> Self {
        Self { address: address.to_canonical(), hosts, token, allow_write }
    }

    pub(super) fn allows_writes(&self) -> bool {
        self.allow_write
    }

    /// Returns true if requests for data have to show a token.
    pub(super) fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks host and origin. `local` is this end of the connection, by the family of its address.
    pub(super) fn check_source(&self, parts: &Parts, local: IpAddr) -> Result<(), Refusal> {
        let host = single(&parts.headers, HOST)?;
        let Some(host) = host else {
            // Probes of simple load balancers. A browser sends a host.
            if parts.version == Version::HTTP_10 && parts.uri.path() == "/healthz" {
                return Ok(());
            }
            return Err((StatusCode::BAD_REQUEST, "the request has no Host".to_owned()));
        };
        let known = host_name(host).is_some_and(|name| self.is_own(name, local));
        // A proxy's form of a request, which names a host, too.
        let named_twice = parts.uri.authority().is_some_and(|authority| authority.as_str() != host);
        if !known || named_twice {
            let reason = "this server is not known under the host of the request: start it with --host NAME";
            return Err((StatusCode::MISDIRECTED_REQUEST, reason.to_owned()));
        }
        match single(&parts.headers, ORIGIN)? {
            Some(origin) if !is_same_origin(origin, host) => {
                let reason = format!(
                    "the request comes from a page of another site, {origin:?}, and not of {host:?}: a proxy has to \
                     pass the Host with its port"
                );
                Err((StatusCode::FORBIDDEN, reason))
            }
            _ => Ok(()),
        }
    }

    /// Checks the token, if one is needed.
    pub(super) fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        if token.matches(shown(headers)?) { Ok(()) } else { Err(unknown_token()) }
    }

    /// Checks that semaphores may be changed.
    pub(super) fn check_write(&self) -> Result<(), Refusal> {
        if self.allow_write {
            return Ok(());
        }
        let reason = "this server changes no semaphores: start it with --allow-write and --token-file PATH";
        Err((StatusCode::FORBIDDEN, reason.to_owned()))
    }

    /// Returns true if `name` is one of this server.
    fn is_own(&self, name: &str, local: IpAddr) -> bool {
        let name = name.to_ascii_lowercase();
        if self.hosts.contains(&name) || (local.is_loopback() && name == "localhost") {
            return true;
        }
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        // A name that is an address cannot resolve to another one.
        let named = literal.parse::<IpAddr>().map(|named| named.to_canonical());
        named.is_ok_and(|named| named == self.address || named == local)
    }
}

/// The value of a header that may be given once.
pub(super) fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(&name).iter();
    let value = values.next().map(|value| value.to_str());
    match (value.transpose(), values.next()) {
        (Ok(value), None) => Ok(value),
        _ => Err((StatusCode::BAD_REQUEST, format!("the header {name} is malformed, or given twice"))),
    }
}

/// The name in a `Host` header, without the port.
fn host_name(host: &str) -> Option<&str> {
    let name = match host.rfind(']') {
        Some(end) => &host[..=end],
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let port = &host[name.len()..];
    let is_port = |port: &str| port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    (port.is_empty() || is_port(port)).then_some(name)
}

/// Returns true if a page of `origin` is one of `host`. The scheme may be `https`, which a proxy adds, and a
/// proxy may name the port of the scheme, which a browser leaves out.
fn is_same_origin(origin: &str, host: &str) -> bool {
    [("http://", ":80"), ("https://", ":443")].into_iter().any(|(scheme, port)| {
        let authority = origin.strip_prefix(scheme);
        authority.is_some_and(|it| it.eq_ignore_ascii_case(host.strip_suffix(port).unwrap_or(host)))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn access(address: &str, hosts: &[&str]) -> Access {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Access::new(address.parse().expect("an address"), hosts, Some(Token(TOKEN.into())), false)
    }

    /// The status of a request with these headers, 200 if it passes.
    fn status(access: &Access, local: &str, headers: &[(HeaderName, &str)]) -> u16 {
        let mut request = Request::get("/").body(()).expect("valid");
        for (name, value) in headers {
            request.headers_mut().append(name, value.parse().expect("a value"));
        }
        let (parts, ()) = request.into_parts();
        let checked = access.check_source(&parts, local.parse().expect("an address"));
        checked.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn the_host_is_one_of_this_server() {
        let loopback = access("127.0.0.1", &["permits.example.org"]);
        for (host, expected) in [
            ("127.0.0.1:9710", 200),
            ("127.0.0.1", 200),
            ("localhost:9710", 200),
            ("LOCALHOST", 200),
            ("permits.example.org", 200),
            ("Permits.Example.org:443", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost.evil.example:9710", 421),
            ("evil.example:127.0.0.1", 421),
            ("127.0.0.2:9710", 421),
            ("10.0.0.1:9710", 421),
            ("localhost:port", 421),
            ("localhost@evil.example", 421),
            ("", 421),
        ] {
            assert_eq!(status(&loopback, "127.0.0.1", &[(HOST, host)]), expected, "{host}");
        }
        assert_eq!(status(&loopback, "127.0.0.1", &[]), 400);
        assert_eq!(status(&loopback, "127.0.0.1", &[(HOST, "localhost"), (HOST, "localhost")]), 400);
    }

    #[test]
    fn a_server_on_all_addresses_is_known_by_the_one_that_was_reached() {
        let all = access("0.0.0.0", &[]);
        assert_eq!(status(&all, "10.0.0.5", &[(HOST, "10.0.0.5:9710")]), 200);
        assert_eq!(status(&all, "10.0.0.5", &[(HOST, "10.0.0.6:9710")]), 421);
        assert_eq!(status(&all, "10.0.0.5", &[(HOST, "localhost:9710")]), 421);
        let six = access("::", &[]);
        assert_eq!(status(&six, "::1", &[(HOST, "[::1]:9710")]), 200);
        assert_eq!(status(&six, "::1", &[(HOST, "[::2]:9710")]), 421);
    }

    #[test]
    fn an_origin_is_the_same_one() {
        let access = access("127.0.0.1", &["permits.example.org"]);
        for (host, origin, expected) in [
            ("localhost:9710", "http://localhost:9710", 200),
            ("permits.example.org", "https://permits.example.org", 200),
            ("permits.example.org:443", "https://permits.example.org", 200),
            ("permits.example.org:80", "http://permits.example.org", 200),
            ("permits.example.org:443", "http://permits.example.org", 403),
            ("permits.example.org:80", "https://permits.example.org", 403),
            ("permits.example.org", "https://permits.example.org:8443", 403),
            ("localhost:9710", "http://localhost:8080", 403),
            ("localhost:9710", "http://127.0.0.1:9710", 403),
            ("localhost:9710", "null", 403),
            ("localhost:9710", "", 403),
            ("localhost:9710", "http://evil.example", 403),
            ("localhost:9710", "ftp://localhost:9710", 403),
        ] {
            assert_eq!(status(&access, "127.0.0.1", &[(HOST, host), (ORIGIN, origin)]), expected, "{origin}");
        }
    }

    #[test]
    fn the_token_is_compared_as_a_whole() {
        let access = access("127.0.0.1", &[]);
        let passes = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().expect("a value"))]);
            access.check_token(&headers).is_ok()
        };
        assert!(passes(&format!("Bearer {TOKEN}")));
        assert!(passes(&format!("bearer {TOKEN}")));
        for wrong in ["", "Bearer", "Bearer ", TOKEN, "Basic 0123456789abcdef", "Bearer 0123456789abcdeF"] {
            assert!(!passes(wrong), "{wrong}");
        }
        assert!(!passes(&format!("Bearer {TOKEN}0")));
        assert!(!passes(&format!("Bearer {}", &TOKEN[1..])));
        assert!(access.check_token(&HeaderMap::new()).is_err());
    }
}
