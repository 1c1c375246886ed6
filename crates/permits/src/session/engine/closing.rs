//! The end of a session: everything is released within a time, and every caller gets an answer.

use std::time::Duration;

use super::{Engine, mark_dirty};
use crate::clock::Moment;
use crate::error::{CloseError, ReleaseError};
use crate::session::Map;
use crate::session::call::{CallKind, SentCall};
use crate::session::callers::PendingRelease;
use crate::session::outbox::Answer;
use crate::session::semaphore::SemaphoreSession;
use crate::session::timers::Timer;
use permits_store::StoreError;

/// The time that a closing session has to release everything.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    /// Releases everything, replies to all callers, and ends when the store has confirmed it or
    /// [`CLOSE_TIMEOUT`] has passed.
    pub(in crate::session) fn close(&mut self, answer: Option<Answer<(), CloseError>>, now: Moment) {
        self.step.now = now;
        let first = self.closing.is_none();
        self.closing.get_or_insert_default().extend(answer);
        if !first {
            return;
        }
        self.step.timers.set(now + CLOSE_TIMEOUT, Timer::Close);
        for call in self.single_calls.take_all() {
            self.fail_single(call, None);
        }
        for (name, semaphore) in &mut self.semaphores {
            semaphore.close(&mut self.step);
            mark_dirty(&mut self.dirty, name, semaphore);
        }
        self.finish_closing(false);
    }

    pub(super) fn finish_closing(&mut self, timed_out: bool) {
        if self.closing.is_none() || self.closed.is_some() {
            return;
        }
        let unreturned = self.semaphores.values().map(SemaphoreSession::unreturned).sum::<usize>();
        let left = unreturned + self.adopting;
        if left > 0 && !timed_out {
            return;
        }
        self.closed = Some(if left == 0 {
            Ok(())
        } else {
            let outages = self.semaphores.values().filter_map(SemaphoreSession::outage);
            let oldest = self.down.iter().chain(outages).min_by_key(|outage| outage.since);
            let source = oldest.map_or_else(
                || StoreError::NoAnswer { reason: format!("not within {CLOSE_TIMEOUT:?}") },
                |outage| outage.error.clone(),
            );
            Err(CloseError::NotReleased { count: left, source })
        });
    }

    /// Answers the callers that still wait when the session has ended: nobody will read the replies to these
    /// calls, and the releases that are left will not be sent.
    pub(in crate::session) fn end_calls(&mut self, in_flight: Map<u64, SentCall>) {
        let outbox = &mut self.step.outbox;
        let mut releases: Vec<PendingRelease> =
            self.semaphores.values_mut().flat_map(SemaphoreSession::take_releases).collect();
        for SentCall { kind, .. } in in_flight.into_values() {
            match kind {
                CallKind::Single(call) => call.fail_closed(outbox),
                CallKind::Release(sent) => releases.extend(sent.into_iter().map(|(_, release)| release)),
                CallKind::Acquire(_) | CallKind::Renew(_) | CallKind::Confirm(_) | CallKind::Inspect => {}
            }
        }
        let Some(Err(CloseError::NotReleased { source, .. })) = &self.closed else { return };
        for answer in releases.into_iter().filter_map(|release| release.answer) {
            outbox.reply(answer, Err(ReleaseError::Store(source.clone())));
        }
    }

    /// Ends every permit and replies to every caller, because the engine has panicked. Nothing is released:
    /// what the store has ends with its lease.
    pub(in crate::session) fn abandon(&mut self, in_flight: Map<u64, SentCall>) {
        let outbox = &mut self.step.outbox;
        for (_, semaphore) in std::mem::take(&mut self.semaphores) {
            semaphore.abandon(outbox);
        }
        // Drop these callers' channels, which tells them.
        outbox.discard((in_flight, std::mem::take(&mut self.single_calls), self.closing.take()));
    }
}
