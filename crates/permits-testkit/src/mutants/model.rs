//! Mutants of the model: each is the model with one thing done wrong around it, and breaks one property.

use std::collections::BTreeMap;

use permits_core::model::{
    EntryState, Lane, Lanes, PAUSED, Progress, ServerClock as Clock, Side, State, apply,
};
use permits_core::protocol::{
    AcquireOutcome, Answers, Command, Event, EventKind, Grant, Holder, LaneName, Operation, Recovery,
    RenewOutcome, Reply, RequestKey,
};

/// The reply of a command, and the events that it publishes.
pub type Outcome = (Reply, Vec<Event>);

/// A store as the model is one.
pub type Store = fn(&mut Option<State>, &Clock<'_>, &Command) -> Outcome;

/// Grants one unit more than the limit.
pub fn one_too_many(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    change(state, |state| state.limit += 1);
    let existed = state.is_some();
    let outcome = apply(state, server, command);
    if existed {
        change(state, |state| state.limit -= 1);
    }
    outcome
}

/// Grants out of free capacity right after a restart.
pub fn no_window(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    apply(state, server, &Command { recovery: Recovery::Off, ..command.clone() })
}

/// Ends the recovery window at its time, although a forgotten holder waits to be put back.
pub fn ends_the_window(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.as_ref().map(|state| (state.server.clone(), state.recovering_until_ms));
    let outcome = apply(state, server, command);
    if let Some((known, until_ms)) = before {
        change(state, |state| {
            if state.server == known {
                state.recovering_until_ms = until_ms;
            }
        });
    }
    outcome
}

/// Hands on what any holder releases, as if this were the first era.
pub fn hands_on_what_is_released_again(
    state: &mut Option<State>,
    server: &Clock<'_>,
    command: &Command,
) -> Outcome {
    let releases = matches!(command.operation, Operation::Release(_));
    let began_us = state.as_ref().filter(|_| releases).map(|state| state.era_began_us);
    change(state, |state| state.era_began_us = began_us.map_or(state.era_began_us, |_| 0));
    let outcome = apply(state, server, command);
    change(state, |state| state.era_began_us = began_us.unwrap_or(state.era_began_us));
    outcome
}

/// Puts back every holder that renews, those that were reaped included.
pub fn resurrects(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let era = state.as_ref().map(|state| (state.era_known, state.era_began_us));
    change(state, |state| (state.era_known, state.era_began_us) = (0, server.now_us));
    let outcome = apply(state, server, command);
    if let Some((known, began_us)) = era {
        change(state, |state| (state.era_known, state.era_began_us) = (known, began_us));
    }
    outcome
}

/// Renews by a handle as by a session that has held all along.
pub fn revives_handles(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let mut command = command.clone();
    if let Operation::Renew(renewals) = &mut command.operation {
        renewals.iter_mut().for_each(|renew| renew.by_handle = false);
    }
    apply(state, server, &command)
}

/// Treats a known request as a new one.
pub fn forgets_requests(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    if let Operation::Acquire { requests, .. } = &command.operation {
        let releases = requests.iter().map(|asked| RequestKey::from(asked).into());
        let operation = Operation::Release(releases.collect());
        apply(state, server, &Command { operation, ..command.clone() });
    }
    apply(state, server, command)
}

/// Gives each grant the token of the one before it.
pub fn old_tokens(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.as_ref().map_or(0, |state| state.last_token);
    let (mut reply, mut events) = apply(state, server, command);
    let Some(after) = state.as_mut().filter(|after| before > 0 && after.last_token > before) else {
        return (reply, events);
    };
    let fresh = after.last_token;
    after.last_token = before;
    let age = |grant: &mut Grant| grant.token = if grant.token == fresh { before } else { grant.token };
    for entry in after.entries.values_mut() {
        if let EntryState::Holding(grant) = &mut entry.place {
            age(grant);
        }
    }
    alter_grants(&mut reply, &mut events, age);
    (reply, events)
}

/// Reports slot 0 for every grant.
pub fn one_slot(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (mut reply, mut events) = apply(state, server, command);
    alter_grants(&mut reply, &mut events, |grant| grant.slot = 0);
    (reply, events)
}

fn alter_grants(reply: &mut Reply, events: &mut [Event], alter: impl Fn(&mut Grant)) {
    for event in events {
        if let EventKind::Granted(grant) = &mut event.kind {
            alter(grant);
        }
    }
    match &mut reply.answers {
        Answers::Acquire(answers) => {
            for answer in answers {
                if let AcquireOutcome::Granted(grant) = answer {
                    alter(grant);
                }
            }
        }
        Answers::Renew(answers) => {
            for answer in answers {
                if let RenewOutcome::Granted(grant) = answer {
                    alter(grant);
                }
            }
        }
        _ => {}
    }
}

/// Ignores the queue when a request arrives.
pub fn lets_overtake(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let hides = matches!(command.operation, Operation::Acquire { .. });
    let mut hidden = (BTreeMap::new(), Vec::new());
    if hides {
        change(state, |state| {
            hidden.0 = std::mem::take(&mut state.queue);
            let waits = |(_, entry): &(&Holder, &mut permits_core::model::Entry)| entry.deadline < 0;
            let entries = state.entries.iter_mut().filter(waits);
            hidden.1 = entries.map(|(holder, entry)| (holder.clone(), entry.clone())).collect();
            for (holder, entry) in &hidden.1 {
                state.entries.remove(holder);
                state.leases.remove(&(entry.deadline, holder.clone()));
            }
        });
    }
    let outcome = apply(state, server, command);
    change(state, |state| {
        state.queue.append(&mut hidden.0);
        for (holder, entry) in hidden.1 {
            state.leases.insert((entry.deadline, holder.clone()));
            state.entries.insert(holder, entry);
        }
    });
    outcome
}

/// Does not promote the head of the queue at a release.
pub fn keeps_what_is_freed(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let is_release = matches!(command.operation, Operation::Release(_));
    if is_release {
        change(state, |state| state.paused_until_ms = PAUSED);
    }
    let outcome = apply(state, server, command);
    change(state, |state| state.paused_until_ms = 0);
    outcome
}

/// Answers a release, and keeps the entry.
pub fn keeps_the_entry(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.clone();
    let outcome = apply(state, server, command);
    if matches!(command.operation, Operation::Release(_)) {
        *state = before;
    }
    outcome
}

/// Counts a released unit as held.
pub fn loses_a_unit(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    if matches!(command.operation, Operation::Release(_)) {
        change(state, |state| state.held += 1);
    }
    outcome
}

/// Ends no lease.
pub fn never_reaps(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    change(state, |state| {
        let later = (server.now_us / 1000 + 1).cast_signed();
        for entry in state.entries.values_mut() {
            let deadline = entry.deadline.abs().max(later);
            entry.deadline = if entry.deadline < 0 { -deadline } else { deadline };
        }
        rebuild_leases(state);
    });
    apply(state, server, command)
}

/// Shortens the leases of others at a renewal.
pub fn shortens_others(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    let Operation::Renew(renewals) = &command.operation else { return outcome };
    change(state, |state| {
        for (holder, entry) in &mut state.entries {
            if renewals.iter().all(|renew| renew.holder != *holder) {
                entry.deadline -= entry.deadline.signum();
            }
        }
        rebuild_leases(state);
    });
    outcome
}

fn rebuild_leases(state: &mut State) {
    state.leases = state.entries.iter().map(|(holder, entry)| (entry.deadline, holder.clone())).collect();
}

/// Raises a pinned limit at each request.
pub fn ignores_the_pin(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    if matches!(command.operation, Operation::Acquire { .. }) {
        change(state, |state| state.limit += u32::from(state.pinned));
    }
    outcome
}

/// Lets requests change the limit and the floor of a pinned lane.
pub fn ignores_the_pins_of_lanes(
    state: &mut Option<State>,
    server: &Clock<'_>,
    command: &Command,
) -> Outcome {
    if !matches!(command.operation, Operation::Acquire { .. }) {
        return apply(state, server, command);
    }
    let before = state.as_ref().map(|state| state.lanes.bounded().clone()).unwrap_or_default();
    let was_pinned = |name: &LaneName| before.get(name).is_some_and(|lane| lane.pinned);
    let set = |state: &mut State, pinned| {
        let mut bounded = state.lanes.bounded().clone();
        let pinned_before = bounded.iter_mut().filter(|(name, _)| was_pinned(name));
        pinned_before.for_each(|(_, lane)| lane.pinned = pinned);
        state.lanes = Lanes::new(state.lanes.last, state.lanes.known().clone(), bounded);
    };
    change(state, |state| set(state, false));
    let outcome = apply(state, server, command);
    change(state, |state| set(state, true));
    outcome
}

/// Publishes every event twice.
pub fn publishes_twice(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (reply, mut events) = apply(state, server, command);
    events.extend(events.clone());
    (reply, events)
}

/// Lets no head know when time alone frees units.
pub fn announces_no_turn(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (reply, mut events) = apply(state, server, command);
    events.retain(|event| !matches!(event.kind, EventKind::Turn(_)));
    (reply, events)
}

/// Frees the units of a released grant at once, before the time for which it counts has passed.
pub fn forgets_the_time(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    change(state, |state| state.entries.values_mut().for_each(|entry| entry.terms.at_least_ms = 0));
    apply(state, server, command)
}

/// Lets requests wait in a closed line, as in a paused one.
pub fn keeps_waiters(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let mut kept = None;
    change(state, |state| kept = Some((state.closed.take(), state.paused_until_ms)));
    let Some((Some(reason), paused)) = kept else { return apply(state, server, command) };
    change(state, |state| state.paused_until_ms = PAUSED);
    let outcome = apply(state, server, command);
    change(state, |state| (state.closed, state.paused_until_ms) = (Some(reason), paused));
    outcome
}

/// Forgets that permits may be kept, so that none is recalled.
pub fn never_recalls(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    change(state, |state| state.kept_until_ms = 0);
    outcome
}

/// Remembers only the last change by an operator.
pub fn remembers_one_change(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    change(state, |state| {
        let old = state.changes.len().saturating_sub(1);
        state.changes.drain(..old);
    });
    outcome
}

/// Puts a lane that gets its first waiter before all others.
pub fn puts_new_lanes_first(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let waits = |lane: &Lane| matches!(lane, Lane::Waits { .. });
    let before = state.as_ref().map(|state| state.lanes.known().clone()).unwrap_or_default();
    let outcome = apply(state, server, command);
    change(state, |state| {
        let waited = |name: &LaneName| before.get(name).is_some_and(waits);
        let mut known = state.lanes.known().clone();
        let is_new = known.iter().any(|(name, lane)| waits(lane) && !waited(name));
        for (name, lane) in &mut known {
            if let Lane::Waits { progress, .. } = lane {
                progress.0 += f64::from(u8::from(is_new && waited(name)));
            }
        }
        state.lanes = Lanes::new(state.lanes.last, known, state.lanes.bounded().clone());
    });
    outcome
}

/// Counts no progress at a grant, so that one lane is served as long as it waits. Only a long line shows it.
pub fn charges_no_lane(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    change(state, |state| {
        let mut known = state.lanes.known().clone();
        known.retain(|_, lane| matches!(lane, Lane::Waits { .. }));
        for lane in known.values_mut() {
            if let Lane::Waits { progress, .. } = lane {
                *progress = Progress::default();
            }
        }
        state.lanes = Lanes::new(state.lanes.last, known, state.lanes.bounded().clone());
    });
    outcome
}

/// Lets each lane hold a unit more than its limit.
pub fn one_too_many_in_a_lane(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let before = state.as_ref().map(|state| state.lanes.bounded().clone()).unwrap_or_default();
    let set = |state: &mut State, from: &dyn Fn(&LaneName, u32) -> u32| {
        let mut bounded = state.lanes.bounded().clone();
        bounded.iter_mut().for_each(|(name, lane)| lane.limit = from(name, lane.limit));
        state.lanes = Lanes::new(state.lanes.last, state.lanes.known().clone(), bounded);
    };
    change(state, |state| set(state, &|_, limit| limit + u32::from(limit > 0)));
    let outcome = apply(state, server, command);
    let is_raised =
        |name: &LaneName, limit| limit > 1 && before.get(name).is_some_and(|lane| lane.limit + 1 == limit);
    change(state, |state| set(state, &|name, limit| limit - u32::from(is_raised(name, limit))));
    outcome
}

/// Lets lanes that hold less than their floor wait among the others.
pub fn forgets_floors(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let outcome = apply(state, server, command);
    change(state, |state| {
        let mut known = state.lanes.known().clone();
        for lane in known.values_mut() {
            if let Lane::Waits { side, .. } = lane {
                *side = (*side).max(Side::Fair);
            }
        }
        state.lanes = Lanes::new(state.lanes.last, known, state.lanes.bounded().clone());
    });
    outcome
}

/// Answers the renewal of a granted request as if it waited, so that a lost event stays lost.
pub fn trusts_messages(state: &mut Option<State>, server: &Clock<'_>, command: &Command) -> Outcome {
    let (mut reply, events) = apply(state, server, command);
    if let Answers::Renew(answers) = &mut reply.answers {
        for answer in answers.iter_mut().filter(|answer| matches!(answer, RenewOutcome::Granted(_))) {
            *answer = RenewOutcome::Waiting { position: 0 };
        }
    }
    (reply, events)
}

fn change(state: &mut Option<State>, change: impl FnOnce(&mut State)) {
    if let Some(state) = state {
        change(state);
    }
}
