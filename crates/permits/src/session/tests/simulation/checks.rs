//! The properties that are checked in a simulation.

use std::collections::BTreeMap;

use super::world::{LEASE, LIMIT, RECALL_ARRIVES_US, World};
use crate::model::{EntryState, ServerClock};
use crate::protocol::Grant;
use crate::session::callers::PermitGuard;

impl World {
    /// In a world without trouble: a waiter waits for no permit that is kept, once a recall has had the time
    /// to arrive.
    pub(super) fn check_recalled(&self, seed: u64) {
        let head = self.state.as_ref().and_then(|state| state.queue.first_key_value());
        let Some((ticket, holder)) = head else { return };
        if self.now_us() > ticket + RECALL_ARRIVES_US {
            let keeper = self.clients.iter().position(|client| !client.shelf.is_empty());
            assert_eq!(keeper, None, "P22: {holder} waits, and a client keeps a permit (seed {seed})");
        }
    }

    /// Believed to be held, by each holder's own clock: never more than the limit.
    pub(super) fn check(&mut self, seed: u64) {
        let units = self.believed();
        assert!(units <= LIMIT, "P2: {units} units are believed to be held, of {LIMIT} (seed {seed})");
    }

    /// The units that clients believe they hold.
    pub(super) fn believed(&mut self) -> u32 {
        let mut units = 0;
        for number in 0..self.clients.len() {
            let now = self.clock(number);
            let client = &mut self.clients[number];
            let before = client.held.len();
            client.held.retain(|held| held.state.deadline(now).is_some());
            self.seen.lost += before - client.held.len();
            units += client.held.iter().map(|held| held.state.weight()).sum::<u32>();
        }
        units
    }

    /// Everything is dropped and no more faults happen: everything is released.
    pub(super) fn settle(&mut self, seed: u64) {
        self.trouble = 0;
        for client in &mut self.clients {
            client.pending.clear();
            client.held.clear();
        }
        let end = self.now + 6 * LEASE;
        while self.now < end {
            self.advance();
            self.check(seed);
            let idle = self.coming.is_empty();
            if idle && self.clients.iter().all(|client| client.engine.next_time().is_none()) {
                self.now = end;
            }
        }
        let run_id = self.run_id.to_string();
        let server = ServerClock { now_us: self.now_us(), run_id: &run_id, uptime_ms: u64::MAX / 2 };
        if let Some(state) = &self.state
            && !state.is_expired(server.now_us / 1000)
        {
            let alive: Vec<_> = state
                .entries
                .values()
                .filter(|entry| entry.deadline.abs() > (server.now_us / 1000) as i64)
                .collect();
            let waiting = alive.iter().filter(|entry| matches!(entry.place, EntryState::Waiting(_))).count();
            assert!(alive.is_empty(), "P10: {} entries stay, {waiting} wait (seed {seed})", alive.len());
        }
        for client in &self.clients {
            assert!(client.engine.is_idle(), "P10: an engine still has something to do (seed {seed})");
        }
    }
}

/// P4: the tokens of each slot rise.
pub(super) fn rises(last_of_slots: &mut BTreeMap<u32, u64>, held: &PermitGuard) {
    let Grant { token, slot } = held.state.grant();
    let last = last_of_slots.insert(slot, token);
    assert!(last.is_none_or(|last| last < token), "P4: slot {slot} has token {token} after {last:?}");
}
