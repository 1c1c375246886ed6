//! [`AcquireAll`] and [`PermitSet`]: permits of several semaphores, acquired and released together.
//!
//! The permits are acquired one after the other, in one order that all programs share. So no two programs
//! wait for one another in a circle. docs/inside/design.md says why this admits as many programs as a grant
//! of all permits at once would.
//!
//! A grant with `at_least` counts from the moment at which the whole set is held, whatever its place in that
//! order. If it counted from its own grant, the units of a rate would cool while the set waits for a place
//! elsewhere, and many sets that get their places together would exceed the rate. So the set is not ready
//! before the store knows that the grant counts anew. A set that is not completed counts for nothing: none of
//! its permits was given out.
//!
//! Invariant: at most one request is in a queue, and the permits acquired before it are in the set. If the
//! future is dropped or fails, at any stage, the request is withdrawn and the set is released.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::acquire::Acquire;
use crate::clock::Moment;
use crate::error::{AcquireAllError, AcquireError, Lost, ReleaseError, RenewError};
use crate::options::AcquireOptions;
use crate::permit::Permit;
use crate::reply::Reply;
use crate::semaphore::Semaphore;
use crate::session::spec::Wait;
use crate::sys::block_on::block_on;

/// The future of a [`PermitSet`], returned by [`Client::acquire_all`](crate::Client::acquire_all).
///
/// The first poll sends the first request; each further request is sent when the previous one is granted.
/// While the future waits, [`AcquireAll::semaphore`] names the line that it waits in. The future is `Unpin`
/// and `'static`.
///
/// # Cancel safety
/// If you drop it before it is ready, it leaves the line that it waits in, and releases what it has acquired.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use permits::AcquireOptions;
/// use std::time::Duration;
///
/// # let client = permits::Client::connect("memory:").await?;
/// let names = ["api", "api/tenant-7"];
/// let semaphores = names.map(|name| client.semaphore(name, 10).expect("the name is valid"));
/// let mut acquire = client.acquire_all(semaphores.map(|semaphore| (semaphore, AcquireOptions::new())));
/// let permits = loop {
///     tokio::select! {
///         permits = &mut acquire => break permits?,
///         () = tokio::time::sleep(Duration::from_secs(1)) => {
///             println!("{:?} before in {:?}", acquire.position(), acquire.semaphore());
///         }
///     }
/// };
/// # permits.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct AcquireAll {
    /// `Err` once there is no progress: it has the error of the requests, until that is returned.
    progress: Result<Progress, Option<AcquireAllError>>,
}

impl fmt::Debug for AcquireAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (semaphore, position) = (self.semaphore(), self.position());
        f.debug_struct("AcquireAll").field("semaphore", &semaphore).field("position", &position).finish()
    }
}

impl AcquireAll {
    pub(crate) fn new(requests: impl IntoIterator<Item = (Semaphore, AcquireOptions)>) -> Self {
        Self { progress: Progress::new(requests.into_iter().collect()).map_err(Some) }
    }

    /// The semaphore that is being acquired: the next semaphore that the set does not hold yet. `None` if the
    /// set is ready, or only tells the store that grants with [`at_least`](AcquireOptions::at_least) count
    /// from now on.
    pub fn semaphore(&self) -> Option<&str> {
        Some(&self.progress.as_ref().ok()?.requests.front()?.semaphore)
    }

    /// The position in the line of that semaphore, as [`Acquire::position`]. `None` until the request is
    /// queued there.
    pub fn position(&self) -> Option<u64> {
        self.progress.as_ref().ok()?.requests.front()?.acquire.position()
    }

    /// The time until the grant in the line of that semaphore, as [`Acquire::expected_wait`].
    pub fn expected_wait(&self) -> Option<Duration> {
        self.progress.as_ref().ok()?.requests.front()?.acquire.expected_wait()
    }

    /// Blocks this thread until all permits are granted, or one is not.
    ///
    /// # Errors
    /// [`AcquireAllError`].
    ///
    /// # Panics
    /// Inside a tokio runtime: await it there. Inside another runtime it blocks the thread.
    pub fn wait(self) -> Result<PermitSet, AcquireAllError> {
        block_on(self, None).expect("it has no time limit")
    }
}

impl Future for AcquireAll {
    type Output = Result<PermitSet, AcquireAllError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.progress {
            Ok(progress) => ready!(progress.poll(context)),
            Err(error) => return Poll::Ready(Err(error.take().expect("polled after completion"))),
        };
        // Dropping the progress withdraws the request and releases the set, before the caller gets the error.
        self.progress = Err(None);
        Poll::Ready(result)
    }
}

/// A set that is being acquired.
struct Progress {
    /// The requests that are not granted yet, in the order in which they are acquired. The first one is being
    /// acquired now.
    requests: VecDeque<Request>,
    /// The first request has been polled.
    is_begun: bool,
    /// The shortest wait limit of all requests.
    wait: Wait,
    /// The time of the first poll of the set.
    began: Option<Moment>,
    set: PermitSet,
    /// Set once all are granted: tells the stores that grants with `at_least` count from now on.
    counting: Option<Counting>,
    /// The signals of loss of the permits in the set.
    losses: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
}

type Counting = Pin<Box<dyn Future<Output = Result<(), AcquireAllError>> + Send + Sync>>;

struct Request {
    semaphore: String,
    acquire: Acquire,
}

impl Progress {
    fn new(mut requests: Vec<(Semaphore, AcquireOptions)>) -> Result<Self, AcquireAllError> {
        requests.sort_by(|(one, _), (other, _)| rank(one.name()).cmp(&rank(other.name())));
        if let Some(pair) = requests.windows(2).find(|pair| pair[0].0.name() == pair[1].0.name()) {
            return Err(AcquireAllError::Twice { semaphore: pair[0].0.name().to_owned() });
        }
        let wait = requests.iter().map(|(_, options)| options.client.wait).min().unwrap_or(Wait::Forever);
        let mut checked = VecDeque::with_capacity(requests.len());
        for (semaphore, mut options) in requests {
            // Apply the wait limit of the set before the check, because other options depend on it: a request
            // with a supersede key must wait.
            options.client.wait = wait;
            let (acquire, semaphore) = (semaphore.acquire_with(options), semaphore.name().to_owned());
            // Check all requests before the first is sent: otherwise a request that is not valid would be
            // found only after the wait for the others.
            let acquire = acquire.checked();
            let acquire = acquire
                .map_err(|source| AcquireAllError::Acquire { semaphore: semaphore.clone(), source })?;
            checked.push_back(Request { semaphore, acquire });
        }
        let (set, losses) = (PermitSet::new(Vec::new()), Vec::new());
        Ok(Self { requests: checked, is_begun: false, wait, began: None, set, counting: None, losses })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<PermitSet, AcquireAllError>> {
        loop {
            for loss in &mut self.losses {
                // The poll only makes sure that a loss wakes the caller. The reason is read below.
                let _ = loss.as_mut().poll(context);
            }
            if let Some((permit, reason)) = self.set.loss() {
                let semaphore = permit.semaphore().to_owned();
                return Poll::Ready(Err(AcquireAllError::Lost { semaphore, reason }));
            }
            let left = self.wait_left();
            let Some(request) = self.requests.front_mut() else {
                ready!(self.poll_counting(context))?;
                return Poll::Ready(Ok(PermitSet::new(std::mem::take(&mut self.set.permits))));
            };
            if !self.is_begun {
                let Some(left) = left else { return Poll::Ready(Err(self.failed(timed_out()))) };
                request.acquire.set_wait(left);
                self.is_begun = true;
            }
            match ready!(Pin::new(&mut request.acquire).poll(context)) {
                Ok(permit) => self.add(permit),
                Err(error) => return Poll::Ready(Err(self.failed(error))),
            }
        }
    }

    /// Lets the grants with `at_least` count from the moment at which all are held. The last grant was made
    /// at that moment, so it needs no correction. If the program crashes before the store has answered, it
    /// has not begun its work.
    fn poll_counting(&mut self, context: &mut Context<'_>) -> Poll<Result<(), AcquireAllError>> {
        let (left, permits) = (self.wait_left(), &self.set.permits);
        let counting = self.counting.get_or_insert_with(|| {
            let within = within(left);
            let earlier = permits.split_last().map_or(&[][..], |(_last, earlier)| earlier);
            let counted = earlier.iter().filter(|permit| permit.counts());
            let counted: Vec<_> = counted.map(|permit| permit.count_anew(within)).collect();
            Box::pin(async { try_join_all(counted).await.map(drop) })
        });
        counting.as_mut().poll(context)
    }

    /// The wait limit for a request that begins now. `None` if the time is over.
    fn wait_left(&mut self) -> Option<Wait> {
        let Wait::AtMost(limit) = self.wait else { return Some(self.wait) };
        let now = Moment::now();
        let left = limit.saturating_sub(now.since(*self.began.get_or_insert(now)));
        (!left.is_zero()).then_some(Wait::AtMost(left))
    }

    /// Adds the permit of the first request to the set.
    fn add(&mut self, permit: Permit) {
        self.requests.pop_front();
        self.is_begun = false;
        if !self.requests.is_empty() {
            self.losses.push(Box::pin(permit.cancellation_token().cancelled_owned()));
        }
        self.set.permits.push(permit);
    }

    /// The error for the first request, with the wait limit of the whole set.
    fn failed(&mut self, source: AcquireError) -> AcquireAllError {
        let semaphore = self.requests.pop_front().map(|request| request.semaphore).unwrap_or_default();
        let mut source = source;
        if let (AcquireError::TimedOut { waited, .. }, Wait::AtMost(limit)) = (&mut source, self.wait) {
            *waited = limit;
        }
        AcquireAllError::Acquire { semaphore, source }
    }
}

impl Drop for Progress {
    /// A set that is not completed counts for nothing. If the set was completed, its permits have been handed
    /// to the caller and are no longer here.
    fn drop(&mut self) {
        for permit in self.set.permits.iter().filter(|permit| permit.counts()) {
            let _ = permit.count(0);
        }
    }
}

/// How long a set that may wait for `left` more tries to tell a failing store that its grants count.
fn within(left: Option<Wait>) -> Option<Duration> {
    match left {
        Some(Wait::Forever) => None,
        Some(Wait::AtMost(left)) => Some(left),
        Some(Wait::No) | None => Some(Duration::ZERO),
    }
}

/// The error for a request that is not sent because the time is over. [`Progress::failed`] sets the time.
fn timed_out() -> AcquireError {
    AcquireError::TimedOut { waited: Duration::ZERO, inspection: None, retry_after: None }
}

/// The rank of a semaphore in the order: names with more `/` first, then by name. So a request that waits for
/// a place in a narrow line holds no place in a wide one.
fn rank(name: &str) -> (Reverse<usize>, &str) {
    (Reverse(name.matches('/').count()), name)
}

/// Permits of several semaphores, returned by [`Client::acquire_all`](crate::Client::acquire_all).
///
/// If you drop the set, all its permits are released in the background.
#[derive(Debug)]
#[must_use = "permits that are dropped are released"]
pub struct PermitSet {
    permits: Vec<Permit>,
}

impl PermitSet {
    pub(crate) fn new(permits: Vec<Permit>) -> Self {
        Self { permits }
    }

    /// The permits, in the order in which they were acquired.
    pub fn permits(&self) -> &[Permit] {
        &self.permits
    }

    /// The permit of this semaphore.
    pub fn get(&self, semaphore: &str) -> Option<&Permit> {
        self.permits.iter().find(|permit| permit.semaphore() == semaphore)
    }

    /// Returns true if all are held now.
    pub fn is_held(&self) -> bool {
        self.permits.iter().all(Permit::is_held)
    }

    /// The time for which all are certainly held without another renewal; zero if one is lost, and the
    /// longest [`Duration`] if the set is empty.
    pub fn remaining(&self) -> Duration {
        self.permits.iter().map(Permit::remaining).min().unwrap_or(Duration::MAX)
    }

    /// Waits until one is lost, and returns it with the reason. Never ready while all are held, or if
    /// the set is empty.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> (&Permit, Lost) {
        let mut losses: Vec<_> =
            self.permits.iter().map(|permit| (permit, Box::pin(permit.lost()))).collect();
        poll_fn(|context| {
            let lost = losses.iter_mut().find_map(|(permit, loss)| match loss.as_mut().poll(context) {
                Poll::Ready(lost) => Some((*permit, lost)),
                Poll::Pending => None,
            });
            lost.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Blocks this thread until one is lost, or `limit` has passed. `None` if all are still held then.
    ///
    /// # Panics
    /// Inside a tokio runtime: await [`PermitSet::lost`] there. Inside another runtime it blocks the thread.
    pub fn lost_within(&self, limit: Duration) -> Option<(&Permit, Lost)> {
        block_on(self.lost(), Some(limit))
    }

    /// Returns a permit that is lost now, with the reason.
    fn loss(&self) -> Option<(&Permit, Lost)> {
        let lost = |permit: &Permit| permit.lost_within(Duration::ZERO);
        self.permits.iter().find_map(|permit| Some((permit, lost(permit)?)))
    }

    /// Runs `work` while all are held. If one is lost, `work` is dropped at its current await.
    ///
    /// # Errors
    /// [`Lost`] if one was lost before `work` was ready.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        tokio::select! {
            biased;
            (_, lost) = self.lost() => Err(lost),
            done = work => Ok(done),
        }
    }

    /// Renews all permits now, as [`Permit::renew`].
    ///
    /// # Errors
    /// The first [`RenewError`], in the order of [`PermitSet::permits`]; all others are renewed nevertheless,
    /// as far as they can be.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, the permits may have been renewed.
    pub fn renew(&self) -> Reply<(), RenewError> {
        let renewals = join_all(self.permits.iter().map(Permit::renew));
        Reply::new(async { renewals.await.into_iter().collect() })
    }

    /// Releases all permits.
    ///
    /// # Errors
    /// The first [`ReleaseError`], in the order of [`PermitSet::permits`]; all others are released
    /// nevertheless, as far as they can be.
    ///
    /// # Cancel safety
    /// If you drop the reply before it is ready, all permits are released in the background.
    pub fn release(self) -> Reply<(), ReleaseError> {
        // Release them at once, so that a store that does not reply delays only its own.
        let releases = join_all(self.permits.into_iter().map(Permit::release));
        Reply::new(async { releases.await.into_iter().collect() })
    }

    /// Takes the set apart: each permit is on its own from now on.
    pub fn into_permits(self) -> Vec<Permit> {
        self.permits
    }
}

/// Makes a set of one permit.
impl From<Permit> for PermitSet {
    fn from(permit: Permit) -> Self {
        Self::new(vec![permit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_of_a_later_line_is_what_the_earlier_ones_have_left() {
        let limit = Wait::AtMost(permits_testkit::HOUR);
        let mut progress = Progress::new(Vec::new()).expect("it is valid");
        progress.wait = limit;
        assert_eq!(progress.wait_left(), Some(limit));
        while progress.began == Some(Moment::now()) {}
        let left = progress.wait_left().expect("it is an hour");
        assert!(left < limit && left > Wait::No, "{left}");
    }

    #[test]
    fn a_set_that_may_not_wait_asks_the_store_once_for_the_count_of_its_grants() {
        let hour = permits_testkit::HOUR;
        let all = [Some(Wait::Forever), Some(Wait::AtMost(hour)), Some(Wait::No), None];
        assert_eq!(all.map(within), [None, Some(hour), Some(Duration::ZERO), Some(Duration::ZERO)]);
    }
}
