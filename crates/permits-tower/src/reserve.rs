//! [`ReserveService`]: acquires in `poll_ready`.

use std::task::{Context, Poll, ready};

use permits::{AcquireOptions, Semaphore};
use tower_service::Service;

use crate::error::{BoxError, PermitError};
use crate::future::{ReserveFuture, Running, Waiting};
use crate::held::Held;
use crate::hold::Hold;
use crate::load::Load;

/// A service that reserves a permit for the next call when it is polled for readiness.
/// [`ReserveLayer`](crate::ReserveLayer) makes it.
///
/// A service that is ready holds a permit, which no host can use until the call. So poll it only when there
/// is a request. If you drop it, it releases the permit, or leaves the line. A clone has no reservation.
///
/// If no permit was granted, the service is ready nevertheless, and the next call fails with the reason: an
/// error of `poll_ready` would say that the service has failed for good. If a permit is lost while it is
/// reserved, the next call fails with [`PermitError::Lost`], before the inner service is called.
///
/// # Errors
/// [`PermitError`], which also has the errors of the inner service.
///
/// # Panics
/// If you call it before it is ready.
#[derive(Debug)]
pub struct ReserveService<S, H> {
    inner: S,
    semaphore: Semaphore,
    options: AcquireOptions,
    hold: H,
    load: Load,
    reservation: Option<Reservation>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each service")]
enum Reservation {
    Waiting(Waiting),
    Ready(Result<Held, PermitError>),
}

impl<S, H> ReserveService<S, H> {
    pub(crate) fn new(inner: S, semaphore: Semaphore, options: AcquireOptions, hold: H) -> Self {
        Self { inner, semaphore, options, hold, load: Load::default(), reservation: None }
    }

    /// The number of requests and reservations of this service and its clones that wait for a permit or hold
    /// one.
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

    /// The inner service. If a permit is reserved, it is released.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, H: Clone> Clone for ReserveService<S, H> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            semaphore: self.semaphore.clone(),
            options: self.options.clone(),
            hold: self.hold.clone(),
            load: self.load.clone(),
            reservation: None,
        }
    }
}

impl<S, H, Request> Service<Request> for ReserveService<S, H>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
    H: Hold<S::Response> + Clone,
{
    type Response = H::Response;
    type Error = PermitError;
    type Future = ReserveFuture<S::Future, H>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), PermitError>> {
        // Poll the inner service first: what it reserves belongs to this process, but a permit is shared by
        // all hosts.
        if let Err(error) = ready!(self.inner.poll_ready(context)) {
            self.reservation = None;
            return Poll::Ready(Err(PermitError::service(error)));
        }
        let reservation = self.reservation.get_or_insert_with(|| {
            Reservation::Waiting(Waiting {
                semaphore: self.semaphore.name().into(),
                acquire: self.semaphore.acquire_with(self.options.clone()),
                counted: Some(self.load.count()),
            })
        });
        if let Reservation::Waiting(waiting) = reservation {
            *reservation = Reservation::Ready(ready!(waiting.poll(context)));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Some(Reservation::Ready(reserved)) = self.reservation.take() else {
            panic!("called without having been ready: call poll_ready first");
        };
        let running = match reserved.and_then(Held::still_held) {
            Ok(held) => Running::called(self.inner.call(request), held),
            Err(error) => Running::failed(error),
        };
        ReserveFuture::new(running, self.hold.clone())
    }
}

#[cfg(feature = "load")]
impl<S, H> tower::load::Load for ReserveService<S, H> {
    type Metric = usize;

    /// As [`ReserveService::in_flight`].
    fn load(&self) -> usize {
        self.in_flight()
    }
}
