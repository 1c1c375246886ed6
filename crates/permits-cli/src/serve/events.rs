//! `/api/v1/events`: server-sent events.
//!
//! | event | data |
//! |---|---|
//! | `all` | the store and all semaphores, at the start and after a client has missed changes |
//! | `change` | the semaphores that are new or have changed, and the names of those that have ended |
//!
//! A comment every [`HEARTBEAT`] lets both ends notice a broken connection. A client that does not catch up
//! in time is disconnected by [`listener`](super::listener).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

use super::app::{App, MAX_FOLLOWERS};
use super::feed::{Change, StoreSnapshot};
use super::listener::ended;
use super::problem::Problem;
use super::reply::line;
use crate::clock::milliseconds;
use crate::inspected::ListRow;

/// The longest time without any byte.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The data of `all`.
#[derive(Serialize)]
struct AllJson<'a> {
    store: &'a str,
    writable: bool,
    interval_ms: u64,
    heartbeat_ms: u64,
    at_ms: u64,
    error: Option<&'a str>,
    omitted: usize,
    semaphores: Vec<&'a ListRow>,
}

/// The data of `change`.
#[derive(Serialize)]
struct ChangeJson<'a> {
    at_ms: u64,
    /// The time of the read before.
    since_ms: u64,
    error: Option<&'a str>,
    omitted: usize,
    changed: Vec<&'a ListRow>,
    removed: &'a [String],
}

/// A client of this endpoint.
struct Follower {
    app: Arc<App>,
    /// The snapshot to send first.
    first: Option<Arc<StoreSnapshot>>,
    changes: broadcast::Receiver<Arc<Change>>,
    /// The number of the last snapshot that was sent.
    sent: u64,
    ending: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn events(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let Ok(place) = app.followers.clone().try_acquire_owned() else {
        let reason = format!("{MAX_FOLLOWERS} clients follow events already");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason));
    };
    let (first, changes) = app.feed.follow().await;
    let ending = app.ending.subscribe();
    let follower = Follower { app, sent: first.number, first: Some(first), changes, ending, _place: place };
    let events = stream::unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        Some((Ok::<Bytes, Infallible>(event), follower))
    });
    // nginx would keep the events until a buffer is full.
    let headers = [(CONTENT_TYPE, "text/event-stream"), (HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((headers, Body::from_stream(events)).into_response())
}

impl Follower {
    /// The next event as text. `None` when the server ends.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(self.all(&first));
        }
        loop {
            let received = tokio::select! {
                () = ended(&mut self.ending) => return None,
                () = sleep(HEARTBEAT) => return Some(Bytes::from_static(b": heartbeat\n\n")),
                received = self.changes.recv() => received,
            };
            match received {
                Ok(change) if change.snapshot.number <= self.sent => {}
                Ok(change) => {
                    self.sent = change.snapshot.number;
                    return Some(change.text.get_or_init(|| text(&change).into()).clone());
                }
                Err(RecvError::Lagged(_)) => {
                    let (latest, changes) = self.app.feed.follow().await;
                    (self.sent, self.changes) = (latest.number, changes);
                    return Some(self.all(&latest));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn all(&self, snapshot: &StoreSnapshot) -> Bytes {
        let App { feed, access, .. } = &*self.app;
        let all = || AllJson {
            store: &feed.store,
            writable: access.allows_writes(),
            interval_ms: milliseconds(feed.reader.interval),
            heartbeat_ms: milliseconds(HEARTBEAT),
            at_ms: snapshot.at_ms,
            error: snapshot.error.as_deref(),
            omitted: snapshot.omitted,
            semaphores: snapshot.rows.values().map(|row| &row.json).collect(),
        };
        snapshot.texts.all.get_or_init(|| event("all", &all()).into()).clone()
    }
}

fn text(change: &Change) -> String {
    let Change { snapshot, since_ms, changed, removed, .. } = change;
    let changed = changed.iter().filter_map(|name| snapshot.rows.get(name)).map(|row| &row.json).collect();
    let (at_ms, error, omitted) = (snapshot.at_ms, snapshot.error.as_deref(), snapshot.omitted);
    event("change", &ChangeJson { at_ms, since_ms: *since_ms, error, omitted, changed, removed })
}

/// An event. JSON has no line breaks outside of texts, and escapes those in texts.
fn event(name: &str, data: &impl Serialize) -> String {
    format!("event: {name}\ndata: {}\n", line(data))
}
