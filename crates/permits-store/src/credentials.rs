//! Credentials that change while a client runs: a file with a password, or a function of the program.
//!
//! A [`CredentialSource`] is asked for each new connection, and again before what it gave ends. Connections
//! that begin while an answer is awaited share that answer, and no answer is used later than that: a token
//! may end with the session of its issuer, which the client cannot know.
//!
//! A function of the program runs on a thread and a runtime of its own, because it may block, and the thread
//! of a session must not.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::source::small_text_in;
use crate::sys::background::new_runtime;

/// The time within which a provider must answer.
pub const LIMIT: Duration = Duration::from_secs(10);

/// The time after which nobody waits for a call that blocks its thread. The next login makes another one.
const LONGEST_WAIT: Duration = Duration::from_secs(12);

/// The most calls of a provider that run at once. All but the latest block their threads.
const MOST_CALLS: usize = 4;

/// A user and a password for servers, and when they end: what the function that you give to
/// `ClientBuilder::credentials` returns.
///
/// # Examples
/// ```
/// # use permits_store::credentials::Credentials;
/// use std::time::Duration;
///
/// let token = Credentials::new("token").user("exports").expires_in(Duration::from_secs(900));
/// assert!(!format!("{token:?}").contains("token"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
    expires_in: Option<Duration>,
}

impl Credentials {
    /// A password or a token, of the user that the URL names, or else of the server's default user.
    pub fn new(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into(), expires_in: None }
    }

    /// The user, in place of the user in the URL.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.user = Some(name.into());
        self
    }

    /// The time for which they are valid, from the moment at which your function was called. Open connections
    /// log in again when three quarters of it have passed. Without it, only new connections ask your
    /// function.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    /// Formats all but the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, password: _, expires_in } = self;
        f.debug_struct("Credentials")
            .field("user", user)
            .field("expires_in", expires_in)
            .finish_non_exhaustive()
    }
}

/// Credentials from a source, for one login.
#[derive(Clone)]
pub struct Fetched {
    /// The user, if the source names one.
    pub user: Option<String>,
    /// The password.
    pub password: String,
    /// The time for which they are valid, if the source says so.
    pub valid: Option<Valid>,
}

/// The time for which credentials are valid.
#[derive(Clone, Copy)]
pub struct Valid {
    /// The moment at which they were asked for.
    pub since: Instant,
    /// How long they are valid from then on.
    pub time: Duration,
}

type Provider = dyn Fn() -> BoxFuture<'static, Result<Credentials, String>> + Send + Sync;
type Answer = Option<Result<Fetched, String>>;

/// The source of credentials. Displayed as an error names it.
pub struct CredentialSource(Kind);

enum Kind {
    File(PathBuf),
    Provider {
        name: &'static str,
        /// Each call that runs has a clone of it.
        provider: Arc<Provider>,
        latest: Mutex<Option<Call>>,
    },
}

/// A call of a provider.
#[derive(Clone)]
struct Call {
    since: Instant,
    /// `None` until the provider has answered.
    answer: watch::Receiver<Answer>,
}

impl Call {
    /// Returns true if its answer may still come in time.
    fn is_awaited(&self) -> bool {
        // A call whose sender is gone has ended with its thread.
        let runs = self.answer.borrow().is_none() && self.answer.has_changed().is_ok();
        runs && self.since.elapsed() < LONGEST_WAIT
    }
}

impl CredentialSource {
    /// The first line of a file is the password. The file is read for each login.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Kind::File(path.into()))
    }

    /// A function of the program, with its name in errors.
    pub fn provider(
        name: &'static str,
        provider: impl Fn() -> BoxFuture<'static, Result<Credentials, String>> + Send + Sync + 'static,
    ) -> Self {
        Self(Kind::Provider { name, provider: Arc::new(provider), latest: Mutex::default() })
    }

    /// Returns true if what it gives changes without a word, so that it has to be looked at.
    pub fn is_file(&self) -> bool {
        matches!(self.0, Kind::File(_))
    }

    /// Fails if it cannot be used at all, as a file that is not there.
    ///
    /// # Errors
    /// The fault.
    pub fn check(&self) -> Result<(), String> {
        match &self.0 {
            Kind::File(path) => password_in(path).map(drop),
            Kind::Provider { .. } => Ok(()),
        }
    }

    /// Returns true while a provider is asked.
    pub fn is_asked(&self) -> bool {
        match &self.0 {
            Kind::File(_) => false,
            Kind::Provider { latest, .. } => {
                latest.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Call::is_awaited)
            }
        }
    }

    /// The credentials of a login that begins now.
    ///
    /// # Errors
    /// The fault, without any password.
    pub async fn get(&self) -> Result<Fetched, String> {
        match &self.0 {
            Kind::File(path) => Ok(Fetched { user: None, password: password_in(path)?, valid: None }),
            Kind::Provider { provider, latest, .. } => {
                let Call { since, mut answer } = {
                    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
                    match latest.as_ref().filter(|call| call.is_awaited()) {
                        Some(running) => running.clone(),
                        None => latest.insert(self.begin(provider)?).clone(),
                    }
                };
                let answered = match timeout_at(since + LONGEST_WAIT, answer.wait_for(Option::is_some)).await
                {
                    Ok(Ok(answer)) => answer.clone(),
                    Ok(Err(_)) => Some(Err("it has panicked".to_owned())),
                    Err(_) => Some(Err(format!("it blocks its thread for more than {LONGEST_WAIT:?}"))),
                };
                answered.unwrap_or_else(|| Err(String::new())).map_err(|fault| format!("{self}: {fault}"))
            }
        }
    }

    /// Calls the provider on a thread of its own.
    fn begin(&self, provider: &Arc<Provider>) -> Result<Call, String> {
        // One reference is that of the source.
        if Arc::strong_count(provider) > MOST_CALLS {
            return Err(format!("{self}: {MOST_CALLS} calls of it block their threads"));
        }
        let (sender, answer) = watch::channel(None);
        let since = Instant::now();
        let provider = provider.clone();
        let calling = move || {
            let fetched = ask(&*provider).map(|Credentials { user, password, expires_in }| Fetched {
                user,
                password,
                valid: expires_in.map(|time| Valid { since, time }),
            });
            // Whoever gets the answer may make another call at once.
            drop(provider);
            sender.send_replace(Some(fetched));
        };
        match std::thread::Builder::new().name("permits-login".into()).spawn(calling) {
            Ok(_) => Ok(Call { since, answer }),
            Err(error) => Err(format!("the system refuses a thread: {error}")),
        }
    }
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::File(path) => write!(f, "the password file {path:?}"),
            Kind::Provider { name, .. } => f.write_str(name),
        }
    }
}

/// Calls a provider, and waits for its answer on this thread.
fn ask(provider: &Provider) -> Result<Credentials, String> {
    let runtime = new_runtime(true).map_err(|error| error.to_string())?;
    let asked = runtime.block_on(async { timeout(LIMIT, async { provider().await }).await });
    // Tasks that it has left must not delay the answer.
    runtime.shutdown_background();
    asked.unwrap_or_else(|_| Err(format!("it has not answered within {LIMIT:?}")))
}

/// The password in a file: its first line.
fn password_in(file: &Path) -> Result<String, String> {
    let wrong = |problem: String| format!("the password file {file:?} {problem}");
    let text = small_text_in(file).map_err(wrong)?;
    match text.lines().next() {
        None | Some("") => Err(wrong("has an empty first line: write the password there".to_owned())),
        Some(line) => Ok(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn provider<F>(provide: impl Fn(u32) -> F + Clone + Send + Sync + 'static) -> CredentialSource
    where
        F: Future<Output = Result<Credentials, String>> + Send + 'static,
    {
        let calls = Arc::new(AtomicU32::new(0));
        CredentialSource::provider("the function", move || {
            Box::pin(provide(calls.fetch_add(1, Ordering::SeqCst)))
        })
    }

    async fn password(source: &CredentialSource) -> Result<String, String> {
        source.get().await.map(|fetched| fetched.password)
    }

    #[tokio::test]
    async fn each_login_asks_again_and_those_that_wait_share_the_answer() {
        let source = provider(|call| async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(Credentials::new(format!("p{call}")))
        });
        assert!(!source.is_asked());
        let (one, other) = tokio::join!(password(&source), password(&source));
        assert_eq!([one, other], [Ok("p0".to_owned()), Ok("p0".to_owned())]);
        assert_eq!(password(&source).await, Ok("p1".to_owned()));
    }

    /// Nobody waits for it when it comes, and nobody gets it later.
    #[tokio::test]
    async fn an_answer_that_comes_too_late_is_not_kept() {
        let source = provider(|call| async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(Credentials::new(format!("p{call}")))
        });
        let given_up = timeout(Duration::from_millis(1), source.get()).await;
        assert!(given_up.is_err() && source.is_asked());
        while source.is_asked() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(password(&source).await, Ok("p1".to_owned()));
    }

    #[tokio::test]
    async fn a_provider_that_fails_is_asked_again() {
        let source = provider(|call| async move {
            match call {
                0 => Err("no token".to_owned()),
                1 => panic!("it is tested"),
                _ => Ok(Credentials::new("p")),
            }
        });
        let fault = |fault: &str| Err(format!("the function: {fault}"));
        assert_eq!(password(&source).await, fault("no token"));
        assert_eq!(password(&source).await, fault("it has panicked"));
        assert_eq!(password(&source).await, Ok("p".to_owned()));
    }

    /// A call that blocks is given up after a while, and another is made, until too many of them block. When
    /// one has returned, there is room for one more.
    #[tokio::test]
    async fn a_provider_that_blocks_is_asked_again() {
        let (begins, begun) = std::sync::mpsc::channel::<()>();
        let (return_one, returns) = std::sync::mpsc::channel::<()>();
        let returns = Arc::new(Mutex::new(returns));
        let source = provider(move |call| {
            let (begins, returns) = (begins.clone(), returns.clone());
            async move {
                if usize::try_from(call).is_ok_and(|call| call < MOST_CALLS) {
                    begins.send(()).expect("the test waits");
                    let _ = returns.lock().unwrap_or_else(PoisonError::into_inner).recv();
                }
                Ok(Credentials::new(format!("p{call}")))
            }
        });
        tokio::time::pause();
        for _ in 0..MOST_CALLS {
            let fault = password(&source).await.expect_err("it blocks");
            assert!(fault.ends_with("blocks its thread for more than 12s"), "{fault}");
            begun.recv().expect("it is called");
        }
        tokio::time::resume();
        let full = password(&source).await.expect_err("they block");
        assert_eq!(full, "the function: 4 calls of it block their threads");
        return_one.send(()).expect("it waits");
        let answered = loop {
            match password(&source).await {
                Err(fault) => assert_eq!(fault, full),
                Ok(password) => break password,
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(answered, "p4");
    }

    #[tokio::test]
    async fn the_first_line_of_a_file_is_the_password() {
        let directory = tempfile::tempdir().expect("there is room");
        let file = directory.path().join("password");
        let source = CredentialSource::file(&file);
        let missing = source.check().expect_err("there is none");
        assert!(missing.contains("cannot be read"), "{missing}");
        for (text, expected) in [("a b\n", "a b"), ("x\r\ny\n", "x"), ("z", "z"), (" s \n", " s ")] {
            std::fs::write(&file, text).expect("there is room");
            assert_eq!(password(&source).await.as_deref(), Ok(expected));
        }
        for (text, fault) in
            [("", "empty first line"), ("\nhunter", "empty"), (&*"x".repeat(20_000), "16 kB")]
        {
            std::fs::write(&file, text).expect("there is room");
            let found = source.check().expect_err(fault);
            assert!(found.contains(fault) && !found.contains("hunter"), "{found}");
        }
        let directory = CredentialSource::file(directory.path()).check().expect_err("it is a directory");
        assert!(directory.contains("no regular file"), "{directory}");
    }
}
