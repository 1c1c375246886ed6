//! [`PermitSet`]: permits of several semaphores, acquired and released together.
//!
//! They are acquired one after the other, in one order that all programs share. So no two programs wait for one another in a
//! circle, and docs/design.md says why that admits as many as a grant of all at once would.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::acquire::Acquire;
use crate::error::{AcquireAllError, AcquireError, Lost, ReleaseError};
use crate::options::AcquireOptions;
use crate::permit::Permit;
use crate::semaphore::Semaphore;
use crate::session::spec::Wait;

/// Permits of several semaphores, returned by [`Client::acquire_all`](crate::Client::acquire_all).
///
/// Dropped, all are released in the background.
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

    /// The time for which all are certainly held without another renewal; zero if one is lost.
    pub fn remaining(&self) -> Duration {
        self.permits.iter().map(Permit::remaining).min().unwrap_or(Duration::MAX)
    }

    /// Waits until one is lost, and returns it with the reason. Never ready while all are held.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> (&Permit, Lost) {
        let mut losses: Vec<_> = self.permits.iter().map(|permit| Box::pin(permit.lost())).collect();
        poll_fn(|context| {
            let lost = self.permits.iter().zip(&mut losses).find_map(|(permit, loss)| {
                match loss.as_mut().poll(context) {
                    Poll::Ready(lost) => Some((permit, lost)),
                    Poll::Pending => None,
                }
            });
            lost.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Runs `work` while all are held. If one is lost, `work` is dropped at its current await.
    ///
    /// # Errors
    /// [`Lost`] if one was lost before `work` was ready.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let (mut lost, mut work) = (pin!(self.lost()), pin!(work));
        poll_fn(|context| match lost.as_mut().poll(context) {
            Poll::Ready((_, lost)) => Poll::Ready(Err(lost)),
            Poll::Pending => work.as_mut().poll(context).map(Ok),
        })
        .await
    }

    /// Releases all.
    ///
    /// # Errors
    /// The first [`ReleaseError`]; all are released nevertheless, as far as they can be.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, all are released in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let releases: Vec<_> = self.permits.into_iter().rev().map(Permit::start_release).collect();
        let mut result = Ok(());
        for release in releases {
            let released = match release {
                Ok(release) => release.await,
                Err(error) => Err(error),
            };
            result = result.and(released);
        }
        result
    }

    /// The permits, each on its own from now on.
    pub fn into_permits(self) -> Vec<Permit> {
        self.permits
    }
}

/// Requests for permits of several semaphores, in the order in which they are acquired.
pub(crate) struct Sequence {
    began: Instant,
    /// The shortest wait limit of all.
    limit: Option<Duration>,
    requests: VecDeque<(Semaphore, AcquireOptions)>,
}

impl Sequence {
    pub(crate) fn new(
        requests: impl IntoIterator<Item = (Semaphore, AcquireOptions)>,
    ) -> Result<Self, AcquireAllError> {
        let mut requests: Vec<_> = requests.into_iter().collect();
        requests.sort_by(|(one, _), (other, _)| rank(one.name()).cmp(&rank(other.name())));
        if let Some(pair) = requests.windows(2).find(|pair| pair[0].0.name() == pair[1].0.name()) {
            let semaphore = pair[0].0.name().to_owned();
            return Err(AcquireAllError::Twice { semaphore });
        }
        let limits = requests.iter().filter_map(|(_, options)| match options.wait {
            Wait::AtMost(limit) => Some(limit),
            Wait::No | Wait::Forever => None,
        });
        let limit = limits.min();
        Ok(Self { began: Instant::now(), limit, requests: requests.into() })
    }

    /// The error of an acquisition, with the wait limit of all.
    pub(crate) fn failed(&self, semaphore: String, source: AcquireError) -> AcquireAllError {
        let source = match (source, self.limit) {
            (AcquireError::TimedOut { .. }, Some(waited)) => AcquireError::TimedOut { waited },
            (source, _) => source,
        };
        AcquireAllError::Acquire { semaphore, source }
    }

    /// The name of the next semaphore, and the acquisition of its permit.
    pub(crate) fn next(&mut self) -> Option<(String, Acquire)> {
        let (semaphore, mut options) = self.requests.pop_front()?;
        if let (Some(limit), false) = (self.limit, options.wait == Wait::No) {
            // What is free now is still taken once the time is over.
            options.wait =
                Wait::AtMost(limit.saturating_sub(self.began.elapsed()).max(Duration::from_millis(1)));
        }
        Some((semaphore.name().to_owned(), semaphore.acquire_with(options)))
    }
}

/// Deeper paths first, so that who waits for a place in a narrow line takes none of a wide one; then by name.
fn rank(name: &str) -> (Reverse<usize>, &str) {
    (Reverse(name.matches('/').count()), name)
}

/// Acquires all, or none.
pub(crate) async fn acquire_all(mut sequence: Sequence) -> Result<PermitSet, AcquireAllError> {
    let mut set = PermitSet::new(Vec::new());
    while let Some((semaphore, acquire)) = sequence.next() {
        let acquired = tokio::select! {
            biased;
            (permit, reason) = set.lost() => {
                return Err(AcquireAllError::Lost { semaphore: permit.semaphore().to_owned(), reason });
            }
            acquired = acquire => acquired,
        };
        set.permits.push(acquired.map_err(|error| sequence.failed(semaphore, error))?);
    }
    Ok(set)
}
