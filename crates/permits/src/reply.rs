//! [`Reply`]: the result of an operation, for tasks and for threads.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::sys::block_on::block_on;

/// The result of an operation. A task awaits it; a thread without a runtime calls [`Reply::wait`].
///
/// Nothing is sent before you await it or call `wait`. If you drop the reply of a change later, the change
/// may have been made, unless the operation says otherwise.
///
/// # Examples
/// ```
/// let client = permits::Client::connect("memory:").wait()?;
/// let exports = client.semaphore("exports", 4)?;
/// assert_eq!(exports.declare().wait()?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is sent before it is awaited, or `wait` is called"]
pub struct Reply<T, E>(Progress<T, E>);

enum Progress<T, E> {
    /// The result, until it is returned.
    Ready(Option<Result<T, E>>),
    Begun(Pin<Box<dyn Future<Output = Result<T, E>> + Send>>),
}

// Nothing here is pinned in place.
impl<T, E> Unpin for Reply<T, E> {}

impl<T: Send + 'static, E: Send + 'static> Reply<T, E> {
    pub(crate) fn new(operation: impl Future<Output = Result<T, E>> + Send + 'static) -> Self {
        Self(Progress::Begun(Box::pin(operation)))
    }

    /// Changes the form of the operation's result.
    pub(crate) fn map<U: Send + 'static>(self, form: impl FnOnce(T) -> U + Send + 'static) -> Reply<U, E> {
        Reply::new(async move { self.await.map(form) })
    }
}

impl<T, E> Reply<T, E> {
    /// Makes the reply of an operation that is done.
    pub(crate) fn ready(result: Result<T, E>) -> Self {
        Self(Progress::Ready(Some(result)))
    }

    /// Makes the reply of an operation that does not begin, because of `error`.
    pub(crate) fn failed(error: impl Into<E>) -> Self {
        Self::ready(Err(error.into()))
    }

    /// Blocks this thread until the result has come.
    ///
    /// # Errors
    /// The errors of the operation.
    ///
    /// # Panics
    /// Inside a tokio runtime: await it there. Inside another runtime it blocks the thread.
    pub fn wait(self) -> Result<T, E> {
        block_on(self, None).expect("it has no time limit")
    }
}

impl<T, E> Future for Reply<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Ready(result) => Poll::Ready(result.take().expect("polled after completion")),
            Progress::Begun(operation) => operation.as_mut().poll(context),
        }
    }
}

impl<T, E> fmt::Debug for Reply<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}
