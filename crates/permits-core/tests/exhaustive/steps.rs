//! The possible steps in a state of the world. A tick while something is on its way, or while a client has
//! not sent what is due, is a delay, and counted.

use permits_core::acquisition::Stage;
use permits_core::model::PAUSED;

use super::client::{Call, Client, Entry, KINDS, Kind};
use super::scope::{Change, Memory, Scope};
use super::world::{Message, Recall, TICK_MS, World};

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
    /// The store executes a call that its client has given up.
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
    /// A client asks the replicas for its grant.
    Confirm(usize),
    /// The reply says that too few replicas have it.
    Short(usize, Kind),
    ReleasePart(usize),
    SetLease(usize),
    HandOver(usize),
    /// The program that has a handle renews it.
    RenewHandle,
    Adopt(usize),
    /// An operator makes a change.
    Operate(Change),
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
            if self.may_push(scope, number) {
                actions.push(Action::Push(number));
            }
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
        if self.left.operators > 0
            && let Some(state) = self.state.as_ref()
        {
            let has_effect = |change: &&Change| match change {
                Change::Revoke(client) => self.revocable(*client).is_some(),
                Change::Close => state.closed.is_none(),
                Change::Open => state.closed.is_some(),
                Change::Pause => state.paused_until_ms < PAUSED,
                Change::PauseForTick => !state.is_paused(),
                Change::Resume => state.is_paused(),
                Change::PinLane => state.lanes.pins() == 0,
                Change::UnpinLane => state.lanes.pins() > 0,
            };
            actions.extend(scope.changes.iter().filter(has_effect).map(|change| Action::Operate(*change)));
        }
        if self.handle.is_some_and(|handle| handle.is_held && self.now < handle.until) {
            actions.push(Action::RenewHandle);
        }
    }

    fn actions_of(&self, scope: &Scope, number: usize, client: &Client, actions: &mut Vec<Action>) {
        for kind in KINDS {
            let Some(call) = client.call(kind) else { continue };
            if call.reply.is_some() {
                if self.may_return(scope, number, kind, call) {
                    actions.push(Action::Return(number, kind));
                    if kind == Kind::Confirm && self.left.shortages > 0 {
                        actions.push(Action::Short(number, kind));
                    }
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
        if stage.is_none() && client.call(Kind::Adopt).is_none() && self.handle.is_some() {
            actions.push(Action::Adopt(number));
        }
        if matches!(stage, Some(Stage::Unconfirmed(_))) && client.call(Kind::Confirm).is_none() {
            actions.push(Action::Confirm(number));
        }
        if let (Some(entry), Some(Stage::Held(_))) = (&client.entry, stage) {
            if self.left.terms > 0 {
                let is_other = entry.terms.lease_ms != u64::from(scope.new_lease) * TICK_MS;
                let changes = [
                    (scope.new_lease > 0 && is_other).then_some(Action::SetLease(number)),
                    (entry.terms.weight > 1).then_some(Action::ReleasePart(number)),
                ];
                actions.extend(changes.into_iter().flatten());
            }
            if self.left.hand_overs > 0 {
                actions.push(Action::HandOver(number));
            }
        }
        match stage {
            None if acquires && client.call(Kind::Adopt).is_none() && self.left.acquisitions > 0 => {
                actions.push(Action::Acquire(number))
            }
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
            && (entry.is_renewed() || entry.held().is_some())
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

    /// Returns true if a message may arrive. The messages of a connection arrive in order, and in order with
    /// its replies. Only the message of a grant may come at any time, unless the scope says otherwise:
    /// clients have to cope with that.
    pub(super) fn may_push(&self, scope: &Scope, number: usize) -> bool {
        let message = &self.messages[number];
        if message.grant().is_some() && !scope.in_order {
            return true;
        }
        let calls = KINDS.into_iter().zip(&self.clients[message.client].calls);
        let mut replied = calls.filter_map(|(kind, call)| {
            let reply = call.as_ref()?.reply.as_ref()?;
            (kind != Kind::Confirm).then_some(reply.now_us)
        });
        let mut earlier = self.messages.iter().filter(|other| other.client == message.client);
        !replied.any(|replied_us| replied_us < message.at_us)
            && !earlier.any(|other| other.at_us < message.at_us)
    }

    /// Returns true if the reply to a call may arrive. What a connection brings is in order: where permits
    /// are kept, all of it, and otherwise replies and messages. A call that asks replicas has another
    /// connection.
    pub(super) fn may_return(&self, scope: &Scope, client: usize, kind: Kind, call: &Call) -> bool {
        let Some(reply) = &call.reply else { return false };
        if kind == Kind::Confirm {
            return true;
        }
        let is_behind = |message: &Message| {
            let in_order = message.grant().is_none() || scope.in_order;
            message.client == client && in_order && message.at_us < reply.now_us
        };
        if self.messages.iter().any(is_behind) {
            return false;
        }
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
