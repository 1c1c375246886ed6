//! The steps of holders with their permits: they change the terms, and give permits to other processes. The
//! code is around the acquisition, as in the session.

use permits_core::acquisition::{Acquisition, Input, Stage};
use permits_core::protocol::Grant;
use permits_core::timing::held_until;

use super::client::{Call, Circumstances, Client, Entry, Kind, Origin, OwnTerms, moment, new_entry, tick};
use super::world::TICK_MS;

/// A permit that was handed over, in the hands of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handle {
    /// The client that had it, and its request.
    pub(crate) owner: (usize, u8),
    pub(crate) origin: Origin,
    pub(crate) terms: OwnTerms,
    pub(crate) grant: Grant,
    /// The program considers the permit held until then.
    pub(crate) until: u32,
    /// True while nobody has told the holder otherwise, and it has given the permit to no session.
    pub(crate) is_held: bool,
}

impl Client {
    /// The holder gives a part of its units back. The next renewal tells the store.
    pub(crate) fn release_part(&mut self) {
        self.entry.iter_mut().for_each(|entry| entry.terms.weight -= 1);
    }

    /// The holder changes the lease. The next renewal tells the store.
    pub(crate) fn set_lease(&mut self, lease: u32, known: Circumstances) {
        let Some(entry) = &mut self.entry else { return };
        let lease_ms = u64::from(lease) * TICK_MS;
        entry.terms = OwnTerms { lease_ms, version: entry.terms.version + 1, ..entry.terms };
        entry.until = entry.until.min(tick(held_until(moment(known.now), entry.lease())));
    }

    /// The connection has ended: a holder that renews its permit itself may have been forgotten.
    pub(crate) fn claim(&mut self) {
        let of_program = |entry: &&mut Entry| entry.held().is_some() && !entry.auto_renew;
        if let Some(entry) = self.entry.as_mut().filter(of_program) {
            entry.is_claimed = true;
            entry.terms.version += 2;
        }
    }

    /// The holder gives the permit to another process.
    pub(crate) fn hand_over(&mut self, known: Circumstances) {
        let Some(request) = self.entry.as_ref().map(|entry| entry.request) else { return };
        self.handed_over = self.call(Kind::Renew).map(|_| request);
        self.step(request, Input::HandedOver, known);
    }

    /// Asks for a permit that another process hands over.
    pub(crate) fn adopt(&mut self, handle: &Handle, known: Circumstances) {
        self.made += 1;
        let &Handle { owner, origin, terms, grant, .. } = handle;
        let (request, grant, sent) = (self.made, Some(grant), known.now);
        let call = Call { request, origin, terms, grant, adopts: Some(owner), sent, reply: None };
        self.calls[Kind::Adopt as usize] = Some(call);
    }

    pub(super) fn on_adopted(&mut self, call: &Call, known: Circumstances) {
        let (request, Some(grant)) = (call.request, call.grant) else { return };
        let acquisition = Acquisition { stage: Stage::InFlight, ..Acquisition::new(moment(call.sent)) };
        self.entry = Some(new_entry(request, call.origin, call.terms, acquisition, known));
        // The session that adopts it asks no replica.
        self.step(request, Input::Adopted(grant), known);
        if self.entry.as_ref().is_some_and(|entry| entry.held().is_none()) {
            // The reply took longer than the lease.
            self.entry = None;
            self.queue_release(call.origin, request, known);
        }
    }
}
