//! Mutants of the store: the model, with a fault around it. Each breaks one property.

use std::collections::BTreeMap;

use permits::model::{EntryState, ServerClock, State, apply};
use permits::protocol::{
    AcquireOutcome, Answers, Command, Event, EventKind, Grant, Holder, Operation, Recovery, ReleaseRequest,
    RenewOutcome, Reply,
};

type Outcome = (Reply, Vec<Event>);

/// Grants one unit more than there is.
pub(crate) fn one_too_many(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
    change(state, |state| state.limit += 1);
    let existed = state.is_some();
    let outcome = apply(state, server, command);
    if existed {
        change(state, |state| state.limit -= 1);
    }
    outcome
}

/// Grants out of free capacity right after a restart.
pub(crate) fn no_window(state: &mut Option<State>, server: &ServerClock<'_>, command: &Command) -> Outcome {
    apply(state, server, &Command { recovery: Recovery::Off, ..command.clone() })
}

/// Puts back every holder that claims its permit, also reaped ones.
pub(crate) fn resurrects(state: &mut Option<State>, server: &ServerClock<'_>, command: &Command) -> Outcome {
    let era = state.as_ref().map(|state| (state.era_known, state.era_began_us));
    change(state, |state| (state.era_known, state.era_began_us) = (0, server.now_us));
    let outcome = apply(state, server, command);
    if let Some((known, began_us)) = era {
        change(state, |state| (state.era_known, state.era_began_us) = (known, began_us));
    }
    outcome
}

/// Treats a known request as a new one.
pub(crate) fn forgets_requests(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
    if let Operation::Acquire { requests, .. } = &command.operation {
        let releases = requests
            .iter()
            .map(|asked| ReleaseRequest { holder: asked.holder.clone(), request: asked.request.clone() });
        let operation = Operation::Release(releases.collect());
        apply(state, server, &Command { operation, ..command.clone() });
    }
    apply(state, server, command)
}

/// Gives each grant the token of the one before it.
pub(crate) fn old_tokens(state: &mut Option<State>, server: &ServerClock<'_>, command: &Command) -> Outcome {
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

/// Reports slot 0 in every grant.
pub(crate) fn one_slot(state: &mut Option<State>, server: &ServerClock<'_>, command: &Command) -> Outcome {
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

/// Ignores the queue when a new request arrives.
pub(crate) fn lets_overtake(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
    let hides = matches!(command.operation, Operation::Acquire { .. });
    let mut hidden = (BTreeMap::new(), Vec::new());
    if hides {
        change(state, |state| {
            hidden.0 = std::mem::take(&mut state.queue);
            let waits = |(_, entry): &(&Holder, &mut permits::model::Entry)| entry.deadline < 0;
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

/// Does not hand released units on before the next command.
pub(crate) fn keeps_what_is_freed(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
    let is_release = matches!(command.operation, Operation::Release(_));
    if is_release {
        change(state, |state| state.paused = true);
    }
    let outcome = apply(state, server, command);
    change(state, |state| state.paused = false);
    outcome
}

/// Reports a release without releasing.
pub(crate) fn keeps_the_entry(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
    let before = state.clone();
    let outcome = apply(state, server, command);
    if matches!(command.operation, Operation::Release(_)) {
        *state = before;
    }
    outcome
}

/// Leaks a unit with every release.
pub(crate) fn loses_a_unit(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
    let outcome = apply(state, server, command);
    if matches!(command.operation, Operation::Release(_)) {
        change(state, |state| state.held += 1);
    }
    outcome
}

/// Never reaps an expired entry.
pub(crate) fn reaps_nobody(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
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

/// A renewal takes from the leases of others.
pub(crate) fn shortens_others(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
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

/// Raises the pinned limit with every acquisition.
pub(crate) fn ignores_the_pin(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
    let outcome = apply(state, server, command);
    if matches!(command.operation, Operation::Acquire { .. }) {
        change(state, |state| state.limit += u32::from(state.pinned));
    }
    outcome
}

/// Publishes each event twice.
pub(crate) fn tells_twice(state: &mut Option<State>, server: &ServerClock<'_>, command: &Command) -> Outcome {
    let (reply, mut events) = apply(state, server, command);
    events.extend(events.clone());
    (reply, events)
}

/// Reports "waiting" to the renewal of a granted waiter: a lost push stays lost.
pub(crate) fn trusts_messages(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> Outcome {
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
