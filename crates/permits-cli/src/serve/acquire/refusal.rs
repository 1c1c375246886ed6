//! The errors of the library as a status.
//!
//! 429 and 503 differ as [`AcquireError::stands_still`] says: others hold the units, or nobody is granted
//! any. docs/languages/http.md has the table.

use axum::http::StatusCode;
use permits::{AcquireError, AdminError, InvalidInput, RenewError};

use super::super::problem::Problem;
use crate::hold::NO_LIMIT;
use crate::report;

const TAKEN: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const AWAY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const WRONG: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
const CONFLICT: StatusCode = StatusCode::CONFLICT;

/// A request, or a field of it, that is not valid.
pub(super) fn invalid(reason: impl Into<String>) -> Problem {
    Problem::new(WRONG, reason).with_keyword("invalid_input")
}

/// The permit of a handle is no longer held.
pub(super) fn lost(reason: String) -> Problem {
    Problem::new(CONFLICT, reason).with_keyword("lost")
}

pub(super) fn of_input(error: &InvalidInput) -> Problem {
    invalid(error.to_string())
}

pub(super) fn of_acquire(error: &AcquireError) -> Problem {
    let status = match error {
        _ if error.stands_still() => AWAY,
        AcquireError::NotReplicated { .. } => AWAY,
        AcquireError::AlreadyHeld { .. } | AcquireError::Superseded { .. } | AcquireError::Revoked { .. } => {
            CONFLICT
        }
        _ if error.is_not_now() => TAKEN,
        AcquireError::ExceedsLimit { .. }
        | AcquireError::ExceedsLaneLimit { .. }
        | AcquireError::NoLimit { .. }
        | AcquireError::LimitMismatch { .. }
        | AcquireError::Invalid(_) => WRONG,
        _ => AWAY,
    };
    let hint = if matches!(error, AcquireError::NoLimit { .. }) { NO_LIMIT } else { "" };
    let problem = Problem::new(status, report::with_causes(error) + hint);
    problem.with_keyword(error.keyword()).with_retry_after(error.retry_after())
}

/// A grant that the store did not confirm to the handle. It is released, so the error must not advise to
/// renew it.
pub(super) fn of_hand_over(error: &RenewError) -> Problem {
    match error {
        RenewError::RetryLater => {
            let reason = "the store has lost its state, and recovers: the permit was released";
            Problem::new(AWAY, reason).with_keyword("recovering")
        }
        _ => Problem::new(AWAY, report::with_causes(error)).with_keyword(error.keyword()),
    }
}

/// A renewal or a release that the store did not confirm.
pub(super) fn of_admin(error: &AdminError) -> Problem {
    let (status, retry_after) = match error {
        AdminError::Recovering { remaining, .. } => (AWAY, Some(*remaining)),
        AdminError::Invalid(_) => (WRONG, None),
        _ => (AWAY, None),
    };
    let problem = Problem::new(status, report::with_causes(error));
    problem.with_keyword(error.keyword()).with_retry_after(retry_after)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use axum::response::IntoResponse as _;
    use permits::{Ended, StoreError};

    use super::*;

    /// The errors of an acquisition that are no error of the store.
    fn errors() -> Vec<AcquireError> {
        let (semaphore, lane) = ("api".to_owned(), "a".to_owned());
        let remaining = Duration::from_secs(1);
        vec![
            AcquireError::NoPermits,
            AcquireError::Cooling { remaining },
            AcquireError::LaneFull { lane: lane.clone(), remaining: None },
            AcquireError::TimedOut { waited: remaining, inspection: None, retry_after: None },
            AcquireError::QueueFull { max: 1, lane: None },
            AcquireError::Paused { remaining: None },
            AcquireError::Recovering { remaining },
            AcquireError::LineClosed { reason: "".into() },
            AcquireError::NotReplicated { confirmed: 0, wanted: 1 },
            AcquireError::AlreadyHeld { holder: "h".into() },
            AcquireError::Superseded { key: "k".into() },
            AcquireError::Revoked { reason: "".into() },
            AcquireError::ExceedsLimit { weight: 2, limit: 1 },
            AcquireError::ExceedsLaneLimit { weight: 2, lane, limit: 1 },
            AcquireError::NoLimit { semaphore: semaphore.clone() },
            AcquireError::LimitMismatch { semaphore, required: 2, stored: 1 },
            AcquireError::Invalid(InvalidInput::ZeroLimit),
            AcquireError::Ended(Ended::Closed),
        ]
    }

    #[test]
    fn the_page_has_each_error_in_the_row_of_its_status() {
        let page = include_str!("../../../../../docs/languages/http.md");
        let mut codes = BTreeSet::new();
        for error in errors() {
            let (status, code) =
                (of_acquire(&error).into_response().status(), error.keyword().to_uppercase());
            let row = |row: &&str| {
                row.starts_with(&format!("| {} |", status.as_u16())) && row.contains(&format!("`{code}`"))
            };
            assert!(page.lines().any(|line| row(&line)), "{status} {code}");
            codes.insert(code);
        }
        // And it has no others, but for a permit that was lost.
        let rows = page.lines().filter(|row| row.starts_with("| 4") || row.starts_with("| 503"));
        let named =
            rows.flat_map(|row| row.split('|').nth(2).unwrap_or_default().split('`').skip(1).step_by(2));
        let named: BTreeSet<String> = named.map(str::to_owned).filter(|code| code != "LOST").collect();
        assert_eq!(named, codes);
    }

    #[test]
    fn an_error_of_the_store_is_503_with_its_own_code() {
        let error = AcquireError::Store(StoreError::Unreachable { reason: "it is away".into() });
        assert_eq!(of_acquire(&error).into_response().status(), AWAY);
        assert_eq!(error.keyword(), "unreachable");
    }
}
