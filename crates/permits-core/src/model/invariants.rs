//! The check of a state's invariants.

use super::state::{Entry, EntryState, State};
use crate::protocol::{MAX_COUNTS_MS, MAX_LEASE_MS};

impl State {
    /// Checks that units, slots, queue, lanes, leases and entries agree, and that the numbers which others
    /// are computed from are in range. A state that was stored elsewhere may have been damaged there.
    ///
    /// # Errors
    /// The first disagreement.
    pub fn check_invariants(&self) -> Result<(), String> {
        let fault = self
            .number_fault()
            .or_else(|| self.entry_fault())
            .or_else(|| self.slot_fault())
            .or_else(|| self.lane_fault())
            .or_else(|| self.key_fault());
        fault.map_or(Ok(()), Err)
    }

    fn number_fault(&self) -> Option<String> {
        const MAX: u64 = 1 << 53;
        let counted = [
            self.limit_version,
            self.last_token,
            self.last_ticket,
            self.slots_made,
            self.sequence,
            self.checked_us,
            self.era_known,
            self.era_began_us,
            self.recovering_until_ms,
            self.lease_max_ms,
            self.expires_ms,
        ];
        counted.into_iter().find(|number| *number >= MAX).map(|number| format!("{number} is out of range"))
    }

    fn entry_fault(&self) -> Option<String> {
        let (mut held, mut cooling, mut waiting) = (0, 0, 0);
        for (holder, entry) in &self.entries {
            let known = match entry.place {
                EntryState::Waiting(ticket) => {
                    waiting += 1;
                    entry.deadline < 0
                        && (ticket <= self.last_ticket || !entry.terms.lane.as_str().is_empty())
                        && self.queue.get(&ticket) == Some(holder)
                }
                EntryState::Holding(grant) | EntryState::Cooling(grant) => {
                    held += u64::from(entry.terms.weight);
                    let cools = matches!(entry.place, EntryState::Cooling(_));
                    cooling += if cools { u64::from(entry.terms.weight) } else { 0 };
                    entry.deadline > 0 && grant.token <= self.last_token && holder.is_cooling() == cools
                }
            };
            let times = entry.terms.lease_ms <= MAX_LEASE_MS && entry.terms.at_least_ms <= MAX_COUNTS_MS;
            let bounded = entry.deadline.unsigned_abs() < 1 << 53 && times;
            let leased = self.leases.contains(&(entry.deadline, holder.clone()));
            if !known || !bounded || !leased || entry.terms.weight == 0 {
                return Some(format!(
                    "the entry of {holder} disagrees with the queue, the leases or the tokens: {entry:?}"
                ));
            }
        }
        let counts = (self.held, self.cooling, self.queue.len(), self.leases.len());
        (counts != (held, cooling, waiting, self.entries.len())).then(|| {
            format!(
                "{counts:?} units held, cooling, waiters and leases, but {held}, {cooling} and {waiting} in entries"
            )
        })
    }

    /// At most one waiting request per supersede key.
    fn key_fault(&self) -> Option<String> {
        let waits = |entry: &Entry| matches!(entry.place, EntryState::Waiting(_));
        let keyed = self.entries.iter().filter(|(_, entry)| entry.terms.is_keyed() && waits(entry));
        let mut waiting: Vec<_> = keyed.map(|(holder, entry)| (&entry.terms.supersede, holder)).collect();
        waiting.sort_unstable();
        let is_same = self.by_key.iter().eq(waiting.iter().copied());
        (!is_same).then(|| format!("by key {:?}, and {waiting:?} wait", self.by_key))
    }

    /// Each slot below `slots_made` is in use or free, once.
    fn slot_fault(&self) -> Option<String> {
        let slots = self.entries.values().filter_map(|entry| entry.place.taken());
        let held = slots.map(|grant| (u64::from(grant.slot), u64::from(grant.slot)));
        let mut ranges: Vec<(u64, u64)> =
            held.chain(self.free.iter().map(|(&first, &last)| (first, last))).collect();
        ranges.sort_unstable();
        let mut next = 0;
        for (first, last) in ranges {
            if first != next || last < first || last >= self.slots_made {
                return Some(format!("the slots {first}-{last} are out of place: {next} is next"));
            }
            next = last + 1;
        }
        let left = if self.held == 0 { 0 } else { next };
        (next != self.slots_made || self.slots_made != left)
            .then(|| format!("of {} slots {next} are accounted for", self.slots_made))
    }
}
