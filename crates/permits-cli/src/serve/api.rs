//! The routes, what all of them share, and the endpoints that read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::stream;
use permits::{AdminError, Inspection, Limit};
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;

use super::access::{Access, Refusal};
use super::history::{Point, WINDOW};
use super::listener::Ends;
use super::metrics::{self, Format};
use super::watch::Watch;
use super::{events, page, write};
use crate::exit::{self, Failure};
use crate::list::ListJson;
use crate::report;
use crate::status::{StatusJson, milliseconds};

/// The most inspections for requests in flight at once. Others wait.
const MAX_INSPECTIONS: usize = 8;

/// The longest time until a reply begins.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest time for which the store may leave a health check without an answer.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which the result of a health check is valid.
const HEALTH_VALID: Duration = Duration::from_secs(1);

/// The semaphore that a health check inspects. Inspecting an unused one leaves no keys.
const HEALTH_NAME: &str = "permits serve: health";

/// The time for which replies may be completed after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Sent with each reply. A page runs no script but those of this server, and none of its own text.
const HEADERS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

/// The state that requests share.
pub(super) struct App {
    pub(super) watch: Arc<Watch>,
    pub(super) access: Access,
    /// The most semaphores in the metrics.
    max_semaphores: usize,
    inspections: Semaphore,
    health: Mutex<Option<(Instant, Result<(), String>)>>,
    /// Places of clients that follow events.
    pub(super) followers: Arc<Semaphore>,
    /// True when the server ends.
    pub(super) ending: watch::Sender<bool>,
}

/// A reply in place of the one that was asked for.
pub(super) struct Problem(StatusCode, String);

#[derive(Serialize)]
struct HistoryJson {
    name: String,
    window_ms: u64,
    /// The time of the last read: the newest numbers are valid until then.
    at_ms: u64,
    points: Vec<Point>,
}

impl App {
    pub(super) fn new(watch: Arc<Watch>, access: Access, max_semaphores: usize) -> Self {
        Self {
            watch,
            access,
            max_semaphores,
            inspections: Semaphore::new(MAX_INSPECTIONS),
            health: Mutex::default(),
            followers: Arc::new(Semaphore::new(events::MAX_FOLLOWERS)),
            ending: watch::Sender::new(false),
        }
    }

    /// Ends all connections after their replies in progress, in bounded time.
    pub(super) async fn end(&self) {
        self.ending.send_replace(true);
        // Each connection has a receiver.
        let _ = timeout(END_TIMEOUT, self.ending.closed()).await;
    }

    /// The state of a semaphore, with the first 1,000 holders and waiters.
    pub(super) async fn status(&self, name: &str) -> Result<Response, Problem> {
        let inspection = self.inspect(name).await.map_err(Failure::from)?;
        Ok(json(&StatusJson::new(&inspection, self.watch.store.clone())))
    }

    async fn inspect(&self, name: &str) -> Result<Inspection, AdminError> {
        let semaphore = self.watch.client.semaphore(name, Limit::Stored)?;
        let _place = self.inspections.acquire().await;
        semaphore.inspect().await
    }

    async fn check_health(&self) -> Result<(), String> {
        // Under the lock, so that any number of clients costs one check.
        let mut health = self.health.lock().await;
        if let Some((checked, result)) = &*health
            && checked.elapsed() < HEALTH_VALID
        {
            return result.clone();
        }
        let result = match timeout(HEALTH_TIMEOUT, self.inspect(HEALTH_NAME)).await {
            // The store has answered.
            Ok(Err(AdminError::Store(error))) if error.concerns_one_semaphore() => Ok(()),
            Ok(inspected) => inspected.map(drop).map_err(|error| report::with_causes(&error)),
            Err(_) => Err(format!("the store has not answered for {} s", HEALTH_TIMEOUT.as_secs())),
        };
        *health = Some((Instant::now(), result.clone()));
        result
    }
}

/// All endpoints.
pub(super) fn router(app: Arc<App>) -> Router {
    let writes = Router::new()
        .route("/api/v1/semaphores/{name}/limit", post(write::limit))
        .route("/api/v1/semaphores/{name}/pause", post(write::pause))
        .route("/api/v1/semaphores/{name}/resume", post(write::resume))
        .route("/api/v1/semaphores/{name}/revoke", post(write::revoke))
        .route_layer(middleware::from_fn_with_state(app.clone(), check_write));
    let data = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/semaphores", get(list))
        .route("/api/v1/semaphores/{name}", get(status))
        .route("/api/v1/semaphores/{name}/history", get(history))
        .route("/api/v1/events", get(events::events))
        .merge(writes)
        .route_layer(middleware::from_fn_with_state(app.clone(), check_token));
    page::routes(Router::new())
        .route("/healthz", get(healthz))
        .merge(data)
        .fallback(async || Problem(StatusCode::NOT_FOUND, "there is no such path".to_owned()).into_response())
        .layer(middleware::from_fn_with_state(app.clone(), check_source))
        .layer(middleware::from_fn(bound_and_complete))
        .with_state(app)
}

/// Bounds the time of a reply, and adds [`HEADERS`].
async fn bound_and_complete(request: Request, next: Next) -> Response {
    let mut response = match timeout(REPLY_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let reason = format!("there is no reply after {} s", REPLY_TIMEOUT.as_secs());
            Problem(StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn check_source(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(Ends { local, .. }) = request.extensions().get::<Ends>().copied() else {
        return Problem(StatusCode::INTERNAL_SERVER_ERROR, "no connection".to_owned()).into_response();
    };
    let (parts, body) = request.into_parts();
    match app.access.check_source(&parts, local.ip()) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

async fn check_token(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.access.check_token(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let mut response = Problem::from(refusal).into_response();
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
    }
}

async fn check_write(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.access.check_write() {
        Ok(()) => next.run(request).await,
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let snapshot = app.watch.fresh().await;
    let format = Format::of(&headers);
    let parts = metrics::render(&snapshot, app.max_semaphores, format);
    let length = parts.iter().map(Bytes::len).sum::<usize>().to_string();
    let headers = [(CONTENT_TYPE, format.content_type().to_owned()), (CONTENT_LENGTH, length)];
    let body = Body::from_stream(stream::iter(parts.map(Ok::<Bytes, Infallible>)));
    (headers, body).into_response()
}

async fn healthz(State(app): State<Arc<App>>) -> Response {
    match app.check_health().await {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason + "\n").into_response(),
    }
}

async fn list(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let snapshot = app.watch.fresh().await;
    match &snapshot.error {
        Some(reason) => Err(Problem(StatusCode::SERVICE_UNAVAILABLE, reason.clone())),
        None => {
            let rows = || snapshot.rows.values().map(|row| &row.json).collect::<Vec<&ListJson>>();
            let list = snapshot.texts.list.get_or_init(|| line(&rows()).into());
            Ok(in_json(list.clone()))
        }
    }
}

async fn status(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    app.status(&name).await
}

async fn history(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    permits::check::name(&name).map_err(Failure::from)?;
    app.watch.fresh().await;
    let (at_ms, points) = app.watch.points(&name);
    Ok(json(&HistoryJson { name, window_ms: milliseconds(WINDOW), at_ms, points }))
}

/// A reply in JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    in_json(line(value).into())
}

fn in_json(text: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// A line of JSON. The texts and numbers of a reply have no value that JSON lacks.
fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()) + "\n"
}

impl Problem {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self(status, reason.into())
    }
}

impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        let mut response = json(&serde_json::json!({ "error": error }));
        *response.status_mut() = status;
        response
    }
}

impl From<Refusal> for Problem {
    fn from((status, reason): Refusal) -> Self {
        Self(status, reason)
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self(StatusCode::BAD_REQUEST, format!("the name in the path is malformed: {}", rejection.body_text()))
    }
}

/// The exit codes of the other verbs, as a status.
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure.code {
            exit::USAGE => StatusCode::BAD_REQUEST,
            exit::NO_MATCH => StatusCode::NOT_FOUND,
            exit::NOT_NOW => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, failure.message)
    }
}
