//! Which calls the engine makes: after each turn, from what its lanes have to send.
//!
//! Nothing is delayed to make a batch. A lane has at most two calls to acquire and two to release in flight; what
//! comes meanwhile goes out together in the next.

use std::time::Duration;

use super::engine::{Alarm, Call, Engine, Purpose, SWEEP_EVERY, spread};
use super::lane::Lane;
use crate::clock::Moment;
use crate::protocol::{Command, Declaration, MAX_BATCH, Name, Operation};

/// How many calls of a kind a lane has in flight: while the store executes one, the answers to the other are handed
/// out and what comes of them is gathered. A third gains nothing (docs/design-notes.md).
const CALLS_AT_ONCE: usize = 2;

impl Engine {
    /// The calls to make now.
    pub(crate) fn calls(&mut self, now: Moment) -> Vec<Call> {
        let mut calls = Vec::new();
        self.seek_companions(now);
        let dirty = std::mem::take(&mut self.dirty);
        for name in dirty {
            self.calls_of_lane(&name, now, &mut calls);
        }
        if self.connected {
            for errand in self.errands.take_ready(now) {
                self.adopting += usize::from(errand.adoption().is_some());
                let command = self.command(&errand.semaphore, errand.declaration, errand.operation.clone());
                let timeout = timeout(self.config.lease);
                calls.push(Call {
                    command,
                    timeout,
                    sent_at: now,
                    purpose: Purpose::Errand(Box::new(errand)),
                });
            }
            self.timers.remove(self.errand_alarm.take());
            self.errand_alarm = self.errands.next_time().map(|at| self.timers.set(at, Alarm::Errand));
        }
        let anybody = !self.lanes.is_empty() || !self.errands.is_empty();
        if self.troubled && anybody && self.sweep_alarm.is_none() {
            self.sweep_alarm = Some(self.timers.set(now + SWEEP_EVERY, Alarm::Sweep));
        }
        self.finish_closing(false);
        calls
    }

    fn calls_of_lane(&mut self, name: &Name, now: Moment, calls: &mut Vec<Call>) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        lane.dirty = false;
        if lane.is_empty() {
            let alarm = lane.alarm.take();
            self.lanes.remove(name);
            return self.timers.remove(alarm);
        }
        let mut made: Vec<(Declaration, Operation, Purpose)> = Vec::new();
        if self.connected && lane.retry_at.is_none() {
            // Releases before acquisitions: a holder that comes back at once finds its place free.
            if lane.releasing < CALLS_AT_ONCE && !lane.releases.is_empty() {
                let leaving = lane.next_releases();
                let requests = leaving.iter().map(|(_, leaving)| leaving.request()).collect();
                lane.releasing += 1;
                made.push((Declaration::Stored, Operation::Release(requests), Purpose::Release(leaving)));
            }
            if lane.renewing == 0 && (lane.renew_due || lane.recheck_due) {
                make_renewals(lane, now, &mut made);
            }
            if !lane.confirming && !lane.unconfirmed.is_empty() {
                let items = lane.next_confirmations();
                if !items.is_empty() {
                    lane.confirming = true;
                    let ids = items.iter().map(|renew| renew.request.clone()).collect();
                    let purpose = Purpose::Confirm { ids, replicas: self.config.replicas };
                    made.push((lane.fallback(), Operation::Renew(items), purpose));
                }
            }
            if lane.acquiring < CALLS_AT_ONCE
                && let Some((declaration, requests)) = lane.next_asks(now)
            {
                lane.acquiring += 1;
                let ids = requests.iter().map(|request| request.request.clone()).collect();
                let queue_max = self.config.queue_max;
                made.push((declaration, Operation::Acquire { queue_max, requests }, Purpose::Acquire(ids)));
            }
        }
        if !self.connected && lane.renew_due {
            // A renewal that cannot be sent is as good as one that failed.
            lane.doubt();
        }
        let timeout = timeout(lane.shortest.unwrap_or(self.config.lease));
        if lane.alarm.map(|(at, _)| at) != lane.next_time() {
            let (old, next) = (lane.alarm.take(), lane.next_time());
            self.timers.remove(old);
            lane.alarm = next.map(|at| self.timers.set(at, Alarm::Lane(name.clone())));
        }
        for (declaration, operation, purpose) in made {
            let command = self.command(name, declaration, operation);
            calls.push(Call { command, timeout, sent_at: now, purpose });
        }
    }

    fn command(&self, semaphore: &Name, declaration: Declaration, operation: Operation) -> Command {
        Command {
            semaphore: semaphore.clone(),
            session: self.config.session.clone(),
            lease_ms: super::lane::millis(self.config.lease),
            recovery: self.config.recovery,
            declaration,
            operation,
        }
    }
}

/// A renewal of everything, in parts; or of one waiter, which lets time take effect.
fn make_renewals(lane: &mut Lane, now: Moment, made: &mut Vec<(Declaration, Operation, Purpose)>) {
    let mut items = if lane.renew_due {
        lane.renewals()
    } else {
        lane.first_waiter().map(|entry| vec![entry.renewal()]).unwrap_or_default()
    };
    if lane.renew_due {
        let interval = lane.renewal_interval();
        lane.renew_at = interval.map(|interval| now + spread(interval));
        lane.renewed_at = interval.map(|_| now);
    }
    // Even without anybody to renew, a recheck finishes what the store had left to do.
    let recheck = std::mem::take(&mut lane.recheck_due);
    lane.renew_due = false;
    let declaration = lane.fallback();
    while !items.is_empty() || (recheck && lane.renewing == 0) {
        let part: Vec<_> = items.drain(..items.len().min(MAX_BATCH)).collect();
        let ids = part.iter().map(|renew| renew.request.clone()).collect();
        lane.renewing += 1;
        made.push((declaration, Operation::Renew(part), Purpose::Renew(ids)));
    }
}

/// How long one call may take before its connection counts as dead. Well below a renewal interval, so that
/// there is time for another.
fn timeout(lease: Duration) -> Duration {
    (lease / 5).clamp(Duration::from_millis(250), Duration::from_secs(3))
}
