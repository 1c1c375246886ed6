//! The futures of the services. A request in work holds its permit; if the permit is lost, the work ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use permits::Acquire;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::error::{BoxError, PermitError};
use crate::held::Held;
use crate::hold::Hold;
use crate::load::Counted;

const DONE: &str = "polled after completion";

pin_project! {
    /// A call of the inner service that holds its permit.
    #[project = RunningProjection]
    #[derive(Debug)]
    pub(crate) enum Running<F> {
        Called {
            // The call is dropped before the permit: the work ends first.
            #[pin]
            response: F,
            held: Option<Held>,
        },
        Failed {
            error: Option<PermitError>,
        },
        Done,
    }
}

impl<F> Running<F> {
    pub(crate) fn called(response: F, held: Held) -> Self {
        Self::Called { response, held: Some(held) }
    }

    pub(crate) fn failed(error: PermitError) -> Self {
        Self::Failed { error: Some(error) }
    }

    fn poll<Response, E, H>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        hold: &H,
    ) -> Poll<Result<H::Response, PermitError>>
    where
        F: Future<Output = Result<Response, E>>,
        E: Into<BoxError>,
        H: Hold<Response>,
    {
        let result = match self.as_mut().project() {
            RunningProjection::Called { response, held } => {
                let lost = held.as_mut().expect(DONE).poll_lost(context);
                match lost {
                    Poll::Ready(lost) => Err(lost),
                    Poll::Pending => match ready!(response.poll(context)) {
                        Ok(response) => Ok(hold.hold(response, held.take().expect(DONE))),
                        Err(error) => Err(PermitError::service(error)),
                    },
                }
            }
            RunningProjection::Failed { error } => Err(error.take().expect(DONE)),
            RunningProjection::Done => panic!("{DONE}"),
        };
        self.set(Self::Done);
        Poll::Ready(result)
    }
}

pin_project! {
    /// The future of [`PermitService`](crate::PermitService): waits for a permit, calls the inner service,
    /// and holds the permit meanwhile.
    ///
    /// # Cancel safety
    /// If you drop it while it waits, the request leaves the line. If you drop it later, it drops the future
    /// of the inner service and releases the permit.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Request, H>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request>,
        hold: H,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Request>
    where
        S: Service<Request>,
    {
        Waiting { waiting: Waiting, call: Option<(S, Request)> },
        Running { #[pin] running: Running<S::Future> },
    }
}

/// An acquisition that counts as load.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) semaphore: String,
    pub(crate) acquire: Acquire,
    pub(crate) counted: Option<Counted>,
}

impl Waiting {
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Held, PermitError>> {
        let permit = ready!(Pin::new(&mut self.acquire).poll(context));
        let counted = self.counted.take().expect(DONE);
        Poll::Ready(match permit {
            Ok(permit) => Ok(Held::new(Some(permit), counted)),
            Err(source) => Err(PermitError::Acquire { semaphore: self.semaphore.clone(), source }),
        })
    }
}

impl<S: Service<Request>, Request, H> ResponseFuture<S, Request, H> {
    pub(crate) fn waiting(waiting: Waiting, service: S, request: Request, hold: H) -> Self {
        Self { state: State::Waiting { waiting, call: Some((service, request)) }, hold }
    }

    pub(crate) fn running(running: Running<S::Future>, hold: H) -> Self {
        Self { state: State::Running { running }, hold }
    }
}

impl<S: Service<Request>, Request, H> fmt::Debug for ResponseFuture<S, Request, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ResponseFuture");
        if let State::Waiting { waiting, .. } = &self.state {
            debug.field("waiting", waiting);
        }
        debug.finish_non_exhaustive()
    }
}

impl<S, Request, H> Future for ResponseFuture<S, Request, H>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
    H: Hold<S::Response>,
{
    type Output = Result<H::Response, PermitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StateProjection::Waiting { waiting, call } = this.state.as_mut().project() {
            let running = match ready!(waiting.poll(context)).and_then(Held::still_held) {
                Ok(held) => {
                    let (mut service, request) = call.take().expect(DONE);
                    Running::called(service.call(request), held)
                }
                Err(error) => Running::failed(error),
            };
            this.state.set(State::Running { running });
        }
        match this.state.project() {
            StateProjection::Running { running } => running.poll(context, this.hold),
            StateProjection::Waiting { .. } => Poll::Pending,
        }
    }
}

pin_project! {
    /// The future of [`ReserveService`](crate::ReserveService): a call of the inner service that holds the
    /// reserved permit.
    ///
    /// # Cancel safety
    /// If you drop it before it is ready, it drops the future of the inner service and releases the permit.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ReserveFuture<F, H> {
        #[pin]
        running: Running<F>,
        hold: H,
    }
}

impl<F, H> ReserveFuture<F, H> {
    pub(crate) fn new(running: Running<F>, hold: H) -> Self {
        Self { running, hold }
    }
}

impl<F, Response, E, H> Future for ReserveFuture<F, H>
where
    F: Future<Output = Result<Response, E>>,
    E: Into<BoxError>,
    H: Hold<Response>,
{
    type Output = Result<H::Response, PermitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.running.poll(context, this.hold)
    }
}
