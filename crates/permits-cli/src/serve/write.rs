//! The endpoints that change a semaphore.
//!
//! Each reply is the state after the change, as `permits status --json` prints it. A body has to be declared
//! as JSON, which forms of other sites cannot do. Each change is reported on standard error with the address
//! of its client.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{FromRequest, FromRequestParts as _, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use permits::Semaphore;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::app::{App, Problem};
use super::listener::Ends;
use crate::administer::revoke_one;
use crate::exit::Failure;
use crate::report;

/// The largest body, in bytes: a holder of 200 and a reason of 1,000, each byte escaped.
const MAX_BODY: usize = 8 * 1024;

/// The longest time until a body is complete.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A body without contents.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// A new limit, which is pinned, or `unpin`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLimit {
    limit: Option<u32>,
    #[serde(default)]
    unpin: bool,
}

/// A pause, without an end unless it has a time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pausing {
    for_ms: Option<u64>,
    #[serde(default)]
    reason: String,
}

/// A line to close. Requests that are refused get the reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Closing {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revocation {
    holder: String,
    #[serde(default)]
    reason: String,
}

/// A request that changes a semaphore, with its body.
pub(super) struct ChangeRequest<T> {
    app: Arc<App>,
    ends: Ends,
    name: String,
    semaphore: Semaphore,
    body: T,
}

pub(super) async fn limit(change: ChangeRequest<NewLimit>) -> Result<Response, Problem> {
    match change.body {
        NewLimit { limit: Some(limit), unpin: false } => {
            change.semaphore.set_limit(limit).await.map_err(Failure::from)?;
            change.done(&format!("limit {limit}")).await
        }
        NewLimit { limit: None, unpin: true } => {
            change.semaphore.unpin().await.map_err(Failure::from)?;
            change.done("limit --unpin").await
        }
        _ => Err(Problem::new(StatusCode::BAD_REQUEST, "give a limit, or \"unpin\":true")),
    }
}

pub(super) async fn pause(change: ChangeRequest<Pausing>) -> Result<Response, Problem> {
    let Pausing { for_ms, reason } = &change.body;
    let time = for_ms.map_or_else(String::new, |for_ms| format!(" for {for_ms} ms"));
    let because = if reason.is_empty() { String::new() } else { format!(" with reason {reason:?}") };
    let verb = format!("pause{time}{because}");
    let paused = match for_ms {
        Some(for_ms) => change.semaphore.pause_for(Duration::from_millis(*for_ms), reason),
        None => change.semaphore.pause(reason),
    };
    paused.await.map_err(Failure::from)?;
    change.done(&verb).await
}

pub(super) async fn resume(change: ChangeRequest<Nothing>) -> Result<Response, Problem> {
    change.semaphore.resume().await.map_err(Failure::from)?;
    change.done("resume").await
}

pub(super) async fn close(change: ChangeRequest<Closing>) -> Result<Response, Problem> {
    let reason = &change.body.reason;
    change.semaphore.close_line(reason).await.map_err(Failure::from)?;
    let verb = format!("close with reason {reason:?}");
    change.done(&verb).await
}

pub(super) async fn open(change: ChangeRequest<Nothing>) -> Result<Response, Problem> {
    change.semaphore.open_line().await.map_err(Failure::from)?;
    change.done("open").await
}

/// Refused while units are held or requests wait.
pub(super) async fn delete(change: ChangeRequest<Nothing>) -> Result<Response, Problem> {
    change.semaphore.delete().await.map_err(Failure::from)?;
    change.done("delete").await
}

pub(super) async fn revoke(change: ChangeRequest<Revocation>) -> Result<Response, Problem> {
    let Revocation { holder, reason } = &change.body;
    if revoke_one(&change.semaphore, holder, reason).await.map_err(Failure::from)? {
        let verb = format!("revoke {holder:?} with reason {reason:?}");
        return change.done(&verb).await;
    }
    Err(Problem::new(StatusCode::NOT_FOUND, format!("{holder:?} neither holds nor waits")))
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for ChangeRequest<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Path(name) = Path::<String>::from_request_parts(&mut parts, app).await?;
        let semaphore =
            app.feed.reader.client.semaphore(&name, permits::Limit::Stored).map_err(Failure::from)?;
        let Some(ends) = parts.extensions.get::<Ends>().cloned() else {
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no connection"));
        };
        let body = parse(&parts.headers, body).await?;
        Ok(Self { app: app.clone(), ends, name, semaphore, body })
    }
}

impl<T> ChangeRequest<T> {
    /// Reports the change and replies with the state after it.
    async fn done(self, verb: &str) -> Result<Response, Problem> {
        report::say(format_args!("{} changed {:?}: {verb}", self.ends.peer, self.name));
        self.app.feed.hurry();
        self.app.status(&self.name).await
    }
}

/// Reads a body of bounded size in bounded time.
async fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Problem> {
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
