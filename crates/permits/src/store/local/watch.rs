//! How often to look for news.
//!
//! A look costs a few microseconds, and a process that waits would rather look often: the sooner it sees its
//! grant. But of forty that wait only the first few can be granted something by the next release. So the further
//! back in line, the rarer the looks; and each that finds something new finds out the position too.

use std::collections::HashMap;
use std::time::Duration;

use crate::protocol::{
    AcquireOutcome, Answers, Command, Event, EventKind, Name, Operation, RenewOutcome, RequestId,
};

/// How often the first in line looks.
const FIRST_EVERY: Duration = Duration::from_millis(2);

/// How often whoever stands far back looks. Many may be granted at once, when a limit is raised or a heavy permit
/// is released.
const LAST_EVERY: Duration = Duration::from_millis(20);

/// How often the first in line looks when nothing has happened for a while; and how much longer that while is than
/// the time between two looks. Who has waited for a second does not mind a 256th of it.
const PATIENT_EVERY: Duration = Duration::from_millis(5);
const IDLE_DIVISOR: u32 = 256;

/// How often a holder looks: a revocation is the only news then, or that the file was deleted.
const HOLDER_EVERY: Duration = Duration::from_millis(100);

/// The requests of a session that hold or wait, and where it stands in each line.
#[derive(Default)]
pub(super) struct Watch {
    standing: HashMap<RequestId, Standing>,
    lines: HashMap<Name, Line>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waits,
    Holds,
}

/// The part of a line that is ours. There is none without a waiter.
#[derive(Default)]
struct Line {
    waiters: usize,
    /// How many stand before the first of ours, as last seen.
    position: Option<u64>,
}

impl Watch {
    /// How often to look now, when nobody has written for so long; `None` for never.
    pub(super) fn look_every(&self, quiet: Duration) -> Option<Duration> {
        let nearest = self.lines.values().map(|line| line.position.unwrap_or(0)).min();
        match nearest {
            Some(position) => {
                let factor = u32::try_from(position).unwrap_or(u32::MAX).saturating_add(1);
                let by_position = FIRST_EVERY.saturating_mul(factor).min(LAST_EVERY);
                Some(by_position.max((quiet / IDLE_DIVISOR).min(PATIENT_EVERY)))
            }
            None if self.standing.is_empty() => None,
            None => Some(HOLDER_EVERY),
        }
    }

    /// Whether anything is held.
    pub(super) fn holds(&self) -> bool {
        self.standing.values().any(|standing| *standing == Standing::Holds)
    }

    /// Finds out how far the lines have moved in which we are not known to be first.
    pub(super) fn move_up(&mut self, position: impl Fn(&Name) -> Option<u64>) {
        for (semaphore, line) in self.lines.iter_mut().filter(|(_, line)| line.position != Some(0)) {
            line.position = position(semaphore);
        }
    }

    /// Notes what the news say.
    pub(super) fn hear(&mut self, event: &Event) {
        let standing = match event.kind {
            EventKind::Granted(_) => Some(Standing::Holds),
            EventKind::Revoked(_) | EventKind::Refused => None,
        };
        self.set(&event.semaphore, &event.request, standing);
    }

    /// Notes what has become of the requests of a command.
    pub(super) fn note(&mut self, command: &Command, answers: &Answers) {
        let semaphore = &command.semaphore;
        match (&command.operation, answers) {
            (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) => {
                for (request, acquired) in requests.iter().zip(answers) {
                    let standing = match acquired {
                        AcquireOutcome::Granted(_) => Some(Standing::Holds),
                        AcquireOutcome::Waiting { .. } => Some(Standing::Waits),
                        AcquireOutcome::Refused(_) => None,
                    };
                    self.set(semaphore, &request.request, standing);
                    if let AcquireOutcome::Waiting { position } = acquired {
                        self.stand(semaphore, *position);
                    }
                }
            }
            (Operation::Renew(requests), Answers::Renew(answers)) => {
                for (renew, renewed) in requests.iter().zip(answers) {
                    let standing = match renewed {
                        RenewOutcome::Held | RenewOutcome::Granted(_) => Some(Standing::Holds),
                        RenewOutcome::Waiting { .. } => Some(Standing::Waits),
                        RenewOutcome::Lost | RenewOutcome::RetryLater | RenewOutcome::ExceedsLimit => None,
                    };
                    self.set(semaphore, &renew.request, standing);
                    if let RenewOutcome::Waiting { position } = renewed {
                        self.stand(semaphore, *position);
                    }
                }
            }
            (Operation::Adopt(adopt), Answers::Adopt(true)) => {
                self.set(semaphore, &adopt.new_request, Some(Standing::Holds));
            }
            (Operation::Release(requests), _) => {
                for release in requests {
                    self.set(semaphore, &release.request, None);
                }
            }
            _ => {}
        }
    }

    /// Forgets a request that the session has handed over.
    pub(super) fn forget(&mut self, semaphore: &Name, request: &RequestId) {
        self.set(semaphore, request, None);
    }

    fn set(&mut self, semaphore: &Name, request: &RequestId, standing: Option<Standing>) {
        let before = match standing {
            Some(standing) => self.standing.insert(request.clone(), standing),
            None => self.standing.remove(request),
        };
        if before == standing {
            return;
        }
        if before == Some(Standing::Waits)
            && let Some(line) = self.lines.get_mut(semaphore)
        {
            line.waiters -= 1;
            // If it was our first, it is not known where the next one stands.
            line.position = None;
            if line.waiters == 0 {
                self.lines.remove(semaphore);
            }
        }
        if standing == Some(Standing::Waits) {
            self.lines.entry(semaphore.clone()).or_default().waiters += 1;
        }
    }

    /// One of ours stands there; it may not be the first.
    fn stand(&mut self, semaphore: &Name, position: u64) {
        if let Some(line) = self.lines.get_mut(semaphore) {
            line.position = Some(line.position.map_or(position, |nearest| nearest.min(position)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Declaration, Grant, Operation, Recovery, ReleaseRequest, SessionId};

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

    fn renewed(watch: &mut Watch, request: &str, answer: RenewOutcome) {
        let renew = crate::protocol::RenewRequest {
            holder: crate::protocol::Holder::new(request).expect("valid"),
            request: RequestId::new(request).expect("valid"),
            weight: 1,
            lease_ms: 1000,
            grant: None,
            label: crate::protocol::Label::default(),
        };
        watch.note(&command(Operation::Renew(vec![renew])), &Answers::Renew(vec![answer]));
    }

    #[test]
    fn who_neither_waits_nor_holds_never_looks() {
        let mut watch = Watch::default();
        assert_eq!(watch.look_every(NONE), None);
        renewed(&mut watch, "a", RenewOutcome::Granted(Grant { token: 1, slot: 0 }));
        assert_eq!(watch.look_every(NONE), Some(HOLDER_EVERY));
        let holder = crate::protocol::Holder::new("a").expect("valid");
        let release = ReleaseRequest { holder, request: RequestId::new("a").expect("valid") };
        watch.note(&command(Operation::Release(vec![release])), &Answers::Release(Vec::new()));
        assert_eq!(watch.look_every(NONE), None);
    }

    #[test]
    fn a_request_that_was_handed_over_is_forgotten() {
        let mut watch = Watch::default();
        renewed(&mut watch, "a", RenewOutcome::Held);
        watch.forget(&Name::new("exports").expect("valid"), &RequestId::new("a").expect("valid"));
        assert_eq!(watch.look_every(NONE), None);
        assert!(watch.standing.is_empty() && watch.lines.is_empty());
    }

    #[test]
    fn the_nearest_to_the_head_of_a_line_says_how_often() {
        let mut watch = Watch::default();
        renewed(&mut watch, "a", RenewOutcome::Waiting { position: 30 });
        assert_eq!(watch.look_every(NONE), Some(LAST_EVERY));
        renewed(&mut watch, "b", RenewOutcome::Waiting { position: 2 });
        assert_eq!(watch.look_every(NONE), Some(FIRST_EVERY * 3));
        watch.move_up(|_| Some(0));
        assert_eq!(watch.look_every(NONE), Some(FIRST_EVERY));
        // Where the other stands is not known, until the next look.
        renewed(&mut watch, "b", RenewOutcome::Lost);
        assert_eq!(watch.look_every(NONE), Some(FIRST_EVERY));
        watch.move_up(|_| Some(28));
        assert_eq!(watch.look_every(NONE), Some(LAST_EVERY));
    }

    #[test]
    fn who_has_waited_long_looks_more_rarely_but_still_every_few_milliseconds() {
        let mut watch = Watch::default();
        renewed(&mut watch, "a", RenewOutcome::Waiting { position: 0 });
        assert_eq!(watch.look_every(Duration::from_millis(100)), Some(FIRST_EVERY));
        assert_eq!(watch.look_every(Duration::from_secs(3600)), Some(PATIENT_EVERY));
    }
}
