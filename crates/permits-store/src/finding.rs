//! [`Finding`]: one fact about a store, rated by its [`Severity`].

use std::fmt;

/// A result of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The subject in one word, such as `eviction`. Several findings may share a subject.
    pub subject: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The observed facts.
    pub observed: String,
    /// The consequences, and the remedy. Empty if the severity is [`Severity::Fine`].
    pub advice: String,
}

/// The severity of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// All is as it should be.
    Fine,
    /// All works, and this is worth knowing.
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

impl Finding {
    /// A finding that needs no action.
    #[doc(hidden)]
    pub fn fine(subject: &'static str, observed: impl Into<String>) -> Self {
        Self { subject, severity: Severity::Fine, observed: observed.into(), advice: String::new() }
    }

    /// A finding that may need attention, with the advice.
    #[doc(hidden)]
    pub fn note(subject: &'static str, observed: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, severity: Severity::Note, observed: observed.into(), advice: advice.into() }
    }

    /// A fault, and what to do about it.
    #[doc(hidden)]
    pub fn problem(subject: &'static str, observed: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, severity: Severity::Problem, observed: observed.into(), advice: advice.into() }
    }

    /// Names the server that the finding is about.
    #[doc(hidden)]
    pub fn at(self, server: impl fmt::Display) -> Self {
        Self { observed: format!("{server}: {}", self.observed), ..self }
    }

    /// Returns true if the finding is a [`Severity::Problem`].
    #[doc(hidden)]
    pub fn is_problem(&self) -> bool {
        self.severity == Severity::Problem
    }
}
