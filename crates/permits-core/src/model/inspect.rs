//! The list of holders and waiters, and of changes by operators.

use super::execution::Execution;
use super::state::{Entry, ServerClock, State, signed};
use crate::protocol::{
    Answers, Command, Holder, Inspected, InspectedHolder, InspectedLane, InspectedPause, InspectedWaiter,
    Reply,
};

/// The most holders, and the most waiters, that one command lists.
pub const INSPECT_MAX: u32 = 1_000;

/// The most lanes that one command lists, of the first [`INSPECT_MAX`] ones.
pub const INSPECT_LANES_MAX: usize = 32;

/// The most expired entries that an inspection passes over. The next ones count as if they were alive, and
/// are not listed.
pub const VIEW_MAX: usize = 10_000;

/// The reply to an inspection of this state as it is now: without the entries whose leases have ended.
/// Waiters that would be granted by a command wait.
pub(super) fn inspect(state: Option<State>, server: &ServerClock<'_>, command: &Command, max: u32) -> Reply {
    let mut execution = Execution::begin(state, server, command);
    execution.reap(VIEW_MAX);
    execution.reply(execution.list(max))
}

impl Execution<'_> {
    fn list(&self, max: u32) -> Answers {
        let state = &self.state;
        let max = max.min(INSPECT_MAX) as usize;
        let alive = (signed(self.now_ms) + 1, Holder::min());
        let holders = state.leases.range(alive..).take(max).filter_map(|(deadline, holder)| {
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
                lane: entry.terms.lane.clone(),
            })
        });
        let waiters = state.waiters(max).into_iter().map(|(_, holder)| {
            let Entry { terms, .. } = &state.entries[holder];
            let queued_us = state.queued_us(holder);
            let (label, lane) = (terms.label.clone(), terms.lane.clone());
            InspectedWaiter { holder: holder.clone(), weight: terms.weight, queued_us, label, lane }
        });
        let mut lanes = if max > 0 { state.lanes_waiting(INSPECT_MAX as usize) } else { Vec::new() };
        lanes.sort_by(|(lane, waiting), (other, more)| more.cmp(waiting).then_with(|| lane.cmp(other)));
        let lanes = lanes.into_iter().take(INSPECT_LANES_MAX);
        Answers::Inspect(Box::new(Inspected {
            held: state.held,
            cooling: state.cooling,
            waiting: state.queue.len() as u64,
            paused: state.is_paused().then(|| InspectedPause {
                remaining_ms: state.pause_ends_ms().map(|ends_ms| ends_ms - self.now_ms),
                reason: state.pause_reason().into(),
            }),
            closed: state.closed.clone(),
            alert: state.alert,
            counts: state.counts,
            waits: state.waits,
            holders: holders.collect(),
            waiters: waiters.collect(),
            lanes: lanes.map(|(lane, waiting)| InspectedLane { lane, waiting }).collect(),
            changes: state.last_changes(max),
        }))
    }
}
