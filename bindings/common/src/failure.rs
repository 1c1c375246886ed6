//! [`Failure`]: an error of the library as the packages for other languages raise it.
//!
//! A program tells reasons apart by the keyword, of which each package makes its class or its code. If an
//! error only passes on a cause, it has the keyword of the cause, and the whole chain as its message.

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
    /// The reason, such as `no_permits`.
    pub keyword: &'static str,
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
    fn new(kind: Kind, keyword: &'static str, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { kind, keyword, message, attributes: Vec::new() }
    }

    /// A failure that may pass, or not.
    fn passing(is_not_now: bool, keyword: &'static str, error: &(dyn Error + 'static)) -> Self {
        Self::new(if is_not_now { Kind::NotNow } else { Kind::Other }, keyword, error)
    }

    /// An argument that is not valid.
    pub(crate) fn invalid(message: String) -> Self {
        Self { kind: Kind::Invalid, keyword: "invalid_input", message, attributes: Vec::new() }
    }

    /// The failure of an operation on a permit that was released.
    pub(crate) fn released() -> Self {
        let message = "the permit was released".into();
        Self { kind: Kind::Other, keyword: "released", message, attributes: Vec::new() }
    }

    /// The reason in capitals, such as `NO_PERMITS`.
    pub fn code(&self) -> String {
        self.keyword.to_uppercase()
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

    /// The failure of one of several requests.
    pub(crate) fn of(mut self, semaphore: &str) -> Self {
        self.message = format!("no permit of {semaphore:?}: {}", self.message);
        self.text("semaphore", semaphore)
    }

    /// Replaces the message by the message of an error that this failure has caused.
    fn within(mut self, error: &(dyn Error + 'static)) -> Self {
        self.message = Self::new(self.kind, self.keyword, error).message;
        self
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        Self::new(Kind::Other, ended.keyword(), &ended)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(Kind::Store, error.keyword(), &error)
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
            | ConnectError::Url { .. } => Self::new(Kind::Invalid, error.keyword(), &error),
            _ => Self::new(Kind::Other, error.keyword(), &error),
        }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let mut failure = Self::passing(error.is_not_now(), error.keyword(), &error);
        if let Some(time) = error.retry_after() {
            failure = failure.with("retry_after", Attribute::Time(time));
        }
        if error.stands_still() {
            failure = failure.with("stands_still", Attribute::Flag(true));
        }
        match &error {
            AcquireError::TimedOut { waited, inspection, retry_after: _ } => {
                let timed_out = failure.with("waited", Attribute::Time(*waited));
                match inspection {
                    Some(seen) => {
                        timed_out.with("inspection", Attribute::Inspection(json!(seen).to_string()))
                    }
                    None => timed_out,
                }
            }
            AcquireError::LaneFull { lane, .. } => failure.text("lane", lane),
            AcquireError::LineClosed { reason } => failure.text("reason", reason),
            AcquireError::QueueFull { max, lane } => {
                let failure = failure.number("max", *max);
                lane.iter().fold(failure, |failure, lane| failure.text("lane", lane))
            }
            AcquireError::AlreadyHeld { holder } => failure.text("holder", holder),
            AcquireError::Superseded { key } => failure.text("key", key),
            AcquireError::NotReplicated { confirmed, wanted } => {
                failure.number("confirmed", *confirmed).number("wanted", *wanted)
            }
            AcquireError::ExceedsLimit { weight, limit } => {
                failure.number("weight", *weight).number("limit", *limit)
            }
            AcquireError::ExceedsLaneLimit { weight, lane, limit } => {
                failure.number("weight", *weight).text("lane", lane).number("limit", *limit)
            }
            AcquireError::NoLimit { semaphore } => failure.text("semaphore", semaphore),
            AcquireError::LimitMismatch { semaphore, required, stored } => {
                failure.text("semaphore", semaphore).number("required", *required).number("stored", *stored)
            }
            AcquireError::Revoked { reason } => failure.text("reason", reason),
            AcquireError::Ended(ended) => (*ended).into(),
            AcquireError::Invalid(invalid) => invalid.clone().into(),
            AcquireError::Store(store) => store.clone().into(),
            _ => failure,
        }
    }
}

impl From<AcquireAllError> for Failure {
    fn from(error: AcquireAllError) -> Self {
        let (failure, semaphore) = match &error {
            AcquireAllError::Acquire { semaphore, source } => (Self::from(source.clone()), semaphore),
            AcquireAllError::Lost { semaphore, reason } => (Self::from(reason.clone()), semaphore),
            AcquireAllError::Twice { semaphore } => (Self::invalid(error.to_string()), semaphore),
            _ => unreachable!("the library has no other"),
        };
        failure.within(&error).text("semaphore", semaphore)
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let failure = Self::passing(error.is_not_now(), error.keyword(), &error);
        match &error {
            AdminError::VersionMismatch { expected, version, limit } => {
                failure.number("expected", *expected).number("version", *version).number("limit", *limit)
            }
            AdminError::NoLimit { semaphore } => failure.text("semaphore", semaphore),
            AdminError::LimitMismatch { semaphore, required, stored } => {
                failure.text("semaphore", semaphore).number("required", *required).number("stored", *stored)
            }
            AdminError::InUse { semaphore, held, waiting } => {
                failure.text("semaphore", semaphore).number("held", *held).number("waiting", *waiting)
            }
            AdminError::Recovering { remaining, .. } => {
                failure.with("retry_after", Attribute::Time(*remaining))
            }
            AdminError::LimitOutOfRange { limit } => failure.number("limit", *limit),
            AdminError::TooManyPins { semaphore, most } => {
                failure.text("semaphore", semaphore).number("most", *most)
            }
            AdminError::Ended(ended) => (*ended).into(),
            AdminError::Invalid(invalid) => invalid.clone().into(),
            AdminError::Store(store) => store.clone().into(),
            _ => failure,
        }
    }
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Ended(ended) => ended.into(),
            AdoptError::Invalid(invalid) => invalid.into(),
            AdoptError::Store(store) => store.into(),
            _ => Self::new(Kind::Other, error.keyword(), &error),
        }
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        let failure = Self::new(Kind::Other, error.keyword(), &error);
        match error {
            CloseError::NotReleased { count, .. } => failure.number("count", count as u64),
            _ => failure,
        }
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        let reason = if let Lost::Revoked { reason } = &lost { &**reason } else { "" };
        Self::new(Kind::Lost, "lost", &lost).text("loss", lost.keyword()).text("reason", reason)
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match &error {
            ReleaseError::Lost(lost) => lost.clone().into(),
            ReleaseError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new(Kind::Other, error.keyword(), &error),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match &error {
            RenewError::Lost(lost) => lost.clone().into(),
            RenewError::Invalid(invalid) => invalid.clone().into(),
            RenewError::Store(store) => Self::from(store.clone()).within(&error),
            _ => Self::new(Kind::Other, error.keyword(), &error),
        }
    }
}
