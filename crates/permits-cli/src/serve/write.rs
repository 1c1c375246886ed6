//! The endpoint that changes a semaphore.
//!
//! The reply is the state after the change, as `permits status --json` prints it. A body has to be declared
//! as JSON, which forms of other sites cannot do. Each change is reported on standard error with the address
//! of its client.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use permits::Change;
use tokio::time::timeout;

use super::app::{App, Problem};
use super::listener::Ends;
use crate::administer::{make, not_found};
use crate::exit::Failure;
use crate::names::unknown_failure;
use crate::report;

/// The largest body, in bytes: a holder of 200 and a reason of 1,000, each byte escaped.
const MAX_BODY: usize = 8 * 1024;

/// The longest time until a body is complete.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Changes a semaphore. The body is a [`Change`] in JSON.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    Extension(Ends { peer, .. }): Extension<Ends>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    let semaphore = app.feed.reader.client.semaphore(&name, permits::Limit::Stored).map_err(Failure::from)?;
    let change = parse(&headers, body).await?;
    if !make(&semaphore, &change).await.map_err(Failure::from)? {
        return Err(match change {
            Change::Revoke { holder, .. } => {
                let reason = not_found(&semaphore, &holder).await.map_err(Failure::from)?;
                Problem::new(StatusCode::NOT_FOUND, reason)
            }
            _ => unknown_failure(&app.feed.reader.client, &name).await.into(),
        });
    }
    report::say(format_args!("{peer} changed {name:?}: {change}"));
    app.feed.hurry();
    app.status(&name).await
}

/// Reads a body of bounded size in bounded time.
async fn parse(headers: &HeaderMap, body: Body) -> Result<Change, Problem> {
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
    let bytes = match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => {
            let reason = format!("the body is incomplete after {} s", BODY_TIMEOUT.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, reason));
        }
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the body is malformed: {error}")))
}
