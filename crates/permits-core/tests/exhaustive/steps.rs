//! The possible steps in a state of the world. A tick while something is on its way, or while a client has
//! not sent what is due, is a delay, and counted.

use permits_core::acquisition::Stage;

use super::client::{Call, Client, Entry, KINDS, Kind};
use super::scope::{Memory, Scope};
use super::world::{Recall, World};

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Acquire(usize),
    Ask(usize),
    Renew(usize),
    Release(usize),
    SendRelease(usize),
    Cancel(usize),
    Crash(usize),
    /// The store executes a client's call.
    Execute(usize, Kind),
    /// It executes a call that its client has given up.
    ExecuteLate(usize),
    /// The reply arrives.
    Return(usize, Kind),
    /// The client gives up on a call: it or its reply is lost.
    Lose(usize, Kind),
    /// The client gives up on a call that is late.
    GiveUp(usize, Kind),
    Push(usize),
    LoseMessage(usize),
    /// A recall arrives.
    Recall(usize),
    LoseRecall(usize),
    /// A client releases what it has kept for some time.
    GiveBack(usize),
    Tick,
    Restart(Memory),
    /// The replica catches up.
    Replicate,
    SetLimit,
}

impl World {
    /// All steps that can be taken.
    pub(crate) fn actions(&self, scope: &Scope, actions: &mut Vec<Action>) {
        if self.broken.any() {
            return;
        }
        for (number, client) in self.clients.iter().enumerate() {
            self.actions_of(scope, number, client, actions);
        }
        actions.extend((0..self.late.len()).map(Action::ExecuteLate));
        for number in 0..self.messages.len() {
            actions.push(Action::Push(number));
            if self.left.losses > 0 {
                actions.push(Action::LoseMessage(number));
            }
        }
        self.recall_actions(actions);
        if self.left.losses > 0 {
            actions.extend((0..self.recalls.len()).map(Action::LoseRecall));
        }
        if self.may_tick(scope) {
            actions.push(Action::Tick);
        }
        if self.left.restarts > 0 {
            let possible = |memory: &&Memory| **memory != Memory::Earlier || self.saved.is_some();
            actions.extend(scope.restarts.iter().filter(possible).map(|memory| Action::Restart(*memory)));
            if scope.restarts.contains(&Memory::Earlier) && self.saved.is_none() && self.state.is_some() {
                actions.push(Action::Replicate);
            }
        }
        if self.left.limits > 0 && self.state.is_some() {
            actions.push(Action::SetLimit);
        }
    }

    fn actions_of(&self, scope: &Scope, number: usize, client: &Client, actions: &mut Vec<Action>) {
        for kind in KINDS {
            let Some(call) = client.call(kind) else { continue };
            if call.reply.is_some() {
                if self.may_return(scope, number, call) {
                    actions.push(Action::Return(number, kind));
                }
            } else {
                actions.push(Action::Execute(number, kind));
            }
            if self.left.losses > 0 {
                actions.push(Action::Lose(number, kind));
                if call.reply.is_none() {
                    actions.push(Action::GiveUp(number, kind));
                }
            }
        }
        let stage = client.entry.as_ref().map(Entry::stage);
        let acquires = client.call(Kind::Acquire).is_none();
        match stage {
            None if acquires && self.left.acquisitions > 0 => actions.push(Action::Acquire(number)),
            Some(Stage::Unsent) if acquires => actions.push(Action::Ask(number)),
            Some(Stage::Held(_)) if client.keeps() => {
                actions.push(Action::GiveBack(number));
                if self.left.acquisitions > 0 {
                    actions.push(Action::Acquire(number));
                }
            }
            Some(Stage::Held(_)) => actions.push(Action::Release(number)),
            _ => {}
        }
        if let Some(entry) = &client.entry
            && entry.is_renewed()
            && client.call(Kind::Renew).is_none()
            && entry.renewed < self.now
        {
            actions.push(Action::Renew(number));
        }
        let gives_up = !matches!(stage, None | Some(Stage::Held(_) | Stage::Withdrawn { .. }));
        if gives_up && self.left.cancels > 0 {
            actions.push(Action::Cancel(number));
        }
        if client.call(Kind::Release).is_none() && !client.releases.is_empty() {
            actions.push(Action::SendRelease(number));
        }
        if self.left.crashes > 0 && client.made > client.crashed {
            actions.push(Action::Crash(number));
        }
    }

    /// The recalls that may arrive. Replies and recalls of a connection are in order.
    pub(super) fn recall_actions(&self, actions: &mut Vec<Action>) {
        for (number, Recall { client, at_us }) in self.recalls.iter().enumerate() {
            let replies = self.clients[*client].calls.iter().flatten();
            let mut replied = replies.filter_map(|call| Some(call.reply.as_ref()?.now_us));
            let is_first = !self.recalls[..number].iter().any(|earlier| earlier.client == *client);
            if is_first && !replied.any(|replied| replied < *at_us) {
                actions.push(Action::Recall(number));
            }
        }
    }

    /// Returns true if the reply to a call may arrive. Where permits are kept, what a connection brings is in
    /// order.
    pub(super) fn may_return(&self, scope: &Scope, client: usize, call: &Call) -> bool {
        let Some(reply) = &call.reply else { return false };
        let others = self.clients[client].calls.iter().flatten().filter_map(|other| other.reply.as_ref());
        let recalled =
            self.recalls.iter().any(|recall| recall.client == client && recall.at_us < reply.now_us);
        !scope.keep || !recalled && others.into_iter().all(|other| other.now_us >= reply.now_us)
    }

    /// Returns true if nothing is late.
    pub(super) fn is_punctual(&self) -> bool {
        self.messages.is_empty()
            && self.recalls.is_empty()
            && self.clients.iter().all(|client| client.is_punctual(self.now))
    }

    /// Returns true if time may pass. In a scope of connected clients, a recovery window does not end before
    /// all have had a reply.
    fn may_tick(&self, scope: &Scope) -> bool {
        if self.left.delays == 0 && !self.is_punctual() {
            return false;
        }
        if !scope.connected || self.run == 0 || self.now + 1 != self.up_since + scope.window() {
            return true;
        }
        let is_heard = |client: &Client| {
            let returned = client.calls.iter().flatten().filter_map(|call| call.reply.as_ref());
            returned.into_iter().all(|reply| reply.run == self.run)
                && client.entry.as_ref().is_none_or(|entry| entry.replied == self.run || !entry.is_renewed())
        };
        self.clients.iter().all(is_heard) && self.messages.iter().all(|message| message.run == self.run)
    }
}
