//! Losses of state: some parts have vanished, or no entry can be alive.

use super::lanes::Lanes;
use super::state::{Damage, KEPT_TOKENS, Part, State};

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

    /// The part of the state that a command can still use.
    pub fn found(mut self) -> Option<Self> {
        match self.damage.take() {
            Some(Damage::StateLost) => return None,
            Some(Damage::OtherLost) => self.clear_entries(),
            None => {}
        }
        Some(self)
    }

    /// Forgets every entry: for a store that knows that none of them can be alive.
    pub fn clear_entries(&mut self) {
        // Their sessions may have used all tokens of the last grant.
        self.last_token += if self.kept_until_ms > 0 { KEPT_TOKENS - 1 } else { 0 };
        self.held = 0;
        self.cooling = 0;
        self.slots_made = 0;
        self.entries.clear();
        self.queue.clear();
        self.lanes = Lanes::default();
        self.by_key.clear();
        self.leases.clear();
        self.free.clear();
    }
}
