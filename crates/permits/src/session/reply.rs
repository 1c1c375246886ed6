//! The channel of a caller, through which its reply comes.

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
