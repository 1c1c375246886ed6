//! One server: its address, login and TLS settings.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use crate::store::options::Options;

/// The idle time after which the system probes a connection.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// A server's address, with the login there.
#[derive(Clone)]
pub(crate) struct Server {
    /// Without the login: see `server::login`.
    client: redis::Client,
    login: Login,
}

/// User, password and database. Not `Debug`, because of the password.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

impl Server {
    /// The server at `address`, with the TLS settings in `options`.
    pub(super) fn new(address: ConnectionAddr, login: Login, options: &Options) -> Result<Self, String> {
        if !matches!(options.value("protocol"), None | Some("2" | "3" | "resp2" | "resp3")) {
            return Err("option protocol must be resp2 or resp3".into());
        }
        // A name for the connection costs a round trip, and a permission that restricted users lack.
        let unnamed = RedisConnectionInfo::default().set_skip_set_lib_name();
        let info = address.into_connection_info().map_err(|_| "it is no address")?;
        let info = info.set_tcp_settings(tcp_settings()).set_redis_settings(unnamed);
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => tls_client(info, options)?,
            _ => redis::Client::open(info).map_err(|_| "it is no address")?,
        };
        Ok(Self { client, login })
    }

    /// The client, which does not log in.
    pub(crate) fn client(&self) -> &redis::Client {
        &self.client
    }

    /// The login.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// Returns true if connections use TLS.
    pub(crate) fn has_tls(&self) -> bool {
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

    /// A client that speaks RESP3, which distinguishes messages from replies. This client logs in by itself.
    pub(crate) fn pushing(&self) -> Result<redis::Client, redis::RedisError> {
        let info = self.client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        if let Some((user, password)) = self.login.credentials() {
            settings = settings.set_username(user.unwrap_or("default")).set_password(password);
        }
        redis::Client::open(info.set_redis_settings(settings))
    }

    /// Its host and port, unless it is a socket.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host, *port))
            }
            _ => None,
        }
    }
}

impl Login {
    /// User and password, if there is either. A user without a password may need none.
    pub(crate) fn credentials(&self) -> Option<(Option<&str>, &str)> {
        let (user, password) = (self.user.as_deref(), self.password.as_deref());
        (user.is_some() || password.is_some()).then(|| (user, password.unwrap_or_default()))
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

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(2 * KEEPALIVE);
    settings
}

/// A client that trusts, and presents, the certificates in the files that the URL names.
#[cfg(feature = "tls")]
fn tls_client(info: ConnectionInfo, options: &Options) -> Result<redis::Client, String> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    // TLS needs one provider of cryptography in the process. A provider that the program has installed stays.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread has installed it meanwhile.
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
