//! [`Granted`]: a permit that is handed over to its client, and the way to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use permits::{Client, PermitHandle};
use tokio::time::{Instant, timeout};

use super::super::problem::Problem;
use super::super::reply::json;
use super::refusal;
use super::request::Wanted;
use crate::acquire::{PermitJson, RELEASE_TIMEOUT, UNANSWERED};
use crate::handle::{Acquired, hand_over};

/// A permit that was handed over to its client.
pub(super) struct Granted {
    pub(super) handle: PermitHandle,
    /// The handle as its client has it, without the label and the lane.
    pub(super) text: String,
    permit: PermitJson,
    pub(super) lease: Duration,
    /// The end of the lease, as far as a request for this permit has renewed it.
    until: Mutex<Instant>,
}

impl Granted {
    /// The permit is held at least until then.
    pub(super) fn until(&self) -> Instant {
        *self.until.lock().expect("no code panics with it")
    }

    /// The store has renewed the permit.
    pub(super) fn renewed(&self, until: Instant) {
        *self.until.lock().expect("no code panics with it") = until;
    }

    pub(super) fn response(&self) -> Response {
        json(&Acquired::new(&self.handle, &self.permit, self.until()))
    }
}

/// Waits in line, and hands the permit over to the client. Dropped before, it leaves the line, or releases
/// it.
pub(super) async fn granted(client: Client, wanted: Arc<Wanted>) -> Result<Granted, Problem> {
    let Wanted { asked, options, lease } = &*wanted;
    let semaphore = client.semaphore(&asked.name, asked.limit).map_err(|error| refusal::of_input(&error))?;
    let acquired = semaphore.acquire_with(options.clone()).await;
    let permit = acquired.map_err(|error| refusal::of_acquire(&error))?;
    let permit_json = PermitJson::new(&permit);
    match timeout(RELEASE_TIMEOUT, hand_over(permit, *lease)).await {
        Ok(Ok((handle, until))) => {
            let text = handle.to_string();
            Ok(Granted { handle, text, permit: permit_json, lease: *lease, until: Mutex::new(until) })
        }
        Ok(Err(error)) => Err(refusal::of_hand_over(&error)),
        Err(_) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, UNANSWERED)),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use axum::http::HeaderMap;
    use permits::{AcquireOptions, Recovery};
    use permits_testkit::Server;

    use super::*;

    /// A client goes away at any time, also when its grant is on the way.
    #[tokio::test]
    async fn dropped_at_any_stage_it_holds_nothing() {
        // Each stage is a round trip.
        let server = Server::start();
        let client = Client::builder(server.url()).recovery(Recovery::Off).connect();
        let client = client.await.expect("the server is up");
        let exports = client.semaphore("exports", 1).expect("valid");
        let mut dropped = 0;
        // A poll is a stage at most: the request is sent, the lease of the handle, the hand-over.
        for polls in [0, 1, 2, 3].into_iter().cycle().take(200) {
            let body = br#"{"acquire":"exports","limit":1}"#;
            let wanted = Wanted::read(body, &HeaderMap::new()).expect("it is valid");
            let mut acquiring = Box::pin(granted(client.clone(), Arc::new(wanted)));
            let mut left = polls;
            let some_polls = poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                acquiring.as_mut().poll(context).map(Some)
            });
            match some_polls.await {
                Some(granted) => {
                    let Granted { handle, .. } = granted.expect("it is free");
                    assert_eq!(client.release(&handle).await, Ok(true));
                }
                None => dropped += usize::from(polls > 0),
            }
            drop(acquiring);
            let next = exports.acquire_with(AcquireOptions::new().timeout(Duration::from_secs(60)));
            next.await.expect("the units are free").release().await.expect("it is held");
        }
        assert!(dropped > 10, "it was dropped on its way {dropped} times");
    }
}
