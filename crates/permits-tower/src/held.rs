//! [`Held`]: the permit of a request, and the signal of its loss.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use permits::{Lost, Permit};

use crate::error::PermitError;
use crate::load::Counted;

/// The permit of a request, until this is dropped. A [`Hold`](crate::Hold) gets it with the response.
///
/// There is no permit if the function of [`Keyed`](crate::Keyed) has returned `None` for the request.
#[must_use = "a permit that is dropped is released"]
pub struct Held {
    permit: Option<Watched>,
    /// Dropped after the permit: a request counts until its permit is released.
    _counted: Counted,
}

struct Watched {
    permit: Permit,
    /// Ready when the permit is lost.
    lost: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

impl Held {
    pub(crate) fn new(permit: Option<Permit>, counted: Counted) -> Self {
        let watched = permit.map(|permit| {
            let lost = Box::pin(permit.cancellation_token().cancelled_owned());
            Watched { permit, lost }
        });
        Self { permit: watched, _counted: counted }
    }

    /// The permit; `None` if the request needs no permit.
    pub fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref().map(|watched| &watched.permit)
    }

    /// Ready with the error when the permit is lost. Never ready if there is no permit.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<PermitError> {
        let Some(Watched { permit, lost }) = &mut self.permit else { return Poll::Pending };
        // If the deadline has passed, this signals the loss, before the timer does.
        permit.is_held();
        ready!(lost.as_mut().poll(context));
        Poll::Ready(lost_error(permit, context))
    }

    /// Returns this, if the permit is held now.
    pub(crate) fn still_held(self) -> Result<Self, PermitError> {
        match self.permit() {
            Some(permit) if !permit.is_held() => {
                Err(lost_error(permit, &mut Context::from_waker(Waker::noop())))
            }
            _ => Ok(self),
        }
    }
}

/// The error for a permit that is lost.
fn lost_error(permit: &Permit, context: &mut Context<'_>) -> PermitError {
    let reason = match pin!(permit.lost()).poll(context) {
        Poll::Ready(reason) => reason,
        // Another thread has ended the permit, and is about to signal the reason.
        Poll::Pending => Lost::Gone,
    };
    PermitError::Lost { semaphore: permit.semaphore().into(), reason }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.permit()).finish()
    }
}
