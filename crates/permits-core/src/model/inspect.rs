//! The list of holders and waiters, of their lanes, and of changes by operators.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::execution::Execution;
use super::lanes::LaneBounds;
use super::state::{Entry, ServerClock, State, signed};
use crate::protocol::{
    Answers, Command, Holder, Inspected, InspectedHolder, InspectedLane, InspectedPause, InspectedWaiter,
    LaneName, Reply,
};

/// The most holders, and the most waiters, that one command lists.
pub const INSPECT_MAX: u32 = 1_000;

/// The most lanes that one command lists, not counting further pinned lanes, which are always listed. The
/// command chooses among the first [`INSPECT_MAX`] lanes that wait and the lanes of listed holders.
pub const INSPECT_LANES_MAX: usize = 32;

/// The most expired entries that an inspection passes over. The next ones count as if they were alive: such
/// waiters are listed, such holders are not.
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
        let holders: Vec<InspectedHolder> = holders.collect();
        let waiters = state.waiters(max).into_iter().map(|(_, holder)| {
            let Entry { terms, .. } = &state.entries[holder];
            let queued_us = state.queued_us(holder);
            let (label, lane) = (terms.label.clone(), terms.lane.clone());
            InspectedWaiter { holder: holder.clone(), weight: terms.weight, queued_us, label, lane }
        });
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
            waiters: waiters.collect(),
            lanes: if max > 0 { self.lanes(&holders) } else { Vec::new() },
            holders,
            changes: state.last_changes(max),
        }))
    }

    /// The lanes of waiters and of these holders, and all pinned lanes. A lane that only holds what it was
    /// granted before it had bounds is listed without bounds.
    fn lanes(&self, holders: &[InspectedHolder]) -> Vec<InspectedLane> {
        let waiting = self.state.lanes_waiting(INSPECT_MAX as usize);
        let mut lanes: BTreeMap<LaneName, (u64, u64)> =
            waiting.into_iter().map(|(lane, waiting)| (lane, (waiting, 0))).collect();
        for InspectedHolder { lane, weight, .. } in holders {
            lanes.entry(lane.clone()).or_default().1 += u64::from(*weight);
        }
        for (lane, _) in self.state.lanes.bounded().iter().filter(|(_, bounded)| bounded.pinned) {
            lanes.entry(lane.clone()).or_default();
        }
        if lanes.keys().all(|lane| lane.as_str().is_empty()) {
            return Vec::new();
        }
        let listed = lanes.into_iter().map(|(lane, (waiting, held))| {
            let bounded = self.state.lanes.bounded().get(&lane);
            let LaneBounds { limit, floor, held, pinned } = match bounded {
                Some(bounded) if waiting + bounded.held > 0 || bounded.pinned => *bounded,
                _ => LaneBounds { held, ..LaneBounds::default() },
            };
            InspectedLane { lane, waiting, held, limit, floor, pinned }
        });
        let mut listed: Vec<_> = listed.collect();
        // Stable: lanes that are alike stay in the order of their names.
        listed.sort_by_key(|lane| Reverse((lane.waiting, lane.held)));
        let is_listed = |(k, lane): &(usize, InspectedLane)| *k < INSPECT_LANES_MAX || lane.pinned;
        listed.into_iter().enumerate().filter(is_listed).map(|(_, lane)| lane).collect()
    }
}
