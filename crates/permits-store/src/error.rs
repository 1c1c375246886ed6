//! The errors of stores: [`StoreError`] of a call, [`AddressError`] of a URL.

use std::fmt;

use crate::shell::argument;

/// The failure of a call to a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or cannot serve now: the command was not sent, and nothing has happened.
    /// The client retries until `store_timeout` has passed.
    #[error("the store cannot be reached: {reason}")]
    Unreachable {
        /// The cause.
        reason: String,
    },
    /// The command was sent and not answered: it may have been executed. The client sends it again.
    #[error("the store did not answer: {reason}")]
    NoAnswer {
        /// The cause.
        reason: String,
    },
    /// The store does not accept the user or the password, or does not allow the command.
    #[error("the store denies access: {reason}")]
    Denied {
        /// The denied command, and the rule that allows it.
        reason: String,
    },
    /// The URL does not fit the store: TLS to a server without TLS, a single server's URL for a cluster or a
    /// sentinel, a database that does not exist.
    #[error("the URL does not fit the store: {reason}")]
    Mismatch {
        /// The kind of the store, and the URL that it needs.
        reason: String,
    },
    /// The server's certificate is not trusted, or the server does not accept the client's.
    #[error("no TLS with the store: {reason}")]
    Tls {
        /// The certificate and its fault.
        reason: String,
    },
    /// A key of the semaphore holds data of another program.
    #[error(
        "a key of semaphore {semaphore:?} holds another program's data: {reason}; delete it or use another prefix"
    )]
    WrongType {
        /// The semaphore.
        semaphore: String,
        /// The store's error message.
        reason: String,
    },
    /// The semaphore or the directory is of another version of `permits`, whose layout this one does not
    /// read. Nothing was changed.
    /// The [page about upgrades](https://github.com/permits-rs/permits/blob/main/docs/operate/upgrade.md)
    /// says what to do.
    #[error(
        "{what} has layout {found}, and this version of permits reads layout {supported}: use the version that made it, or \
         delete it when nothing uses it any more (see docs/operate/upgrade.md)"
    )]
    OtherLayout {
        /// The semaphore or the directory.
        what: String,
        /// The layout that was found; 0 if it is from before layouts were numbered.
        found: u32,
        /// The layout of this program.
        supported: u32,
    },
    /// The stored state of the semaphore is damaged. Nothing was changed.
    #[error(
        "semaphore {semaphore:?} cannot be read: {reason}; delete it with `permits delete --force {}`",
        argument(semaphore)
    )]
    Unreadable {
        /// The semaphore.
        semaphore: String,
        /// The fault.
        reason: String,
    },
    /// The store has no memory left for this.
    #[error("the store is out of memory: {reason}")]
    OutOfMemory {
        /// The store's error message.
        reason: String,
    },
    /// The store is too old, or lacks something else that is needed.
    #[error("the store is not supported: {reason}")]
    Unsupported {
        /// The missing feature.
        reason: String,
    },
    /// The store rejected the command for another reason.
    #[error("the store rejected the command: {reason}")]
    Rejected {
        /// The store's error message.
        reason: String,
    },
    /// The reply cannot be decoded, or does not answer the command.
    #[error("unexpected reply from the store: {reason}")]
    Malformed {
        /// The fault of the reply.
        reason: String,
    },
}

impl StoreError {
    /// The keyword of the error, such as `no_answer`: for the labels of your own metrics.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::NoAnswer { .. } => "no_answer",
            Self::Denied { .. } => "denied",
            Self::Mismatch { .. } => "mismatch",
            Self::Tls { .. } => "tls",
            Self::WrongType { .. } => "wrong_type",
            Self::OtherLayout { .. } => "other_layout",
            Self::Unreadable { .. } => "unreadable",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::Unsupported { .. } => "unsupported",
            Self::Rejected { .. } => "rejected",
            Self::Malformed { .. } => "malformed",
        }
    }

    /// Returns true if a retry can succeed. A client that connects retries after these errors only.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoAnswer { .. })
    }

    /// Returns false if the error surely concerns the whole store. If it is true, as when the keys of a
    /// semaphore hold something else, a command on another semaphore may still succeed.
    pub fn concerns_one_semaphore(&self) -> bool {
        let of_the_store = matches!(
            self,
            Self::Unreachable { .. }
                | Self::NoAnswer { .. }
                | Self::Denied { .. }
                | Self::Mismatch { .. }
                | Self::Tls { .. }
                | Self::OutOfMemory { .. }
                | Self::Unsupported { .. }
        );
        !of_the_store
    }

    /// Returns true if the command may have been executed.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::NoAnswer { .. } | Self::Malformed { .. })
    }

    /// The reason, without the kind of error.
    #[doc(hidden)]
    pub fn into_reason(mut self) -> String {
        std::mem::take(self.reason_mut())
    }

    /// Puts the address of the server before the reason of the error.
    #[doc(hidden)]
    pub fn at(mut self, address: &impl fmt::Display) -> Self {
        let reason = self.reason_mut();
        *reason = format!("{address}: {reason}");
        self
    }
    fn reason_mut(&mut self) -> &mut String {
        match self {
            Self::Unreachable { reason }
            | Self::NoAnswer { reason }
            | Self::Denied { reason }
            | Self::Mismatch { reason }
            | Self::Tls { reason }
            | Self::WrongType { reason, .. }
            | Self::OtherLayout { what: reason, .. }
            | Self::Unreadable { reason, .. }
            | Self::OutOfMemory { reason }
            | Self::Unsupported { reason }
            | Self::Rejected { reason }
            | Self::Malformed { reason } => reason,
        }
    }
}

/// The fault of a URL. No error repeats the URL, because it may contain a password.
#[derive(Debug)]
pub enum AddressError {
    /// The scheme is unknown to all backends.
    UnknownScheme {
        /// The scheme of the URL.
        scheme: String,
        /// The schemes that this build knows, separated by commas.
        known: String,
    },
    /// The store of this scheme is left out of this build.
    MissingFeature {
        /// The beginning of the URL.
        scheme: &'static str,
        /// The feature that adds the store.
        feature: &'static str,
    },
    /// The URL of a known scheme is not valid, or no scheme can be recognized.
    Invalid {
        /// The fault. It repeats nothing that may be a password.
        reason: String,
    },
}
