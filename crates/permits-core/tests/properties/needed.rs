//! The ideas that a decision of the store needed.
//!
//! Two ideas may be in a state and never meet: a lane in a paused line decides nothing. So each command is
//! executed once more for each idea that is there, on the same state without the idea. If the store decides
//! otherwise then, its decision needed the idea. Two ideas have met if one decision needed both.
//!
//! `exactly` is not among them: a request that requires another limit is refused before anything else is
//! asked.
//!
//! For example, a try is refused in a pause. If the try could wait, it would be queued; without the pause it
//! would be granted. So its refusal needed both ideas.

use permits_core::model::{self, Entry, EntryState, Lanes, ServerClock, State};
use permits_core::protocol::{
    Answers, Command, Event, EventKind, Holder, LaneName, Operation, PermitTerms, Recovery, ReleaseOutcome,
    Reply, SetOutcome, Setting, SupersedeKey,
};

use crate::ideas::{Idea, Pairs};

/// The ideas, with what a state and a command are without each. That of a command of its own has nothing to
/// take away: the command needed it if it did something.
const IDEAS: [(Idea, Without); 14] = [
    ("weights", weights),
    ("lanes", lanes),
    ("keep", keep),
    ("at least", at_least),
    ("count", count),
    ("supersede", supersede),
    ("pause with an end", pause),
    ("hand-over", nothing),
    ("recovery", recovery),
    ("lowered limit", lowered_limit),
    ("changed lease", changed_lease),
    ("try", tries),
    ("revocation", nothing),
    ("closed line", closed_line),
];

/// Takes an idea out of what a command finds and asks. Returns false if it is not there.
type Without = fn(u64, &mut Option<State>, &mut Command) -> bool;

/// Lists of ideas: no decision can need two ideas of the same list.
const APART: [&[Idea]; 5] = [
    // Commands of their own.
    &["count", "supersede", "hand-over", "revocation"],
    &["count", "try", "hand-over", "revocation"],
    // A release that cools hands on no slot, and a recovery hands on slots alone.
    &["count", "recovery"],
    // A released grant cools from its beginning, however long its lease was.
    &["count", "changed lease"],
    // Lanes order what waits, and an adoption frees nothing.
    &["hand-over", "lanes"],
];

/// A closed line refuses all requests, and nobody waits in it, whatever else would decide about them. It
/// changes no permit.
const CLOSED: [Idea; 10] = [
    "weights",
    "at least",
    "count",
    "supersede",
    "pause with an end",
    "try",
    "recovery",
    "lowered limit",
    "hand-over",
    "revocation",
];

/// The pairs that decisions can need.
pub(crate) fn pairs() -> Pairs {
    let closed = CLOSED.map(|idea| [idea, "closed line"]);
    let apart: Vec<&[Idea]> = APART.into_iter().chain(closed.iter().map(|pair| &pair[..])).collect();
    Pairs::new(&IDEAS.map(|(idea, _)| idea), &apart)
}

/// The ideas that the decision of a command needed.
pub(crate) fn of_command(
    server: &ServerClock<'_>,
    found: Option<&State>,
    command: &Command,
    (reply, events): (&Reply, &[Event]),
    after: Option<&State>,
) -> Vec<Idea> {
    if command.only_looks() {
        return Vec::new();
    }
    let decided = Decision::of(server, found, (reply, events), after);
    let needs = |(idea, without): &&(Idea, Without)| match *idea {
        "hand-over" => reply.answers == Answers::Adopt(true),
        "revocation" => matches!(reply.answers, Answers::Revoke(was) if was != ReleaseOutcome::Unknown),
        _ => {
            let (mut state, mut other) = (found.cloned(), command.clone());
            without(server.now_us / 1000, &mut state, &mut other) && {
                let before = state.clone();
                let (reply, events) = model::apply(&mut state, server, &other);
                Decision::of(server, before.as_ref(), (&reply, &events), state.as_ref()) != decided
            }
        }
    };
    IDEAS.iter().filter(needs).map(|(idea, _)| *idea).collect()
}

/// A decision of a store: answers, events and recalls. The times at which sessions should ask again are left
/// out, since any lease moves them.
#[derive(PartialEq)]
struct Decision {
    answers: Answers,
    events: Vec<(Holder, EventKind)>,
    keepable: bool,
    recalls: bool,
    /// The units that stay taken of each release.
    cool: Vec<u32>,
}

impl Decision {
    fn of(
        server: &ServerClock<'_>,
        before: Option<&State>,
        (reply, events): (&Reply, &[Event]),
        after: Option<&State>,
    ) -> Self {
        let told = |event: &Event| {
            let kind = match &event.kind {
                EventKind::Turn(_) => EventKind::Turn(0),
                kind => kind.clone(),
            };
            (event.holder.clone(), kind)
        };
        let keepable = model::keepable_limit(before, server.now_us);
        let cools = |(holder, entry): (&Holder, &Entry)| {
            let grant = entry.place.taken()?;
            Some(after?.entries.get(&holder.cooling(grant.token))?.terms.weight)
        };
        Self {
            // The answer to a change by an operator says nothing.
            answers: match &reply.answers {
                Answers::Set(SetOutcome::Done { .. }) => Answers::Renew(Vec::new()),
                answers => answers.clone(),
            },
            events: events.iter().map(told).collect(),
            keepable: reply.keepable && after.is_some_and(|state| state.kept_until_ms > server.now_us / 1000),
            recalls: model::recalls(keepable, after, reply, server.now_us),
            cool: match reply.answers {
                Answers::Release(_) => {
                    before.iter().flat_map(|before| &before.entries).filter_map(cools).collect()
                }
                _ => Vec::new(),
            },
        }
    }
}

/// The entries of a state.
fn entries(state: &mut Option<State>) -> impl Iterator<Item = &mut Entry> {
    state.iter_mut().flat_map(|state| state.entries.values_mut())
}

/// The terms in a command.
fn terms(command: &mut Command) -> Vec<&mut PermitTerms> {
    match &mut command.operation {
        Operation::Acquire { requests, .. } => requests.iter_mut().map(|asked| &mut asked.terms).collect(),
        Operation::Renew(renewals) => renewals.iter_mut().map(|renew| &mut renew.terms).collect(),
        Operation::Adopt(adopt) => vec![&mut adopt.terms],
        _ => Vec::new(),
    }
}

/// Changes the terms of all entries and requests that have an idea. Returns false if there are none.
fn change(
    state: &mut Option<State>,
    command: &mut Command,
    has: fn(&PermitTerms) -> bool,
    set: fn(&mut PermitTerms),
) -> bool {
    let all = entries(state).map(|entry| &mut entry.terms).chain(terms(command));
    let mut any = false;
    for terms in all.filter(|terms| has(terms)) {
        any = true;
        set(terms);
    }
    any
}

fn nothing(_: u64, _: &mut Option<State>, _: &mut Command) -> bool {
    false
}

/// Each permit has one unit.
fn weights(_: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    let any = change(state, command, |terms| terms.weight > 1, |terms| terms.weight = 1);
    if let Some(state) = state {
        let units = |of: fn(&EntryState) -> bool| {
            state
                .entries
                .values()
                .filter(|entry| of(&entry.place))
                .map(|entry| u64::from(entry.terms.weight))
                .sum()
        };
        let held = units(|place| place.taken().is_some());
        state.cooling = units(|place| matches!(place, EntryState::Cooling(_)));
        state.held = held;
    }
    any
}

/// All wait in the order in which they came.
fn lanes(_: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    if let Some(state) = state {
        let mut waiters: Vec<(u64, Holder)> = state
            .queue
            .iter()
            .map(|(ticket, holder)| {
                let entry = &state.entries[holder];
                (if entry.terms.is_laned() { entry.queued_us } else { *ticket }, holder.clone())
            })
            .collect();
        waiters.sort();
        state.queue.clear();
        state.lanes = Lanes::default();
        for entry in state.entries.values_mut() {
            (entry.terms.lane_limit, entry.terms.lane_floor) = (0, 0);
        }
        for (queued_us, holder) in waiters {
            let ticket = state.queue.last_key_value().map_or(queued_us, |(last, _)| queued_us.max(last + 1));
            state.last_ticket = state.last_ticket.max(ticket);
            let entry = state.entries.get_mut(&holder).expect("a waiter has an entry");
            (entry.place, entry.queued_us) = (EntryState::Waiting(ticket), 0);
            state.queue.insert(ticket, holder);
        }
    }
    change(state, command, PermitTerms::is_laned, |terms| {
        (terms.lane, terms.share) = (LaneName::default(), 1);
        (terms.lane_limit, terms.lane_floor) = (0, 0);
    })
}

/// Lets no session keep a permit.
fn keep(now_ms: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    let is_kept = state.as_ref().is_some_and(|state| state.kept_until_ms > now_ms);
    state.iter_mut().for_each(|state| state.kept_until_ms = 0);
    change(state, command, |terms| terms.keep, |terms| terms.keep = false) || is_kept
}

/// Grants count for as long as they are held.
fn at_least(_: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    let cools = state.as_ref().is_some_and(|state| state.cooling > 0);
    if let Some(state) = state {
        let cooling: Vec<Holder> =
            state.entries.keys().filter(|holder| holder.is_cooling()).cloned().collect();
        for holder in cooling {
            let entry = state.entries.remove(&holder).expect("it is there");
            state.leases.remove(&(entry.deadline, holder));
            let grant = entry.place.taken().expect("it cools");
            state.held -= u64::from(entry.terms.weight);
            state.cooling -= u64::from(entry.terms.weight);
            state.free.insert(grant.slot.into(), grant.slot.into());
        }
    }
    change(state, command, |terms| terms.at_least_ms > 0, |terms| terms.at_least_ms = 0) || cools
}

/// A release corrects no units.
fn count(_: u64, _: &mut Option<State>, command: &mut Command) -> bool {
    let Operation::Release(releases) = &mut command.operation else { return false };
    releases.iter_mut().filter_map(|release| release.counted.take()).count() > 0
}

/// Takes the keys of all requests away.
fn supersede(_: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    state.iter_mut().for_each(|state| state.by_key.clear());
    if let Operation::Acquire { requests, .. } = &mut command.operation {
        requests.iter_mut().for_each(|asked| asked.supersedes = false);
    }
    change(state, command, PermitTerms::is_keyed, |terms| terms.supersede = SupersedeKey::default())
}

/// The semaphore is not paused, or not with an end.
fn pause(now_ms: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    let is_paused = |state: &&mut State| state.pause_ends_ms().is_some_and(|ends_ms| ends_ms > now_ms);
    let paused = state.as_mut().filter(is_paused);
    let is_there = paused.is_some();
    paused.into_iter().for_each(|state| state.paused_until_ms = 0);
    let pauses = |operation: &Operation| match operation {
        Operation::Set { setting: Setting::Pause(pause), .. } => {
            pause.as_ref().is_some_and(|pause| pause.for_ms.is_some())
        }
        _ => false,
    };
    is_there | take_command(command, pauses)
}

/// Lets a command do nothing if its operation is of this kind.
fn take_command(command: &mut Command, is_such: impl Fn(&Operation) -> bool) -> bool {
    let is_such = is_such(&command.operation);
    if is_such {
        command.operation = Operation::Renew(Vec::new());
    }
    is_such
}

/// The store has lost nothing.
fn recovery(now_ms: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    let is_open = state.as_ref().is_some_and(|state| state.recovering_until_ms > now_ms);
    state.iter_mut().for_each(|state| state.recovering_until_ms = 0);
    let may_open = command.recovery != Recovery::Off;
    command.recovery = Recovery::Off;
    is_open || may_open
}

/// The limit is not below what is held.
fn lowered_limit(_: u64, state: &mut Option<State>, _: &mut Command) -> bool {
    let Some(state) = state.as_mut().filter(|state| state.limit > 0 && state.held > state.limit.into())
    else {
        return false;
    };
    state.limit = u32::try_from(state.held).expect("units are few");
    true
}

/// Takes changes of leases back: a renewal names the stored lease, and a permit whose lease was changed has
/// another one.
fn changed_lease(_: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    const OTHERS: [u64; 2] = [15_000, 3_000];
    let mut any = false;
    let Some(state) = state else { return false };
    if let Operation::Renew(renewals) = &mut command.operation {
        for renew in renewals {
            let Some(entry) = state.entries.get(&renew.holder) else { continue };
            any |= renew.lease_version != entry.lease_version;
            (renew.lease_version, renew.terms.lease_ms) = (entry.lease_version, entry.terms.lease_ms);
        }
    }
    for (holder, entry) in &mut state.entries {
        if entry.lease_version == 0 || entry.deadline <= 0 || holder.is_cooling() {
            continue;
        }
        any = true;
        let lease_ms =
            OTHERS.into_iter().find(|other| *other != entry.terms.lease_ms).expect("one is another");
        let began_ms = entry.deadline.unsigned_abs().saturating_sub(entry.terms.lease_ms);
        state.leases.remove(&(entry.deadline, holder.clone()));
        entry.terms.lease_ms = lease_ms;
        entry.deadline = (began_ms + lease_ms).cast_signed();
        state.leases.insert((entry.deadline, holder.clone()));
    }
    any
}

/// Each request may wait.
fn tries(_: u64, _: &mut Option<State>, command: &mut Command) -> bool {
    let Operation::Acquire { requests, .. } = &mut command.operation else { return false };
    requests.iter_mut().map(|asked| std::mem::replace(&mut asked.wait, true)).filter(|waits| !waits).count()
        > 0
}

/// The line is open.
fn closed_line(_: u64, state: &mut Option<State>, command: &mut Command) -> bool {
    let is_closed = state.as_mut().is_some_and(|state| state.closed.take().is_some());
    is_closed
        | take_command(command, |operation| {
            matches!(operation, Operation::Set { setting: Setting::Line(Some(_)), .. })
        })
}
