//! The stores of this build: the table of their kinds, and the store that a URL names.

use std::fmt;
use std::sync::Arc;

use permits_store::credentials::CredentialSource;
use permits_store::{AddressError, Backend, Location, source};

use crate::clock::Clock;
use crate::protocol::Recovery;

/// The kinds of stores, in the order in which messages list their schemes.
const BACKENDS: &[&dyn Backend] = &[
    #[cfg(all(feature = "local", unix))]
    &permits_store::local::Local,
    &permits_store::memory::Memory,
    #[cfg(feature = "redis")]
    &permits_redis::Redis,
];

/// The features of this build that add stores.
const FEATURES: &[&str] = &[
    #[cfg(all(feature = "local", unix))]
    "local",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "tls")]
    "tls",
];

/// The location of a store of any kind, parsed from a URL. Displaying it shows no password.
pub(crate) struct Address(Box<dyn Location>);

impl Address {
    /// Parses a URL. Returns the location, and the recovery that the URL asks for. If the URL is in a file,
    /// each new connection reads user and password from that file again.
    pub(crate) fn parse(url: &str) -> Result<(Self, Option<Recovery>), AddressError> {
        let Some(file) = source::file_of(url) else { return Self::of(url) };
        let url = source::url_in(&file).map_err(|reason| AddressError::Invalid { reason })?;
        let (mut address, recovery) = Self::of(&url)?;
        address.0.follow(&file.into());
        Ok((address, recovery))
    }

    fn of(url: &str) -> Result<(Self, Option<Recovery>), AddressError> {
        check_feature(url, FEATURES)?;
        let Some(parsed) = BACKENDS.iter().find_map(|backend| backend.parse(url)) else {
            return Err(unknown_scheme(url));
        };
        let (location, recovery) = parsed.map_err(|reason| AddressError::Invalid { reason })?;
        Ok((Self(location), recovery))
    }

    /// Takes the password of each new connection from this source.
    pub(crate) fn log_in_with(&mut self, source: &Arc<CredentialSource>) -> Result<(), AddressError> {
        self.0.log_in_with(source).map_err(|reason| AddressError::Invalid { reason })
    }

    /// Returns true if a session's access to the store uses sockets.
    pub(crate) fn uses_sockets(&self) -> bool {
        self.0.uses_sockets()
    }

    /// The clock that measures leases as the store does.
    pub(crate) fn clock(&self) -> Clock {
        // A server keeps running while this machine sleeps. Users of the other stores are all on this
        // machine, and sleep with it.
        if self.uses_sockets() { Clock::Sleepless } else { Clock::Sleeping }
    }

    /// The most waiters that the store takes in the queue of a semaphore.
    pub(crate) fn max_waiters(&self) -> u32 {
        self.0.max_waiters()
    }

    /// The parsed URL.
    pub(crate) fn location(&self) -> &dyn Location {
        &*self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Refuses a URL whose store needs a feature that is not among `features`.
fn check_feature(url: &str, features: &[&str]) -> Result<(), AddressError> {
    match needed_feature(url) {
        Some((scheme, feature)) if !features.contains(&feature) => {
            Err(AddressError::MissingFeature { scheme, feature })
        }
        _ => Ok(()),
    }
}

/// Returns the beginning of a URL, and the feature that its store needs. `None` for `memory:` and unknown
/// schemes.
fn needed_feature(url: &str) -> Option<(&'static str, &'static str)> {
    if url.starts_with("local:") {
        return Some(("local:", "local"));
    }
    let (scheme, _) = url.split_once("://")?;
    // The part behind a plus sign names the kind of deployment.
    match scheme.split('+').next()? {
        "redis" => Some(("redis://", "redis")),
        "valkey" => Some(("valkey://", "redis")),
        "unix" => Some(("unix://", "redis")),
        "rediss" => Some(("rediss://", "tls")),
        "valkeys" => Some(("valkeys://", "tls")),
        _ => None,
    }
}

fn unknown_scheme(url: &str) -> AddressError {
    let schemes = BACKENDS.iter().flat_map(|backend| backend.schemes());
    let schemes: Vec<String> = schemes.chain([source::SCHEME.to_owned()]).collect();
    let known = schemes.join(", ");
    let scheme = url.split(':').next().unwrap_or_default();
    // Show the text only if it is certainly a scheme, which ends at `://`. Otherwise it may be a part of a
    // password.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
    if url[scheme.len()..].starts_with("://") && scheme.bytes().all(plain) {
        return AddressError::UnknownScheme { scheme: scheme.to_owned(), known };
    }
    let reason = if url.starts_with(['"', '\'']) {
        "it begins with a quotation mark: remove the quotation marks around it".to_owned()
    } else if is_server(url) {
        format!("it has no scheme: did you mean redis://{url}?")
    } else {
        format!("it begins with none of {known}; did you mean redis://HOST:PORT?")
    };
    AddressError::Invalid { reason }
}

/// Returns true if `text` is a server without a scheme, and certainly has no password: an IP address or
/// `localhost`, with or without a port.
fn is_server(text: &str) -> bool {
    let text = text.trim_end_matches('/');
    let host = match text.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => text,
    };
    host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_belongs_to_one_backend() {
        for backend in BACKENDS {
            for scheme in backend.schemes() {
                let parsing = BACKENDS.iter().filter(|backend| backend.parse(&scheme).is_some());
                assert_eq!(parsing.count(), 1, "{scheme}");
                assert!(backend.parse(&scheme).is_some(), "{scheme}");
            }
        }
        assert!(matches!(Address::parse("http://x/"), Err(AddressError::UnknownScheme { .. })));
    }

    #[test]
    fn what_may_be_a_password_is_not_named_as_a_scheme() {
        for url in ["redis//:secret@a://b", "user:secret@a", "se cret://a", "_secret://a"] {
            let Err(AddressError::Invalid { reason }) = Address::parse(url) else {
                panic!("{url}: it is none")
            };
            assert!(!reason.contains("cret"), "{url}: {reason}");
        }
    }

    #[test]
    fn a_store_that_the_build_lacks_is_named_with_its_feature() {
        for (url, scheme, feature) in [
            ("local:", "local:", "local"),
            ("local:/var/lib/permits", "local:", "local"),
            ("redis://u:secret@a", "redis://", "redis"),
            ("valkey+cluster://a", "valkey://", "redis"),
            ("unix:///a.sock", "unix://", "redis"),
            ("rediss+sentinel://a/s", "rediss://", "tls"),
            ("valkeys://a", "valkeys://", "tls"),
        ] {
            let Err(AddressError::MissingFeature { scheme: named, feature: missing }) =
                check_feature(url, &[])
            else {
                panic!("{url}: it needs a feature");
            };
            assert_eq!((named, missing), (scheme, feature), "{url}");
            let text =
                crate::ConnectError::from(AddressError::MissingFeature { scheme, feature }).to_string();
            assert!(text.ends_with(&format!("(cargo add permits --features {feature})")), "{text}");
            assert_eq!(Address::parse(url).is_ok(), FEATURES.contains(&feature), "{url}");
        }
        for url in ["memory:", "http://a", "local", "secret"] {
            assert!(check_feature(url, &[]).is_ok(), "{url}");
        }
    }
}
