//! The routes, and the endpoints that read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde::Serialize;
use tokio::time::timeout;

use super::acquire::{self, Door};
use super::app::App;
use super::history::{Point, Recorded, WINDOW};
use super::listener::Ends;
use super::metrics::{self, Format};
use super::problem::{Problem, other_method};
use super::reply::{in_json, json, line};
use super::{events, page, write};
use crate::clock::milliseconds;
use crate::exit::Failure;
use crate::inspected::ListRow;

/// The longest time until a reply begins, beside the wait in line.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Sent with each reply. A page runs only the scripts of this server, and no script in its own text.
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

#[derive(Serialize)]
struct HistoryJson {
    /// `None` for the store.
    name: Option<String>,
    window_ms: u64,
    /// The time of the last read: the newest numbers are valid until then.
    at_ms: u64,
    /// Points of this semaphore are not kept, because others need them more.
    omitted: bool,
    points: Vec<Point>,
}

/// All endpoints.
pub(super) fn router(app: Arc<App>, door: Option<Arc<Door>>) -> Router {
    let writes = Router::new()
        .route("/api/v1/semaphores/{name}/change", post(write::change))
        .method_not_allowed_fallback(other_method)
        .route_layer(middleware::from_fn_with_state(app.clone(), check_write));
    let data = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/semaphores", get(list))
        .route("/api/v1/semaphores/{name}", get(status))
        .route("/api/v1/semaphores/{name}/history", get(history))
        .route("/api/v1/history", get(store_history))
        .route("/api/v1/events", get(events::events))
        .method_not_allowed_fallback(other_method)
        .merge(writes)
        .route_layer(middleware::from_fn_with_state(app.clone(), check_token));
    let permits = door.map_or_else(Router::new, acquire::routes);
    page::routes(Router::new())
        .route("/healthz", get(healthz))
        .merge(data)
        .merge(permits)
        .method_not_allowed_fallback(other_method)
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is no such path"))
        .layer(middleware::from_fn_with_state(app.clone(), check_source))
        .layer(middleware::from_fn(bound_and_complete))
        .with_state(app)
}

/// Bounds the time of a reply, and adds [`HEADERS`].
async fn bound_and_complete(request: Request, next: Next) -> Response {
    let waits = request.uri().path() == acquire::ACQUIRE;
    let limit = if waits { REPLY_TIMEOUT + acquire::MAX_WAIT } else { REPLY_TIMEOUT };
    let mut response = match timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let reason = format!("there is no reply after {} s", limit.as_secs());
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn check_source(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(local) = request.extensions().get::<Ends>().map(|ends| ends.local) else {
        return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no connection").into_response();
    };
    let (parts, body) = request.into_parts();
    match app.access.check_source(&parts, local.ip()) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

async fn check_token(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let checked = app.access.check_token(request.headers());
    if app.access.needs_token()
        && let Some(Ends { client, .. }) = request.extensions().get::<Ends>()
    {
        client.has_shown_token(checked.is_ok());
    }
    match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

async fn check_write(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.access.check_write() {
        Ok(()) => next.run(request).await,
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let snapshot = app.feed.fresh().await;
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
    let snapshot = app.feed.fresh().await;
    match &snapshot.error {
        Some(reason) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason)),
        None => {
            let rows = || snapshot.rows.values().map(|row| &row.json).collect::<Vec<&ListRow>>();
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
    uri: Uri,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    permits::check::name(&name).map_err(Failure::from)?;
    recorded(&app, Some(name), &uri).await
}

async fn store_history(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    recorded(&app, None, &uri).await
}

/// The points of a semaphore, or of the store, in the window of the query.
async fn recorded(app: &App, name: Option<String>, uri: &Uri) -> Result<Response, Problem> {
    let window = match uri.query().map(|query| query.strip_prefix("window_ms=").map(str::parse)) {
        None => WINDOW,
        Some(Some(Ok(window_ms))) => Duration::from_millis(window_ms).min(WINDOW),
        Some(_) => return Err(Problem::new(StatusCode::BAD_REQUEST, "the query is window_ms=MILLISECONDS")),
    };
    app.feed.fresh().await;
    let Recorded { at_ms, omitted, points } = app.feed.recorded(name.as_deref(), window);
    Ok(json(&HistoryJson { name, window_ms: milliseconds(window), at_ms, omitted, points }))
}
