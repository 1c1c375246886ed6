//! A URL as an address.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::server::{Login, Server, ServerAddress};
use super::tls::Tls;
use super::url::{Kind, Parts, database};
use crate::protocol::Recovery;
use permits_store::credentials::CredentialSource;
use permits_store::options::NOT_ENCODED;
use permits_store::source::url_in;
use permits_store::sys::percent;

/// The ports of URLs without one.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The servers that a URL names.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// A single server.
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
    /// The sentinels' name of the service.
    pub(crate) service: String,
    /// The login on the primary. Its address is not known yet.
    pub(crate) server: Server,
}

impl Address {
    /// The URL schemes that this store serves, except those with `valkey` instead of `redis`.
    pub(crate) const SCHEMES: [&str; 7] = [
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
    ];

    /// Returns true if this store serves URLs with `scheme`.
    pub(crate) fn serves(scheme: &str) -> bool {
        Parts::kind(scheme).is_some()
    }

    /// Parses a URL. Returns also the recovery rule in it, if there is one. No error contains the password.
    pub(crate) fn parse(url: &str) -> Result<(Self, Option<Recovery>), String> {
        let parts = Parts::of(url)?;
        let recovery = parts.options.recovery()?;
        let mut address = Self::of(&parts)?;
        if let Some(file) = parts.options.value("password_file") {
            address.take_password_from(&Arc::new(CredentialSource::file(file)))?;
        }
        Ok((address, recovery))
    }

    fn of(parts: &Parts<'_>) -> Result<Self, String> {
        let path = parts.path.trim_end_matches('/');
        let login = parts.login()?;
        if !matches!(parts.options.value("protocol"), None | Some("2" | "3" | "resp2" | "resp3")) {
            return Err("option protocol must be resp2 or resp3".into());
        }
        let tls = parts.tls.then(|| Tls::new(&parts.options)).transpose()?;
        match parts.kind {
            Kind::Unix => {
                if !parts.authority.is_empty() || path.is_empty() {
                    return Err("it names no socket: redis+unix:///path/redis.sock".into());
                }
                let value = |name| parts.options.value(name).map(str::to_owned);
                let database = database(parts.options.value("db").unwrap_or_default())?;
                let login = Login::new(value("user"), value("pass"), database);
                let path = percent::decode(path).ok_or_else(|| format!("the path: {NOT_ENCODED}"))?;
                let address = ServerAddress::Unix(format!("/{path}").into());
                Ok(Self::Server(Server::new(address, tls, login)))
            }
            Kind::Server => {
                let [(host, port)] = &parts.hosts(PORT)?[..] else {
                    let reason = "it names several hosts: write redis+cluster://HOST,HOST for nodes of a cluster, \
                                  redis+sentinel://HOST,HOST/SERVICE for sentinels";
                    return Err(reason.into());
                };
                let login = Login { database: database(path)?, ..login };
                Ok(Self::Server(Server::new(ServerAddress::tcp(host, *port), tls, login)))
            }
            Kind::Cluster => {
                if !path.is_empty() && path != "0" {
                    return Err("a cluster has no databases: leave the path empty".into());
                }
                let hosts = parts.hosts(PORT)?;
                let server = Server::new(ServerAddress::tcp("unknown", PORT), tls, login);
                Ok(Self::Cluster(hosts.iter().map(|(host, port)| server.at(host, *port)).collect()))
            }
            Kind::Sentinel => {
                let (service, index) = path.split_once('/').unwrap_or((path, ""));
                let service =
                    percent::decode(service).ok_or_else(|| format!("the service: {NOT_ENCODED}"))?;
                if service.is_empty() {
                    return Err("it does not name the service: redis+sentinel://HOST,HOST/SERVICE".into());
                }
                let value = |name| parts.options.value(name).map(str::to_owned);
                let own = Login::new(value("sentinel_user"), value("sentinel_password"), 0);
                let hosts = parts.hosts(SENTINEL_PORT)?;
                let login = Login { database: database(index)?, ..login };
                let server = Server::new(ServerAddress::tcp("unknown", PORT), tls, login);
                let mut sentinel = server.with_login(own);
                if let Some(file) = value("sentinel_password_file") {
                    sentinel.log_in_with(&Arc::new(CredentialSource::file(file)))?;
                }
                let sentinels = hosts.iter().map(|(host, port)| sentinel.at(host, *port)).collect();
                Ok(Self::Sentinels(Sentinels { sentinels, service, server }))
            }
        }
    }
}

impl Address {
    /// Has each new connection log in as the URL in this file says then.
    pub(crate) fn read_logins_from(&mut self, file: &Arc<Path>) {
        self.servers().for_each(|server| server.read_login(file, login_in));
        if let Self::Sentinels(Sentinels { sentinels, .. }) = self {
            sentinels.iter_mut().for_each(|one| one.read_login(file, sentinel_login_in));
        }
    }

    /// Has each new connection to a server, not to a sentinel, log in with the password of this source.
    pub(crate) fn take_password_from(&mut self, source: &Arc<CredentialSource>) -> Result<(), String> {
        self.servers().try_for_each(|server| server.log_in_with(source))
    }

    /// Returns true while a source of credentials is asked.
    pub(crate) fn awaits_credentials(&self) -> bool {
        match self {
            Self::Server(server) | Self::Sentinels(Sentinels { server, .. }) => server.awaits_credentials(),
            Self::Cluster(seeds) => seeds.iter().any(Server::awaits_credentials),
        }
    }

    fn servers(&mut self) -> impl Iterator<Item = &mut Server> {
        match self {
            Self::Server(server) | Self::Sentinels(Sentinels { server, .. }) => std::slice::from_mut(server),
            Self::Cluster(seeds) => &mut seeds[..],
        }
        .iter_mut()
    }
}

/// The address of the URL that is in the file now, for the logins in it. An open connection looks every two
/// seconds, so this reads no certificates.
fn address_in(file: &Path) -> Result<Address, String> {
    let named =
        |reason| format!("{}: its URL is not one of such a server any more: {reason}", file.display());
    let url = url_in(file)?;
    let parts = Parts::of(&url).map_err(named)?;
    Address::of(&Parts { tls: false, ..parts }).map_err(named)
}

fn login_in(file: &Path) -> Result<Login, String> {
    Ok(match address_in(file)? {
        Address::Server(server) | Address::Sentinels(Sentinels { server, .. }) => {
            server.login_in_url().clone()
        }
        Address::Cluster(seeds) => seeds.first().map(Server::login_in_url).cloned().unwrap_or_default(),
    })
}

fn sentinel_login_in(file: &Path) -> Result<Login, String> {
    Ok(match address_in(file)? {
        Address::Sentinels(to) => to.sentinels.first().map(Server::login_in_url).cloned().unwrap_or_default(),
        Address::Server(_) | Address::Cluster(_) => Login::default(),
    })
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url).unwrap_or_else(|reason| panic!("{url}: {reason}")).0
    }

    fn hosts(servers: &[Server]) -> Vec<String> {
        servers.iter().map(ToString::to_string).collect()
    }

    fn login(server: &Server) -> (Option<&str>, Option<&str>, u32) {
        let login = server.login_in_url();
        (login.user.as_deref(), login.password.as_deref(), login.database)
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

    /// A file changes the login, and the database of the URL stays.
    #[tokio::test]
    async fn the_logins_of_new_connections_are_those_in_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let write = |text: &str| std::fs::write(file.path(), text).expect("there is room");
        let path: Arc<Path> = file.path().into();
        let following = |url: &str| {
            let mut address = parsed(url);
            address.read_logins_from(&path);
            address
        };
        let now = |server: &Server| {
            let login = server.login().now_or_never().expect("a file needs no wait");
            let login = login.unwrap_or_else(|error| panic!("{error}"));
            (login.user, login.password, login.database)
        };
        let is = |user: &str, password: &str, database| {
            let text = |text: &str| Some(text.to_owned());
            (text(user), text(password), database)
        };

        let Address::Server(server) = following("redis://u:p@a:1/2") else { panic!("it is one") };
        write("redis://v:q@b:7/9\n");
        assert_eq!(now(&server), is("v", "q", 2));
        assert_eq!(now(&server.at("c", 3)), is("v", "q", 2), "the server that it names has moved");
        for broken in ["", "redis://v:q", "file:x", "redis://v:q@b\nredis://v:q@b"] {
            write(broken);
            let error = server.login().await.map(drop).expect_err(broken);
            assert!(error.is_temporary() && !error.to_string().contains("v:q"), "{error}");
        }

        let url = |number| {
            format!("redis+sentinel://u{number}:p@a/s/3?sentinel_user=s&sentinel_password=q{number}")
        };
        let Address::Sentinels(to) = following(&url(1)) else { panic!("they are sentinels") };
        write(&url(2));
        assert_eq!(now(&to.server), is("u2", "p", 3));
        assert_eq!(now(&to.sentinels[0]), is("s", "q2", 0));

        let secret = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(secret.path(), "s\n").expect("there is room");
        let with_a_file = format!("redis://u@a?password_file={}", secret.path().display());
        let Address::Server(server) = following(&with_a_file) else { panic!("it is one") };
        write(&with_a_file);
        assert_eq!(now(&server), is("u", "s", 0), "the password is in a file of its own");

        let Address::Cluster(seeds) = following("redis+cluster://u:p@a,b") else { panic!("it is a cluster") };
        write("redis+cluster://u:new@c");
        assert_eq!(now(&seeds[1]), is("u", "new", 0));
    }

    #[test]
    #[cfg(feature = "tls")]
    fn what_lets_a_connection_in_may_be_replaced_if_it_is_in_a_file() {
        let certificates = permits_testkit::Certificates::new();
        let authority = certificates.authority().path().display();
        let secret = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(secret.path(), "s").expect("there is room");
        for (url, expected) in [
            ("redis://u:p@a".to_owned(), false),
            (format!("redis://u@a?password_file={}", secret.path().display()), true),
            (format!("rediss://u:p@a?tls_ca={authority}"), true),
        ] {
            let Address::Server(server) = parsed(&url) else { panic!("it is one") };
            assert_eq!(server.may_be_let_in_later(), expected, "{url}");
        }
    }

    #[test]
    fn a_server_elsewhere_has_the_same_user() {
        let Address::Server(server) = parsed("redis://u:p@a:1/2") else { panic!("it is one") };
        let elsewhere = server.at("b", 7);
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
            ("redis://:p@ss/word@a/", "must be percent-encoded"),
            ("redis+sentinel://u:a@b/hunter@host/service", "must be percent-encoded"),
            ("redis://a/?ssl=true", "option ssl is said by the scheme: write rediss://"),
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
