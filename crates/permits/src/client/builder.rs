//! How a client is made: [`ClientBuilder`] has its settings, and checks them when it connects.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use permits_store::credentials::{CredentialSource, Credentials};
use tokio::sync::oneshot;

use super::Client;
use crate::clock::millis;
use crate::diagnostics::{self, Diagnosis};
use crate::error::ConnectError;
use crate::observe::meters::SessionMeters;
use crate::protocol::{
    InvalidInput, Label, OperationKind, Recovery, SessionId, check_lease, check_prefix, label_from,
};
use crate::reply::Reply;
use crate::session::Config;
use crate::session::callers::Session;
use crate::session::driver;
use crate::store::Address;
use crate::sys::{entropy, process};

/// The default lease.
const LEASE: Duration = Duration::from_secs(15);

/// The default maximum of waiters of a semaphore, if the store can queue that many.
const MAX_WAITERS: u32 = 100_000;

/// The default store timeout.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// The default number of semaphores that have metrics of their own.
#[cfg(feature = "metrics")]
const METRIC_SEMAPHORES: usize = 100;

impl Client {
    /// Connects to the store at `url`, with the defaults of [`ClientBuilder`].
    ///
    /// - `redis://[user:password@]host[:port][/db]`, `redis+unix:///path?db=0`: one server, Redis 6.2 or
    ///   newer;
    /// - `redis+sentinel://[user:password@]host,host/service[/db]`: the server that the sentinels name. User
    ///   and password are for the server; for the sentinels, give `?sentinel_user=…&sentinel_password=…`;
    /// - `redis+cluster://[user:password@]host,host`: the cluster that these nodes are in, Redis 7.0 or
    ///   newer;
    /// - any of these with `?password_file=/path`, in place of the password: see
    ///   [`ClientBuilder::password_file`]; for the sentinels' own, `sentinel_password_file`;
    /// - the same with `rediss` (TLS), with `?tls_ca=/path.pem` to trust another authority than the system's,
    ///   and `tls_cert=/path.pem&tls_key=/path.key` to show a certificate; and the same with `valkey`;
    /// - `local:` or `local:/path/permits`: this machine, a directory, no server, on Unix; for this user, or
    ///   for the group of a directory that was made for sharing (mode 2770); not on a network file system. A
    ///   path is taken as it stands, nothing in it is decoded; a relative one is in the working directory,
    ///   one that begins with `~/` under `$HOME`, and a question mark is refused. Without a path: `permits`
    ///   in `$XDG_STATE_HOME`, else in `~/.local/state`, else in `$XDG_RUNTIME_DIR`;
    /// - `memory:` or `memory:NAME`: this process. Clients of one name share semaphores, clients of different
    ///   names do not, so each test can have a name of its own. What operators have set (pins, pauses, closed
    ///   lines, alerts) stays for the life of the process; the rest is dropped when the last client closes;
    /// - `file:/path`: a file whose only line is the URL. Each new connection reads user and password from it
    ///   again, so you can replace them while the client runs.
    ///
    /// The files of `tls_ca`, `tls_cert` and `tls_key` are read for each new connection, too. In URLs of
    /// servers, user, password and the values of options are percent-encoded (`/` is `%2F`, `@` is `%40`).
    /// All but `local:` and `file:` take `?recovery=off`, `interval` or `strict`, as the default of
    /// [`ClientBuilder::recovery`]. An option that is unknown, or has no effect in the URL, is refused.
    ///
    /// A store that cannot be reached is retried: see [`ClientBuilder::store_timeout`].
    ///
    /// # Errors
    /// [`ConnectError`] if the URL is not valid; if the store denies access, does not fit the URL, or is too
    /// old; or if it cannot be reached within `store_timeout`. Errors never contain the URL, because it may
    /// have a password.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the attempts end, and nothing stays behind.
    pub fn connect(url: &str) -> Reply<Self, ConnectError> {
        Self::builder(url).connect()
    }

    /// Returns a builder, to set more than the URL.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url.into())
    }
}

/// Settings of a [`Client`]. Made by [`Client::builder`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), permits::ConnectError> {
/// use std::time::Duration;
///
/// let client = permits::Client::builder("memory:")
///     .label("exporter-7")
///     .lease(Duration::from_secs(60))
///     .connect()
///     .await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    url: String,
    prefix: String,
    label: Option<String>,
    program: Option<String>,
    lease: Duration,
    keep: Duration,
    recovery: Option<Recovery>,
    max_waiters: Option<u32>,
    replicas: u32,
    store_timeout: Duration,
    #[cfg(feature = "metrics")]
    metric_semaphores: usize,
    credentials: Option<Arc<CredentialSource>>,
    password_file: Option<Arc<CredentialSource>>,
}

impl std::fmt::Debug for ClientBuilder {
    /// Leaves the URL out, because it may have a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("prefix", &self.prefix)
            .field("label", &self.label)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// The defaults.
    fn new(url: String) -> Self {
        Self {
            url,
            prefix: "permits".into(),
            label: None,
            program: None,
            lease: LEASE,
            keep: Duration::ZERO,
            recovery: None,
            max_waiters: None,
            replicas: 0,
            store_timeout: STORE_TIMEOUT,
            #[cfg(feature = "metrics")]
            metric_semaphores: METRIC_SEMAPHORES,
            credentials: None,
            password_file: None,
        }
    }

    /// The first part of every key: 1 to 64 printable ASCII characters without braces and spaces. `permits`
    /// unless set. Sessions with different prefixes don't see each other's semaphores.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The label of acquisitions that have no label of their own, and the author of this client's changes:
    /// at most 120 bytes of printable UTF-8. The file name of the program unless set, and as the author its
    /// host name and process id. An empty label means no label.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The program's name, if the executable is an interpreter. For the packages of other languages.
    #[doc(hidden)]
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.program = Some(name.into());
        self
    }

    /// The time for which a permit is valid without renewal: 100 ms to 1 day, 15 s unless set. It is also
    /// the time until the units of a crashed holder are free, and until a disconnected holder loses its
    /// permit.
    ///
    /// Permits are renewed every third of their lease. When one semaphore is renewed, others whose last
    /// renewal would otherwise become older than 10 s are renewed with it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The time for which the client keeps a released permit for its next request while nobody else waits,
    /// so that this request needs no round trip: at most a third of the lease. 0 unless set, which keeps no
    /// permit. A semaphore can say otherwise.
    ///
    /// [`Semaphore::keep`](crate::Semaphore::keep) sets another time for one semaphore, or 0.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let client = permits::Client::builder("memory:").keep(Duration::from_millis(200)).connect().await?;
    /// let api = client.semaphore("api", 500)?; // keeps permits
    /// let nightly = client.semaphore("nightly", 1)?.keep(Duration::ZERO); // keeps none
    /// # drop((api, nightly));
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(mut self, idle: Duration) -> Self {
        self.keep = idle;
        self
    }

    /// How long a server grants nothing after a start, since it may have forgotten holders: not at all with
    /// `off`, long enough for connected holders to reconnect with `interval`, for the longest lease with
    /// `strict`. As the URL says (`?recovery=…`) unless set, else `interval`.
    ///
    /// `interval` is [`Recovery::Interval`].
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Some(recovery);
        self
    }

    /// The longest line of a semaphore, beyond which more requests are refused: 100,000 unless set. With
    /// `local:` it is 10,000, and connecting fails if you ask for more.
    ///
    /// The refused requests get [`AcquireError::QueueFull`].
    ///
    /// [`AcquireError::QueueFull`]: crate::AcquireError::QueueFull
    pub fn max_waiters(mut self, max: u32) -> Self {
        self.max_waiters = Some(max);
        self
    }

    /// The number of replicas of the server that must have a grant before it is reported: 0 unless set.
    ///
    /// A grant that they do not confirm within a fifth of the lease (250 ms to 3 s) is released, and
    /// acquiring fails with [`AcquireError::NotReplicated`]. If they cannot be asked, because the server
    /// refuses the connection for it, the client tries again for [`store_timeout`](Self::store_timeout),
    /// and acquiring fails with the error of the store.
    ///
    /// A primary that fails right after a grant can lose the only copy of it, and its replacement then admits
    /// another holder. With this setting only a failover to a replica that did not confirm can do so, and no
    /// failover if all replicas confirm. It costs another round trip for each acquisition (Redis's WAIT, on a
    /// connection of its own). The stores `local:` and `memory:` have no replicas, and no such fault.
    ///
    /// [`AcquireError::NotReplicated`]: crate::AcquireError::NotReplicated
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// The time for which the store may be unreachable before operations that need it fail: 30 s unless
    /// set. Permits that are held are not affected: they last until their deadlines.
    ///
    /// Connecting is such an operation. It is retried with pauses of up to half a second while the store
    /// cannot be reached, loads its data or is failing over
    /// ([`StoreError::is_temporary`](crate::StoreError::is_temporary)). Other errors, such as a wrong
    /// password, end it at once. The first attempt takes up to 5 s, even if the timeout is shorter; with a
    /// timeout of zero it is the only attempt.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// The number of semaphores that have metrics of their own, in the order of their first use: 100 unless
    /// set. All other semaphores of the process share metrics with the label `other`. With 0 no metric has
    /// the label `semaphore`.
    ///
    /// The bound is for the whole process: a client adds no semaphore while all clients together have reached
    /// its bound. Install the recorder before the client connects. It must not block: your tasks call it, and
    /// so does the client's thread, which renews permits.
    #[cfg(feature = "metrics")]
    pub fn metric_semaphores(mut self, max: usize) -> Self {
        self.metric_semaphores = max;
        self
    }

    /// A function that gives the password, such as a token of a few minutes: it is called for each new
    /// connection to a server, not for those to sentinels. Connections that begin together share a call.
    ///
    /// Open connections log in again, without a gap, before [`Credentials::expires_in`] has passed. If that
    /// fails, they stay as they are, a [warning](https://docs.rs/tracing) says why
    /// (`permits::not_logged_in_again`), and it is tried again. The same goes for a login that the server
    /// refuses: only the first connection fails with it at once. If your function fails while the client
    /// connects for the first time, it is called again until [`store_timeout`](Self::store_timeout) is over.
    ///
    /// Your function runs on a thread and a tokio runtime of its own, so it may block, and has 10 s. If the
    /// URL has a password, too, or [`password_file`](Self::password_file) is set, `connect` fails.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), permits::ConnectError> {
    /// use std::time::Duration;
    ///
    /// use permits::{Client, Credentials};
    ///
    /// # async fn token() -> Result<String, std::io::Error> { Ok("token".into()) }
    /// let provide = || async {
    ///     let token = token().await?;
    ///     Ok::<_, std::io::Error>(Credentials::new(token).expires_in(Duration::from_secs(900)))
    /// };
    /// let url = "redis://exports@cache.internal:6379/";
    /// let client = Client::builder(url).credentials(provide).connect().await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, T, E>(self, provider: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.named_credentials("the provider of credentials", provider)
    }

    /// As [`credentials`](Self::credentials), with the provider's name in errors. For the command and the
    /// packages of other languages.
    #[doc(hidden)]
    pub fn named_credentials<F, T, E>(mut self, name: &'static str, provider: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.credentials = Some(Arc::new(CredentialSource::provider(name, move || {
            let asked = provider();
            Box::pin(async move { asked.await.map_err(|error| error.to_string()) })
        })));
        self
    }

    /// A file whose first line is the password, such as a mounted secret: read for each new connection to a
    /// server, and open connections log in again after it has changed. `?password_file=` in the URL is the
    /// same.
    ///
    /// A URL with a password as well is refused by `connect`, and so is a file that cannot be read then. A
    /// fault that comes later is treated as one of [`credentials`](Self::credentials).
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password_file = Some(Arc::new(CredentialSource::file(path)));
        self
    }

    /// Returns the address of the store, without any password, as in [`Diagnosis::store`]. Nothing is sent;
    /// the files that hold the URL or the password are read.
    ///
    /// # Errors
    /// [`ConnectError`] if the URL, the login, the prefix or the lease is not valid.
    pub fn address(&self) -> Result<String, ConnectError> {
        Ok(self.checked_address()?.0.to_string())
    }

    /// Returns true if the store is a server, not `local:` or `memory:`.
    #[doc(hidden)]
    pub fn uses_server(&self) -> Result<bool, ConnectError> {
        Ok(self.checked_address()?.0.uses_sockets())
    }

    /// Connects to the store.
    ///
    /// # Errors
    /// As [`Client::connect`]; also if a setting is not valid.
    pub fn connect(self) -> Reply<Client, ConnectError> {
        Reply::new(async move {
            let session = self.start()?.await.unwrap_or_else(|_| Err(thread_ended()))?;
            Ok(Client { session })
        })
    }

    /// Diagnoses the store instead of connecting to it: its reachability, version, access rules,
    /// configuration and speed; and, if nothing prevents it, every operation on a semaphore of its own. A
    /// finding of a problem comes with advice.
    ///
    /// `permits doctor` prints the result. It takes some tenths of a second, at most some seconds for each
    /// check that gets no reply.
    ///
    /// # Errors
    /// [`ConnectError`] if the URL, the login, the prefix or the lease is not valid, or no thread can be
    /// started. A store that cannot be
    /// reached, or denies access, is a [`Finding`](crate::Finding).
    ///
    /// # Cancel safety
    /// If you drop the reply after you have polled it, the diagnosis continues in the background and removes
    /// what it made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), permits::ConnectError> {
    /// let diagnosis = permits::Client::builder("memory:").diagnose().await?;
    /// for finding in &diagnosis.findings {
    ///     println!("{}: {}, {}", finding.severity, finding.subject, finding.observed);
    /// }
    /// assert!(diagnosis.is_healthy());
    /// # Ok(())
    /// # }
    /// ```
    pub fn diagnose(self) -> Reply<Diagnosis, ConnectError> {
        Reply::new(self.diagnosed(true))
    }

    /// Diagnoses the store as [`ClientBuilder::diagnose`] does, without the operations on a semaphore of its
    /// own: nothing is written.
    ///
    /// # Errors
    /// As [`ClientBuilder::diagnose`].
    ///
    /// # Cancel safety
    /// If you drop the reply after you have polled it, the diagnosis continues in the background.
    pub fn diagnose_settings(self) -> Reply<Diagnosis, ConnectError> {
        Reply::new(self.diagnosed(false))
    }

    /// Runs the diagnosis, with the operations on a semaphore of its own if `self_test` is true.
    async fn diagnosed(self, self_test: bool) -> Result<Diagnosis, ConnectError> {
        let (address, _) = self.checked_address()?;
        // The diagnosis needs random numbers on a thread that cannot report an error, so find out here
        // whether there are any.
        new_session()?;
        let diagnosed = diagnostics::start(address, self.prefix, self.lease, self_test)?;
        Ok(diagnosed.await.map_err(|_| thread_ended())??)
    }

    /// Returns the address of the store, and the recovery that the URL asks for. Checks the settings that
    /// every store has.
    fn checked_address(&self) -> Result<(Address, Option<Recovery>), ConnectError> {
        let mut address = Address::parse(&self.url)?;
        for source in self.password_file.iter().chain(&self.credentials) {
            address.0.log_in_with(source)?;
        }
        check_prefix(&self.prefix)?;
        check_lease(millis(self.lease))?;
        Ok(address)
    }

    fn start(self) -> Result<oneshot::Receiver<Result<Session, ConnectError>>, ConnectError> {
        let (address, of_url) = self.checked_address()?;
        // Each setting is named, so that a new one does not compile until it is used.
        let Self {
            url: _,
            prefix,
            label,
            program,
            lease,
            keep,
            recovery,
            max_waiters,
            replicas,
            store_timeout,
            #[cfg(feature = "metrics")]
                metric_semaphores: max_labels,
            credentials: _,
            password_file: _,
        } = self;
        let process = process::name();
        let author = label.as_deref().filter(|label| !label.is_empty()).unwrap_or(&process);
        let author = Label::new(author)?;
        let label = match (&label, &program) {
            (Some(label), _) => Label::new(label)?,
            (None, Some(program)) => label_from(program),
            (None, None) => label_from(&process::program()),
        };
        let most = address.max_waiters();
        let queue_max = match max_waiters {
            Some(max) if max > most => Err(InvalidInput::MaxWaiters { max, most })?,
            Some(max) => max,
            None => MAX_WAITERS.min(most),
        };
        #[cfg(not(feature = "metrics"))]
        let max_labels = 0;
        let operations = OperationKind::ALL.iter().map(|kind| kind.name());
        let config = Config {
            session: new_session()?,
            process,
            label,
            author,
            clock: address.clock(),
            lease,
            keep,
            recovery: recovery.or(of_url).unwrap_or_default(),
            queue_max,
            replicas,
            store_timeout,
            meters: SessionMeters::new(operations, max_labels),
        };
        driver::start(config, address, prefix)
    }
}

fn thread_ended() -> ConnectError {
    ConnectError::Thread { reason: "it ended at once".into() }
}

fn new_session() -> Result<SessionId, ConnectError> {
    let bytes = entropy::unique_bytes();
    bytes.map(SessionId::from_entropy).map_err(|error| ConnectError::Entropy { reason: error.to_string() })
}
