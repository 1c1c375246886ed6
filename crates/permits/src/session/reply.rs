//! Replies: the channel of a caller, and the value that waits at its other end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The channel for a reply, and the runtime of the caller, if it has one.
pub(crate) struct Answer<T, E> {
    sender: oneshot::Sender<Result<T, E>>,
    runtime: Option<Handle>,
}

/// A channel for the reply to a caller, which is the calling task or thread.
pub(crate) fn channel<T, E>() -> (Answer<T, E>, oneshot::Receiver<Result<T, E>>) {
    let (sender, receiver) = oneshot::channel();
    (Answer { sender, runtime: Handle::try_current().ok() }, receiver)
}

/// Replies to a caller. One that has dropped its receiver is ignored.
pub(crate) fn reply<T, E>(answer: Answer<T, E>, result: Result<T, E>) {
    let _ = answer.sender.send(result);
}

impl<T, E> Answer<T, E> {
    /// Returns true if the caller no longer waits.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// The runtime on which the caller waits, if any is known.
    pub(super) fn take_runtime(&mut self) -> Option<Handle> {
        self.runtime.take()
    }
}

type Finish<R, T, E> = Box<dyn FnOnce(Option<Result<R, E>>) -> Result<T, E> + Send>;

/// A reply on its way. Both faces wait for it: the async one polls it, the blocking one calls
/// [`PendingReply::wait`]. Dropped, it leaves the call as it is.
#[must_use = "a reply is to be waited for"]
pub(crate) struct PendingReply<R, E, T = R> {
    receiver: oneshot::Receiver<Result<R, E>>,
    /// Makes the result of the reply, or of `None` if the session ended without one.
    finish: Option<Finish<R, T, E>>,
    /// Sends the request, if it was kept to travel with others; and whether the tasks that were ready have
    /// run.
    flush: Option<(Flush, bool)>,
}

type Flush = Box<dyn FnOnce() + Send>;

impl<R: 'static, E: 'static, T: 'static> PendingReply<R, E, T> {
    /// The reply that `receiver` will get; or the result of `if_ended`, if the session ends without one.
    pub(super) fn new(
        receiver: oneshot::Receiver<Result<R, E>>,
        if_ended: impl FnOnce() -> Result<R, E> + Send + 'static,
    ) -> PendingReply<R, E> {
        let finish: Finish<R, R, E> = Box::new(|reply| reply.unwrap_or_else(if_ended));
        PendingReply { receiver, finish: Some(finish), flush: None }
    }

    /// Calls `flush`, which sends the request, with the second poll: when the tasks that were ready have run.
    pub(super) fn flushed_by(mut self, flush: impl FnOnce() + Send + 'static) -> Self {
        self.flush = Some((Box::new(flush), false));
        self
    }

    /// A call that was not made, because of `error`.
    pub(crate) fn failed(error: E) -> Self
    where
        E: Send,
    {
        let (_, receiver) = oneshot::channel();
        Self { receiver, finish: Some(Box::new(|_| Err(error))), flush: None }
    }

    /// Passes the result of the call to `next`.
    pub(crate) fn and_then<U>(
        mut self,
        next: impl FnOnce(T) -> Result<U, E> + Send + 'static,
    ) -> PendingReply<R, E, U> {
        let finish = self.finish.take().expect("it is not finished");
        let (_, receiver) = oneshot::channel();
        PendingReply {
            receiver: std::mem::replace(&mut self.receiver, receiver),
            finish: Some(Box::new(|reply| finish(reply).and_then(next))),
            flush: self.flush.take(),
        }
    }

    /// Blocks until the reply has come.
    pub(crate) fn wait(mut self) -> Result<T, E> {
        self.flush();
        let finish = self.finish.take().expect("it is not finished");
        let (_, none) = oneshot::channel();
        finish(std::mem::replace(&mut self.receiver, none).blocking_recv().ok())
    }

    #[cfg(test)]
    pub(super) fn try_take(&mut self) -> Option<Result<T, E>> {
        let reply = self.receiver.try_recv().ok()?;
        self.finish.take().map(|finish| finish(Some(reply)))
    }
}

impl<R, E, T> Future for PendingReply<R, E, T> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some((_, has_yielded @ false)) = &mut self.flush {
            *has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.flush();
        let reply = std::task::ready!(Pin::new(&mut self.receiver).poll(context));
        let finish = self.finish.take().expect("polled after completion");
        Poll::Ready(finish(reply.ok()))
    }
}

impl<R, E, T> PendingReply<R, E, T> {
    fn flush(&mut self) {
        if let Some((flush, _)) = self.flush.take() {
            flush();
        }
    }
}

impl<R, E, T> Drop for PendingReply<R, E, T> {
    fn drop(&mut self) {
        self.flush();
    }
}
