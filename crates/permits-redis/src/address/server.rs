//! One server: its address, login and TLS settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tls::{Secured, Tls};
use permits_store::StoreError;

/// The place where a server listens.
#[derive(Clone)]
pub(crate) enum ServerAddress {
    /// A host and its port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

/// A server's address, with the login there.
#[derive(Clone)]
pub(crate) struct Server {
    address: ServerAddress,
    /// `None` without TLS.
    tls: Option<Tls>,
    login: Login,
    source: Option<Source>,
}

/// The file with the user and the password of new connections, and the way to read them.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) file: Arc<Path>,
    pub(super) read: fn(&Path) -> Result<Login, String>,
}

/// User, password and database. Not `Debug`, because of the password.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

impl ServerAddress {
    pub(super) fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp(host.to_owned(), port)
    }
}

impl Server {
    /// The server at `address`, with these TLS settings, or without TLS.
    pub(super) fn new(address: ServerAddress, tls: Option<Tls>, login: Login) -> Self {
        Self { address, tls, login, source: None }
    }

    /// The address.
    pub(crate) fn address(&self) -> &ServerAddress {
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

    /// The login of a connection that is made now.
    pub(crate) fn login(&self) -> Result<Login, StoreError> {
        let Some(Source { file, read }) = &self.source else { return Ok(self.login.clone()) };
        // The file may be about to be written.
        let login = read(file).map_err(|reason| StoreError::Unreachable { reason })?;
        Ok(Login { database: self.login.database, ..login })
    }

    /// The login in the URL.
    pub(super) fn login_in_url(&self) -> &Login {
        &self.login
    }

    /// Reads the user and the password for each new connection.
    pub(super) fn read_login(&mut self, source: Source) {
        self.source = Some(source);
    }

    /// The server at another address, with the same user, database and certificates.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        Self { address: ServerAddress::tcp(host, port), ..self.clone() }
    }

    /// This server with another login.
    pub(super) fn with_login(&self, login: Login) -> Self {
        Self { login, ..self.clone() }
    }

    /// The host and port, unless the address is a socket.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match &self.address {
            ServerAddress::Tcp(host, port) => Some((host, *port)),
            ServerAddress::Unix(_) => None,
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
        match &self.address {
            ServerAddress::Tcp(host, port) => write!(f, "{host}:{port}"),
            ServerAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}
