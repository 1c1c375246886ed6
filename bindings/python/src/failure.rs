//! [`Failure`]: an error of the library as an exception of Python.
//!
//! The exceptions are classes of `permits.errors`, one for each reason, because a Python program
//! distinguishes reasons by class. An error that passes on a cause becomes the exception of the cause, with
//! the whole chain as its message.

use std::error::Error;

use permits::error::{
    AcquireAllError, AcquireError, AdminError, AdoptError, CloseError, ConnectError, Ended, InvalidInput,
    Lost, ReleaseError, RenewError, StoreError,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception: its class, its message and its attributes.
pub(crate) struct Failure {
    class: &'static str,
    message: String,
    attributes: Vec<(&'static str, Attribute)>,
}

/// The value of an attribute of an exception.
#[derive(IntoPyObject)]
pub(crate) enum Attribute {
    Text(String),
    Number(u64),
    Seconds(f64),
    Flag(bool),
}

impl Failure {
    fn new(class: &'static str, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { class, message, attributes: Vec::new() }
    }

    /// An argument that is not valid.
    pub(crate) fn invalid(message: String) -> Self {
        Self { class: "InvalidInputError", message, attributes: Vec::new() }
    }

    /// An operation on a permit that was released.
    pub(crate) fn released() -> Self {
        let message = "the permit was released".into();
        Self { class: "ReleasedError", message, attributes: Vec::new() }
    }

    fn text(self, name: &'static str, text: impl Into<String>) -> Self {
        self.with(name, Attribute::Text(text.into()))
    }

    fn number(self, name: &'static str, number: impl Into<u64>) -> Self {
        self.with(name, Attribute::Number(number.into()))
    }

    fn with(mut self, name: &'static str, value: Attribute) -> Self {
        self.attributes.push((name, value));
        self
    }

    /// Replaces the message by that of an error which this one has caused.
    fn within(mut self, error: &(dyn Error + 'static)) -> Self {
        self.message = Self::new(self.class, error).message;
        self
    }

    /// The exception.
    pub(crate) fn into_py(self, py: Python<'_>) -> PyErr {
        self.exception(py).map_or_else(|error| error, PyErr::from_value)
    }

    /// The exception, for a caller that is called by Python.
    pub(crate) fn raised(self) -> PyErr {
        Python::attach(|py| self.into_py(py))
    }

    fn exception(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let attributes = PyDict::new(py);
        for (name, value) in self.attributes {
            attributes.set_item(name, value)?;
        }
        py.import("permits.errors")?.getattr(self.class)?.call((self.message,), Some(&attributes))
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Self::new("InvalidInputError", &error)
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        let class = match ended {
            Ended::Closed => "ClosedError",
            Ended::Forked => "ForkedError",
            Ended::SessionFailed => "SessionFailedError",
            _ => "PermitsError",
        };
        Self::new(class, &ended)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let class = match &error {
            StoreError::Unreachable { .. } => "UnreachableError",
            StoreError::NoAnswer { .. } => "NoAnswerError",
            StoreError::Denied { .. } => "DeniedError",
            StoreError::Mismatch { .. } => "MismatchError",
            StoreError::Tls { .. } => "TlsError",
            StoreError::WrongType { .. } => "WrongTypeError",
            StoreError::OtherLayout { .. } => "OtherLayoutError",
            StoreError::Unreadable { .. } => "UnreadableError",
            StoreError::OutOfMemory { .. } => "OutOfMemoryError",
            StoreError::Unsupported { .. } => "UnsupportedError",
            StoreError::Rejected { .. } => "RejectedError",
            StoreError::Malformed { .. } => "MalformedError",
            _ => "StoreError",
        };
        Self::new(class, &error)
            .with("is_temporary", Attribute::Flag(error.is_temporary()))
            .with("is_outcome_unknown", Attribute::Flag(error.is_outcome_unknown()))
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Invalid(invalid) => invalid.into(),
            ConnectError::Store(store) => store.into(),
            ConnectError::UnknownScheme { .. }
            | ConnectError::MissingFeature { .. }
            | ConnectError::Url { .. } => Self::new("UrlError", &error),
            ConnectError::Entropy { .. } | ConnectError::Thread { .. } => Self::new("ResourceError", &error),
            _ => Self::new("PermitsError", &error),
        }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let of = |class| Self::new(class, &error);
        match &error {
            AcquireError::NoPermits => of("NoPermitsError"),
            AcquireError::Recovering { remaining } => {
                of("RecoveringError").with("remaining", Attribute::Seconds(remaining.as_secs_f64()))
            }
            AcquireError::Cooling { remaining } => {
                of("CoolingError").with("remaining", Attribute::Seconds(remaining.as_secs_f64()))
            }
            AcquireError::TimedOut { waited } => {
                of("TimeoutError").with("waited", Attribute::Seconds(waited.as_secs_f64()))
            }
            AcquireError::LineClosed { reason } => of("LineClosedError").text("reason", &**reason),
            AcquireError::QueueFull { max } => of("QueueFullError").number("max", *max),
            AcquireError::AlreadyHeld { holder } => of("AlreadyHeldError").text("holder", holder),
            AcquireError::NotReplicated { confirmed, wanted } => {
                of("NotReplicatedError").number("confirmed", *confirmed).number("wanted", *wanted)
            }
            AcquireError::ExceedsLimit { weight, limit } => {
                of("ExceedsLimitError").number("weight", *weight).number("limit", *limit)
            }
            AcquireError::NoLimit { semaphore } => of("NoLimitError").text("semaphore", semaphore),
            AcquireError::LimitMismatch { semaphore, required, stored } => of("LimitMismatchError")
                .text("semaphore", semaphore)
                .number("required", *required)
                .number("stored", *stored),
            AcquireError::Revoked { reason } => of("RevokedError").text("reason", &**reason),
            AcquireError::Cancelled => of("CancelledError"),
            AcquireError::Ended(ended) => (*ended).into(),
            AcquireError::Invalid(invalid) => invalid.clone().into(),
            AcquireError::Store(store) => store.clone().into(),
            _ => of("PermitsError"),
        }
    }
}

impl From<AcquireAllError> for Failure {
    fn from(error: AcquireAllError) -> Self {
        let (failure, semaphore) = match &error {
            AcquireAllError::Acquire { semaphore, source } => (Self::from(source.clone()), semaphore),
            AcquireAllError::Lost { semaphore, reason } => (Self::from(reason.clone()), semaphore),
            AcquireAllError::Twice { semaphore } => (Self::new("InvalidInputError", &error), semaphore),
            _ => return Self::new("PermitsError", &error),
        };
        failure.within(&error).text("semaphore", semaphore)
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let of = |class| Self::new(class, &error);
        match &error {
            AdminError::VersionMismatch { expected, version, limit } => of("VersionMismatchError")
                .number("expected", *expected)
                .number("version", *version)
                .number("limit", *limit),
            AdminError::NoLimit { semaphore } => of("NoLimitError").text("semaphore", semaphore),
            AdminError::LimitMismatch { semaphore, required, stored } => of("LimitMismatchError")
                .text("semaphore", semaphore)
                .number("required", *required)
                .number("stored", *stored),
            AdminError::InUse { semaphore, held, waiting } => of("InUseError")
                .text("semaphore", semaphore)
                .number("held", *held)
                .number("waiting", *waiting),
            AdminError::Recovering { remaining, .. } => {
                of("RecoveringError").with("remaining", Attribute::Seconds(remaining.as_secs_f64()))
            }
            AdminError::LimitOutOfRange { limit } => of("LimitOutOfRangeError").number("limit", *limit),
            AdminError::Ended(ended) => (*ended).into(),
            AdminError::Invalid(invalid) => invalid.clone().into(),
            AdminError::Store(store) => store.clone().into(),
            _ => of("PermitsError"),
        }
    }
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Gone => Self::new("GoneError", &error),
            AdoptError::Ended(ended) => ended.into(),
            AdoptError::Invalid(invalid) => invalid.into(),
            AdoptError::Store(store) => store.into(),
            _ => Self::new("PermitsError", &error),
        }
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        match &error {
            CloseError::NotReleased { count, .. } => {
                Self::new("NotReleasedError", &error).number("count", *count as u64)
            }
            CloseError::Ended(ended) => (*ended).into(),
            _ => Self::new("PermitsError", &error),
        }
    }
}

/// The word for a loss, in `LostError.cause`.
fn cause(lost: &Lost) -> &'static str {
    match lost {
        Lost::Expired => "expired",
        Lost::Gone => "gone",
        Lost::Revoked { .. } => "revoked",
        Lost::Closed => "closed",
        Lost::Forked => "forked",
        Lost::SessionFailed => "session_failed",
        _ => "other",
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        let reason = if let Lost::Revoked { reason } = &lost { &**reason } else { "" };
        Self::new("LostError", &lost).text("cause", cause(&lost)).text("reason", reason)
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match &error {
            ReleaseError::Lost(lost) => lost.clone().into(),
            ReleaseError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new("PermitsError", &error),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match &error {
            RenewError::Lost(lost) => lost.clone().into(),
            RenewError::Invalid(invalid) => invalid.clone().into(),
            RenewError::RetryLater => Self::new("RetryLaterError", &error),
            RenewError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new("PermitsError", &error),
        }
    }
}
