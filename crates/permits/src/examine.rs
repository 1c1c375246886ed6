//! [`Examination`]: what is right and what is wrong with a store, each [`Finding`] with what to do about it.
//!
//! An examination is no session. It looks at a store from outside (how it is configured, what a user may do),
//! and then tries everything on a semaphore of its own that nobody else knows, and of which nothing is left. It
//! runs on a thread of its own, like a session, so what it measures is the store and not the program. That the
//! store cannot be reached, or denies access, is a finding and no error.
//!
//! Each store says what is to be looked at, in its own module; here is only what findings are.

use std::fmt;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::background::SpawnError;

use crate::store::{self, Address};

/// What [`ClientBuilder::examine`](crate::ClientBuilder::examine) found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Where the store is, without any password.
    pub store: String,
    /// What was found, in the order in which it was looked at.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Whether there is no [`Severity::Problem`].
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Problem)
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at: one word, such as `eviction`. A store may have several findings of one subject.
    pub subject: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was seen.
    pub observed: String,
    /// What that means, and what to do about it. Empty when it is fine.
    pub advice: String,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing; everything works.
    Note,
    /// Nothing works, or a promise of this library does not hold.
    Problem,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fine => "fine",
            Self::Note => "note",
            Self::Problem => "problem",
        })
    }
}

#[cfg_attr(not(any(feature = "local", feature = "redis")), expect(dead_code))]
impl Finding {
    pub(crate) fn fine(subject: &'static str, observed: impl Into<String>) -> Self {
        Self { subject, severity: Severity::Fine, observed: observed.into(), advice: String::new() }
    }

    /// The same, of one of several servers.
    #[cfg(feature = "redis")]
    pub(crate) fn at(self, server: impl fmt::Display) -> Self {
        Self { observed: format!("{server}: {}", self.observed), ..self }
    }

    pub(crate) fn note(
        subject: &'static str,
        observed: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self { subject, severity: Severity::Note, observed: observed.into(), advice: meaning.into() }
    }

    pub(crate) fn problem(
        subject: &'static str,
        observed: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self { subject, severity: Severity::Problem, observed: observed.into(), advice: meaning.into() }
    }
}

/// Starts an examination. It goes to its end, and clears away what it made, whether or not anybody waits for it.
pub(crate) fn start(
    address: Address,
    prefix: String,
    lease: Duration,
) -> Result<oneshot::Receiver<Diagnosis>, SpawnError> {
    let (answer, examined) = oneshot::channel();
    crate::background::spawn_with_runtime(move || async move {
        let findings = store::examine(&address, &prefix, lease).await;
        // Whoever asked may be gone.
        let _ = answer.send(Diagnosis { store: address.to_string(), findings });
        || ()
    })?;
    Ok(examined)
}
