//! The network and the server of a simulation: what clients send, what the model makes of it, and what comes
//! back.

use std::time::Duration;

use super::client::Sent;
use super::world::{Coming, FASTEST, LIMIT, World};
use crate::model::{self, EntryState, ServerClock, State};
use crate::protocol::{Command, Name, Operation, Reply};
use permits_store::{Report, Request, StoreError};

impl World {
    /// Puts what the session of a client has sent on its way.
    pub(super) fn take_calls(&mut self, number: usize) {
        let at = self.clock(number);
        for Request { id, command, timeout, replicas } in self.clients[number].store.take() {
            let call = Sent { id, command, replicas, at, until: at + timeout };
            self.clients[number].calls.insert(id, call.clone());
            self.send(number, call);
        }
    }

    fn send(&mut self, client: usize, call: Sent) {
        if !self.clients[client].connected {
            let reason = StoreError::Unreachable { reason: "down".into() };
            return self.soon(100, Coming::Returns(client, call, Box::new(Err(reason))));
        }
        let delay = Duration::from_micros(self.delay_us());
        let delay = delay.mul_f64(self.random.f64()) + FASTEST;
        if delay > call.timeout() {
            self.made += 1;
            self.coming.insert((self.now + delay, self.made), Coming::ArrivesLate(call.command.clone()));
            return self.no_answer(client, call, "late");
        }
        let mut at = self.now + delay;
        if call.replicas == 0 {
            at = at.max(self.clients[client].last_arrival);
            self.clients[client].last_arrival = at;
        }
        self.made += 1;
        self.coming.insert((at, self.made), Coming::Arrives(client, call));
    }

    /// Reports that there is no answer, if this store does that. With other stores, the driver gives up by
    /// itself.
    pub(super) fn no_answer(&mut self, client: usize, call: Sent, reason: &str) {
        if !self.clients[client].store.reports_all {
            return;
        }
        let at = self.now.max(self.when(client, call.until));
        let result = Err(StoreError::NoAnswer { reason: reason.into() });
        self.made += 1;
        self.coming.insert((at, self.made), Coming::Returns(client, call, Box::new(result)));
    }

    /// The server executes a call, unless it is lost on the way.
    pub(super) fn arrives(&mut self, client: usize, call: Sent) {
        if self.chance(self.trouble / 2) {
            self.seen.request_lost += 1;
            return self.no_answer(client, call, "request lost");
        }
        if self.now < self.silent_until {
            if self.chance(50) {
                self.made += 1;
                let late = Coming::ArrivesLate(call.command.clone());
                self.coming.insert((self.silent_until, self.made), late);
            }
            return self.no_answer(client, call, "the server is silent");
        }
        let reply = self.execute(&call.command);
        if self.chance(self.trouble / 2) {
            self.seen.reply_lost += 1;
            return self.no_answer(client, call, "reply lost");
        }
        let until = self.when(client, call.until);
        let mut delay = self.delay_us();
        if self.sluggish && self.chance(50) {
            self.seen.late += 1;
            delay = (until.since(self.now).as_micros() as u64).max(1);
        }
        if self.now + Duration::from_micros(delay) > until {
            return self.no_answer(client, call, "reply late");
        }
        let delay = Duration::from_micros(self.random.u64(1..=delay));
        let to = &mut self.clients[client];
        let mut at = (self.now + delay).max(to.last_recall);
        if self.in_order {
            at = at.max(to.last_reply);
        }
        to.last_reply = at.max(to.last_reply);
        self.made += 1;
        self.coming.insert((at, self.made), Coming::Returns(client, call, Box::new(Ok(reply))));
    }

    /// Sends a recall to the sessions that may keep permits.
    fn recall(&mut self, semaphore: &Name) {
        let keepers = self.states.get(semaphore).into_iter().flatten().flat_map(State::keepers);
        let to = keepers.filter_map(|keeper| self.clients.iter().position(|client| client.id == *keeper));
        for to in to.collect::<Vec<_>>() {
            if !self.clients[to].connected || self.chance(self.trouble) {
                self.seen.message_lost += 1;
                continue;
            }
            self.seen.recalled += 1;
            let delay = self.delay_us();
            let at = self.now + Duration::from_micros(self.random.u64(1..=delay));
            let at = at.max(self.clients[to].last_reply);
            self.clients[to].last_recall = at.max(self.clients[to].last_recall);
            self.made += 1;
            let recall = Report::Recall(semaphore.clone());
            self.coming.insert((at, self.made), Coming::Reports(to, recall));
        }
    }

    pub(super) fn execute(&mut self, command: &Command) -> Reply {
        let run_id = self.run_id.to_string();
        let uptime_ms = self.now.since(self.server_began).as_millis() as u64;
        let server = ServerClock { now_us: self.now_us(), run_id: &run_id, uptime_ms };
        let mut state = self.states.remove(&command.semaphore).flatten();
        let before = state.clone();
        let held_before = before.as_ref().map_or(0, |state| state.held);
        let keepable = model::keepable_limit(state.as_ref(), server.now_us);
        let (reply, events) = model::apply(&mut state, &server, command);
        let is_recalled = model::recalls(keepable, state.as_ref(), &reply, server.now_us);
        let after = self.states.entry(command.semaphore.clone()).or_insert(state).clone();
        if is_recalled {
            self.recall(&command.semaphore);
        }
        self.note_ideas([before.as_ref(), after.as_ref()], command, (&reply, &events));
        if let Some(state) = &after {
            // A correction may count for more units than there are.
            let held = if self.ideas.is_some() { holding(state) } else { state.held };
            assert!(held <= LIMIT.into(), "P1: {held} units held of {LIMIT}");
            if matches!(command.operation, Operation::Renew(_))
                && events.is_empty()
                && state.held > held_before
            {
                self.seen.reclaimed += 1;
            }
            if state.recovering_until_ms > self.now_us() / 1000 && !state.queue.is_empty() {
                self.seen.held_back += 1;
            }
        }
        for event in events {
            let to = (0..self.clients.len()).find(|to| self.clients[*to].id == event.session);
            match to {
                Some(to) if self.clients[to].connected && !self.chance(self.trouble) => {
                    let delay = self.delay_us();
                    let mut at = self.now + Duration::from_micros(self.random.u64(1..=delay));
                    if self.in_order {
                        at = at.max(self.clients[to].last_reply);
                        self.clients[to].last_reply = at;
                    }
                    self.made += 1;
                    self.coming.insert((at, self.made), Coming::Reports(to, Report::Event(event)));
                }
                _ => self.seen.message_lost += 1,
            }
        }
        reply
    }
}

/// The units of permits that are held.
fn holding(state: &State) -> u64 {
    let holding = state.entries.values().filter(|entry| matches!(entry.place, EntryState::Holding(_)));
    holding.map(|entry| u64::from(entry.terms.weight)).sum()
}
