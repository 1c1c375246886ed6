//! [`App`], the state that endpoints share, and the forms of their replies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use permits::{AdminError, Inspection, Limit};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;

use super::access::{Access, Refusal};
use super::feed::Feed;
use crate::exit::{self, Failure};
use crate::report;
use crate::status::StatusJson;

/// The most inspections for requests in flight at once. Others wait.
const MAX_INSPECTIONS: usize = 8;

/// The most clients that follow events.
pub(super) const MAX_FOLLOWERS: usize = 64;

/// The longest time for which the store may leave a health check without an answer.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which the result of a health check is valid.
const HEALTH_VALID: Duration = Duration::from_secs(1);

/// The semaphore that a health check inspects. Inspecting an unused one leaves no keys.
const HEALTH_NAME: &str = "permits serve: health";

/// The time for which replies may be completed after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The state that requests share.
pub(super) struct App {
    pub(super) feed: Arc<Feed>,
    pub(super) access: Access,
    /// The most semaphores in the metrics.
    pub(super) max_semaphores: usize,
    inspections: Semaphore,
    health: Mutex<Option<(Instant, Result<(), String>)>>,
    /// Places of clients that follow events.
    pub(super) followers: Arc<Semaphore>,
    /// True when the server ends.
    pub(super) ending: watch::Sender<bool>,
}

/// A reply in place of the one that was asked for.
pub(super) struct Problem(StatusCode, String);

impl App {
    pub(super) fn new(feed: Arc<Feed>, access: Access, max_semaphores: usize) -> Self {
        Self {
            feed,
            access,
            max_semaphores,
            inspections: Semaphore::new(MAX_INSPECTIONS),
            health: Mutex::default(),
            followers: Arc::new(Semaphore::new(MAX_FOLLOWERS)),
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
        Ok(json(&StatusJson { inspection: &inspection, store: &self.feed.store }))
    }

    async fn inspect(&self, name: &str) -> Result<Inspection, AdminError> {
        let semaphore = self.feed.reader.client.semaphore(name, Limit::Stored)?;
        let _place = self.inspections.acquire().await;
        semaphore.inspect().await
    }

    pub(super) async fn check_health(&self) -> Result<(), String> {
        // The check runs under the lock, so that any number of clients causes only one.
        let mut health = self.health.lock().await;
        if let Some((checked, result)) = &*health
            && checked.elapsed() < HEALTH_VALID
        {
            return result.clone();
        }
        let result = match timeout(HEALTH_TIMEOUT, self.inspect(HEALTH_NAME)).await {
            // The store has answered.
            Ok(Err(AdminError::Store(error))) if error.concerns_one_semaphore() => self.feed.check().await,
            Ok(Err(error)) => Err(report::with_causes(&error)),
            Ok(Ok(_)) => self.feed.check().await,
            Err(_) => Err(format!("the store has not answered for {} s", HEALTH_TIMEOUT.as_secs())),
        };
        *health = Some((Instant::now(), result.clone()));
        result
    }
}

impl Problem {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self(status, reason.into())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        let mut response = json(&json!({ "error": error }));
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
            exit::NO_MATCH | exit::UNKNOWN => StatusCode::NOT_FOUND,
            exit::NOT_NOW => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, failure.message)
    }
}

/// A reply in JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    in_json(line(value).into())
}

/// A reply of a text in JSON.
pub(super) fn in_json(text: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// A line of JSON. The texts and numbers of a reply have no value that JSON lacks.
pub(super) fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()) + "\n"
}
