//! The releases of a semaphore that have to be sent.

use std::collections::VecDeque;

use crate::clock::Moment;
use crate::protocol::{MAX_BATCH, RequestId};
use crate::session::Map;
use crate::session::callers::PendingRelease;

/// The releases to send, oldest first. Each has a moment after which it is given up: its lease has passed, so
/// the store should have dropped the permit on its own.
#[derive(Default)]
pub(super) struct Releases {
    queue: VecDeque<(Moment, PendingRelease)>,
    /// The requests in the queue, each with the latest such moment. A release that is in flight may be queued
    /// again, because a call that was sent earlier can be executed later.
    queued: Map<RequestId, Moment>,
}

impl Releases {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a release. If the queue already has a release of the same request, that one stays to be sent
    /// until the later of the two moments, and this returns the new one.
    pub(super) fn push(&mut self, release: PendingRelease, now: Moment) -> Option<PendingRelease> {
        let until = now + release.lease;
        match self.queued.insert(release.request.request.clone(), until) {
            None => {
                self.queue.push_back((until, release));
                None
            }
            Some(_) => Some(release),
        }
    }

    /// Puts a release whose call has failed back to the front.
    pub(super) fn put_back(&mut self, until: Moment, release: PendingRelease) {
        self.queued.entry(release.request.request.clone()).or_insert(until);
        self.queue.push_front((until, release));
    }

    /// Takes the releases of the next call.
    pub(super) fn take_batch(&mut self) -> Vec<(Moment, PendingRelease)> {
        let count = self.queue.len().min(MAX_BATCH);
        let mut batch: Vec<_> = self.queue.drain(..count).collect();
        for (until, release) in &mut batch {
            let last = self.queued.remove(&release.request.request);
            *until = last.map_or(*until, |last| last.max(*until));
        }
        batch
    }

    /// Takes the releases that are too late to send.
    pub(super) fn take_late(&mut self, now: Moment) -> Vec<PendingRelease> {
        let is_late = |(until, release): &(Moment, PendingRelease)| {
            now >= self.queued.get(&release.request.request).map_or(*until, |last| *until.max(last))
        };
        let (late, in_time): (Vec<_>, Vec<_>) = self.queue.drain(..).partition(is_late);
        self.queue = in_time.into();
        for (_, release) in &late {
            self.queued.remove(&release.request.request);
        }
        late.into_iter().map(|(_, release)| release).collect()
    }
}
