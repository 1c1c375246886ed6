//! The faults of a simulation: servers that forget, clients that are cut off, freeze or vanish.

use std::time::Duration;

use super::world::{Coming, LEASE, World};
use crate::model::{Part, State};
use permits_store::{Report, StoreError};

impl World {
    /// The server loses its state, and restarts within a fraction of a renewal interval.
    pub(super) fn restart(&mut self) {
        self.seen.restarts += 1;
        self.states.clear();
        self.run_id += 1;
        self.server_began = self.now;
        let down = || StoreError::Unreachable { reason: "restarting".into() };
        // All calls and replies under way are lost.
        let under_way: Vec<_> = self.coming.keys().copied().collect();
        for key in under_way {
            match self.coming.remove(&key) {
                Some(Coming::Arrives(client, call)) => {
                    let lost = Err(StoreError::NoAnswer { reason: "restarting".into() });
                    self.soon(1000, Coming::Returns(client, call, Box::new(lost)));
                }
                Some(Coming::Reports(_, Report::Event(_)) | Coming::ArrivesLate(_)) => {}
                Some(other) => drop(self.coming.insert(key, other)),
                None => {}
            }
        }
        for client in 0..self.clients.len() {
            self.clients[client].connected = false;
            self.feed(client, Coming::Reports(client, Report::Down(down())));
            self.soon(300_000, Coming::Reports(client, Report::Up));
        }
    }

    /// A key of each semaphore vanishes, on a server that runs on. Other keys are left: if the server loses
    /// state again before holders are put back, it may lose everything.
    pub(super) fn lose_a_key(&mut self) {
        // A grant takes a server more than the microseconds by which it advances the tokens.
        self.pass_to(self.now + Duration::from_micros(10));
        let now_ms = self.now_us() / 1000;
        let has_others =
            |state: &State| state.held > 0 && state.damage.is_none() && state.recovering_until_ms <= now_ms;
        for state in self.states.values_mut().filter(|state| state.as_ref().is_some_and(has_others)) {
            let part = [Part::State, Part::Leases, Part::Queue, Part::Free][self.random.usize(0..4)];
            *state = state.take().and_then(|state| state.lose(&[part]));
        }
    }

    /// Cuts a client off for longer than a lease: it cannot reach the server, and the server cannot reach it.
    pub(super) fn cut_off(&mut self, client: usize) {
        if !self.clients[client].connected {
            return;
        }
        self.seen.cut_off += 1;
        let mut under_way = Vec::new();
        self.coming.retain(|_, coming| match coming {
            Coming::Arrives(of, _) | Coming::Returns(of, ..) | Coming::Reports(of, _) if *of == client => {
                under_way.push(std::mem::replace(coming, Coming::Thaws(client)));
                false
            }
            _ => true,
        });
        for coming in under_way {
            if let Coming::Arrives(_, call) | Coming::Returns(_, call, _) = coming {
                let lost = Err(StoreError::NoAnswer { reason: "cut off".into() });
                self.soon(1000, Coming::Returns(client, call, Box::new(lost)));
            }
        }
        self.clients[client].connected = false;
        let down = StoreError::Unreachable { reason: "cut off".into() };
        self.feed(client, Coming::Reports(client, Report::Down(down)));
        self.made += 1;
        self.coming.insert((self.now + 3 * LEASE / 2, self.made), Coming::Reports(client, Report::Up));
    }

    /// The server does not execute what arrives: some calls are lost, others are executed in the end.
    pub(super) fn silence(&mut self) {
        let longest = u64::try_from(LEASE.as_micros()).expect("it is short");
        let end = self.now + Duration::from_micros(self.random.u64(1..longest));
        self.silent_until = self.silent_until.max(end);
    }

    pub(super) fn fault(&mut self) {
        let number = self.random.usize(0..self.clients.len());
        match self.random.u32(0..100) {
            0 => self.restart(),
            1 => {
                // The client vanishes, with all that it holds. Its successor is another session.
                self.seen.crashed += 1;
                let keep = self.clients[number].keep;
                let mut successor = self.new_client(number);
                successor.keep = keep;
                let crashed = std::mem::replace(&mut self.clients[number], successor);
                self.coming.retain(|_, coming| match coming {
                    Coming::Returns(client, ..)
                    | Coming::Reports(client, _)
                    | Coming::Continues(client)
                    | Coming::Thaws(client) => *client != number,
                    Coming::Arrives(..) | Coming::ArrivesLate(_) => true,
                });
                // The permits that are dropped here leave their requests in the client's own store.
                drop(crashed);
                self.soon(1000, Coming::Reports(number, Report::Up));
            }
            2 if !self.clients[number].frozen => {
                self.seen.frozen += 1;
                self.clients[number].frozen = true;
                self.soon(12_000_000, Coming::Thaws(number));
            }
            _ => {}
        }
    }
}
