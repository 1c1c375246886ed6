//! `permits serve --acquire`: permits over HTTP, for programs that cannot keep a process, such as functions.
//!
//! A permit is a handle, which outlives the request and the server. Only its client renews it, through any
//! server of the store, because the handle has all that the store asks for. [`tokens`] says who may use which
//! names, [`request`] reads what is asked for, [`granted`](mod@granted) waits in line, [`refusal`] makes a
//! status of an error, [`keys`] lets a request be sent again.
//!
//! The future of a waiting request is its place in line: hyper drops the future when the client goes away,
//! and then the request leaves the line, or a permit that was granted meanwhile is released.
//!
//! | what a client may do | bound |
//! |---|---|
//! | wait in line | [`MAX_WAITING`] requests at once, each for [`MAX_WAIT`] |
//! | send bodies, or send them slowly | see [`body`] |
//! | send keys | 10,000, see [`keys`] |
//! | open connections | [`MAX_WAITING`] more than without `--acquire`, see [`listener`](super::listener) |

mod granted;
mod keys;
mod refusal;
mod request;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use permits::{AdminError, Client, PermitHandle};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::app::App;
use super::body;
use super::listener::{Ends, ended};
use super::problem::{Problem, other_method};
use super::reply;
use crate::clock::milliseconds;
use crate::handle::gone;
use granted::granted;
use keys::{Keys, Step};
use request::Wanted;
use tokens::Caller;

pub(super) use request::MAX_WAIT;
pub(super) use tokens::Tokens;

/// The path whose replies may take [`MAX_WAIT`] longer than others.
pub(super) const ACQUIRE: &str = "/v1/acquire";

/// The most requests for permits at once.
pub(super) const MAX_WAITING: usize = 1_000;

/// The state that the endpoints share.
pub(super) struct Door {
    app: Arc<App>,
    tokens: Tokens,
    waiting: Semaphore,
    keys: Arc<Keys>,
}

impl Door {
    pub(super) fn new(app: Arc<App>, tokens: Tokens) -> Self {
        Self { app, tokens, waiting: Semaphore::new(MAX_WAITING), keys: Arc::default() }
    }

    fn client(&self) -> &Client {
        &self.app.feed.reader.client
    }

    /// The reply to a request with a key: the permit of the first request with it, while it is held.
    async fn granted_once(&self, key: keys::Key, wanted: Wanted) -> Result<Response, Problem> {
        let wanted = Arc::new(wanted);
        loop {
            let acquire = || granted(self.client().clone(), wanted.clone());
            match self.keys.step(&key, &wanted.asked, acquire)? {
                Step::Wait(acquiring) => {
                    let granted = acquiring.await?;
                    return Ok(granted.response());
                }
                Step::Check(granted) => {
                    let until = Instant::now() + granted.lease;
                    if self
                        .client()
                        .renew(&granted.handle)
                        .await
                        .map_err(|error| refusal::of_admin(&error))?
                    {
                        granted.renewed(until);
                        return Ok(granted.response());
                    }
                    self.keys.forget(&granted.handle);
                }
            }
        }
    }

    /// The handle of a body, if its name is one of the caller.
    async fn handle(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: Body,
        may_count: bool,
    ) -> Result<PermitHandle, Problem> {
        let body = body::read(headers, body).await?;
        let handle = request::handle(&body, may_count)?;
        self.tokens.check_name(caller, handle.semaphore())?;
        Ok(handle)
    }
}

/// The endpoints, for requests that show one of the tokens.
pub(super) fn routes(door: Arc<Door>) -> Router<Arc<App>> {
    Router::new()
        .route(ACQUIRE, post(acquire))
        .route("/v1/renew", post(renew))
        .route("/v1/release", post(release))
        .method_not_allowed_fallback(other_method)
        .route_layer(middleware::from_fn_with_state(door.clone(), check_token))
        .with_state(door)
}

async fn check_token(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let caller = door.tokens.caller(request.headers());
    if let Some(Ends { client, .. }) = request.extensions().get::<Ends>() {
        client.has_shown_token(caller.is_ok());
    }
    match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

async fn acquire(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = body::read(&headers, body).await?;
    let wanted = Wanted::read(&body, &headers)?;
    let key = request::key(&headers)?;
    door.tokens.check_name(&caller, &wanted.asked.name)?;
    let _place = door.waiting.try_acquire().map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{MAX_WAITING} requests wait here already"))
    })?;
    let mut ending = door.app.ending.subscribe();
    let granted = async {
        match key {
            Some(key) => door.granted_once((caller.id, key), wanted).await,
            None => {
                let granted = granted(door.client().clone(), Arc::new(wanted)).await?;
                Ok(granted.response())
            }
        }
    };
    tokio::select! {
        biased;
        () = ended(&mut ending) => {
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this server ends: ask again"))
        }
        granted = granted => granted,
    }
}

async fn renew(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let handle = door.handle(&caller, &headers, body, false).await?;
    let until = Instant::now() + handle.lease();
    is_held(&handle, door.client().renew(&handle).await)?;
    door.keys.renewed(&handle, until);
    let remaining = until.saturating_duration_since(Instant::now());
    Ok(reply::json(&json!({ "remaining_ms": milliseconds(remaining) })))
}

async fn release(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let handle = door.handle(&caller, &headers, body, true).await?;
    let released = door.client().release(&handle).await;
    if released.is_ok() {
        door.keys.forget(&handle);
    }
    is_held(&handle, released)?;
    Ok(reply::json(&json!({ "released": true })))
}

fn is_held(handle: &PermitHandle, done: Result<bool, AdminError>) -> Result<(), Problem> {
    match done {
        Ok(true) => Ok(()),
        Ok(false) => Err(refusal::lost(gone(handle))),
        Err(error) => Err(refusal::of_admin(&error)),
    }
}
