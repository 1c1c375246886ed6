//! The properties that are checked in a simulation.

use std::collections::BTreeMap;

use super::client::Client;
use super::ideas::{Ideas, OTHER};
use super::world::{LEASE, LIMIT, RECALL_ARRIVES_US, SIMULATED, World};
use crate::error::{AcquireError, Ended};
use crate::model::{EntryState, ServerClock};
use crate::protocol::Grant;
use crate::session::callers::PermitGuard;
use crate::session::engine::Engine;
use crate::session::permit_state::HeldPermit;

/// The number of each event, over all seeds. If a fault never happened, the simulation would show nothing
/// about it.
#[derive(Default, Debug)]
pub(super) struct Seen {
    pub(super) granted: usize,
    pub(super) lost: usize,
    pub(super) reply_lost: usize,
    pub(super) request_lost: usize,
    pub(super) message_lost: usize,
    pub(super) restarts: usize,
    pub(super) reclaimed: usize,
    pub(super) crashed: usize,
    pub(super) frozen: usize,
    pub(super) cancelled: usize,
    pub(super) gathered: usize,
    pub(super) changed: usize,
    pub(super) renewed: usize,
    pub(super) held_back: usize,
    pub(super) cut_off: usize,
    pub(super) late: usize,
    pub(super) granted_again: usize,
    pub(super) recalled: usize,
}

impl World {
    /// Checks, in a world without trouble, that no waiter waits for a kept permit once a recall has had the
    /// time to arrive.
    pub(super) fn check_recalled(&self) {
        let head = self.state().and_then(|state| state.queue.first_key_value());
        let Some((ticket, holder)) = head else { return };
        if self.now_us() > ticket + RECALL_ARRIVES_US {
            let keeper = self.clients.iter().position(|client| !client.shelf.is_empty());
            assert_eq!(keeper, None, "P22: {holder} waits, and a client keeps a permit (seed {})", self.seed);
        }
    }

    /// Checks that what holders believe they hold, by their own clocks, never exceeds the limit.
    pub(super) fn check(&mut self) {
        let has_failed = |client: &Client| client.session.ended() == Ended::SessionFailed;
        assert!(!self.clients.iter().any(has_failed), "P16: an engine panicked (seed {})", self.seed);
        self.drop_lost();
        let units = self.believed();
        assert!(units <= LIMIT, "P2: {units} units are believed to be held, of {LIMIT} (seed {})", self.seed);
        let units = self.believed_in_sets(OTHER);
        assert!(units <= LIMIT, "P2: {units} units of the other semaphore, of {LIMIT} (seed {})", self.seed);
    }

    /// Checks the error of a caller that gets no permit. If the store did not answer, the caller has not
    /// learned that others hold the units, so the error must be the store's.
    pub(super) fn check_refusal(&self, number: usize, error: AcquireError) {
        match error {
            AcquireError::NoPermits | AcquireError::TimedOut { .. } => {
                // If a renewal by the program or a call to a replica fails, only its own caller learns of it.
                assert!(
                    self.replicas > 0 || !self.clients[number].was_deaf,
                    "client {number} has no answer, and its caller: {error} (seed {})",
                    self.seed
                );
            }
            AcquireError::Recovering { .. }
            | AcquireError::Cooling { .. }
            | AcquireError::Ended(Ended::Closed) => {}
            AcquireError::Store(error) if error.is_temporary() => {}
            AcquireError::NotReplicated { .. } if self.replicas > 0 => {}
            other => {
                assert!(self.is_due_to_an_idea(&other), "an acquisition failed: {other} (seed {})", self.seed)
            }
        }
    }

    /// The units that clients believe they hold, of [`SIMULATED`](super::world::SIMULATED).
    pub(super) fn believed(&self) -> u32 {
        // A holder may not know yet that its permit was revoked.
        let is_revoked =
            |permit: &HeldPermit| self.ideas.as_ref().is_some_and(|ideas| ideas.is_revoked(permit));
        let of_client = |number: usize| {
            let now = self.clock(number);
            let held = self.clients[number].held.iter().map(|held| &held.state);
            held.filter(move |permit| permit.deadline(now).is_some())
        };
        let held = (0..self.clients.len()).flat_map(of_client).filter(|permit| !is_revoked(permit));
        held.map(|permit| permit.weight()).sum::<u32>() + self.believed_in_sets(SIMULATED)
    }

    /// Lets programs that run drop what they have lost.
    fn drop_lost(&mut self) {
        for number in
            (0..self.clients.len()).filter(|number| !self.clients[*number].frozen).collect::<Vec<_>>()
        {
            let now = self.clock(number);
            let held = &mut self.clients[number].held;
            let before = held.len();
            held.retain(|held| held.state.deadline(now).is_some());
            self.seen.lost += before - held.len();
            self.take_calls(number);
        }
    }

    /// Drops everything, and stops all faults: now everything must be released.
    pub(super) fn settle(&mut self) {
        self.trouble = 0;
        for client in &mut self.clients {
            client.pending.clear();
            client.held.clear();
            client.releasing.clear();
            client.acquiring.clear();
            client.sets.clear();
            client.adopting.clear();
        }
        (0..self.clients.len()).for_each(|number| self.run_tasks(number));
        self.silent_until = self.now;
        let end = self.now + 6 * LEASE;
        while self.now < end {
            self.advance();
            self.check();
            let idle = self.coming.is_empty();
            if idle && self.clients.iter().all(|client| client.driver.next_time().is_none()) {
                self.pass_to(end);
            }
        }
        let run_id = self.run_id.to_string();
        let server = ServerClock { now_us: self.now_us(), run_id: &run_id, uptime_ms: u64::MAX / 2 };
        let states = self.states.values().flatten();
        for state in states.filter(|state| !state.is_expired(server.now_us / 1000)) {
            let alive: Vec<_> = state
                .entries
                .values()
                .filter(|entry| entry.deadline.abs() > (server.now_us / 1000) as i64)
                .collect();
            let waiting = alive.iter().filter(|entry| matches!(entry.place, EntryState::Waiting(_))).count();
            assert!(
                alive.is_empty(),
                "P10: {} entries stay, {waiting} wait (seed {})",
                alive.len(),
                self.seed
            );
        }
        for client in &self.clients {
            assert!(
                client.driver.engine(Engine::is_idle),
                "P10: an engine still has something to do (seed {})",
                self.seed
            );
        }
    }
}

/// P4: the tokens of each slot rise. If a permit was revoked, its slot may have another holder before its own
/// holder knows.
pub(super) fn rises(last_of_slots: &mut BTreeMap<u32, u64>, ideas: &Option<Ideas>, held: &PermitGuard) {
    if ideas.as_ref().is_some_and(|ideas| ideas.is_revoked(&held.state)) {
        return;
    }
    let Grant { token, slot } = held.state.grant();
    let last = last_of_slots.insert(slot, token);
    assert!(last.is_none_or(|last| last < token), "P4: slot {slot} has token {token} after {last:?}");
}
