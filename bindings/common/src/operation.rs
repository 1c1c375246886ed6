//! The operations that Python and Node call by name. Each name stands in these enums alone: a test writes
//! them into the type of the argument in Node, and compares the types in Python with them
//! (`crates/permits/tests/vocabulary/operations.rs`).

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};

use crate::failure::Failure;

/// The operations of a session, and of the permit that a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientOperation {
    List,
    Close,
    Adopt,
    Renew,
    Release,
}

/// The operations of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SemaphoreOperation {
    Declare,
    Available,
    Inspect,
    Change,
}

/// The operations of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PermitOperation {
    Renew,
    Release,
    HandOver,
    WaitLost,
    ReleasePart,
    SetLease,
}

/// The operation of this name. An unknown name is a mistake in a package, which the types of its language
/// refuse.
pub(crate) fn named<'a, T: Deserialize<'a>>(name: &'a str) -> Result<T, Failure> {
    T::deserialize(StrDeserializer::<Error>::new(name)).map_err(|error| Failure::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_found_by_its_name_alone() {
        assert_eq!(named::<PermitOperation>("hand_over").ok(), Some(PermitOperation::HandOver));
        let unknown = named::<PermitOperation>("handOver").expect_err("it is spelled otherwise");
        assert!(
            unknown.message.starts_with("unknown variant `handOver`, expected one of `renew`"),
            "{unknown:?}"
        );
    }
}
