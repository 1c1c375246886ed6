//! The properties, by their names in docs/inside/guarantees.md.
//!
//! The effect of one command is checked as in random histories (`permits_testkit::history::checks`).
//! Properties of the clients, and of histories, are here.

use std::fmt;

use permits_core::acquisition::Stage;
use permits_core::model::{EntryState, State, keepable_limit};
use permits_core::protocol::{AcquireOutcome, Answers, Declaration, EventKind, Grant, Operation};
use permits_testkit::history::checks::{CHECKS, conserved};
use permits_testkit::history::step::{Fresh, Step};

use super::client::{Call, Client, Entry, Kind};
use super::holders::Handle;
use super::scope::{Memory, Scope};
use super::server::{holder, owner};
use super::world::{Message, Revoked, TICK_MS, World};

/// The properties of clients and of histories. Their numbers follow the numbers of [`CHECKS`].
const OURS: [&str; 12] = [
    "P2",
    "P2, revoked",
    "P2, confirmed",
    "P3",
    "P4",
    "P4, each slot",
    "P5, one effect",
    "P9, released",
    "P9, in order",
    "P22, recalled",
    "P22, tries",
    "slots",
];

/// The number of properties.
pub(crate) const COUNT: usize = CHECKS.len() + OURS.len();

/// The name of a property.
pub(crate) fn name(number: usize) -> &'static str {
    CHECKS.get(number).map_or_else(|| OURS[number - CHECKS.len()], |(name, _)| name)
}

fn number(name: &str) -> usize {
    CHECKS.len() + OURS.iter().position(|ours| *ours == name).expect("there is such a property")
}

/// A set of properties that do not hold.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Broken(u64);

impl Broken {
    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn is(self, number: usize) -> bool {
        self.0 & (1 << number) != 0
    }

    /// Removes the properties that the scope does not check.
    fn judged(self, scope: &Scope) -> Self {
        let judged = (0..COUNT).filter(|number| scope.judged.has(name(*number)));
        Self(judged.fold(0, |bits, number| bits | self.0 & (1 << number)))
    }

    fn add(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    fn add_unless(&mut self, name: &str, holds: bool) {
        if !holds {
            self.add(number(name));
        }
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..COUNT).filter(|number| self.is(*number)).map(name)).finish()
    }
}

/// Judges one command.
pub(crate) fn judge_step(world: &mut World, scope: &Scope, step: &Step) {
    let mut broken = world.broken;
    for (number, (_, check)) in CHECKS.iter().enumerate() {
        if check(step).is_err() {
            broken.add(number);
        }
    }
    for Fresh { grant, .. } in step.fresh() {
        broken.add_unless("P4", grant.token > world.last_token);
        world.last_token = world.last_token.max(grant.token);
        broken.add_unless("P4, each slot", rises(world, grant));
    }
    broken.add_unless("P5, one effect", asked_again_it_stands_where_it_stood(step));
    broken.add_unless("P22, tries", scope.keep || a_try_does_not_wait(step));
    world.broken = broken.judged(scope);
}

/// A request that does not wait is queued only for what a recall may free.
fn a_try_does_not_wait(step: &Step) -> bool {
    let (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) =
        (&step.command.operation, &step.reply.answers)
    else {
        return true;
    };
    let waits = |answer: &AcquireOutcome| matches!(answer, AcquireOutcome::Waiting { .. });
    requests.iter().zip(answers).all(|(asked, answer)| asked.wait || !waits(answer))
}

/// Judges a grant by a client that has kept the permit.
pub(crate) fn judge_token(world: &mut World, grant: Grant) {
    let rises = rises(world, grant);
    world.broken.add_unless("P4, each slot", rises);
}

/// Notes the token of a grant. Returns true if it is above those that were granted for its slot before.
fn rises(world: &mut World, grant: Grant) -> bool {
    let before = world.last_of_slots.insert(grant.slot, grant.token);
    before.is_none_or(|before| before < grant.token)
}

/// A known request keeps its place, and the reply reports it.
fn asked_again_it_stands_where_it_stood(step: &Step) -> bool {
    let (Operation::Acquire { requests, .. }, Answers::Acquire(answers), Some(before), Some(after)) =
        (&step.command.operation, &step.reply.answers, &step.before, &step.after)
    else {
        return true;
    };
    requests.iter().zip(answers).all(|(asked, answer)| {
        let Some(known) = before.entries.get(&asked.holder) else { return true };
        if known.request != asked.request || known.deadline.unsigned_abs() <= step.now_us / 1000 {
            return true;
        }
        let stands = after.entries.get(&asked.holder).map(|entry| entry.place);
        match (known.place, answer) {
            (EntryState::Holding(grant), AcquireOutcome::Granted(told)) => {
                grant == *told && stands == Some(EntryState::Holding(grant))
            }
            // The waiter's turn may have come just now.
            (EntryState::Waiting(_), AcquireOutcome::Granted(told)) => {
                stands == Some(EntryState::Holding(*told))
            }
            (EntryState::Waiting(ticket), AcquireOutcome::Waiting { .. }) => {
                stands == Some(EntryState::Waiting(ticket))
            }
            _ => false,
        }
    })
}

/// Judges a state of the world.
pub(crate) fn judge_world(world: &mut World, scope: &Scope) {
    let mut broken = world.broken;
    broken.add_unless("P2", believed(world) <= allowed(world, scope));
    // Otherwise its holder goes on until its lease ends.
    broken.add_unless("P2, revoked", world.revoked.iter().all(|revoked| is_told(world, *revoked)));
    broken.add_unless("P2, confirmed", world.clients.iter().all(|client| is_confirmed(client, scope)));
    let forgot = |memories| excused(world, scope, memories);
    // A replica that lags may have an earlier deadline.
    let may_be_late = forgot(&[Memory::Flushed, Memory::Earlier]);
    broken.add_unless("P3", may_be_late || (0..world.clients.len()).all(|client| stops_early(world, client)));
    broken.add_unless("P9, released", nothing_is_leaked(world));
    let in_order = (0..world.clients.len()).all(|client| withdraws_in_order(world, scope, client));
    broken.add_unless("P9, in order", in_order);
    let recalled = (0..world.clients.len()).all(|client| is_recalled(world, client));
    broken.add_unless("P22, recalled", recalled);
    broken.add_unless("slots", forgot(&[Memory::Flushed]) || slots_are_distinct(world));
    world.broken = broken.judged(scope);
}

/// The units that clients, or programs with handles, believe they hold. Holders that are about to learn of a
/// revocation do not count.
pub(crate) fn believed(world: &World) -> u32 {
    let entries = world.clients.iter().filter_map(|client| client.entry.as_ref());
    let held = entries.filter(|entry| entry.held().is_some_and(|(grant, _)| !world.is_revoked(grant)));
    let is_held =
        |handle: &Handle| handle.is_held && world.now < handle.until && !world.is_revoked(handle.grant);
    let by_handle = world.handle.filter(is_held).map_or(0, |handle| handle.terms.weight);
    held.map(|entry| entry.terms.weight).sum::<u32>() + by_handle
}

/// A message is on its way to the holder of a permit that was revoked, unless no session has it.
fn is_told(world: &World, revoked: Revoked) -> bool {
    let tells = |message: &Message| {
        (message.client, message.request) == revoked.owner() && matches!(message.kind, EventKind::Revoked(_))
    };
    world.messages.iter().any(tells) || world.handle.is_some_and(|handle| handle.owner == revoked.owner())
}

/// If replicas have to confirm a grant, its caller gets it only then.
fn is_confirmed(client: &Client, scope: &Scope) -> bool {
    let entry = client.entry.as_ref().filter(|entry| entry.held().is_some());
    !scope.replicas || entry.is_none_or(|entry| entry.confirmed)
}

/// P2: the limit; the higher one, where an operator has lowered it. A server that is flushed can admit as
/// many again, for a lease.
fn allowed(world: &World, scope: &Scope) -> u32 {
    let limit = scope.limit.max(world.limit);
    if excused(world, scope, &[Memory::Flushed]) { 2 * limit } else { limit }
}

/// Returns true if the store has lost state within the last lease in one of these ways, and breaches are
/// permitted.
fn excused(world: &World, scope: &Scope, memories: &[Memory]) -> bool {
    scope.excused
        && scope.restarts.iter().any(|memory| memories.contains(memory))
        && world.forgot.is_some_and(|forgot| world.now < forgot + scope.lease)
}

/// P3: a client stops before the store gives its units to others.
fn stops_early(world: &World, number: usize) -> bool {
    let (Some(state), Some(entry)) = (world.state.as_ref(), &world.clients[number].entry) else {
        return true;
    };
    let Some((grant, until)) = entry.held() else { return true };
    let ours = state.entries.values().find(|entry| entry.place == EntryState::Holding(grant));
    let until_ms = world.now_ms() + u64::from(until - world.now) * TICK_MS;
    ours.is_none_or(|entry| until_ms <= entry.deadline.unsigned_abs())
}

/// P9: every permit in the store is held or released by a client, or about to be reported to one. If the
/// store has lost state since, it may have forgotten a release.
fn nothing_is_leaked(world: &World) -> bool {
    let Some(state) = world.state.as_ref() else { return true };
    state.entries.values().all(|entry| {
        let (number, request) = owner(&entry.request);
        let client = &world.clients[number];
        let is_new = |grant: Grant| world.forgot.is_none() || grant.token > world.forgot_us;
        let is_live = matches!(entry.place, EntryState::Holding(grant) if is_new(grant))
            && entry.deadline.unsigned_abs() > world.now_ms()
            && request > client.crashed;
        let of_call = |call: &Call| call.request == request;
        !is_live
            || client.entry.as_ref().is_some_and(|entry| entry.request == request)
            || client.releases.iter().any(|release| release.request == request)
            || client.calls.iter().flatten().any(of_call)
            || world.late.iter().any(|late| late.client == number && of_call(&late.call))
            || world.messages.iter().any(|message| (message.client, message.request) == (number, request))
            || world.handle.is_some_and(|handle| handle.owner == (number, request))
            || world.unannounced.contains(&(number, request))
    })
}

/// P9: what a client withdraws while its call is in flight is gone when the store has executed that call and
/// the release that is behind it, in this order, and so before all that the client sends next.
fn withdraws_in_order(world: &World, scope: &Scope, number: usize) -> bool {
    let client = &world.clients[number];
    let Some(Entry { request, acquisition, .. }) = &client.entry else { return true };
    let Stage::Withdrawn { .. } = acquisition.stage else { return true };
    let of_request = |kind| client.call(kind).filter(|call| call.request == *request);
    let Some(release) = of_request(Kind::Release) else {
        return client.releases.iter().any(|release| release.request == *request);
    };
    let mut world = world.clone();
    for (kind, call) in [(Kind::Acquire, of_request(Kind::Acquire)), (Kind::Release, Some(release))] {
        if let Some(call) = call.filter(|call| call.reply.is_none() && release.reply.is_none()) {
            world.execute(scope, number, kind, call);
        }
    }
    let is_gone = |state: &State| !state.entries.contains_key(&holder(number, *request));
    release.reply.is_some() || world.state.as_ref().as_ref().is_none_or(is_gone)
}

/// P22: a client that keeps what it has, or would, is about to learn if others need it or its slot is above
/// the limit: by a recall, by a reply, or, because a recall was lost, by the reply to its next renewal.
fn is_recalled(world: &World, number: usize) -> bool {
    let client = &world.clients[number];
    let Some((grant, entry)) = client.entry.as_ref().and_then(|entry| Some((entry.granted()?, entry))) else {
        return true;
    };
    let is_stored = |state: &State| state.entries.contains_key(&holder(number, entry.request));
    let told = client.calls.iter().flatten().filter_map(|call| call.reply.as_ref());
    let limit = keepable_limit(world.state.as_ref().as_ref(), world.now_us());
    !client.keeping.allows(grant.slot)
        || !world.state.as_ref().as_ref().is_some_and(is_stored)
        || limit.is_some_and(|limit| grant.slot < limit)
        || world.recalls.iter().chain(&world.lost_recalls).any(|recall| recall.client == number)
        || told.into_iter().any(|reply| !reply.keepable)
}

/// Returns true if no two clients believe that they hold the same slot.
fn slots_are_distinct(world: &World) -> bool {
    let held = world.clients.iter().filter_map(|client| client.entry.as_ref()?.held());
    let held = held.filter(|(grant, _)| !world.is_revoked(*grant));
    let mut slots: Vec<u32> = held.map(|(grant, _)| grant.slot).collect();
    slots.sort_unstable();
    slots.windows(2).all(|pair| pair[0] != pair[1])
}

/// P10: if all clients vanish now, nothing is left after a lease, and after the time for which grants count.
pub(crate) fn rests(world: &World, scope: &Scope) -> bool {
    let mut world = world.clone();
    world.now += scope.longest();
    world.send(scope, 0, Declaration::Stored, Operation::Renew(Vec::new()));
    world.state.as_ref().as_ref().is_none_or(|state| {
        let empty = state.entries.is_empty() && state.queue.is_empty() && state.leases.is_empty();
        empty && state.held == 0 && state.slots_made == 0 && conserved(state).is_ok()
    })
}
