//! Each check rejects a store with a defect: it alone judges random histories on a mutant of the model.

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use permits_core::model::{PAUSED, ServerClock as Clock, State, apply};
use permits_core::protocol::{
    AcquireOutcome, Answers, Command, Declaration, EventKind, Label, Operation, Refusal, RenewOutcome, Reply,
    Setting,
};
use permits_testkit::history::checks::CHECKS;
use permits_testkit::mutants::model::{self, Outcome, Store};
use proptest::strategy::{BoxedStrategy, Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

use crate::Run;
use crate::coverage::Coverage;
use crate::steps::{History, crowded_histories, eventful_histories, histories};

/// The histories after which a check is blind.
const MOST: usize = 4_000;

/// The histories in which no other check rejects what one rejects alone.
const OTHERS: usize = 3;

/// The mutants that histories of a few holders show, each with the check that rejects it.
const OF_FEW: [(&str, Store); 25] = [
    ("P1", model::one_too_many),
    ("P4", model::old_tokens),
    ("P4, kept", passes_no_kept_tokens),
    ("P5", model::resurrects),
    ("P5, repeated", model::forgets_requests),
    ("P5, handles", model::revives_handles),
    ("P6", model::lets_overtake),
    ("P6, superseded", sends_the_newest_back),
    ("P7", model::keeps_what_is_freed),
    ("P9", model::keeps_the_entry),
    ("P10", model::loses_a_unit),
    ("P10, at rest", model::never_reaps),
    ("P11", model::ignores_the_pin),
    ("P11", model::ignores_the_pins_of_lanes),
    ("P13", model::shortens_others),
    ("P15", model::publishes_twice),
    ("P17", model::forgets_the_time),
    ("P17, until", tells_no_time),
    ("P20", model::keeps_waiters),
    ("P21", model::remembers_one_change),
    ("P22", model::never_recalls),
    ("P23", model::puts_new_lanes_first),
    ("P24", counts_no_wait),
    ("P25", model::one_too_many_in_a_lane),
    ("P26", model::forgets_floors),
];

/// Mutants that need two ideas at once.
const OF_EVENTFUL: [(&str, Store); 4] = [
    ("P5", counts_the_changes_of_another),
    ("P17, until", tells_no_time_in_a_batch),
    ("P17, until", tells_no_time_under_another_limit),
    ("P17, until", names_the_pause_alone),
];

/// Mutants that only crowds show, in which a command stops at a bound.
const OF_CROWDS: [(&str, Store); 1] = [("P7, asked for", model::announces_no_turn)];

/// Returns whether the check rejects the store.
fn sees(check: &'static str, store: Store, histories: &BoxedStrategy<History>) -> bool {
    sees_in(MOST, check, store, histories)
}

/// Returns whether the check rejects the store in one of so many histories.
fn sees_in(count: usize, check: &'static str, store: Store, histories: &BoxedStrategy<History>) -> bool {
    let mut runner = TestRunner::default();
    (0..count).any(|_| {
        let history = histories.new_tree(&mut runner).expect("no history is filtered out").current();
        // A state that contradicts itself may stop the model: such a history shows nothing.
        let verdict = catch_unwind(|| Run::on(store, Some(check), &mut Coverage::default(), &history));
        verdict.is_ok_and(|verdict| verdict.is_err())
    })
}

/// Otherwise a mutant that it rejects would show nothing.
#[test]
fn no_check_alone_rejects_the_model() {
    let few = histories(150).boxed();
    let others = OF_FEW.iter().map(|(check, _)| *check);
    let checks: BTreeSet<&str> = CHECKS.iter().map(|(check, _)| *check).chain(others).collect();
    let wrong: Vec<&str> = checks.into_iter().filter(|check| sees_in(15, check, apply, &few)).collect();
    assert!(wrong.is_empty(), "these reject a sound store: {wrong:?}");
}

#[test]
fn every_check_rejects_a_mutant() {
    for (check, _) in CHECKS {
        let has_one = OF_FEW.iter().chain(&OF_CROWDS).any(|(name, _)| *name == check);
        assert!(has_one, "{check} has no mutant");
    }
    let (few, crowds) = (histories(150).boxed(), crowded_histories(60).boxed());
    let eventful = eventful_histories(150).boxed();
    let blind = |(check, store): &(&'static str, Store), histories| !sees(check, *store, histories);
    let blind_to_few = OF_FEW.iter().filter(|mutant| blind(mutant, &few));
    let blind_to_crowds = OF_CROWDS.iter().filter(|mutant| blind(mutant, &crowds));
    let blind_to_eventful = OF_EVENTFUL.iter().filter(|mutant| blind(mutant, &eventful));
    let blind = blind_to_few.chain(blind_to_eventful).chain(blind_to_crowds);
    let blind: Vec<&str> = blind.map(|(check, _)| *check).collect();
    assert!(blind.is_empty(), "these reject nothing: {blind:?}");
}

/// Mutants that one check alone rejects: without it they would live.
///
/// P4, P6, P9, P20 and P23 are not in this list. A token that falls, a newcomer that overtakes, a permit that
/// stays after its release, a waiter in a closed line and a head that is passed over each lead to an answer,
/// a count or a unit that is wrong, too. These checks stay because they name what is wrong in the words of
/// the promise.
const OF_ONE_CHECK: [(&str, Store); 13] = [
    ("P1", grants_in_a_pause),
    ("P5", counts_the_changes_of_another),
    ("P5, handles", model::revives_handles),
    ("P7", ignores_a_raised_limit),
    ("P10", miscounts_commands),
    ("P11", counts_no_declaration),
    ("P13", forgets_labels),
    ("P15", tells_the_caller),
    ("P17", shortens_the_time),
    ("P17, until", names_the_pause_alone),
    ("P21", model::remembers_one_change),
    ("P22", model::never_recalls),
    ("P24", counts_no_wait),
];

#[test]
fn some_mutants_are_rejected_by_one_check_alone() {
    let eventful = eventful_histories(150).boxed();
    let others = OF_FEW.iter().map(|(check, _)| *check).chain(["P23, shares", "counts"]);
    let checks: BTreeSet<&'static str> = CHECKS.iter().map(|(check, _)| *check).chain(others).collect();
    let mut wrong = Vec::new();
    for (check, store) in OF_ONE_CHECK {
        let too = checks.iter().copied().filter(|other| sees_in(OTHERS, other, store, &eventful));
        let too: Vec<&str> = too.filter(|other| *other != check).collect();
        if !sees(check, store, &eventful) || !too.is_empty() {
            wrong.push((check, too));
        }
    }
    assert!(wrong.is_empty(), "these are blind, or others reject the mutant, too: {wrong:?}");
}

#[test]
fn counts_and_inspections_that_change_something_are_seen() {
    let (few, mut runner) = (histories(150).boxed(), TestRunner::default());
    assert!(sees("counts", counts_a_grant_twice, &few));
    assert!((0..MOST).any(|_| {
        let history = few.new_tree(&mut runner).expect("no history is filtered out").current();
        let verdict = Run::on(looks_and_writes, None, &mut Coverage::default(), &history);
        verdict.is_err_and(|reason| reason.contains("P12"))
    }));
}

/// Ends the waiter that is superseded, and queues the newest behind all others.
fn sends_the_newest_back(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.clone();
    let (reply, mut events) = apply(state, server, command);
    if events.iter().any(|event| event.kind == EventKind::Superseded) {
        let superseded = events.iter().filter(|event| event.kind == EventKind::Superseded).cloned();
        let superseded: Vec<_> = superseded.collect();
        let Operation::Acquire { queue_max, requests } = command.operation.clone() else { unreachable!() };
        let requests = requests
            .into_iter()
            .map(|mut asked| {
                asked.supersedes = false;
                asked
            })
            .collect();
        let operation = Operation::Acquire { queue_max, requests };
        *state = before;
        let (reply, mut granted) = apply(state, server, &Command { operation, ..command.clone() });
        granted.extend(superseded);
        events = granted;
        return (reply, events);
    }
    (reply, events)
}

/// Refuses requests without the time after which they would fit.
fn tells_no_time(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (mut reply, events) = apply(state, server, command);
    if let Answers::Acquire(answers) = &mut reply.answers {
        for answer in answers {
            if matches!(answer, AcquireOutcome::Refused(Refusal::Cooling { .. })) {
                *answer = AcquireOutcome::Refused(Refusal::NoPermits);
            }
        }
    }
    (reply, events)
}

/// As [`tells_no_time`], to requests that come together.
fn tells_no_time_in_a_batch(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    match &command.operation {
        Operation::Acquire { requests, .. } if requests.len() > 1 => tells_no_time(state, server, command),
        _ => apply(state, server, command),
    }
}

/// Tells no time when the declared limit does not count because no request gets in: see [`tells_no_time`].
fn tells_no_time_under_another_limit(
    state: &mut Option<State>,
    server: &Clock<'_>,
    command: &Command,
) -> Outcome {
    let limit = state.as_ref().map_or(0, |state| state.limit);
    match command.declaration {
        Declaration::Declare(declared) if declared != limit => tells_no_time(state, server, command),
        _ => apply(state, server, command),
    }
}

/// Names a pause as the reason, and its end, also if units cool for longer.
fn names_the_pause_alone(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (mut reply, events) = apply(state, server, command);
    let now_ms = server.now_us / 1000;
    let ends_ms = state.as_ref().and_then(State::pause_ends_ms).filter(|ends_ms| *ends_ms > now_ms);
    if let (Answers::Acquire(answers), Some(ends_ms)) = (&mut reply.answers, ends_ms) {
        for answer in answers {
            if matches!(answer, AcquireOutcome::Refused(Refusal::Cooling { .. })) {
                let remaining_ms = Some(ends_ms - now_ms);
                *answer = AcquireOutcome::Refused(Refusal::Paused { remaining_ms });
            }
        }
    }
    (reply, events)
}

/// Passes over no tokens that a session may have used, unless it grants.
fn passes_no_kept_tokens(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.as_ref().map(|state| (state.last_token, state.counts.grants));
    let outcome = apply(state, server, command);
    if let (Some(state), Some((last_token, grants))) = (state, before)
        && state.counts.grants == grants
    {
        state.last_token = last_token;
    }
    outcome
}

/// Goes on counting the changes of a lease when another session adopts its permit.
fn counts_the_changes_of_another(
    state: &mut Option<State>,
    server: &Clock<'_>,
    command: &Command,
) -> Outcome {
    let Operation::Adopt(adopt) = &command.operation else { return apply(state, server, command) };
    let entry_of = |state: &Option<State>| state.as_ref()?.entries.get(&adopt.holder).cloned();
    let before = entry_of(state);
    let outcome = apply(state, server, command);
    let entry = state.as_mut().and_then(|state| state.entries.get_mut(&adopt.holder));
    if let (Some(entry), Some(before)) = (entry, before) {
        entry.lease_version = before.lease_version;
    }
    outcome
}

/// Grants in a pause what a raised limit adds.
fn grants_in_a_pause(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let changes = matches!(command.operation, Operation::Set { setting: Setting::Limit { .. }, .. });
    let until_ms = state.as_ref().map_or(0, |state| state.paused_until_ms);
    let is_paused = changes && until_ms > server.now_us / 1000;
    if let Some(state) = state.as_mut().filter(|_| is_paused) {
        state.paused_until_ms = 0;
    }
    let (reply, events) = apply(state, server, command);
    if let Some(state) = state.as_mut().filter(|_| is_paused) {
        state.paused_until_ms = until_ms;
    }
    (Reply { keepable: reply.keepable && !is_paused, ..reply }, events)
}

/// Grants nothing at a change of the limit.
fn ignores_a_raised_limit(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let until_ms = state.as_ref().map(|state| state.paused_until_ms);
    // A pause would keep a state that is to be forgotten.
    let is_known = state.as_ref().is_some_and(|state| !state.is_expired(server.now_us / 1000));
    let changes =
        is_known && matches!(command.operation, Operation::Set { setting: Setting::Limit { .. }, .. });
    if let Some(state) = state.as_mut().filter(|_| changes) {
        state.paused_until_ms = PAUSED;
    }
    let outcome = apply(state, server, command);
    if let (Some(state), Some(until_ms)) = (state.as_mut().filter(|_| changes), until_ms) {
        state.paused_until_ms = if until_ms > server.now_us / 1000 { until_ms } else { 0 };
    }
    outcome
}

/// Reports the number of the next command.
fn miscounts_commands(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (reply, events) = apply(state, server, command);
    (Reply { sequence: reply.sequence + 1, ..reply }, events)
}

/// Makes no version of a limit that a program declares.
fn counts_no_declaration(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let version = state.as_ref().filter(|state| state.limit > 0).map(|state| state.limit_version);
    let (mut reply, events) = apply(state, server, command);
    if let (Some(state), Some(version), Some(_)) = (state, version, reply.replaced_limit) {
        (state.limit_version, reply.limit_version) = (version, version);
    }
    (reply, events)
}

/// Takes the labels of all others at a renewal.
fn forgets_labels(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    if let (Operation::Renew(renewals), Some(state)) = (&command.operation, state) {
        for (holder, entry) in &mut state.entries {
            if renewals.iter().all(|renew| renew.holder != holder.original()) {
                entry.terms.label = Label::default();
            }
        }
    }
    outcome
}

/// Tells the session that asks of all grants.
fn tells_the_caller(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (reply, mut events) = apply(state, server, command);
    for event in events.iter_mut().filter(|event| matches!(event.kind, EventKind::Granted(_))) {
        event.session = command.session.clone();
    }
    (reply, events)
}

/// Lets a grant count for the shorter of two times.
fn shortens_the_time(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    if let (Operation::Renew(renewals), Answers::Renew(answers), Some(state)) =
        (&command.operation, &outcome.0.answers, state)
    {
        for (renew, answer) in renewals.iter().zip(answers) {
            let entry = state.entries.get_mut(&renew.holder);
            let asked = renew.terms.at_least_ms;
            if let Some(entry) = entry.filter(|_| *answer == RenewOutcome::Held && asked > 0) {
                entry.terms.at_least_ms = entry.terms.at_least_ms.min(asked);
            }
        }
    }
    outcome
}

/// Counts no wait.
fn counts_no_wait(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.as_ref().map(|state| state.waits).unwrap_or_default();
    let outcome = apply(state, server, command);
    if let Some(state) = state {
        state.waits = before;
    }
    outcome
}

fn counts_a_grant_twice(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.as_ref().map_or(0, |state| state.counts.grants);
    let outcome = apply(state, server, command);
    if let Some(state) = state {
        state.counts.grants += u64::from(state.counts.grants > before);
    }
    outcome
}

/// Counts an inspection among the commands.
fn looks_and_writes(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    if let Some(state) = state.as_mut().filter(|_| command.only_looks()) {
        state.sequence += 1;
    }
    outcome
}
