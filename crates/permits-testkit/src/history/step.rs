//! A command as the checks see it: the state before, the request, the reply, and the state after.

use std::collections::BTreeSet;

use permits_core::model::{Entry, EntryState, State};
use permits_core::protocol::{
    AcquireOutcome, Answers, Command, Event, EventKind, Grant, Holder, LaneName, Operation, Reply, RequestId,
    Setting,
};

/// A command, with its reply, its events, and the states around it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The server's clock, in microseconds.
    pub now_us: u64,
    /// The state that the command found; `None` also if the state had expired.
    pub before: Option<State>,
    /// The command.
    pub command: Command,
    /// The reply.
    pub reply: Reply,
    /// The events that it published.
    pub events: Vec<Event>,
    /// The state after it.
    pub after: Option<State>,
}

/// A grant that this command made; a reclaimed permit was granted before.
#[derive(Clone, Debug)]
pub struct Fresh {
    /// The holder.
    pub holder: Holder,
    /// The token and the slot.
    pub grant: Grant,
}

impl Step {
    pub(super) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    pub(super) fn held_before(&self) -> u64 {
        self.before.as_ref().map_or(0, |state| state.held)
    }

    /// The highest limit under which waiters can have been granted: a declaration may replace the limit after
    /// the waiters that were due are granted.
    pub(super) fn limit_of_waiters(&self) -> u64 {
        let after = self.after.as_ref().map_or(0, |state| state.limit);
        after.max(self.reply.replaced_limit.unwrap_or(0)).into()
    }

    pub(super) fn entry_before(&self, holder: &Holder) -> Option<&Entry> {
        self.before.as_ref()?.entries.get(holder)
    }

    pub(super) fn entry_after(&self, holder: &Holder) -> Option<&Entry> {
        self.after.as_ref()?.entries.get(holder)
    }

    /// The entries before; empty without a state.
    pub(super) fn entries_before(&self) -> impl Iterator<Item = (&Holder, &Entry)> {
        self.before.iter().flat_map(|state| &state.entries)
    }

    /// The waiters that the command left where they were, with lane and ticket, in the order of tickets.
    pub fn waiters_left(&self) -> impl Iterator<Item = (&LaneName, u64, &Holder)> {
        let queue = self.before.iter().flat_map(|before| &before.queue);
        queue.filter_map(|(ticket, holder)| {
            let (before, after) = (self.entry_before(holder)?, self.entry_after(holder)?);
            let same = before.request == after.request && after.place == EntryState::Waiting(*ticket);
            // A ticket of a lane may be given again: also to a waiter whose lease was over, or that a limit
            // removes, and that comes back with this very command.
            let is_new = before.deadline.unsigned_abs() <= self.now_ms() && after.deadline != before.deadline;
            let is_removed = self.events.iter().any(|event| {
                let is_of_waiter = event.holder == *holder && event.request == before.request;
                is_of_waiter && !matches!(event.kind, EventKind::Granted(_) | EventKind::Turn(_))
            });
            (same && !is_new && !is_removed).then_some((&before.terms.lane, *ticket, holder))
        })
    }

    /// Returns whether the reply says that work is left.
    pub(super) fn is_cut(&self) -> bool {
        self.reply.recheck_ms == Some(0)
    }

    pub(super) fn is_recovering(&self) -> bool {
        self.after.as_ref().is_some_and(|state| self.now_ms() < state.recovering_until_ms)
    }

    /// The grants of this command: those of waiters in their order, then those of newcomers in theirs.
    pub fn fresh(&self) -> Vec<Fresh> {
        let mut fresh: Vec<Fresh> = Vec::new();
        for Event { holder, kind, .. } in &self.events {
            if let EventKind::Granted(grant) = kind {
                fresh.push(Fresh { holder: holder.clone(), grant: *grant });
            }
        }
        if let (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) =
            (&self.command.operation, &self.reply.answers)
        {
            for (asked, answer) in requests.iter().zip(answers) {
                let AcquireOutcome::Granted(grant) = answer else { continue };
                // Neither the earlier answer to a known request, nor a request that stands in this batch
                // twice.
                let place = EntryState::Holding(*grant);
                let earlier = self.entry_before(&asked.holder).is_some_and(|entry| entry.place == place);
                if !earlier && !fresh.iter().any(|fresh| fresh.grant == *grant) {
                    fresh.push(Fresh { holder: asked.holder.clone(), grant: *grant });
                }
            }
        }
        fresh
    }

    /// The setting that the command changes, if it changes one.
    pub(super) fn setting(&self) -> Option<&Setting> {
        match &self.command.operation {
            Operation::Set { setting, .. } => Some(setting),
            _ => None,
        }
    }

    /// Returns whether an operator's change was made by an earlier command.
    pub(super) fn was_made(&self, request: &RequestId) -> bool {
        self.before
            .as_ref()
            .is_some_and(|state| state.changes.iter().any(|change| change.origin.request == *request))
    }

    /// The holders that the command names: it may change their entries.
    pub(super) fn named(&self) -> BTreeSet<(Holder, RequestId)> {
        match &self.command.operation {
            Operation::Acquire { requests, .. } => {
                requests.iter().map(|asked| (asked.holder.clone(), asked.request.clone())).collect()
            }
            Operation::Release(releases) => {
                releases.iter().map(|release| (release.holder.clone(), release.request.clone())).collect()
            }
            Operation::Renew(renewals) => {
                renewals.iter().map(|renew| (renew.holder.clone(), renew.request.clone())).collect()
            }
            Operation::Adopt(adopt) => [&adopt.request, &adopt.new_request]
                .map(|request| (adopt.holder.clone(), request.clone()))
                .into(),
            Operation::Revoke { holder, cooling, .. } => {
                let key = cooling.map_or_else(|| holder.clone(), |token| holder.cooling(token));
                let entry = self.entry_before(&key);
                entry.map(|entry| (key.clone(), entry.request.clone())).into_iter().collect()
            }
            Operation::Set { .. } | Operation::Delete { .. } | Operation::Inspect { .. } => BTreeSet::new(),
        }
    }
}
