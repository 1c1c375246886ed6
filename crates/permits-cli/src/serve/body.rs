//! The body of a request: bounded in size and time, and declared as JSON, which forms of other sites cannot
//! do.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use tokio::time::timeout;

use super::problem::Problem;

/// The largest body, in bytes: a holder of 200 and a reason of 1,000, each byte escaped.
const MAX_BODY: usize = 8 * 1024;

/// The longest time until a body is complete.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a body of bounded size in bounded time.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        let reason = "the request needs Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    let too_large = || {
        let reason = format!("the body is incomplete, or has more than {MAX_BODY} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    // As announced, before any of it is read.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let reason = format!("the body is incomplete after {} s", BODY_TIMEOUT.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, reason))
        }
    }
}
