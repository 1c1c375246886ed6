//! Losses of state: some parts have vanished, or no entry can be alive.

use super::state::{Damage, Entry, EntryState, KEPT_TOKENS, Part, State};
use crate::protocol::Command;

impl State {
    /// The state after `parts` have vanished: the next command treats it as a loss of state.
    pub fn lose(mut self, parts: &[Part]) -> Option<Self> {
        let exists = |part: Part| match part {
            Part::State => self.damage != Some(Damage::StateLost),
            Part::Leases => !self.leases.is_empty(),
            Part::Queue => !self.queue.is_empty(),
            Part::Lanes => self.lanes.last > 0,
            Part::Free => !self.free.is_empty(),
        };
        let all = [Part::State, Part::Queue, Part::Leases, Part::Free, Part::Lanes];
        let (lost, left): (Vec<Part>, Vec<Part>) =
            all.into_iter().filter(|part| exists(*part)).partition(|part| parts.contains(part));
        if left.is_empty() {
            return None;
        }
        if lost.contains(&Part::Leases) {
            self.leases.clear();
        }
        if lost.contains(&Part::State) {
            self.damage = Some(Damage::StateLost);
        } else if !lost.is_empty() {
            self.damage = self.damage.or(Some(Damage::OtherLost));
        }
        Some(self)
    }

    /// The time until which the holders of a damaged state will have come back, in milliseconds, by what is
    /// left of them; 0 if there are no holders. Their connections stay up, so they come with their next
    /// renewals.
    pub(super) fn forgotten_until_ms(&self, now_ms: u64, command: &Command) -> u64 {
        let window = command.recovery.window();
        let until_renewed = |lease_ms| now_ms + window.after_loss(lease_ms);
        let holding = |entry: &&Entry| matches!(entry.place, EntryState::Holding(_));
        match self.damage {
            _ if window.most_ms == 0 => 0,
            Some(Damage::StateLost) if self.leases.is_empty() => until_renewed(command.longest_lease_ms()),
            // A holder stops using its permit at the deadline of its lease.
            Some(Damage::StateLost) => {
                let mut last = self.leases.iter().rev().filter(|(_, holder)| !holder.is_cooling());
                last.next().map_or(0, |(deadline, _)| u64::try_from(*deadline).unwrap_or(0))
            }
            _ => {
                let leases = self.entries.values().filter(holding).map(|entry| entry.terms.lease_ms);
                leases.max().map_or(0, until_renewed)
            }
        }
    }

    /// The part of the state that a command can still use.
    pub fn found(mut self) -> Option<Self> {
        match self.damage.take() {
            Some(Damage::StateLost) => return None,
            Some(Damage::OtherLost) => self.clear_entries(),
            None => {}
        }
        Some(self)
    }

    /// Forgets every entry: for a store that knows that all holders and waiters are dead.
    pub fn clear_entries(&mut self) {
        // The sessions may have used all tokens of the last grant.
        self.last_token += if self.kept_until_ms > 0 { KEPT_TOKENS - 1 } else { 0 };
        self.held = 0;
        self.cooling = 0;
        self.slots_made = 0;
        self.entries.clear();
        self.queue.clear();
        self.lanes.clear();
        self.by_key.clear();
        self.leases.clear();
        self.free.clear();
    }
}
