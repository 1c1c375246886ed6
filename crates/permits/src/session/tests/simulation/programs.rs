//! The actions of programs in a simulation: they ask for permits, change them, and release them.

use std::time::Duration;

use super::checks::rises;
use super::client::Ask;
use super::world::{LEASE, LIMIT, World};
use crate::clock::millis;
use crate::protocol::PermitTerms;
use crate::session::callers::{Message, TermsChange};
use crate::session::outbox::channel;
use crate::session::spec::Wait;

impl World {
    /// A client asks for all units.
    pub(super) fn acquire(&mut self, number: usize) {
        let terms = PermitTerms::new(LIMIT, millis(LEASE));
        self.ask(number, Ask { terms, ..Ask::default() });
    }

    /// A client asks for a permit. If it has kept one, it gets it at once.
    pub(super) fn ask(&mut self, number: usize, ask: Ask) {
        let client = &mut self.clients[number];
        if let Some(again) = client.acquire(ask) {
            self.seen.granted_again += 1;
            rises(&mut self.last_of_slots, &self.ideas, &again);
            client.held.push(again);
        }
    }

    /// A client releases one of its permits, and waits for that, or does not.
    pub(super) fn release_one(&mut self, number: usize) {
        let is_awaited = self.chance(50);
        let client = &mut self.clients[number];
        let mut held = client.held.swap_remove(self.random.usize(0..client.held.len()));
        if is_awaited && !held.put_back(client.session.now()) {
            client.releasing.push(Box::pin(held.release()));
        }
    }

    /// A program renews one of its permits, or says who renews it from now on.
    pub(super) fn renew_by_program(&mut self, number: usize) {
        let (says, renews) = (self.chance(40), self.chance(50));
        let client = &self.clients[number];
        let permit = &client.held[self.random.usize(0..client.held.len())].state;
        if says {
            self.seen.changed += 1;
            return client.session.change_terms(permit, TermsChange::AutoRenew(renews));
        }
        self.seen.renewed += 1;
        let (semaphore, request) = (permit.semaphore.clone(), permit.request.clone());
        // The program does not wait for the reply.
        let (answer, _) = channel();
        client.session.send(Message::Renew { semaphore, request, answer });
    }

    /// An action of the program of a client.
    pub(super) fn act(&mut self, number: usize) {
        if self.clients[number].frozen {
            return;
        }
        let action = self.random.u32(0..12);
        let weight = if self.chance(20) { 2 } else { 1 };
        let wait = match self.random.u32(0..4) {
            0 => Wait::No,
            1 => Wait::AtMost(Duration::from_millis(self.random.u64(1..8000))),
            _ => Wait::Forever,
        };
        let at_least_ms = if self.chance(20) { self.random.u64(1..8000) } else { 0 };
        let lease = LEASE / self.random.u32(1..4);
        let client = &mut self.clients[number];
        match action {
            0..=3 if client.pending.len() < 3 => {
                let terms = PermitTerms { at_least_ms, ..PermitTerms::new(weight, millis(LEASE)) };
                self.ask(number, Ask { terms, wait, ..Ask::default() });
            }
            4 if !client.pending.is_empty() => {
                self.seen.cancelled += 1;
                let last = client.pending.len() - 1;
                drop(client.pending.swap_remove(self.random.usize(0..=last)));
            }
            5..=8 if !client.held.is_empty() => {
                self.release_one(number);
            }
            10.. if !client.held.is_empty() => {
                let held = &client.held[self.random.usize(0..client.held.len())];
                let rest = if action == 10 { held.state.give_back(1) } else { None };
                let change = rest.map_or(TermsChange::Lease(lease), TermsChange::Weight);
                self.seen.changed += 1;
                client.session.change_terms(&held.state, change);
            }
            _ => {}
        }
        self.run_tasks(number);
    }
}
