//! A server: its address, login and TLS settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tls::{Secured, Tls};
use crate::resp::{Cmd, cmd};
use permits_store::StoreError;
use permits_store::credentials::{CredentialSource, Fetched, Valid};

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

/// The source of the user and password of new connections, if it is not the URL itself.
#[derive(Clone)]
pub(super) enum Source {
    /// The file with the URL, and the way to read them.
    Url(Arc<Path>, fn(&Path) -> Result<Login, String>),
    /// The password, and perhaps the user.
    Credentials(Arc<CredentialSource>),
}

/// User, password and database. Not `Debug`, because of the password.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    /// How long they are valid, if that is known.
    pub(crate) valid: Option<Valid>,
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

    /// The login of a connection that is made now. It may take some seconds.
    pub(crate) async fn login(&self) -> Result<Login, StoreError> {
        let own = &self.login;
        let login = match &self.source {
            None => return Ok(own.clone()),
            Some(Source::Url(file, read)) => {
                read(file).map(|login| Login { database: own.database, ..login })
            }
            Some(Source::Credentials(source)) => {
                source.get().await.map(|Fetched { user, password, valid }| {
                    let user = user.or_else(|| own.user.clone());
                    Login { user, password: Some(password), database: own.database, valid }
                })
            }
        };
        // The file may be about to be written, and the issuer of a token down for a moment.
        login.map_err(|reason| StoreError::Unreachable { reason })
    }

    /// Returns true if the login of the next connection may be another one.
    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// Returns true if the login comes from a file, which may change at any time.
    pub(crate) fn has_login_in_file(&self) -> bool {
        match &self.source {
            None => false,
            Some(Source::Url(..)) => true,
            Some(Source::Credentials(source)) => source.is_file(),
        }
    }

    /// Returns true if what lets a connection in may be replaced: its login or its certificates.
    pub(crate) fn may_be_let_in_later(&self) -> bool {
        self.has_source() || self.tls.as_ref().is_some_and(Tls::has_files)
    }

    /// Returns true while a source of credentials is asked.
    pub(super) fn awaits_credentials(&self) -> bool {
        matches!(&self.source, Some(Source::Credentials(source)) if source.is_asked())
    }

    /// The refusal of the login that a source gave, which it names.
    pub(crate) fn refused(&self, error: StoreError) -> StoreError {
        match (&self.source, error) {
            (Some(source), StoreError::Denied { reason }) => {
                let source = match source {
                    Source::Url(file, _) => format!("the file {file:?}"),
                    Source::Credentials(source) => source.to_string(),
                };
                StoreError::Denied { reason: format!("{reason}; it comes from {source}") }
            }
            (_, error) => error,
        }
    }

    /// The login in the URL.
    pub(super) fn login_in_url(&self) -> &Login {
        &self.login
    }

    /// Reads the user and the password of each new connection from the file with the URL, unless the password
    /// has a source of its own.
    pub(super) fn read_login(&mut self, file: &Arc<Path>, read: fn(&Path) -> Result<Login, String>) {
        self.source.get_or_insert_with(|| Source::Url(file.clone(), read));
    }

    /// Takes the password of each new connection from this source. Fails if there is another one, or if the
    /// source cannot be used.
    pub(super) fn log_in_with(&mut self, source: &Arc<CredentialSource>) -> Result<(), String> {
        source.check()?;
        let other = match &self.source {
            Some(Source::Credentials(other)) => format!("one from {other}"),
            _ if self.login.password.is_some() => "a password itself".to_owned(),
            _ => {
                self.source = Some(Source::Credentials(source.clone()));
                return Ok(());
            }
        };
        Err(format!(
            "it has {other}, and another password is to come from {source}: leave out one of the two"
        ))
    }

    /// The server at another address, with the same user, database and certificates.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        Self { address: ServerAddress::tcp(host, port), ..self.clone() }
    }

    /// The same server with another login.
    pub(super) fn with_login(&self, login: Login) -> Self {
        Self { login, source: None, ..self.clone() }
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
    /// A login that does not end.
    pub(super) fn new(user: Option<String>, password: Option<String>, database: u32) -> Self {
        Self { user, password, database, valid: None }
    }

    /// The command that logs in, unless there is neither user nor password.
    pub(crate) fn command(&self) -> Option<Cmd> {
        let (user, password) = self.credentials()?;
        let mut auth = cmd("AUTH");
        user.map(|user| auth.arg(user));
        auth.arg(password);
        Some(auth)
    }

    /// Returns true if a server takes one for the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.credentials() == other.credentials()
    }

    /// User and password, if there is either. A user may have no password.
    fn credentials(&self) -> Option<(Option<&str>, &str)> {
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
