//! [`Call`]: an operation of the library in progress.
//!
//! Invariant: the future is polled, taken out and dropped on the thread of the event loop. Dropping the
//! future is what cancels the operation, at any stage.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use napi::bindgen_prelude::{Env, Result, ToNapiValue, Unknown};
use napi_derive::napi;
use permits::AcquireError;

use crate::failure::{Failure, thrown};
use crate::mailbox::Mailbox;

/// The result, to be made into JavaScript's when it is taken.
trait Value {
    fn into_js<'env>(self: Box<Self>, env: &'env Env) -> Result<Unknown<'env>>;
}

impl<T: ToNapiValue> Value for T {
    fn into_js<'env>(self: Box<Self>, env: &'env Env) -> Result<Unknown<'env>> {
        (*self).into_unknown(env)
    }
}

type Outcome = std::result::Result<Box<dyn Value>, Failure>;

/// An operation in progress. It begins with the first poll.
#[napi]
pub struct Call {
    progress: RefCell<Progress>,
}

enum Progress {
    Running(Pin<Box<dyn Future<Output = Outcome>>>),
    Ready(Outcome),
    /// The result was taken, or the call was cancelled.
    Ended,
}

impl Call {
    /// The call of a future.
    pub(crate) fn new<T, E>(future: impl Future<Output = std::result::Result<T, E>> + 'static) -> Self
    where
        T: ToNapiValue + 'static,
        E: Into<Failure>,
    {
        let work = async move {
            let value = future.await.map_err(Into::into)?;
            Ok(Box::new(value) as Box<dyn Value>)
        };
        Self { progress: RefCell::new(Progress::Running(Box::pin(work))) }
    }

    /// Polls it, if it runs. Returns true if it has ended.
    fn step(&self, waker: &Waker) -> bool {
        let mut progress = self.progress.borrow_mut();
        let Progress::Running(work) = &mut *progress else { return true };
        match work.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(result) => {
                *progress = Progress::Ready(result);
                true
            }
            Poll::Pending => false,
        }
    }
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[napi]
impl Call {
    /// Polls it for the event loop of `mailbox`, which notes `key` when it is to be polled again. Returns
    /// true if it has ended, false if it waits, and null if it is to be polled as soon as the tasks that
    /// are ready have run.
    #[napi]
    pub fn poll(&self, mailbox: &Mailbox, key: u32) -> Option<bool> {
        let waker = mailbox.waker(key);
        if self.step(&waker.clone().into()) { Some(true) } else { waker.polled().then_some(false) }
    }

    /// Begins it, without a wait.
    #[napi]
    pub fn start(&self) {
        self.step(Waker::noop());
    }

    /// Blocks the event loop until it has ended.
    #[napi]
    pub fn block(&self) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        while !self.step(&waker) {
            thread::park();
        }
    }

    /// Takes the result, or throws the error.
    #[napi]
    pub fn take<'env>(&self, env: &'env Env) -> Result<Unknown<'env>> {
        match self.progress.replace(Progress::Ended) {
            Progress::Ready(result) => result.map_err(thrown)?.into_js(env),
            Progress::Running(_) | Progress::Ended => Err(thrown(AcquireError::Cancelled)),
        }
    }

    /// Cancels it. Without effect once it has ended.
    #[napi]
    pub fn cancel(&self) {
        drop(self.progress.replace(Progress::Ended));
    }
}
