//! [`PermitService`]: acquires in the future of the call.

use std::mem;
use std::task::{Context, Poll};

use permits::AcquireOptions;
use tower_service::Service;

use crate::error::{BoxError, PermitError};
use crate::future::{ResponseFuture, Running, Waiting};
use crate::held::Held;
use crate::hold::Hold;
use crate::lines::{Lines, Started};
use crate::load::Load;

/// A service that holds a permit for each request, acquired in the future of the call.
/// [`PermitLayer`](crate::PermitLayer) makes it.
///
/// The service is ready when the inner service is. The ready inner service moves into the future of the call,
/// and a clone takes its place. A service that is ready, or cloned, holds no permit.
///
/// # Errors
/// [`PermitError`], which also has the errors of the inner service.
#[derive(Debug, Clone)]
pub struct PermitService<S, L, H> {
    inner: S,
    lines: L,
    options: AcquireOptions,
    hold: H,
    load: Load,
}

impl<S, L, H> PermitService<S, L, H> {
    pub(crate) fn new(inner: S, lines: L, options: AcquireOptions, hold: H) -> Self {
        Self { inner, lines, options, hold, load: Load::default() }
    }

    /// The number of requests of this service and its clones that are in progress, with those that need no
    /// permit.
    pub fn in_flight(&self) -> usize {
        self.load.get()
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, L, H, Request> Service<Request> for PermitService<S, L, H>
where
    S: Service<Request> + Clone,
    S::Error: Into<BoxError>,
    L: Lines<Request>,
    H: Hold<S::Response> + Clone,
{
    type Response = H::Response;
    type Error = PermitError;
    type Future = ResponseFuture<S, Request, H>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), PermitError>> {
        self.inner.poll_ready(context).map_err(PermitError::service)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let clone = self.inner.clone();
        // Use the service that was polled ready, not its clone.
        let mut service = mem::replace(&mut self.inner, clone);
        let (counted, hold) = (self.load.count(), self.hold.clone());
        let running = match self.lines.acquire(&request, &self.options) {
            Some(Started { semaphore, acquire: Ok(acquire) }) => {
                let waiting = Waiting { semaphore, acquire, counted: Some(counted) };
                return ResponseFuture::waiting(waiting, service, request, hold);
            }
            Some(Started { semaphore, acquire: Err(source) }) => {
                Running::failed(PermitError::Acquire { semaphore, source })
            }
            None => Running::called(service.call(request), Held::new(None, counted)),
        };
        ResponseFuture::running(running, hold)
    }
}

#[cfg(feature = "load")]
impl<S, L, H> tower::load::Load for PermitService<S, L, H> {
    type Metric = usize;

    /// As [`PermitService::in_flight`].
    fn load(&self) -> usize {
        self.in_flight()
    }
}
