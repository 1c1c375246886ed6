//! One server: its address, login and TLS settings.

use std::fmt;

use redis::ConnectionAddr;

use super::tls::{Secured, Tls};
use crate::store::StoreError;
use crate::store::options::Options;

/// A server's address, with the login there.
#[derive(Clone)]
pub(crate) struct Server {
    address: ConnectionAddr,
    /// `None` without TLS.
    tls: Option<Tls>,
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
        let tls = match address {
            ConnectionAddr::TcpTls { .. } => Some(Tls::new(options)?),
            _ => None,
        };
        Ok(Self { address, tls, login })
    }

    /// The address.
    pub(crate) fn address(&self) -> &ConnectionAddr {
        &self.address
    }

    /// Returns true if connections use TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The parameters of a TLS handshake, if connections use TLS.
    pub(crate) fn secured(&self) -> Result<Option<Secured>, StoreError> {
        match (&self.tls, self.host_and_port()) {
            (Some(tls), Some((host, _))) => tls.with(host).map(Some),
            _ => Ok(None),
        }
    }

    /// The login.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// The server at another address, with the same user, database and certificates.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let host = host.to_owned();
        let address = match &self.address {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self { address, ..self.clone() }
    }

    /// This server with another login.
    pub(super) fn with_login(&self, login: Login) -> Self {
        Self { login, ..self.clone() }
    }

    /// Its host and port, unless it is a socket.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match &self.address {
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
        match (self.host_and_port(), &self.address) {
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
