//! [`PollSchedule`]: how often a session polls the file for events of other processes.
//!
//! A poll costs a few microseconds, and a waiter that polls often sees its grant soon. But of forty waiters a
//! release can grant only the first few. So the interval grows with the position in the queue. Each poll that
//! finds a change also reads the new position.

use std::collections::HashMap;
use std::time::Duration;

use crate::protocol::{Answers, Command, Event, EventKind, Name, RequestId, RequestStatus};

/// The interval of the head of a queue.
const HEAD_INTERVAL: Duration = Duration::from_millis(2);

/// The longest interval of a waiter. One command can grant many waiters: a raised limit, the release of a
/// heavy permit.
const WAITER_INTERVAL_MAX: Duration = Duration::from_millis(20);

/// The longest interval of the head of a queue while no process writes, and the share of the time since the
/// last write that the interval grows to.
const IDLE_INTERVAL_MAX: Duration = Duration::from_millis(5);
const IDLE_DIVISOR: u32 = 256;

/// The interval of a holder, which can only be revoked, or have to follow to a new file.
const HOLDER_INTERVAL: Duration = Duration::from_millis(100);

/// The requests of a session that hold or wait, and its position in each queue.
#[derive(Default)]
pub(super) struct PollSchedule {
    roles: HashMap<RequestId, Role>,
    queues: HashMap<Name, OwnWaiters>,
    /// The session may keep permits: a recall must reach it soon.
    keeps: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Waiter,
    Holder,
}

/// The session's waiters in one queue: at least one.
#[derive(Default)]
struct OwnWaiters {
    count: usize,
    /// The position of the first of them, as last seen.
    position: Option<u64>,
}

impl PollSchedule {
    /// The interval between two polls, when no process has written for `quiet`. `None` if there is nothing to
    /// poll for.
    pub(super) fn interval(&self, quiet: Duration) -> Option<Duration> {
        let nearest = self.queues.values().map(|own| own.position.unwrap_or(0)).min();
        match nearest {
            Some(position) => {
                let factor = u32::try_from(position).unwrap_or(u32::MAX).saturating_add(1);
                let by_position = HEAD_INTERVAL.saturating_mul(factor).min(WAITER_INTERVAL_MAX);
                Some(by_position.max((quiet / IDLE_DIVISOR).min(IDLE_INTERVAL_MAX)))
            }
            None if self.roles.is_empty() => None,
            None if self.keeps => Some(IDLE_INTERVAL_MAX),
            None => Some(HOLDER_INTERVAL),
        }
    }

    /// Returns true if any request holds a permit.
    pub(super) fn has_holders(&self) -> bool {
        self.roles.values().any(|role| *role == Role::Holder)
    }

    /// Reads the new positions, in the queues where no request of the session is known to be the head.
    pub(super) fn update_positions(&mut self, position: impl Fn(&Name) -> Option<u64>) {
        for (semaphore, own) in self.queues.iter_mut().filter(|(_, own)| own.position != Some(0)) {
            own.position = position(semaphore);
        }
    }

    /// Notes the new role of the event's request.
    pub(super) fn on_event(&mut self, event: &Event) {
        let role = match event.kind {
            EventKind::Granted(_) => Some(Role::Holder),
            EventKind::Revoked(_)
            | EventKind::Refused
            | EventKind::Turn(_)
            | EventKind::Superseded
            | EventKind::LineClosed(_) => None,
        };
        self.set_role(&event.semaphore, &event.request, role);
    }

    /// Notes the new roles of a command's requests.
    pub(super) fn on_reply(&mut self, command: &Command, answers: &Answers) {
        let semaphore = &command.semaphore;
        for (request, status) in command.operation.entries(answers) {
            match status {
                RequestStatus::Holding => self.set_role(semaphore, request, Some(Role::Holder)),
                RequestStatus::Waiting { position } => self.set_waiting(semaphore, request, position),
                RequestStatus::Gone => self.set_role(semaphore, request, None),
            }
        }
        self.keeps |= command.kept_for_ms() > 0 && !self.roles.is_empty();
    }

    /// Forgets a request whose permit the session has handed over.
    pub(super) fn forget(&mut self, semaphore: &Name, request: &RequestId) {
        self.set_role(semaphore, request, None);
    }

    fn set_waiting(&mut self, semaphore: &Name, request: &RequestId, position: u64) {
        self.set_role(semaphore, request, Some(Role::Waiter));
        // The request may not be the first of the session's.
        if let Some(own) = self.queues.get_mut(semaphore) {
            own.position = Some(own.position.map_or(position, |nearest| nearest.min(position)));
        }
    }

    fn set_role(&mut self, semaphore: &Name, request: &RequestId, role: Option<Role>) {
        let before = match role {
            Some(role) => self.roles.insert(request.clone(), role),
            None => self.roles.remove(request),
        };
        self.keeps &= !self.roles.is_empty();
        if before == role {
            return;
        }
        if before == Some(Role::Waiter)
            && let Some(own) = self.queues.get_mut(semaphore)
        {
            own.count -= 1;
            // Unknown until the next poll, because this may have been the first of the session's.
            own.position = None;
            if own.count == 0 {
                self.queues.remove(semaphore);
            }
        }
        if role == Some(Role::Waiter) {
            self.queues.entry(semaphore.clone()).or_default().count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        AcquireOutcome, AcquireRequest, Declaration, Grant, Holder, Operation, PermitTerms, Recovery,
        Refusal, RenewOutcome, RenewRequest, RequestKey, SessionId,
    };

    const NONE: Duration = Duration::ZERO;

    fn command(operation: Operation) -> Command {
        Command {
            semaphore: Name::new("exports").expect("valid"),
            session: SessionId::new("session").expect("valid"),
            lease_ms: 1000,
            recovery: Recovery::Off,
            declaration: Declaration::Stored,
            operation,
        }
    }

    fn renewed(schedule: &mut PollSchedule, request: &str, answer: RenewOutcome) {
        let renew = RenewRequest {
            holder: Holder::new(request).expect("valid"),
            request: RequestId::new(request).expect("valid"),
            terms: PermitTerms::new(1, 1000),
            lease_version: 0,
            grant: None,
        };
        schedule.on_reply(&command(Operation::Renew(vec![renew])), &Answers::Renew(vec![answer]));
    }

    #[test]
    fn without_waiters_and_holders_there_is_no_poll() {
        let mut schedule = PollSchedule::default();
        assert_eq!(schedule.interval(NONE), None);
        renewed(&mut schedule, "a", RenewOutcome::Granted(Grant { token: 1, slot: 0 }));
        assert_eq!(schedule.interval(NONE), Some(HOLDER_INTERVAL));
        let holder = Holder::new("a").expect("valid");
        let release = RequestKey { holder, request: RequestId::new("a").expect("valid") };
        schedule.on_reply(&command(Operation::Release(vec![release.into()])), &Answers::Release(Vec::new()));
        assert_eq!(schedule.interval(NONE), None);
    }

    #[test]
    fn a_request_that_was_handed_over_is_forgotten() {
        let mut schedule = PollSchedule::default();
        renewed(&mut schedule, "a", RenewOutcome::Held);
        schedule.forget(&Name::new("exports").expect("valid"), &RequestId::new("a").expect("valid"));
        assert_eq!(schedule.interval(NONE), None);
        assert!(schedule.roles.is_empty() && schedule.queues.is_empty());
    }

    #[test]
    fn a_session_that_keeps_a_permit_is_reached_soon_though_another_request_was_refused() {
        let request = |name| AcquireRequest {
            holder: Holder::new(name).expect("valid"),
            request: RequestId::new(name).expect("valid"),
            terms: PermitTerms { keep: true, ..PermitTerms::new(1, 1000) },
            wait: true,
            supersedes: false,
        };
        let refused = AcquireOutcome::Refused(Refusal::ExceedsLimit);
        let granted = AcquireOutcome::Granted(Grant { token: 1, slot: 0 });
        for answers in [[refused.clone(), granted.clone()], [granted, refused]] {
            let mut schedule = PollSchedule::default();
            let requests = ["a", "b"].map(request).into();
            let acquire = command(Operation::Acquire { queue_max: 1, requests });
            schedule.on_reply(&acquire, &Answers::Acquire(answers.into()));
            assert_eq!(schedule.interval(NONE), Some(IDLE_INTERVAL_MAX));
        }
    }

    #[test]
    fn the_waiter_nearest_to_a_head_decides_the_interval() {
        let mut schedule = PollSchedule::default();
        renewed(&mut schedule, "a", RenewOutcome::Waiting { position: 30 });
        assert_eq!(schedule.interval(NONE), Some(WAITER_INTERVAL_MAX));
        renewed(&mut schedule, "b", RenewOutcome::Waiting { position: 2 });
        assert_eq!(schedule.interval(NONE), Some(HEAD_INTERVAL * 3));
        schedule.update_positions(|_| Some(0));
        assert_eq!(schedule.interval(NONE), Some(HEAD_INTERVAL));
        // The position of the other is unknown until the next poll.
        renewed(&mut schedule, "b", RenewOutcome::Lost);
        assert_eq!(schedule.interval(NONE), Some(HEAD_INTERVAL));
        schedule.update_positions(|_| Some(28));
        assert_eq!(schedule.interval(NONE), Some(WAITER_INTERVAL_MAX));
    }

    #[test]
    fn the_interval_grows_while_no_process_writes_up_to_a_few_milliseconds() {
        let mut schedule = PollSchedule::default();
        renewed(&mut schedule, "a", RenewOutcome::Waiting { position: 0 });
        assert_eq!(schedule.interval(Duration::from_millis(100)), Some(HEAD_INTERVAL));
        assert_eq!(schedule.interval(Duration::from_secs(3600)), Some(IDLE_INTERVAL_MAX));
    }
}
