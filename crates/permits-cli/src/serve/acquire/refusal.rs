//! The errors of the library as a status and the code of the packages.
//!
//! 429 and 503 differ as [`AcquireError::stands_still`] says: others hold the units, or nobody is granted
//! any. docs/languages/http.md has the table.

use axum::http::StatusCode;
use permits::{AcquireError, AdminError, InvalidInput, RenewError, StoreError};

use super::super::problem::Problem;
use crate::hold::NO_LIMIT;
use crate::report;

const TAKEN: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const AWAY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const WRONG: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
const CONFLICT: StatusCode = StatusCode::CONFLICT;

/// A request, or a field of it, that is not valid.
pub(super) fn invalid(reason: impl Into<String>) -> Problem {
    Problem::new(WRONG, reason).with_code("INVALID_INPUT")
}

/// The permit of a handle is no longer held.
pub(super) fn lost(reason: String) -> Problem {
    Problem::new(CONFLICT, reason).with_code("LOST")
}

pub(super) fn of_input(error: &InvalidInput) -> Problem {
    invalid(error.to_string())
}

pub(super) fn of_acquire(error: &AcquireError) -> Problem {
    let (status, code) = match error {
        AcquireError::NoPermits => (TAKEN, "NO_PERMITS"),
        AcquireError::Cooling { .. } => (TAKEN, "COOLING"),
        AcquireError::LaneFull { .. } => (TAKEN, "LANE_FULL"),
        AcquireError::QueueFull { .. } => (TAKEN, "QUEUE_FULL"),
        AcquireError::TimedOut { .. } if error.stands_still() => (AWAY, "TIMED_OUT"),
        AcquireError::TimedOut { .. } => (TAKEN, "TIMED_OUT"),
        AcquireError::Recovering { .. } => (AWAY, "RECOVERING"),
        AcquireError::Paused { .. } => (AWAY, "PAUSED"),
        AcquireError::LineClosed { .. } => (AWAY, "LINE_CLOSED"),
        AcquireError::NotReplicated { .. } => (AWAY, "NOT_REPLICATED"),
        AcquireError::AlreadyHeld { .. } => (CONFLICT, "ALREADY_HELD"),
        AcquireError::Superseded { .. } => (CONFLICT, "SUPERSEDED"),
        AcquireError::Revoked { .. } => (CONFLICT, "REVOKED"),
        AcquireError::ExceedsLimit { .. } => (WRONG, "EXCEEDS_LIMIT"),
        AcquireError::ExceedsLaneLimit { .. } => (WRONG, "EXCEEDS_LANE_LIMIT"),
        AcquireError::NoLimit { .. } => (WRONG, "NO_LIMIT"),
        AcquireError::LimitMismatch { .. } => (WRONG, "LIMIT_MISMATCH"),
        AcquireError::Invalid(_) => (WRONG, "INVALID_INPUT"),
        AcquireError::Store(error) => (AWAY, of_store(error)),
        _ => (AWAY, "OTHER"),
    };
    let hint = if matches!(error, AcquireError::NoLimit { .. }) { NO_LIMIT } else { "" };
    let problem = Problem::new(status, report::with_causes(error) + hint);
    problem.with_code(code).with_retry_after(error.retry_after())
}

/// A grant that the store did not confirm to the handle: it is released.
pub(super) fn of_hand_over(error: &RenewError) -> Problem {
    let code = match error {
        RenewError::Lost(_) => "LOST",
        RenewError::Store(error) => of_store(error),
        _ => "RETRY_LATER",
    };
    Problem::new(AWAY, report::with_causes(error)).with_code(code)
}

/// A renewal or a release that the store did not confirm.
pub(super) fn of_admin(error: &AdminError) -> Problem {
    let (status, code, retry_after) = match error {
        AdminError::Recovering { remaining, .. } => (AWAY, "RECOVERING", Some(*remaining)),
        AdminError::Invalid(_) => (WRONG, "INVALID_INPUT", None),
        AdminError::Store(error) => (AWAY, of_store(error), None),
        _ => (AWAY, "OTHER", None),
    };
    Problem::new(status, report::with_causes(error)).with_code(code).with_retry_after(retry_after)
}

fn of_store(error: &StoreError) -> &'static str {
    match error {
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
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    /// The rows of the reference, which is made of the code that the packages have.
    #[test]
    fn the_codes_are_those_of_the_packages() {
        let reference = include_str!("../../../../../docs/reference/errors.md");
        let source = include_str!("refusal.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let page = include_str!("../../../../../docs/languages/http.md");
        let arm = Regex::new(r#"((?:Acquire|Admin|Renew|Store)Error::\w+)[^=]*=> (?:\((\w+), )?"([A-Z_]+)""#);
        let mut arms = 0;
        for arm in arm.expect("it is valid").captures_iter(source) {
            let (variant, code) = (format!("`{}`", &arm[1]), format!("`{}`", &arm[3]));
            // What several errors have in common is in the reference once.
            let variant = variant.replace("AdminError::Invalid", "AcquireError::Invalid");
            let known = reference.lines().any(|row| row.contains(&variant) && row.contains(&code));
            assert!(known || code == "`LOST`", "{variant} {code}");
            // The page has the status of each.
            let status = arm.get(2).map(|status| match status.as_str() {
                "TAKEN" => "| 429 |",
                "AWAY" => "| 503 |",
                "WRONG" => "| 422 |",
                "CONFLICT" => "| 409 |",
                other => panic!("{other}"),
            });
            let on_page =
                |status: &str| page.lines().any(|row| row.starts_with(status) && row.contains(&code));
            assert!(status.is_none_or(on_page), "{status:?} {code}");
            arms += 1;
        }
        assert!(arms > 30, "{arms}");
    }
}
