//! [`Failure`]: an error of the library as the packages for other languages raise it.
//!
//! A program tells reasons apart by the code, from which each package makes its class or its constant. If an
//! error only passes on a cause, it has the code of the cause, and the whole chain as its message.

use std::error::Error;
use std::time::Duration;

use serde_json::json;

use permits::error::{
    AcquireAllError, AcquireError, AdminError, AdoptError, CloseError, ConnectError, Ended, InvalidInput,
    Lost, ReleaseError, RenewError, StoreError,
};

/// The kind of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A later attempt may succeed.
    NotNow,
    /// An argument is not valid.
    Invalid,
    /// The permit is lost.
    Lost,
    /// The store refused, or was unreachable for too long.
    Store,
    /// Any other reason.
    Other,
}

/// An error.
#[derive(Debug)]
pub struct Failure {
    /// The kind of the reason.
    pub kind: Kind,
    /// The reason, in capitals, such as `NO_PERMITS`; `OTHER` if the package does not know it.
    pub code: &'static str,
    /// The message, with the messages of the causes.
    pub message: String,
    /// The values of the message, by names such as `is_temporary`.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// A value of a message.
#[derive(Debug)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// A duration.
    Time(Duration),
    /// True or false.
    Flag(bool),
    /// The state of a semaphore as JSON.
    Inspection(String),
}

impl Failure {
    fn new(kind: Kind, code: &'static str, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { kind, code, message, attributes: Vec::new() }
    }

    /// An argument that is not valid.
    pub(crate) fn invalid(message: String) -> Self {
        Self { kind: Kind::Invalid, code: "INVALID_INPUT", message, attributes: Vec::new() }
    }

    /// The failure of an operation on a permit that was released.
    pub(crate) fn released() -> Self {
        let message = "the permit was released".into();
        Self { kind: Kind::Other, code: "RELEASED", message, attributes: Vec::new() }
    }

    fn text(self, name: &'static str, text: impl AsRef<str>) -> Self {
        self.with(name, Attribute::Text(text.as_ref().to_owned()))
    }

    fn number(self, name: &'static str, number: impl Into<u64>) -> Self {
        self.with(name, Attribute::Number(number.into()))
    }

    fn with(mut self, name: &'static str, value: Attribute) -> Self {
        self.attributes.push((name, value));
        self
    }

    /// Replaces the message by the message of an error that this failure has caused.
    fn within(mut self, error: &(dyn Error + 'static)) -> Self {
        self.message = Self::new(self.kind, self.code, error).message;
        self
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Self::new(Kind::Invalid, "INVALID_INPUT", &error)
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
        Self::new(Kind::Other, code, &ended)
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
        Self::new(Kind::Store, code, &error)
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
            | ConnectError::Url { .. } => Self::new(Kind::Invalid, "INVALID_URL", &error),
            ConnectError::Entropy { .. } | ConnectError::Thread { .. } => {
                Self::new(Kind::Other, "RESOURCE", &error)
            }
            _ => Self::new(Kind::Other, "OTHER", &error),
        }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let of = |kind, code| {
            let retry_after = error.retry_after().map(|time| ("retry_after", Attribute::Time(time)));
            let stands_still = error.stands_still().then_some(("stands_still", Attribute::Flag(true)));
            let attributes = retry_after.into_iter().chain(stands_still).collect();
            Self { attributes, ..Self::new(kind, code, &error) }
        };
        match &error {
            AcquireError::NoPermits => of(Kind::NotNow, "NO_PERMITS"),
            AcquireError::Recovering { .. } => of(Kind::NotNow, "RECOVERING"),
            AcquireError::Cooling { .. } => of(Kind::NotNow, "COOLING"),
            AcquireError::Paused { .. } => of(Kind::NotNow, "PAUSED"),
            AcquireError::TimedOut { waited, inspection, retry_after: _ } => {
                let timed_out = of(Kind::NotNow, "TIMED_OUT").with("waited", Attribute::Time(*waited));
                match inspection {
                    Some(seen) => {
                        timed_out.with("inspection", Attribute::Inspection(json!(seen).to_string()))
                    }
                    None => timed_out,
                }
            }
            AcquireError::LaneFull { lane, .. } => of(Kind::NotNow, "LANE_FULL").text("lane", lane),
            AcquireError::LineClosed { reason } => of(Kind::NotNow, "LINE_CLOSED").text("reason", reason),
            AcquireError::QueueFull { max } => of(Kind::NotNow, "QUEUE_FULL").number("max", *max),
            AcquireError::AlreadyHeld { holder } => of(Kind::NotNow, "ALREADY_HELD").text("holder", holder),
            AcquireError::Superseded { key } => of(Kind::NotNow, "SUPERSEDED").text("key", key),
            AcquireError::NotReplicated { confirmed, wanted } => {
                of(Kind::NotNow, "NOT_REPLICATED").number("confirmed", *confirmed).number("wanted", *wanted)
            }
            AcquireError::ExceedsLimit { weight, limit } => {
                of(Kind::Other, "EXCEEDS_LIMIT").number("weight", *weight).number("limit", *limit)
            }
            AcquireError::ExceedsLaneLimit { weight, lane, limit } => of(Kind::Other, "EXCEEDS_LANE_LIMIT")
                .number("weight", *weight)
                .text("lane", lane)
                .number("limit", *limit),
            AcquireError::NoLimit { semaphore } => of(Kind::Other, "NO_LIMIT").text("semaphore", semaphore),
            AcquireError::LimitMismatch { semaphore, required, stored } => of(Kind::Other, "LIMIT_MISMATCH")
                .text("semaphore", semaphore)
                .number("required", *required)
                .number("stored", *stored),
            AcquireError::Revoked { reason } => of(Kind::Other, "REVOKED").text("reason", reason),
            AcquireError::Cancelled => of(Kind::Other, "CANCELLED"),
            AcquireError::Ended(ended) => (*ended).into(),
            AcquireError::Invalid(invalid) => invalid.clone().into(),
            AcquireError::Store(store) => store.clone().into(),
            _ => of(Kind::Other, "OTHER"),
        }
    }
}

impl From<AcquireAllError> for Failure {
    fn from(error: AcquireAllError) -> Self {
        let (failure, semaphore) = match &error {
            AcquireAllError::Acquire { semaphore, source } => (Self::from(source.clone()), semaphore),
            AcquireAllError::Lost { semaphore, reason } => (Self::from(reason.clone()), semaphore),
            AcquireAllError::Twice { semaphore } => {
                (Self::new(Kind::Invalid, "INVALID_INPUT", &error), semaphore)
            }
            _ => return Self::new(Kind::Other, "OTHER", &error),
        };
        failure.within(&error).text("semaphore", semaphore)
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let of = |class, code| Self::new(class, code, &error);
        match &error {
            AdminError::VersionMismatch { expected, version, limit } => of(Kind::Other, "VERSION_MISMATCH")
                .number("expected", *expected)
                .number("version", *version)
                .number("limit", *limit),
            AdminError::NoLimit { semaphore } => of(Kind::Other, "NO_LIMIT").text("semaphore", semaphore),
            AdminError::LimitMismatch { semaphore, required, stored } => of(Kind::Other, "LIMIT_MISMATCH")
                .text("semaphore", semaphore)
                .number("required", *required)
                .number("stored", *stored),
            AdminError::InUse { semaphore, held, waiting } => of(Kind::NotNow, "IN_USE")
                .text("semaphore", semaphore)
                .number("held", *held)
                .number("waiting", *waiting),
            AdminError::Recovering { remaining, .. } => {
                of(Kind::NotNow, "RECOVERING").with("retry_after", Attribute::Time(*remaining))
            }
            AdminError::LimitOutOfRange { limit } => {
                of(Kind::Other, "LIMIT_OUT_OF_RANGE").number("limit", *limit)
            }
            AdminError::Ended(ended) => (*ended).into(),
            AdminError::Invalid(invalid) => invalid.clone().into(),
            AdminError::Store(store) => store.clone().into(),
            _ => of(Kind::Other, "OTHER"),
        }
    }
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Gone => Self::new(Kind::Other, "GONE", &error),
            AdoptError::Ended(ended) => ended.into(),
            AdoptError::Invalid(invalid) => invalid.into(),
            AdoptError::Store(store) => store.into(),
            _ => Self::new(Kind::Other, "OTHER", &error),
        }
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        match &error {
            CloseError::NotReleased { count, .. } => {
                Self::new(Kind::Other, "NOT_RELEASED", &error).number("count", *count as u64)
            }
            CloseError::Ended(ended) => (*ended).into(),
            _ => Self::new(Kind::Other, "OTHER", &error),
        }
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        let reason = if let Lost::Revoked { reason } = &lost { &**reason } else { "" };
        Self::new(Kind::Lost, "LOST", &lost).text("loss", lost.keyword()).text("reason", reason)
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match &error {
            ReleaseError::Lost(lost) => lost.clone().into(),
            ReleaseError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new(Kind::Other, "OTHER", &error),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match &error {
            RenewError::Lost(lost) => lost.clone().into(),
            RenewError::Invalid(invalid) => invalid.clone().into(),
            RenewError::RetryLater => Self::new(Kind::Other, "RETRY_LATER", &error),
            RenewError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new(Kind::Other, "OTHER", &error),
        }
    }
}
