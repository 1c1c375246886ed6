//! [`Problem`]: a reply in place of the one that was asked for, as problem details (RFC 9457).
//!
//! All endpoints have this one form. `title` is the phrase of the status, `detail` the reason, in the words
//! of the command and the packages. `code` is that of the packages, where the library refuses;
//! `retry_after_ms` the time after which the same request may succeed, where it is known. The header
//! `Retry-After`, in seconds, goes with each 429 and 503.

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::access::Refusal;
use super::reply::line;
use crate::clock::milliseconds;
use crate::exit::{self, Failure};

/// `Retry-After` of a 429 where the time is not known: others have to go first.
const TAKEN: Duration = Duration::from_secs(1);

/// `Retry-After` of a 503 where the time is not known.
const AWAY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    keyword: Option<&'static str>,
    retry_after: Option<Duration>,
}

#[derive(Serialize)]
struct Details<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'static str>,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), keyword: None, retry_after: None }
    }

    /// Adds the keyword of the library, as the code of the packages.
    pub(super) fn with_keyword(self, keyword: &'static str) -> Self {
        Self { keyword: Some(keyword), ..self }
    }

    /// Adds the time after which the same request may succeed, if it is known.
    pub(super) fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, detail, keyword, retry_after } = self;
        let details = Details {
            title: status.canonical_reason(),
            status: status.as_u16(),
            detail: &detail,
            code: keyword.map(str::to_uppercase),
            retry_after_ms: retry_after.map(milliseconds),
        };
        let mut response =
            (status, [(CONTENT_TYPE, "application/problem+json")], line(&details)).into_response();
        let unknown = match status {
            StatusCode::TOO_MANY_REQUESTS => Some(TAKEN),
            StatusCode::SERVICE_UNAVAILABLE => Some(AWAY),
            _ => None,
        };
        let headers = response.headers_mut();
        if let Some(after) = unknown.map(|unknown| retry_after.unwrap_or(unknown)) {
            // Rounded up, because a second too early is a refusal more.
            let seconds = milliseconds(after).div_ceil(1_000).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from((status, reason): Refusal) -> Self {
        Self::new(status, reason)
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            format!("the name in the path is malformed: {}", rejection.body_text()),
        )
    }
}

/// The exit codes of the other verbs, as a status.
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure.code {
            exit::USAGE => StatusCode::BAD_REQUEST,
            exit::NO_MATCH | exit::UNKNOWN => StatusCode::NOT_FOUND,
            exit::NOT_NOW => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, failure.message)
    }
}

/// Replies to a path that exists with another method. The fallback is set before the layers, so that they
/// check these requests too.
pub(super) async fn other_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the path has another method")
}
