//! [`App`], the state that endpoints share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use permits::{AdminError, Inspection, Limit};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;

use super::access::Access;
use super::feed::Feed;
use super::problem::Problem;
use super::reply::json;
use crate::exit::Failure;
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
            // The last read may know why.
            Err(_) => Err(self
                .feed
                .failure()
                .unwrap_or_else(|| format!("the store has not answered for {} s", HEALTH_TIMEOUT.as_secs()))),
        };
        *health = Some((Instant::now(), result.clone()));
        result
    }
}
