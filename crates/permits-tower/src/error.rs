//! [`PermitError`]: why a request was not served.

use permits::{AcquireError, Lost};

/// An error of any service, as tower's own layers have it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The errors of a service behind a permit layer, and of [`PermitBody`](crate::PermitBody).
///
/// # Examples
/// The reply of a server to each kind:
/// ```
/// use permits::AcquireError;
/// use permits_tower::PermitError;
///
/// fn status(error: &PermitError) -> u16 {
///     match error {
///         // A pause, a closed line or a recovery keeps every request out: the source has the reason.
///         PermitError::Acquire { source, .. } if source.stands_still() => 503,
///         // No permit in time, or the line is full: the client may retry.
///         PermitError::Acquire { source, .. } if source.is_not_now() => 429,
///         // The request names a line, or a weight, that cannot be.
///         PermitError::Acquire { source: AcquireError::Invalid(_), .. } => 400,
///         PermitError::Acquire { source: AcquireError::ExceedsLimit { .. }, .. } => 400,
///         // The store failed, or the permit was lost.
///         PermitError::Acquire { .. } | PermitError::Lost { .. } => 503,
///         _ => 500,
///     }
/// }
///
/// let source = AcquireError::QueueFull { max: 10, lane: None };
/// let full = PermitError::Acquire { semaphore: "exports".into(), source };
/// assert_eq!(status(&full), 429);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PermitError {
    /// Acquiring failed. [`AcquireError`] has the kinds: not now ([`AcquireError::is_not_now`]), never, the
    /// store failed.
    #[error("no permit of {semaphore:?}")]
    Acquire {
        /// The semaphore.
        semaphore: String,
        /// The reason.
        source: AcquireError,
    },
    /// The permit was lost before the request was served, or before the body of the response had ended.
    #[error("the request was ended, because it lost its permit of {semaphore:?}")]
    Lost {
        /// The semaphore.
        semaphore: String,
        /// The reason.
        #[source]
        reason: Lost,
    },
    /// An error of the service behind the layer, or of its body.
    #[error(transparent)]
    Service(BoxError),
}

impl PermitError {
    /// Returns true if the same request may succeed later. That is so after a loss, too.
    pub fn is_not_now(&self) -> bool {
        match self {
            Self::Acquire { source, .. } => source.is_not_now(),
            Self::Lost { reason, .. } => {
                matches!(reason, Lost::Expired | Lost::Gone | Lost::Revoked { .. } | Lost::HeldTooLong { .. })
            }
            Self::Service(_) => false,
        }
    }

    /// Makes the error of the service behind a layer. If that is another permit layer, its error stays as it
    /// is, so that the layers of a tenant and of all tenants fail alike.
    pub(crate) fn service(error: impl Into<BoxError>) -> Self {
        error.into().downcast().map_or_else(Self::Service, |error| *error)
    }
}
