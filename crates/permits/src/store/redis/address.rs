//! Where a server is: parsed from a URL, shown without its password.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, IntoConnectionInfo};

/// How long an idle connection may be silent before the system probes it.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// A server's address, with what is needed to log in.
#[derive(Clone)]
pub(crate) struct Address {
    client: redis::Client,
}

impl Address {
    /// The URL schemes that this store serves.
    pub(crate) const SCHEMES: [&str; 7] =
        ["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];

    /// Parses a URL. The error says what is wrong, never what the password is.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|error| match error.detail() {
            Some(detail) => format!("{} ({detail})", error.category()),
            None => error.to_string(),
        })?;
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            install_crypto()?;
        }
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let settings = settings.set_user_timeout(2 * KEEPALIVE);
        let client =
            redis::Client::open(info.set_tcp_settings(settings)).map_err(|error| error.to_string())?;
        Ok(Self { client })
    }

    pub(crate) fn client(&self) -> &redis::Client {
        &self.client
    }
}

/// TLS needs one provider of cryptography in the process. If the program has chosen one, it stays.
#[cfg(feature = "tls")]
fn install_crypto() -> Result<(), String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Lost only to another thread that does the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn install_crypto() -> Result<(), String> {
    Err("TLS needs the feature `tls` of the crate".into())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                write!(f, "{host}:{port}")
            }
            ConnectionAddr::Unix(path) => write!(f, "{}", path.display()),
            _ => f.write_str("the server"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}
