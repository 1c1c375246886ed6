//! Proof that a random run met each case of a list at least once.

use std::collections::BTreeMap;
use std::fmt::Debug;

use permits_core::model::{Damage, REAP_MAX, State};
use permits_core::protocol::{
    AcquireOutcome, Answers, ChangeOrigin, Command, Declaration, Event, EventKind, LimitChange, Operation,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, Reply, SetOutcome, Setting,
};

use super::ideas::{self, Pairs};

/// The number of times that each case happened.
#[derive(Debug)]
pub(crate) struct Coverage {
    counts: BTreeMap<String, u64>,
    /// The pairs of ideas that have met.
    pub(crate) pairs: Pairs,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), pairs: Pairs::new(&ideas::OF_A_STORE, &[&ideas::COMMANDS]) }
    }
}

/// The cases that histories of a few holders must meet.
pub(crate) const SMALL: &[&str] = &[
    "acquire: Granted",
    "acquire: Waiting",
    "acquire: known: Granted",
    "acquire: known: Waiting",
    "acquire: NoPermits",
    "acquire: Recovering",
    "acquire: Cooling",
    "acquire: Paused",
    "acquire: ExceedsLimit",
    "acquire: AlreadyHeld",
    "acquire: Superseded",
    "acquire: QueueFull",
    "acquire: LaneQueueFull",
    "acquire: NoLimit",
    "acquire: LineClosed",
    "acquire: LimitMismatch",
    "release: Held",
    "release: Waiting",
    "release: Unknown",
    "renew: Held",
    "renew: Granted",
    "renew: Waiting",
    "renew: Lost",
    "renew: RetryLater",
    "renew: ExceedsLimit",
    "renew: reclaimed",
    "renew: reclaimed, waiter forgotten",
    "renew: by a handle: known",
    "renew: by a handle: put back",
    "renew: by a handle: lost without a state",
    "renew: counts for longer",
    "renew: counts for no shorter",
    "renew: does not count at all",
    "adopt: done",
    "adopt: no such permit",
    "limit: set",
    "limit: removed",
    "limit: done before",
    "limit: OtherVersion",
    "limit: NoLimit",
    "limit: OutOfRange",
    "revoke: done before",
    "limit replaced",
    "declared and refused",
    "keys lost, not the state",
    "keys lost, the state too",
    "pause: set",
    "pause: removed",
    "pause: done before",
    "line: set",
    "line: removed",
    "line: done before",
    "alert: set",
    "alert: removed",
    "alert: done before",
    "lane: set",
    "lane: removed",
    "lane: done before",
    "lane: FloorAboveLimit",
    "lane: counts earlier grants",
    "keys lost, not the pins",
    "revoke: Held",
    "revoke: Waiting",
    "revoke: Unknown",
    "delete: Deleted",
    "delete: Unknown",
    "delete: InUse",
    "delete: Recovering",
    "inspect",
    "inspect: a lane with bounds",
    "event: Granted",
    "event: Revoked",
    "event: Refused",
    "event: Turn",
    "event: LineClosed",
    "event: Superseded",
    "release: counted",
    "pause ended by time",
    "expiry with a queue",
    "idle state expired",
    "new era with its data",
    "recovery window held back",
    "range of slots split",
    "slot taken from a range",
];

/// The further cases that histories of hundreds of entries must meet.
pub(crate) const CROWDED: &[&str] = &[
    "reap cut",
    "promotion cut",
    "refusal cut",
    "hundreds granted at once",
    "renew: reclaimed far above the slots made",
];

impl Coverage {
    /// Counts the cases of one command. `before` is the model's state before it.
    pub(crate) fn note(
        &mut self,
        now_us: u64,
        before: Option<&State>,
        command: &Command,
        (reply, events): (&Reply, &[Event]),
        after: Option<&State>,
    ) {
        let now_ms = now_us / 1000;
        self.add(before.is_some_and(|state| state.is_expired(now_ms)), "idle state expired");
        let before = before.filter(|state| !state.is_expired(now_ms));
        self.note_answers(now_ms, before, command, reply);
        self.pairs.note(&ideas::of_command(now_ms, [before, after], command, (reply, events)));
        let ends = before.and_then(State::pause_ends_ms);
        self.add(ends.is_some_and(|ends_ms| ends_ms <= now_ms), "pause ended by time");
        self.add(reply.replaced_limit.is_some(), "limit replaced");
        self.add(reply.replaced_bounds.is_some(), "bounds of a lane replaced");
        self.add(declared_and_refused(before, command, reply), "declared and refused");
        self.add(damaged(before) == Some(Damage::OtherLost), "keys lost, not the state");
        self.add(damaged(before) == Some(Damage::StateLost), "keys lost, the state too");
        for event in events {
            self.count_answer("event", &event.kind);
        }
        let turns = events.iter().filter(|event| matches!(event.kind, EventKind::Turn(_)));
        self.add(turns.count() > 1, "event: turns of several sessions");
        self.add(events.len() > 300, "hundreds granted at once");
        let expired = before.map_or(0, |state| expired(state, now_ms));
        self.add(expired >= REAP_MAX, "reap cut");
        let closed = after.is_some_and(|after| after.closed.is_some());
        let cut = expired < REAP_MAX && reply.recheck_ms == Some(0);
        self.add(cut && !closed, "promotion cut");
        self.add(cut && closed, "refusal cut");
        let Some(after) = after else { return };
        if let Some(before) = before {
            self.add(expired > 0 && !before.queue.is_empty(), "expiry with a queue");
            self.add(before.server != after.server, "new era with its data");
            let pins_left = before.damage == Some(Damage::OtherLost) && before.lanes.pins() > 0;
            self.add(pins_left && after.lanes.pins() > 0, "keys lost, not the pins");
            if let Operation::Set { setting: Setting::Lane { lane, .. }, .. } = &command.operation {
                let held = |state: &State| state.lanes.bounded().get(lane).map_or(0, |bounded| bounded.held);
                let granted = events.iter().any(|event| matches!(event.kind, EventKind::Granted(_)));
                self.add(held(after) > held(before) && !granted, "lane: counts earlier grants");
            }
            self.note_slots(before, after);
        }
        let head = after.waiters(1).first().map(|(_, holder)| u64::from(after.entries[*holder].terms.weight));
        let held_back = now_ms < after.recovering_until_ms
            && !after.is_paused()
            && after.closed.is_none()
            && head.is_some_and(|weight| after.held + weight <= after.limit.into());
        self.add(held_back, "recovery window held back");
    }

    fn note_answers(&mut self, now_ms: u64, before: Option<&State>, command: &Command, reply: &Reply) {
        match (&command.operation, &reply.answers) {
            (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) => {
                for (request, answer) in requests.iter().zip(answers) {
                    let entry = before.and_then(|state| state.entries.get(&request.holder));
                    let known = entry.is_some_and(|entry| entry.request == request.request);
                    match answer {
                        AcquireOutcome::Refused(refusal) => self.count_answer("acquire", refusal),
                        _ => self.count_answer(if known { "acquire: known" } else { "acquire" }, answer),
                    }
                }
            }
            (Operation::Release(requests), Answers::Release(answers)) => {
                let held = |(was, release): (&ReleaseOutcome, &ReleaseRequest)| {
                    let entry = before.and_then(|state| state.entries.get(&release.holder));
                    *was == ReleaseOutcome::Held
                        && release.counted.is_some()
                        && entry.is_some_and(|entry| entry.counts_until_ms(now_ms) > now_ms)
                };
                self.add(answers.iter().zip(requests).any(held), "release: counted");
                answers.iter().for_each(|answer| self.count_answer("release", answer));
            }
            (Operation::Renew(_), Answers::Renew(answers)) => self.note_renewals(before, command, answers),
            (_, Answers::Adopt(true)) => self.count("adopt: done"),
            (_, Answers::Adopt(false)) => self.count("adopt: no such permit"),
            (Operation::Set { origin, setting }, Answers::Set(outcome)) => {
                self.note_set(is_made(before, origin), setting, *outcome);
            }
            (Operation::Revoke { origin, .. }, Answers::Revoke(_)) if is_made(before, origin) => {
                self.count("revoke: done before");
            }
            (_, Answers::Revoke(was)) => self.count_answer("revoke", was),
            (_, Answers::Delete(deleted)) => self.count_answer("delete", deleted),
            (_, Answers::Inspect(seen)) => {
                self.count("inspect");
                let has_bounds = seen.lanes.iter().any(|lane| lane.limit > 0 || lane.floor > 0);
                self.add(has_bounds, "inspect: a lane with bounds");
            }
            (operation, answers) => panic!("{answers:?} is no answer to {operation:?}"),
        }
    }

    fn note_set(&mut self, is_made: bool, setting: &Setting, outcome: SetOutcome) {
        let name = match setting {
            Setting::Limit { .. } => "limit",
            Setting::Pause(_) => "pause",
            Setting::Line(_) => "line",
            Setting::Alert(_) => "alert",
            Setting::Lane { .. } => "lane",
        };
        let set = match setting {
            Setting::Limit { change, .. } => *change != LimitChange::Unpin,
            Setting::Pause(pause) => pause.is_some(),
            Setting::Line(reason) => reason.is_some(),
            Setting::Alert(alert) => alert.is_set(),
            Setting::Lane { pin, .. } => pin.is_some(),
        };
        let what = match outcome {
            SetOutcome::Done { .. } if is_made => "done before".to_owned(),
            SetOutcome::Done { .. } => if set { "set" } else { "removed" }.to_owned(),
            refused => format!("{refused:?}"),
        };
        self.count(&format!("{name}: {what}"));
    }

    fn note_renewals(&mut self, before: Option<&State>, command: &Command, answers: &[RenewOutcome]) {
        let Operation::Renew(renewals) = &command.operation else { return };
        for (renewal, answer) in renewals.iter().zip(answers) {
            let entry = before.and_then(|state| state.entries.get(&renewal.holder));
            self.count_answer("renew", answer);
            let held = *answer == RenewOutcome::Held;
            self.add(held && entry.is_none(), "renew: reclaimed");
            if command.is_by_handle() && renewal.grant.is_some() {
                self.add(held && entry.is_some(), "renew: by a handle: known");
                self.add(held && entry.is_none(), "renew: by a handle: put back");
                let lost = *answer == RenewOutcome::Lost && before.is_none();
                self.add(lost, "renew: by a handle: lost without a state");
            }
            let waited = entry.is_some_and(|entry| entry.deadline < 0);
            self.add(held && waited, "renew: reclaimed, waiter forgotten");
            let stored = entry.map_or(0, |entry| entry.terms.at_least_ms);
            let asked = renewal.terms.at_least_ms;
            self.add(held && stored > 0 && asked > stored, "renew: counts for longer");
            self.add(held && stored > 0 && asked < stored, "renew: counts for no shorter");
            self.add(held && stored == 0 && asked > 0, "renew: does not count at all");
            let made = before.map_or(0, |state| state.slots_made);
            let slot = renewal.grant.map_or(0, |grant| u64::from(grant.slot));
            self.add(
                held && entry.is_none() && slot > made + 50,
                "renew: reclaimed far above the slots made",
            );
        }
    }

    fn note_slots(&mut self, before: &State, after: &State) {
        for (first, last) in &before.free {
            let rest: Vec<_> = after.free.range(first..=last).collect();
            self.add(rest.len() == 2, "range of slots split");
            let shorter = rest.first().is_some_and(|(left, until)| *left > first && *until == last);
            self.add(shorter, "slot taken from a range");
        }
    }

    /// Counts a case that only the test itself can see.
    pub(crate) fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    /// Counts an answer or an event by the name of its variant.
    fn count_answer(&mut self, operation: &str, answer: &impl Debug) {
        let text = format!("{answer:?}");
        let variant = text.split([' ', '(']).next().unwrap_or_default();
        self.count(&format!("{operation}: {variant}"));
    }

    fn add(&mut self, happened: bool, what: &str) {
        if happened {
            self.count(what);
        }
    }

    /// The cases of `wanted` that have not happened yet.
    pub(crate) fn missing(&self, wanted: &[&'static str]) -> Vec<&'static str> {
        wanted.iter().copied().filter(|what| !self.counts.contains_key(*what)).collect()
    }

    /// # Panics
    /// If a case of `wanted` never happened.
    pub(crate) fn assert_met(&self, wanted: &[&'static str]) {
        let missing = self.missing(wanted);
        assert!(missing.is_empty(), "never happened: {missing:?}; what did: {:#?}", self.counts);
    }
}

/// Returns true if an operator's change was made before.
fn is_made(before: Option<&State>, origin: &ChangeOrigin) -> bool {
    before.is_some_and(|state| state.changes.iter().any(|change| change.origin.request == origin.request))
}

/// Returns true if a program declared another limit, and all of its requests were refused.
fn declared_and_refused(before: Option<&State>, command: &Command, reply: &Reply) -> bool {
    let (Declaration::Declare(limit), Some(before)) = (command.declaration, before) else { return false };
    let Operation::Acquire { requests, .. } = &command.operation else { return false };
    !requests.is_empty() && !before.pinned && before.limit != limit && reply.limit == before.limit
}

fn damaged(state: Option<&State>) -> Option<Damage> {
    state.and_then(|state| state.damage)
}

fn expired(state: &State, now_ms: u64) -> usize {
    state.leases.iter().filter(|(deadline, _)| deadline.unsigned_abs() <= now_ms).count()
}
