//! [`Acquire`]: an acquisition in progress.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop::poll_proceed;

use crate::error::AcquireError;
use crate::options::AcquireOptions;
use crate::permit::Permit;
use crate::protocol::Holder;
use crate::requests::Requests;
use crate::session::pending_acquire::{PendingAcquire, PendingCanceller};
use crate::session::spec::Wait;
use crate::sys::block_on::block_on;

/// The future of a [`Permit`], which [`Semaphore::acquire`](crate::Semaphore::acquire) and the methods beside
/// it return.
///
/// The first poll takes a [kept](crate::Semaphore::keep) permit, or sends the request. While it waits,
/// [`Acquire::position`] says how many requests are before it. The future is `Unpin` and `'static`: you can
/// store it in a struct and poll it by reference.
///
/// # Cancel safety
/// If you drop it before it is ready, the request leaves the line; a permit that was granted meanwhile is
/// released.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// # let client = permits::Client::connect("memory:").await?;
/// let mut acquire = client.semaphore("exports", 4)?.acquire();
/// let permit = loop {
///     tokio::select! {
///         permit = &mut acquire => break permit?,
///         () = tokio::time::sleep(Duration::from_secs(1)) => {
///             println!("{:?} before {}", acquire.position(), acquire.holder());
///         }
///     }
/// };
/// # permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    /// Set until the first poll, if a kept permit may serve the request: that needs no [`Progress`], and so
    /// no memory.
    unbegun: Option<(Requests, AcquireOptions)>,
    /// The request, made when it is needed.
    progress: OnceLock<Progress>,
}

#[derive(Debug)]
enum Progress {
    Begun(PendingAcquire),
    /// A permit that the client kept has served it.
    Served(Holder),
    /// The error of the options, until it is returned.
    Invalid(Option<AcquireError>),
}

impl Progress {
    fn of(started: Result<PendingAcquire, AcquireError>) -> Self {
        match started {
            Ok(pending) => Self::Begun(pending),
            Err(error) => Self::Invalid(Some(error)),
        }
    }
}

impl Acquire {
    pub(crate) fn new(requests: Requests, options: AcquireOptions) -> Self {
        if requests.may_be_served(&options) {
            Self { unbegun: Some((requests, options)), progress: OnceLock::new() }
        } else {
            Self { unbegun: None, progress: Progress::of(requests.start(options)).into() }
        }
    }

    fn progress(&self) -> &Progress {
        self.progress.get_or_init(|| {
            let (requests, options) = self.unbegun.as_ref().expect("polled after completion");
            Progress::of(requests.start(options.clone()))
        })
    }

    /// Returns true if the acquisition was cancelled before the first poll.
    fn is_cancelled(&self) -> bool {
        matches!(self.progress.get(), Some(Progress::Begun(pending)) if pending.is_cancelled())
    }

    fn progress_mut(&mut self) -> &mut Progress {
        self.progress();
        self.progress.get_mut().expect("it was made")
    }

    /// The number of requests that stood before this one in line, when the store last replied: when the
    /// request was queued, and at each renewal since, a third of its lease apart. In a line with lanes it is
    /// an estimate, which can grow. `None` until it is queued.
    pub fn position(&self) -> Option<u64> {
        if let Progress::Begun(pending) = self.progress() { pending.position() } else { None }
    }

    /// The time until the grant, if the requests ahead leave as fast as in the last minute, or since this one
    /// was queued. `None` if no request ahead is known to have left in that time: until the first renewal,
    /// after a third of a lease or earlier, while the line stands still, and when the position has grown.
    pub fn expected_wait(&self) -> Option<Duration> {
        if let Progress::Begun(pending) = self.progress() { pending.expected_wait() } else { None }
    }

    /// The holder that the options name, or else the unique name that the client has made. Empty if the
    /// options are not valid. If a [kept](crate::Semaphore::keep) permit serves the request, that permit has
    /// the [holder](Permit::holder) of its first grant.
    pub fn holder(&self) -> &str {
        match self.progress() {
            Progress::Begun(pending) => pending.holder().as_str(),
            Progress::Served(holder) => holder.as_str(),
            Progress::Invalid(_) => "",
        }
    }

    /// Returns a handle that cancels the acquisition from any thread, at any time: for a thread that blocks
    /// in [`Acquire::wait`].
    ///
    /// # Examples
    /// ```
    /// use permits::{AcquireError, Client};
    ///
    /// let client = Client::connect("memory:").wait()?;
    /// let exports = client.semaphore("exports", 1)?;
    /// let permit = exports.acquire().wait()?;
    /// let acquire = exports.acquire();
    /// let canceller = acquire.canceller();
    /// let waiter = std::thread::spawn(move || acquire.wait());
    /// canceller.cancel();
    /// assert_eq!(waiter.join().expect("it does not panic").err(), Some(AcquireError::Cancelled));
    /// # permit.release().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn canceller(&self) -> Canceller {
        let Progress::Begun(pending) = self.progress() else { return Canceller(None) };
        Canceller(Some(pending.canceller()))
    }

    /// Blocks this thread until the permit is granted, refused or cancelled.
    ///
    /// # Errors
    /// [`AcquireError`].
    ///
    /// # Panics
    /// Inside a tokio runtime: await it there. Inside another runtime it blocks the thread.
    pub fn wait(self) -> Result<Permit, AcquireError> {
        block_on(self, None).expect("it has no time limit")
    }

    /// Returns the error of the options, if they are not valid. Call this before the first poll.
    pub(crate) fn checked(mut self) -> Result<Self, AcquireError> {
        match self.progress_mut() {
            Progress::Invalid(error) => Err(error.take().expect("it was not polled")),
            Progress::Begun(_) | Progress::Served(_) => Ok(self),
        }
    }

    /// Replaces the wait limit of the options. Call this before the first poll.
    pub(crate) fn set_wait(&mut self, wait: Wait) {
        if let Progress::Begun(pending) = self.progress_mut() {
            pending.set_wait(wait);
        }
    }
}

/// Cancels an [`Acquire`]. It does not keep the client open.
#[derive(Debug, Clone)]
pub struct Canceller(Option<PendingCanceller>);

impl Canceller {
    /// Cancels the acquisition: it ends with [`AcquireError::Cancelled`] at once, and the request leaves the
    /// line. If the permit was granted before, nothing happens, and the caller gets it.
    pub fn cancel(&self) {
        if let Some(canceller) = &self.0 {
            canceller.cancel();
        }
    }
}

impl Future for Acquire {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some((requests, options)) = self.unbegun.as_ref().filter(|_| !self.is_cancelled()) {
            // Take part in tokio's budget, as tokio's own semaphore does. A request that a kept permit serves
            // never waits, so a loop of such requests would keep its thread to itself, and starve all other
            // tasks there.
            let budget = ready!(poll_proceed(context));
            if let Some(kept) = requests.take_kept(options) {
                budget.made_progress();
                let served = Progress::Served(kept.state.holder.clone());
                (self.unbegun, self.progress) = (None, served.into());
                return Poll::Ready(Ok(Permit::new(kept)));
            }
        }
        self.progress();
        self.unbegun = None;
        match self.progress_mut() {
            Progress::Begun(pending) => Poll::Ready(ready!(pending.poll(context)).map(Permit::new)),
            Progress::Served(_) => panic!("polled after completion"),
            Progress::Invalid(error) => Poll::Ready(Err(error.take().expect("polled after completion"))),
        }
    }
}
