//! [`Failure`]: an error of the library for JavaScript.
//!
//! A JavaScript program distinguishes reasons by `code`, and kinds of reasons by class. An error that
//! passes on a cause has the code of the cause, with the whole chain as its message. It crosses as JSON in
//! the message of an error, of which `lib/errors.ts` makes the class.

use std::error::Error;

use napi::Status;
use permits::error::{
    AcquireAllError, AcquireError, AdminError, AdoptError, CloseError, ConnectError, Ended, InvalidInput,
    Lost, ReleaseError, RenewError, StoreError,
};
use serde_json::{Map, Value, json};

/// The classes of `lib/errors.ts`.
const PERMITS: &str = "PermitsError";
const NOT_NOW: &str = "NotNowError";
const INVALID: &str = "InvalidInputError";
const LOST: &str = "LostError";
const STORE: &str = "StoreError";

/// An error: its class, its code, its message and its other properties.
pub(crate) struct Failure {
    class: &'static str,
    code: &'static str,
    message: String,
    properties: Map<String, Value>,
}

impl Failure {
    fn new(class: &'static str, code: &'static str, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { class, code, message, properties: Map::new() }
    }

    /// An argument that is not valid.
    pub(crate) fn invalid(message: String) -> Self {
        Self { class: INVALID, code: "INVALID_INPUT", message, properties: Map::new() }
    }

    /// An operation on a permit that was released.
    pub(crate) fn released() -> Self {
        let message = "the permit was released".into();
        Self { class: PERMITS, code: "RELEASED", message, properties: Map::new() }
    }

    /// A result that was taken before.
    pub(crate) fn cancelled() -> Self {
        AcquireError::Cancelled.into()
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.properties.insert(name.to_owned(), value.into());
        self
    }

    fn remaining(self, time: std::time::Duration) -> Self {
        self.with("remainingMs", time.as_secs_f64() * 1000.0)
    }

    /// Replaces the message by that of an error which this one has caused.
    fn within(mut self, error: &(dyn Error + 'static)) -> Self {
        self.message = Self::new(self.class, self.code, error).message;
        self
    }

    /// The JSON from which `lib/errors.ts` makes the error.
    pub(crate) fn into_json(self) -> String {
        json!({
            "class": self.class,
            "code": self.code,
            "message": self.message,
            "properties": self.properties,
        })
        .to_string()
    }
}

impl From<Failure> for napi::Error {
    fn from(failure: Failure) -> Self {
        Self::new(Status::GenericFailure, failure.into_json())
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Self::new(INVALID, "INVALID_INPUT", &error)
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        let code = match ended {
            Ended::Closed => "CLOSED",
            Ended::Forked => "FORKED",
            Ended::SessionFailed => "SESSION_FAILED",
            _ => "OTHER",
        };
        Self::new(PERMITS, code, &ended)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unreachable { .. } => "UNREACHABLE",
            StoreError::NoAnswer { .. } => "NO_ANSWER",
            StoreError::Denied { .. } => "DENIED",
            StoreError::Mismatch { .. } => "MISMATCH",
            StoreError::Tls { .. } => "TLS",
            StoreError::WrongType { .. } => "WRONG_TYPE",
            StoreError::OtherLayout { .. } => "OTHER_LAYOUT",
            StoreError::Unreadable { .. } => "UNREADABLE",
            StoreError::OutOfMemory { .. } => "OUT_OF_MEMORY",
            StoreError::Unsupported { .. } => "UNSUPPORTED",
            StoreError::Rejected { .. } => "REJECTED",
            StoreError::Malformed { .. } => "MALFORMED",
            _ => "OTHER",
        };
        Self::new(STORE, code, &error)
            .with("isTemporary", error.is_temporary())
            .with("isOutcomeUnknown", error.is_outcome_unknown())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Invalid(invalid) => invalid.into(),
            ConnectError::Store(store) => store.into(),
            ConnectError::UnknownScheme { .. }
            | ConnectError::MissingFeature { .. }
            | ConnectError::Url { .. } => Self::new(INVALID, "INVALID_URL", &error),
            ConnectError::Entropy { .. } | ConnectError::Thread { .. } => {
                Self::new(PERMITS, "RESOURCE", &error)
            }
            _ => Self::new(PERMITS, "OTHER", &error),
        }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let of = |class, code| Self::new(class, code, &error);
        match &error {
            AcquireError::NoPermits => of(NOT_NOW, "NO_PERMITS"),
            AcquireError::Recovering { remaining } => of(NOT_NOW, "RECOVERING").remaining(*remaining),
            AcquireError::Cooling { remaining } => of(NOT_NOW, "COOLING").remaining(*remaining),
            AcquireError::TimedOut { waited } => {
                of(NOT_NOW, "TIMED_OUT").with("waitedMs", waited.as_secs_f64() * 1000.0)
            }
            AcquireError::LineClosed { reason } => of(NOT_NOW, "LINE_CLOSED").with("reason", &**reason),
            AcquireError::QueueFull { max } => of(NOT_NOW, "QUEUE_FULL").with("max", *max),
            AcquireError::AlreadyHeld { holder } => of(NOT_NOW, "ALREADY_HELD").with("holder", &**holder),
            AcquireError::NotReplicated { confirmed, wanted } => {
                of(NOT_NOW, "NOT_REPLICATED").with("confirmed", *confirmed).with("wanted", *wanted)
            }
            AcquireError::ExceedsLimit { weight, limit } => {
                of(PERMITS, "EXCEEDS_LIMIT").with("weight", *weight).with("limit", *limit)
            }
            AcquireError::NoLimit { semaphore } => of(PERMITS, "NO_LIMIT").with("semaphore", &**semaphore),
            AcquireError::LimitMismatch { semaphore, required, stored } => of(PERMITS, "LIMIT_MISMATCH")
                .with("semaphore", &**semaphore)
                .with("required", *required)
                .with("stored", *stored),
            AcquireError::Revoked { reason } => of(PERMITS, "REVOKED").with("reason", &**reason),
            AcquireError::Cancelled => of(PERMITS, "CANCELLED"),
            AcquireError::Ended(ended) => (*ended).into(),
            AcquireError::Invalid(invalid) => invalid.clone().into(),
            AcquireError::Store(store) => store.clone().into(),
            _ => of(PERMITS, "OTHER"),
        }
    }
}

impl From<AcquireAllError> for Failure {
    fn from(error: AcquireAllError) -> Self {
        let (failure, semaphore) = match &error {
            AcquireAllError::Acquire { semaphore, source } => (Self::from(source.clone()), semaphore),
            AcquireAllError::Lost { semaphore, reason } => (Self::from(reason.clone()), semaphore),
            AcquireAllError::Twice { semaphore } => (Self::new(INVALID, "INVALID_INPUT", &error), semaphore),
            _ => return Self::new(PERMITS, "OTHER", &error),
        };
        failure.within(&error).with("semaphore", &**semaphore)
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let of = |class, code| Self::new(class, code, &error);
        match &error {
            AdminError::VersionMismatch { expected, version, limit } => of(PERMITS, "VERSION_MISMATCH")
                .with("expected", *expected)
                .with("version", *version)
                .with("limit", *limit),
            AdminError::NoLimit { semaphore } => of(PERMITS, "NO_LIMIT").with("semaphore", &**semaphore),
            AdminError::LimitMismatch { semaphore, required, stored } => of(PERMITS, "LIMIT_MISMATCH")
                .with("semaphore", &**semaphore)
                .with("required", *required)
                .with("stored", *stored),
            AdminError::InUse { semaphore, held, waiting } => of(NOT_NOW, "IN_USE")
                .with("semaphore", &**semaphore)
                .with("held", *held)
                .with("waiting", *waiting),
            AdminError::Recovering { remaining, .. } => of(NOT_NOW, "RECOVERING").remaining(*remaining),
            AdminError::LimitOutOfRange { limit } => of(PERMITS, "LIMIT_OUT_OF_RANGE").with("limit", *limit),
            AdminError::Ended(ended) => (*ended).into(),
            AdminError::Invalid(invalid) => invalid.clone().into(),
            AdminError::Store(store) => store.clone().into(),
            _ => of(PERMITS, "OTHER"),
        }
    }
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Gone => Self::new(PERMITS, "GONE", &error),
            AdoptError::Ended(ended) => ended.into(),
            AdoptError::Invalid(invalid) => invalid.into(),
            AdoptError::Store(store) => store.into(),
            _ => Self::new(PERMITS, "OTHER", &error),
        }
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        match &error {
            CloseError::NotReleased { count, .. } => {
                Self::new(PERMITS, "NOT_RELEASED", &error).with("count", *count)
            }
            CloseError::Ended(ended) => (*ended).into(),
            _ => Self::new(PERMITS, "OTHER", &error),
        }
    }
}

/// The word for a loss, in `LostError.loss`.
fn loss(lost: &Lost) -> &'static str {
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
        Self::new(LOST, "LOST", &lost).with("loss", loss(&lost)).with("reason", reason)
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match &error {
            ReleaseError::Lost(lost) => lost.clone().into(),
            ReleaseError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new(PERMITS, "OTHER", &error),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match &error {
            RenewError::Lost(lost) => lost.clone().into(),
            RenewError::Invalid(invalid) => invalid.clone().into(),
            RenewError::RetryLater => Self::new(PERMITS, "RETRY_LATER", &error),
            RenewError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new(PERMITS, "OTHER", &error),
        }
    }
}
