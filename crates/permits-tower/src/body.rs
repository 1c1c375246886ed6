//! [`PermitBody`]: a body of a response, with the permit of its request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::error::{BoxError, PermitError};
use crate::held::Held;

pin_project! {
    /// A body that holds a permit until it has ended, failed, or is dropped.
    ///
    /// The permit is released with the last frame, which is before a slow receiver has read what is buffered.
    /// If the permit is lost before that, the body ends with [`PermitError::Lost`], and the rest of the inner
    /// body is dropped.
    #[derive(Debug)]
    #[must_use = "a body that is dropped releases its permit"]
    pub struct PermitBody<B> {
        // The body is dropped before the permit: what the permit protects ends first.
        #[pin]
        body: Option<B>,
        held: Option<Held>,
    }
}

impl<B: Body> PermitBody<B> {
    /// Makes a body that holds `held`. If the body has already ended, the permit is released now.
    pub(crate) fn new(body: B, held: Held) -> Self {
        let held = Some(held).filter(|_| !body.is_end_stream());
        Self { body: Some(body), held }
    }
}

impl<B> Body for PermitBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = PermitError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, PermitError>>> {
        let mut this = self.project();
        if let Some(held) = this.held
            && let Poll::Ready(lost) = held.poll_lost(context)
        {
            this.body.set(None);
            *this.held = None;
            return Poll::Ready(Some(Err(lost)));
        }
        let Some(mut body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(context));
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            *this.held = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(PermitError::service)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
