//! The list of holders and waiters, and of changes by operators.

use super::execution::Execution;
use crate::protocol::{Answers, Holder, Inspected, InspectedHolder, InspectedWaiter, PermitTerms};

/// The most holders, and the most waiters, that one command lists.
pub const INSPECT_MAX: u32 = 1_000;

impl Execution<'_> {
    pub(super) fn inspect(&mut self, max: u32) -> Answers {
        self.promote();
        let state = &self.state;
        let max = max.min(INSPECT_MAX) as usize;
        let holders = state.leases.range((0, Holder::min())..).take(max).filter_map(|(deadline, holder)| {
            let entry = &state.entries[holder];
            let grant = entry.place.taken()?;
            let lease_remaining_ms = deadline.unsigned_abs().saturating_sub(self.now_ms);
            Some(InspectedHolder {
                holder: holder.original(),
                weight: entry.terms.weight,
                grant,
                lease_remaining_ms,
                cooling: holder.is_cooling(),
                label: entry.terms.label.clone(),
                keep: entry.terms.keep,
            })
        });
        let waiters = state.queue.iter().take(max).map(|(ticket, holder)| {
            let PermitTerms { weight, label, .. } = &state.entries[holder].terms;
            InspectedWaiter { holder: holder.clone(), weight: *weight, ticket: *ticket, label: label.clone() }
        });
        Answers::Inspect(Inspected {
            held: state.held,
            waiting: state.queue.len() as u64,
            paused: state.paused,
            closed: state.closed.clone(),
            counts: state.counts,
            holders: holders.collect(),
            waiters: waiters.collect(),
            changes: state.changes.iter().rev().take(max).cloned().collect(),
        })
    }
}
