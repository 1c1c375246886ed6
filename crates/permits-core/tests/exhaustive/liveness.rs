//! Liveness: from every state, if nothing else fails, every waiter is served, and then the semaphore becomes
//! idle.
//!
//! Shown by one fair continuation of each state: replies and messages arrive, the store executes the calls,
//! clients send what is due, holders release; time passes when nothing else is left to do.

use permits_core::acquisition::Stage;
use permits_core::protocol::{AcquireOutcome, EventKind, Refusal, RenewOutcome};

use super::client::{Client, Entry, KINDS, Kind, Outcome, Reply};
use super::scope::{Change, Scope};
use super::steps::Action;
use super::world::{Message, World};

/// The time in leases: one for a crashed holder, one for a window or for a grant to a crashed waiter, and one
/// for each acquisition that is retried.
const LEASES: u32 = 6;

/// Returns true if every waiter is served, or superseded, and the semaphore becomes idle.
pub(crate) fn ends_well(world: &World, scope: &Scope) -> bool {
    let mut world = world.clone();
    let until = world.now + LEASES * scope.longest();
    // A request for more than the limit is refused.
    let heavy = scope.weights.iter().map(|weight| *weight > world.limit);
    let mut served: Vec<bool> =
        world.clients.iter().zip(heavy).map(|(client, heavy)| heavy || !waits(client)).collect();
    scope.tries.iter().for_each(|client| served[*client] = true);
    while world.now < until {
        for (served, client) in served.iter_mut().zip(&world.clients) {
            *served |= matches!(stage(client), Some(Stage::Held(_))) || is_refused(client);
        }
        let action = next(&world, scope);
        // The client hears why it no longer waits. A request that is too heavy is sent again, and refused.
        if let Action::Push(number) = action
            && let Message { client, kind, .. } = &world.messages[number]
            && matches!(kind, EventKind::Revoked(_) | EventKind::Superseded | EventKind::LineClosed(_))
        {
            served[*client] = true;
        }
        if action == Action::Tick && is_at_rest(&world) {
            return served.into_iter().all(|served| served);
        }
        world.take(scope, action);
    }
    false
}

fn stage(client: &Client) -> Option<Stage> {
    client.entry.as_ref().map(Entry::stage)
}

/// The store has refused it, and the reply is under way.
fn is_refused(client: &Client) -> bool {
    let replies = client.calls.iter().flatten().filter_map(|call| call.reply.as_ref());
    let refused = |reply: &Reply| match &reply.outcome {
        Outcome::Acquired(AcquireOutcome::Refused(refusal)) => {
            matches!(refusal, Refusal::Superseded | Refusal::LineClosed(_))
        }
        Outcome::Renewed(RenewOutcome::LineClosed(_)) => true,
        _ => false,
    };
    replies.into_iter().any(refused)
}

fn waits(client: &Client) -> bool {
    !matches!(stage(client), None | Some(Stage::Withdrawn { .. } | Stage::Held(_)))
}

fn is_at_rest(world: &World) -> bool {
    // Expired entries leave with the next command of any client.
    let now_ms = world.now_ms();
    let nobody = |state: &permits_core::model::State| {
        state.entries.values().all(|entry| entry.deadline.unsigned_abs() <= now_ms)
    };
    world.state.as_ref().as_ref().is_none_or(nobody)
        && world.clients.iter().all(|client| client.entry.is_none() && client.is_punctual(world.now))
}

/// The next step of the fair continuation.
fn next(world: &World, scope: &Scope) -> Action {
    if !world.late.is_empty() {
        return Action::ExecuteLate(0);
    }
    if let Some(state) = world.state.as_ref() {
        if state.closed.is_some() {
            return Action::Operate(Change::Open);
        }
        if state.is_paused() {
            return Action::Operate(Change::Resume);
        }
    }
    if let Some(number) = (0..world.messages.len()).find(|number| world.may_push(scope, *number)) {
        return Action::Push(number);
    }
    let mut possible = Vec::new();
    if !world.recalls.is_empty() {
        world.recall_actions(&mut possible);
    }
    if let Some(recall) = possible.first() {
        return *recall;
    }
    let of_client = |(number, client): (usize, &Client)| {
        for kind in KINDS {
            match client.call(kind) {
                Some(call) if call.reply.is_none() => return Some(Action::Execute(number, kind)),
                Some(call) if world.may_return(scope, number, kind, call) => {
                    return Some(Action::Return(number, kind));
                }
                _ => {}
            }
        }
        match &client.entry {
            Some(entry) if entry.stage() == Stage::Unsent => return Some(Action::Ask(number)),
            Some(entry)
                if matches!(entry.stage(), Stage::Unconfirmed(_)) && client.call(Kind::Confirm).is_none() =>
            {
                return Some(Action::Confirm(number));
            }
            Some(entry) if entry.held().is_some() && !entry.kept => return Some(Action::Release(number)),
            Some(entry) if entry.kept && entry.renewed < world.now => return Some(Action::GiveBack(number)),
            Some(entry) if entry.renewed < world.now => return Some(Action::Renew(number)),
            _ => {}
        }
        let is_left = !client.releases.is_empty() && client.call(Kind::Release).is_none();
        is_left.then_some(Action::SendRelease(number))
    };
    world.clients.iter().enumerate().find_map(of_client).unwrap_or(Action::Tick)
}
