//! Where the servers are: parsed from a URL, shown without its password.
//!
//! `redis://host` is one server; `redis+sentinel://s1,s2/service` is whichever server the sentinels name, and
//! `redis+cluster://h1,h2` are some nodes of a cluster, which name the others. What a URL says of users,
//! databases and certificates is true of all servers behind it.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// How long an idle connection may be silent before the system probes it.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The ports where there is none in the URL.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What a URL names.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// One server.
    Server(Server),
    /// The server that the sentinels name.
    Sentinels(Sentinels),
    /// Some nodes of a cluster.
    Cluster(Vec<Server>),
}

/// Who to ask for a server.
#[derive(Clone, Debug)]
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<Server>,
    /// What they call it.
    pub(crate) service: String,
    /// How to log in there, at whatever address.
    pub(crate) server: Server,
}

/// A server's address, with what is needed to log in.
#[derive(Clone)]
pub(crate) struct Server {
    client: redis::Client,
}

impl Address {
    /// The URL schemes that this store serves. `valkey` may stand for `redis` in each.
    pub(crate) const SCHEMES: [&str; 15] = [
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
        "valkey",
        "valkeys",
        "valkey+unix",
        "valkey+sentinel",
        "valkeys+sentinel",
        "valkey+cluster",
        "valkeys+cluster",
        "unix",
    ];

    /// Parses a URL. The error says what is wrong, never what the password is.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let parts = Parts::of(url)?;
        let Some((scheme, kind)) = parts.scheme.split_once('+').filter(|(_, kind)| *kind != "unix") else {
            return Ok(Self::Server(Server::parse(url, &parts)?));
        };
        let server = |host: &str, user: &str, port: u16, path: &str| {
            let host = if has_port(host) { host.to_owned() } else { format!("{host}:{port}") };
            Server::parse(&format!("{scheme}://{user}{host}{path}"), &parts)
        };
        let hosts: Vec<&str> = parts.hosts.split(',').filter(|host| !host.is_empty()).collect();
        if hosts.is_empty() {
            return Err("it names no host".into());
        }
        if kind == "cluster" {
            if !parts.path.is_empty() && parts.path != "0" {
                return Err("a cluster has no databases: leave the path empty".into());
            }
            let seeds = hosts.iter().map(|host| server(host, parts.user, PORT, ""));
            return seeds.collect::<Result<_, _>>().map(Self::Cluster);
        }
        let (service, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
        if service.is_empty() {
            return Err("it does not name the service: redis+sentinel://HOST,HOST/SERVICE".into());
        }
        let user = match (parts.value("sentinel_user"), parts.value("sentinel_password")) {
            (None, None) => String::new(),
            (user, password) => format!("{}:{}@", user.unwrap_or_default(), password.unwrap_or_default()),
        };
        let sentinels = hosts.iter().map(|host| server(host, &user, SENTINEL_PORT, ""));
        Ok(Self::Sentinels(Sentinels {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            service: service.to_owned(),
            server: server("unknown", parts.user, PORT, &format!("/{database}"))?,
        }))
    }
}

/// What a URL is made of, as text.
struct Parts<'a> {
    scheme: &'a str,
    /// With the `@` behind it; empty if there is none.
    user: &'a str,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("there is no :// in it")?;
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Ok(Self { scheme, user, hosts, path, query })
    }

    /// What the query says of `name`.
    fn value(&self, name: &str) -> Option<&'a str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Whether a port stands behind the host, which may be an IPv6 address in brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, rest)| rest).contains(':')
}

impl Server {
    fn parse(url: &str, parts: &Parts<'_>) -> Result<Self, String> {
        let info = without_tls_files(url).into_connection_info().map_err(|error| match error.detail() {
            Some(detail) => format!("{} ({detail})", error.category()),
            None => error.to_string(),
        })?;
        // A name for the connection costs a round trip, and a right that users with few have not.
        let unnamed = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_tcp_settings(tcp_settings()).set_redis_settings(unnamed);
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => tls_client(info, parts)?,
            _ => redis::Client::open(info).map_err(|error| error.to_string())?,
        };
        Ok(Self { client })
    }

    pub(crate) fn client(&self) -> &redis::Client {
        &self.client
    }

    /// The server at another address, with the same user, database and certificates.
    pub(crate) fn at(&self, host: &str, port: u16) -> Result<Self, String> {
        let info = self.client.get_connection_info().clone();
        let host = host.to_owned();
        let address = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let client = redis::Client::open(info.set_addr(address)).map_err(|error| error.to_string())?;
        Ok(Self { client })
    }

    /// The same server, spoken to in RESP3, which tells messages from replies.
    pub(crate) fn pushing(&self) -> Result<redis::Client, redis::RedisError> {
        let info = self.client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        redis::Client::open(info.set_redis_settings(settings))
    }

    /// Its host and port, if it has any.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host, *port))
            }
            _ => None,
        }
    }
}

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(2 * KEEPALIVE);
    settings
}

/// The parts of a URL's query that name files.
const TLS_FILES: [&str; 3] = ["tls_ca", "tls_cert", "tls_key"];

/// The URL without what only this module knows of.
fn without_tls_files(url: &str) -> String {
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    let Some((address, query)) = url.split_once('?') else {
        return fragment.map_or_else(|| url.to_owned(), |fragment| format!("{url}#{fragment}"));
    };
    let ours = |pair: &&str| !TLS_FILES.contains(&pair.split_once('=').map_or(*pair, |(name, _)| name));
    let query: Vec<&str> = query.split('&').filter(ours).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    format!("{address}{mark}{}{fragment}", query.join("&"))
}

/// A client that trusts, and shows, the certificates in the files that the URL names.
#[cfg(feature = "tls")]
fn tls_client(info: ConnectionInfo, parts: &Parts<'_>) -> Result<redis::Client, String> {
    // TLS needs one provider of cryptography in the process. If the program has chosen one, it stays.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Lost only to another thread that does the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let read = |name: &str| {
        let Some(path) = parts.value(name) else { return Ok(None) };
        std::fs::read(path).map(Some).map_err(|error| format!("{name}: {path}: {error}"))
    };
    let [root_cert, client_cert, client_key] = [read("tls_ca")?, read("tls_cert")?, read("tls_key")?];
    let client_tls = match (client_cert, client_key) {
        (Some(client_cert), Some(client_key)) => Some(redis::ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => return Err("tls_cert and tls_key belong together".into()),
    };
    let made = if root_cert.is_none() && client_tls.is_none() {
        redis::Client::open(info)
    } else {
        redis::Client::build_with_tls(info, redis::TlsCertificates { client_tls, root_cert })
    };
    made.map_err(|error| error.to_string())
}

#[cfg(not(feature = "tls"))]
fn tls_client(_: ConnectionInfo, _: &Parts<'_>) -> Result<redis::Client, String> {
    Err("TLS needs the feature `tls` of the crate".into())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |servers: &[Server]| servers.iter().map(Server::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Sentinels(to) => write!(f, "{:?}, watched by {}", to.service, list(&to.sentinels)),
            Self::Cluster(seeds) => write!(f, "the cluster with {}", list(seeds)),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host_and_port(), self.client.get_connection_info().addr()) {
            (Some((host, port)), _) => write!(f, "{host}:{port}"),
            (None, ConnectionAddr::Unix(path)) => write!(f, "{}", path.display()),
            _ => f.write_str("the server"),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(servers: &[Server]) -> Vec<String> {
        servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cluster_is_a_list_of_nodes() {
        let Ok(Address::Cluster(nodes)) = Address::parse("redis+cluster://u:p@a:1,b,[::1],[::1]:7/") else {
            panic!("it is a cluster")
        };
        assert_eq!(hosts(&nodes), ["a:1", "b:6379", "::1:6379", "::1:7"]);
        let settings = nodes[1].client.get_connection_info().redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("u"), Some("p")));
    }

    #[test]
    fn sentinels_name_a_service_and_have_users_of_their_own() {
        let url = "valkey+sentinel://u:p@a,b:1/cache/3?sentinel_user=s&sentinel_password=q";
        let Ok(Address::Sentinels(found)) = Address::parse(url) else { panic!("they are sentinels") };
        assert_eq!(
            (hosts(&found.sentinels), found.service.as_str()),
            (vec!["a:26379".into(), "b:1".into()], "cache")
        );
        let info = found.server.client.get_connection_info();
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("u"), Some("p"), 3));
        let settings = found.sentinels[0].client.get_connection_info().redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("s"), Some("q"), 0));
    }

    #[test]
    fn a_server_elsewhere_has_the_same_user() {
        let Ok(Address::Server(server)) = Address::parse("redis://u:p@a:1/2") else { panic!("it is one") };
        let elsewhere = server.at("b", 7).expect("valid");
        assert_eq!(elsewhere.to_string(), "b:7");
        let settings = elsewhere.client.get_connection_info().redis_settings();
        assert_eq!((settings.username(), settings.db()), (Some("u"), 2));
    }

    #[test]
    fn what_is_missing_is_named_and_passwords_are_not() {
        for (url, expected) in [
            (
                "redis+sentinel://u:secret@a,b",
                "it does not name the service: redis+sentinel://HOST,HOST/SERVICE",
            ),
            ("redis+cluster://u:secret@", "it names no host"),
            ("redis+cluster://u:secret@a/3", "a cluster has no databases: leave the path empty"),
            ("redis+cluster:a", "there is no :// in it"),
        ] {
            assert_eq!(Address::parse(url).map(drop), Err(expected.into()), "{url}");
        }
        for url in
            ["redis+cluster://u:secret@a:b,c", "redis+sentinel://u:secret@a:99999/s", "redis://u:secret@:x"]
        {
            let reason = Address::parse(url).expect_err(url);
            assert!(!reason.contains("secret"), "{reason}");
        }
    }

    #[test]
    fn the_files_of_certificates_are_not_for_the_server() {
        for (url, expected) in [
            ("rediss://a/1?tls_ca=/ca.pem#insecure", "rediss://a/1#insecure"),
            ("rediss://a?tls_cert=c&protocol=resp3&tls_key=k", "rediss://a?protocol=resp3"),
            ("rediss://a", "rediss://a"),
            ("rediss://a#insecure", "rediss://a#insecure"),
        ] {
            assert_eq!(without_tls_files(url), expected);
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_certificate_that_cannot_be_read_is_named() {
        let reason = Address::parse("rediss://u:secret@a?tls_ca=/nowhere/ca.pem").expect_err("no file");
        assert!(reason.starts_with("tls_ca: /nowhere/ca.pem: "), "{reason}");
        let reason = Address::parse("rediss://a?tls_cert=/dev/null").expect_err("half of it");
        assert_eq!(reason, "tls_cert and tls_key belong together");
    }
}
