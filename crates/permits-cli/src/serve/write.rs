//! The endpoint that changes a semaphore.
//!
//! The reply is the state after the change, as `permits status --json` prints it. Each change is reported on
//! standard error with the address of its client.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use permits::{AdminError, Change};

use super::app::App;
use super::body;
use super::listener::Ends;
use super::problem::Problem;
use crate::administer::{make, not_found};
use crate::exit::Failure;
use crate::names::unknown_failure;
use crate::report;

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
    let bytes = body::read(&headers, body).await?;
    let change: Change = serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the body is malformed: {error}")))?;
    let making = {
        let (app, semaphore, change) = (app.clone(), semaphore.clone(), change.clone());
        let name = name.clone();
        async move {
            let made = make(&semaphore, &change).await;
            match &made {
                Ok(true) => report::say(format_args!("{peer} changed {name:?}: {change}")),
                Ok(false) => {}
                Err(AdminError::Store(error)) if error.is_outcome_unknown() => {
                    report::say(format_args!("{peer} may have changed {name:?}, without a reply: {change}"));
                }
                Err(_) => {}
            }
            app.feed.hurry();
            made
        }
    };
    // In a task of its own: a client that goes away ends neither the change in its middle nor its report.
    let made = tokio::spawn(making).await.expect("a change does not panic");
    if !made.map_err(Failure::from)? {
        return Err(match change {
            Change::Revoke { holder, .. } => {
                let reason = not_found(&semaphore, &holder).await.map_err(Failure::from)?;
                Problem::new(StatusCode::NOT_FOUND, reason)
            }
            _ => unknown_failure(&app.feed.reader.client, &name).await.into(),
        });
    }
    // No 503, which asks for the change again.
    app.status(&name).await.map_err(|_| {
        let reason = "the change was made, but the store does not say what the state is now";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, reason)
    })
}
