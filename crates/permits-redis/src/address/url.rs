//! The parts of a URL, as text.
//!
//! Parsed here and not by a library, so that an option that is not known is an error, and each error names a
//! remedy.

use std::net::Ipv6Addr;

use super::server::Login;
use permits_store::options::{Known, NOT_ENCODED, Options, RECOVERY};
use permits_store::sys::percent;

/// The kind of store that a scheme names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Unix,
    Sentinel,
    Cluster,
}

/// The parts of a URL, as text.
pub(super) struct Parts<'a> {
    pub(super) kind: Kind,
    pub(super) tls: bool,
    /// User, password and hosts.
    pub(super) authority: &'a str,
    pub(super) path: &'a str,
    pub(super) options: Options,
}

/// The remedy for a URL that is split at a character of its password.
const ENCODE: &str = "a user or password with one of the characters / ? # @ : % must be percent-encoded: %2F %3F %23 %40 %3A %25";

impl<'a> Parts<'a> {
    pub(super) fn of(url: &'a str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("there is no :// in it")?;
        let (tls, kind) = Self::kind(scheme).ok_or("its scheme is not known")?;
        if rest.contains('#') {
            let reason = "a # in it must be written %23. (There is no #insecure: certificates are always verified, and \
                          tls_ca names the authority to trust.)";
            return Err(reason.into());
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if kind == Kind::Sentinel && path.contains('@') {
            return Err(ENCODE.into());
        }
        if kind != Kind::Unix && !authority.contains('@') {
            // A character of the password has ended the authority.
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            let odd =
                authority.rsplit_once(':').is_some_and(|(host, port)| !host.ends_with(']') && !digits(port));
            if path.contains('@') || (query.contains('@') && odd) {
                return Err(ENCODE.into());
            }
        }
        Ok(Self { kind, tls, authority, path, options: Options::parse(query, &known(kind, tls))? })
    }

    /// The meaning of a scheme: whether TLS is used, and the kind of store.
    pub(super) fn kind(scheme: &str) -> Option<(bool, Kind)> {
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = matches!(base, "rediss" | "valkeys");
        let kind = match (base, kind) {
            ("unix", "") => Kind::Unix,
            ("redis" | "valkey", "unix") => Kind::Unix,
            ("redis" | "rediss" | "valkey" | "valkeys", "") => Kind::Server,
            ("redis" | "rediss" | "valkey" | "valkeys", "sentinel") => Kind::Sentinel,
            ("redis" | "rediss" | "valkey" | "valkeys", "cluster") => Kind::Cluster,
            _ => return None,
        };
        Some((tls, kind))
    }

    /// User and password.
    pub(super) fn login(&self) -> Result<Login, String> {
        let Some((text, _)) = self.authority.rsplit_once('@') else { return Ok(Login::default()) };
        let (user, password) = text.split_once(':').map_or((text, None), |(user, rest)| (user, Some(rest)));
        let decoded =
            |text: &str| percent::decode(text).ok_or_else(|| format!("user and password: {NOT_ENCODED}"));
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        let password = password.map(decoded).transpose()?.filter(|password| !password.is_empty());
        Ok(Login::new(user, password, 0))
    }

    /// The hosts, each with its port.
    pub(super) fn hosts(&self, port: u16) -> Result<Vec<(String, u16)>, String> {
        let hosts = self.authority.rsplit_once('@').map_or(self.authority, |(_, hosts)| hosts);
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        let hosts = hosts.map(|text| host_and_port(text, port)).collect::<Option<Vec<_>>>().ok_or_else(|| {
            format!("a host in it is not HOST, HOST:PORT or [IPv6]:PORT, with a port from 1 to 65535; {ENCODE}")
        })?;
        if hosts.is_empty() { Err("it names no host".into()) } else { Ok(hosts) }
    }
}

fn host_and_port(text: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let plain = |character: char| character.is_alphanumeric() || ".-_:".contains(character);
    if host.is_empty() || !host.chars().all(plain) || (host.contains(':') && !text.starts_with('[')) {
        return None;
    }
    let port = if port.is_empty() { usual } else { port.parse().ok().filter(|port| *port > 0)? };
    Some((host.to_owned(), port))
}

pub(super) fn database(text: &str) -> Result<u32, String> {
    // Servers store the number in an int.
    let number =
        if text.is_empty() { Some(0) } else { text.parse().ok().filter(|index| *index <= i32::MAX as u32) };
    number.ok_or_else(|| {
        let reason = "the database must be a number, 0 unless given";
        // A slash of the password has ended the host.
        if text.contains('@') { format!("{reason}; {ENCODE}") } else { reason.into() }
    })
}

/// The options. If this kind of URL refuses an option, the reason is beside it.
fn known(kind: Kind, tls: bool) -> [Known; 14] {
    let only_if = |taken: bool, reason| (!taken).then_some(reason);
    // Options of other programs.
    let as_scheme = Some("is said by the scheme: write rediss:// for TLS");
    let with_tls = only_if(tls, "needs TLS: write rediss:// instead of redis://");
    let of_sentinels = only_if(kind == Kind::Sentinel, "is for redis+sentinel:// alone");
    let unix = kind == Kind::Unix;
    let of_login = only_if(unix, "is for redis+unix:// alone: here write redis://USER:PASSWORD@HOST");
    let of_database = match kind {
        Kind::Unix => None,
        Kind::Server => Some("is for redis+unix:// alone: here write redis://HOST/DATABASE"),
        Kind::Sentinel => {
            Some("is for redis+unix:// alone: here write redis+sentinel://HOST/SERVICE/DATABASE")
        }
        Kind::Cluster => Some("is for redis+unix:// alone: a cluster has no databases"),
    };
    [
        (RECOVERY, None),
        // Accepted because URLs of other programs have it. The commands are the same in both protocols.
        ("protocol", None),
        ("ssl", as_scheme),
        ("tls", as_scheme),
        ("tls_ca", with_tls),
        ("tls_cert", with_tls),
        ("tls_key", with_tls),
        ("sentinel_user", of_sentinels),
        ("sentinel_password", of_sentinels),
        ("sentinel_password_file", of_sentinels),
        ("password_file", None),
        ("user", of_login),
        ("pass", of_login),
        ("db", of_database),
    ]
    .map(|(name, refused)| Known { name, refused })
}
