//! Where the servers are: parsed from a URL, shown without its password.
//!
//! `redis://host` is one server; `redis+sentinel://s1,s2/service` is the server that the sentinels name, and
//! `redis+cluster://h1,h2` are some nodes of a cluster, which name the others. User, database and certificates in a
//! URL are those of all servers behind it.
//!
//! The URL is parsed here and not by the `redis` crate, because that ignores options that it does not know, and its
//! errors do not say what to do.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use crate::percent;
use crate::protocol::Recovery;
use crate::store::options::{Known, NOT_ENCODED, Options, RECOVERY};

/// How long an idle connection may be silent before the system probes it.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The ports where there is none in the URL.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The servers that a URL names.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// One server.
    Server(Server),
    /// The server that the sentinels name.
    Sentinels(Sentinels),
    /// Some nodes of a cluster.
    Cluster(Vec<Server>),
}

/// The sentinels to ask for a server.
#[derive(Clone, Debug)]
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<Server>,
    /// The sentinels' name of it.
    pub(crate) service: String,
    /// The login there. Its address is not known yet.
    pub(crate) server: Server,
}

/// A server's address, with what is needed to log in.
#[derive(Clone)]
pub(crate) struct Server {
    /// Logs in nowhere: see [`super::connection`].
    client: redis::Client,
    login: Login,
}

/// User, password and database. Not `Debug`, because of the password.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

/// The kind of store that a scheme names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Server,
    Unix,
    Sentinel,
    Cluster,
}

impl Address {
    /// The URL schemes that this store serves, but for those with `valkey` instead of `redis`.
    pub(crate) const SCHEMES: [&str; 7] = [
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
    ];

    /// Whether this store serves URLs with `scheme`.
    pub(crate) fn serves(scheme: &str) -> bool {
        Parts::kind(scheme).is_some()
    }

    /// Parses a URL, with the recovery that it asks for. The error says what is wrong, never what the password is.
    pub(crate) fn parse(url: &str) -> Result<(Self, Option<Recovery>), String> {
        let parts = Parts::of(url)?;
        let recovery = parts.options.recovery()?;
        Ok((Self::of(&parts)?, recovery))
    }

    fn of(parts: &Parts<'_>) -> Result<Self, String> {
        let path = parts.path.trim_end_matches('/');
        let login = parts.login()?;
        match parts.kind {
            Kind::Unix => {
                if !parts.authority.is_empty() || path.is_empty() {
                    return Err("it names no socket: redis+unix:///path/redis.sock".into());
                }
                let value = |name| parts.options.value(name).map(str::to_owned);
                let database = database(parts.options.value("db").unwrap_or_default())?;
                let login = Login { user: value("user"), password: value("pass"), database };
                let path = percent::decode(path).ok_or_else(|| format!("the path: {NOT_ENCODED}"))?;
                let address = ConnectionAddr::Unix(format!("/{path}").into());
                Server::new(address, login, parts).map(Self::Server)
            }
            Kind::Server => {
                let [(host, port)] = &parts.hosts(PORT)?[..] else {
                    let reason = "it names several hosts: write redis+cluster://HOST,HOST for nodes of a cluster, \
                                  redis+sentinel://HOST,HOST/SERVICE for sentinels";
                    return Err(reason.into());
                };
                let login = Login { database: database(path)?, ..login };
                Server::new(parts.tcp(host, *port), login, parts).map(Self::Server)
            }
            Kind::Cluster => {
                if !path.is_empty() && path != "0" {
                    return Err("a cluster has no databases: leave the path empty".into());
                }
                let hosts = parts.hosts(PORT)?;
                let seeds = hosts
                    .iter()
                    .map(|(host, port)| Server::new(parts.tcp(host, *port), login.clone(), parts));
                seeds.collect::<Result<_, _>>().map(Self::Cluster)
            }
            Kind::Sentinel => {
                let (service, index) = path.split_once('/').unwrap_or((path, ""));
                let service =
                    percent::decode(service).ok_or_else(|| format!("the service: {NOT_ENCODED}"))?;
                if service.is_empty() {
                    return Err("it does not name the service: redis+sentinel://HOST,HOST/SERVICE".into());
                }
                let value = |name| parts.options.value(name).map(str::to_owned);
                let own =
                    Login { user: value("sentinel_user"), password: value("sentinel_password"), database: 0 };
                let hosts = parts.hosts(SENTINEL_PORT)?;
                let sentinels =
                    hosts.iter().map(|(host, port)| Server::new(parts.tcp(host, *port), own.clone(), parts));
                let login = Login { database: database(index)?, ..login };
                Ok(Self::Sentinels(Sentinels {
                    sentinels: sentinels.collect::<Result<_, _>>()?,
                    service,
                    server: Server::new(parts.tcp("unknown", PORT), login, parts)?,
                }))
            }
        }
    }
}

/// The parts of a URL, as text.
struct Parts<'a> {
    kind: Kind,
    tls: bool,
    /// User, password and hosts.
    authority: &'a str,
    path: &'a str,
    options: Options,
}

/// Said of a URL that falls apart at a character of its password.
const ENCODE: &str = "a user or password with one of the characters / ? # @ : % must be percent-encoded: %2F %3F %23 %40 %3A %25";

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("there is no :// in it")?;
        let (tls, kind) = Self::kind(scheme).ok_or("its scheme is not known")?;
        if rest.contains('#') {
            let reason = "a # in it must be written %23. (There is no #insecure: certificates are always verified, and \
                          tls_ca names the authority to trust.)";
            return Err(reason.into());
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if kind != Kind::Unix && !authority.contains('@') {
            // The URL ends its authority at a character that the password has.
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            let odd =
                authority.rsplit_once(':').is_some_and(|(host, port)| !host.ends_with(']') && !digits(port));
            if path.contains('@') || (query.contains('@') && odd) {
                return Err(ENCODE.into());
            }
        }
        Ok(Self { kind, tls, authority, path, options: Options::parse(query, &known(kind, tls))? })
    }

    /// Reads a scheme: whether TLS is spoken, and the kind of store.
    fn kind(scheme: &str) -> Option<(bool, Kind)> {
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
    fn login(&self) -> Result<Login, String> {
        let Some((text, _)) = self.authority.rsplit_once('@') else { return Ok(Login::default()) };
        let (user, password) = text.split_once(':').map_or((text, None), |(user, rest)| (user, Some(rest)));
        let decoded =
            |text: &str| percent::decode(text).ok_or_else(|| format!("user and password: {NOT_ENCODED}"));
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        let password = password.map(decoded).transpose()?.filter(|password| !password.is_empty());
        Ok(Login { user, password, database: 0 })
    }

    /// The hosts, each with its port.
    fn hosts(&self, port: u16) -> Result<Vec<(String, u16)>, String> {
        let hosts = self.authority.rsplit_once('@').map_or(self.authority, |(_, hosts)| hosts);
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        let hosts = hosts.map(|text| host_and_port(text, port)).collect::<Option<Vec<_>>>().ok_or_else(|| {
            format!("a host in it is not HOST, HOST:PORT or [IPv6]:PORT, with a port from 1 to 65535; {ENCODE}")
        })?;
        if hosts.is_empty() { Err("it names no host".into()) } else { Ok(hosts) }
    }

    fn tcp(&self, host: &str, port: u16) -> ConnectionAddr {
        let host = host.to_owned();
        match self.tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        }
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

fn database(text: &str) -> Result<u32, String> {
    // A server counts its databases with an int.
    let number =
        if text.is_empty() { Some(0) } else { text.parse().ok().filter(|index| *index <= i32::MAX as u32) };
    number.ok_or_else(|| "the database must be a number, 0 unless given".into())
}

/// The options, and which of them this URL takes.
fn known(kind: Kind, tls: bool) -> [Known; 10] {
    let only_if = |taken: bool, reason| (!taken).then_some(reason);
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
        // Taken because URLs of other programs have it. The commands are the same in both protocols.
        ("protocol", None),
        ("tls_ca", with_tls),
        ("tls_cert", with_tls),
        ("tls_key", with_tls),
        ("sentinel_user", of_sentinels),
        ("sentinel_password", of_sentinels),
        ("user", of_login),
        ("pass", of_login),
        ("db", of_database),
    ]
    .map(|(name, refused)| Known { name, refused })
}

impl Server {
    fn new(address: ConnectionAddr, login: Login, parts: &Parts<'_>) -> Result<Self, String> {
        if !matches!(parts.options.value("protocol"), None | Some("2" | "3" | "resp2" | "resp3")) {
            return Err("option protocol must be resp2 or resp3".into());
        }
        // A name for the connection costs a round trip, and a right that users with few have not.
        let unnamed = RedisConnectionInfo::default().set_skip_set_lib_name();
        let info = address.into_connection_info().map_err(|_| "it is no address")?;
        let info = info.set_tcp_settings(tcp_settings()).set_redis_settings(unnamed);
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => tls_client(info, &parts.options)?,
            _ => redis::Client::open(info).map_err(|_| "it is no address")?,
        };
        Ok(Self { client, login })
    }

    pub(super) fn client(&self) -> &redis::Client {
        &self.client
    }

    pub(super) fn login(&self) -> &Login {
        &self.login
    }

    /// Whether TLS is spoken there.
    pub(super) fn has_tls(&self) -> bool {
        matches!(self.client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
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
        let client = redis::Client::open(info.set_addr(address)).map_err(|_| "it is no address")?;
        Ok(Self { client, login: self.login.clone() })
    }

    /// The same server, spoken to in RESP3, which tells messages from replies. This client logs in by itself.
    pub(crate) fn pushing(&self) -> Result<redis::Client, redis::RedisError> {
        let info = self.client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        if let Some((user, password)) = self.login.credentials() {
            settings = settings.set_username(user.unwrap_or("default")).set_password(password);
        }
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

/// A client that trusts, and shows, the certificates in the files that the URL names.
#[cfg(feature = "tls")]
fn tls_client(info: ConnectionInfo, options: &Options) -> Result<redis::Client, String> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    // TLS needs one provider of cryptography in the process. If the program has chosen one, it stays.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Lost only to another thread that does the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let read = |name: &str| {
        let Some(path) = options.value(name) else { return Ok(None) };
        let bytes = std::fs::read(path).map_err(|error| format!("{name}: {path}: {error}"))?;
        let fits = match name {
            "tls_key" => PrivateKeyDer::from_pem_slice(&bytes).is_ok(),
            _ => {
                let mut all = CertificateDer::pem_slice_iter(&bytes).peekable();
                all.peek().is_some() && all.all(|certificate| certificate.is_ok())
            }
        };
        let what = if name == "tls_key" { "private key" } else { "certificate" };
        if fits { Ok(Some(bytes)) } else { Err(format!("{name}: {path} holds no {what} in PEM form")) }
    };
    let [root_cert, client_cert, client_key] = [read("tls_ca")?, read("tls_cert")?, read("tls_key")?];
    let client_tls = match (client_cert, client_key) {
        (Some(client_cert), Some(client_key)) => Some(redis::ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => return Err("tls_cert and tls_key belong together".into()),
    };
    if root_cert.is_none() && client_tls.is_none() {
        return redis::Client::open(info).map_err(|_| "it is no address".into());
    }
    redis::Client::build_with_tls(info, redis::TlsCertificates { client_tls, root_cert })
        .map_err(|_| "a certificate in tls_ca, tls_cert or tls_key is damaged".into())
}

#[cfg(not(feature = "tls"))]
fn tls_client(_: ConnectionInfo, _: &Options) -> Result<redis::Client, String> {
    Err("TLS needs the feature `tls` of the crate".into())
}

impl Login {
    /// User and password, if there is either. A user whose password is missing may be one that needs none.
    pub(super) fn credentials(&self) -> Option<(Option<&str>, &str)> {
        let (user, password) = (self.user.as_deref(), self.password.as_deref());
        (user.is_some() || password.is_some()).then(|| (user, password.unwrap_or_default()))
    }
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

    fn parsed(url: &str) -> Address {
        Address::parse(url).unwrap_or_else(|reason| panic!("{url}: {reason}")).0
    }

    fn hosts(servers: &[Server]) -> Vec<String> {
        servers.iter().map(ToString::to_string).collect()
    }

    fn login(server: &Server) -> (Option<&str>, Option<&str>, u32) {
        (server.login.user.as_deref(), server.login.password.as_deref(), server.login.database)
    }

    #[test]
    fn a_cluster_is_a_list_of_nodes() {
        let Address::Cluster(nodes) = parsed("redis+cluster://u:p@a:1,b,[::1],[::1]:7/") else {
            panic!("it is a cluster")
        };
        assert_eq!(hosts(&nodes), ["a:1", "b:6379", "::1:6379", "::1:7"]);
        assert_eq!(login(&nodes[1]), (Some("u"), Some("p"), 0));
    }

    #[test]
    fn sentinels_name_a_service_and_have_users_of_their_own() {
        let url = "valkey+sentinel://u:p%2F@a,b:1/cache/3?sentinel_user=s&sentinel_password=q%26";
        let Address::Sentinels(found) = parsed(url) else { panic!("they are sentinels") };
        assert_eq!(
            (hosts(&found.sentinels), found.service.as_str()),
            (vec!["a:26379".into(), "b:1".into()], "cache")
        );
        assert_eq!(login(&found.server), (Some("u"), Some("p/"), 3));
        assert_eq!(login(&found.sentinels[0]), (Some("s"), Some("q&"), 0));
    }

    #[test]
    fn a_server_elsewhere_has_the_same_user() {
        let Address::Server(server) = parsed("redis://u:p@a:1/2") else { panic!("it is one") };
        let elsewhere = server.at("b", 7).expect("valid");
        assert_eq!(elsewhere.to_string(), "b:7");
        assert_eq!(login(&elsewhere), (Some("u"), Some("p"), 2));
    }

    #[test]
    fn a_socket_has_a_path_and_options() {
        for scheme in ["unix", "redis+unix", "valkey+unix"] {
            let address = parsed(&format!("{scheme}:///tmp/a%20b@c.sock?db=3&user=u&pass=p%40"));
            let Address::Server(server) = address else { panic!("it is one") };
            assert_eq!(server.to_string(), "/tmp/a b@c.sock");
            assert_eq!(login(&server), (Some("u"), Some("p@"), 3));
        }
    }

    #[test]
    fn any_url_may_ask_for_a_recovery() {
        for url in ["redis://a", "redis+unix:///a", "redis+sentinel://a/s", "redis+cluster://a"] {
            let (_, recovery) = Address::parse(&format!("{url}?recovery=strict")).expect(url);
            assert_eq!(recovery, Some(Recovery::Strict));
        }
    }

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        for (url, expected) in [
            ("redis+sentinel://a,b", "redis+sentinel://HOST,HOST/SERVICE"),
            ("redis+cluster://u:hunter@", "it names no host"),
            ("redis+cluster://u:hunter@a/3", "a cluster has no databases"),
            ("redis+cluster:a", "there is no :// in it"),
            ("redis://a,b", "redis+cluster://HOST,HOST"),
            ("redis://u:hunter@a:b", "from 1 to 65535"),
            ("redis://u:hunter@a:0", "from 1 to 65535"),
            ("redis+sentinel://u:hunter@a:99999/s", "from 1 to 65535"),
            ("redis://u:hunter@::1", "[IPv6]:PORT"),
            ("redis://u:hunter@[::1", "[IPv6]:PORT"),
            ("redis://u:hun%ter@a", "write % itself as %25"),
            ("redis://u:hunter%FF@a", "UTF-8"),
            ("redis://u:hun/ter@a", "percent-encoded: %2F"),
            ("redis://u:hun?ter@a", "percent-encoded: %2F"),
            ("redis://u:hun#ter@a", "must be written %23"),
            ("rediss://a#insecure", "always verified"),
            ("redis://a/first", "the database must be a number"),
            ("redis://a/-1", "the database must be a number"),
            ("redis+unix://?pass=hunter", "it names no socket"),
            ("redis+unix://u:hunter@a/x", "it names no socket"),
            ("redis://a?db=3", "write redis://HOST/DATABASE"),
            ("redis://a?pass=hunter", "write redis://USER:PASSWORD@HOST"),
            ("redis://a?tls_ca=/ca.pem", "option tls_ca needs TLS: write rediss://"),
            ("redis+unix:///a?tls_ca=/ca.pem", "option tls_ca needs TLS"),
            ("rediss://a?tls_ac=/ca.pem", "unknown option tls_ac: did you mean tls_ca?"),
            ("redis+cluster://a?sentinel_password=hunter", "is for redis+sentinel:// alone"),
            ("redis://a?hunter", "this URL takes recovery, protocol"),
            ("redis://a?protocol=resp9", "protocol must be resp2 or resp3"),
        ] {
            let reason = Address::parse(url).map(drop).expect_err(url);
            assert!(reason.contains(expected), "{url}: {reason}");
            assert!(!reason.contains("hun") && !reason.contains("ter@"), "{url}: {reason}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_certificate_that_cannot_be_read_is_named() {
        let refused = |url: &str| Address::parse(url).map(drop).expect_err(url);
        let reason = refused("rediss://u:secret@a?tls_ca=/nowhere/ca.pem");
        assert!(reason.starts_with("tls_ca: /nowhere/ca.pem: "), "{reason}");
        assert_eq!(
            refused("rediss://a?tls_ca=/dev/null"),
            "tls_ca: /dev/null holds no certificate in PEM form"
        );
        assert_eq!(
            refused("rediss://a?tls_key=/dev/null"),
            "tls_key: /dev/null holds no private key in PEM form"
        );
    }
}
