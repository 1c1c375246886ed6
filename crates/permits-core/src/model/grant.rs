//! Granting: the capacity, the promotion of the queue, and the slots.

use super::execution::Execution;
use super::lanes::{LaneBounds, Side, cost};
use super::state::signed;
use crate::protocol::{EventKind, Grant, Holder, MAX_BATCH, PermitTerms};

/// The most waiters that one command examines for promotion.
pub const PROMOTE_MAX: u64 = MAX_BATCH as u64;

impl Execution<'_> {
    /// The most units that may be held after this command, under `limit`.
    pub(super) fn capacity(&self, limit: u32) -> u64 {
        if self.state.is_paused() {
            0
        } else if self.is_recovering() {
            self.held_at_start.min(limit.into())
        } else {
            limit.into()
        }
    }

    /// Returns true if `weight` units can be granted now, under `limit`.
    pub(super) fn fits(&self, limit: u32, weight: u32) -> bool {
        self.state.held + u64::from(weight) <= self.capacity(limit) && self.next_slot(limit).is_some()
    }

    /// Returns true if its lane allows a newcomer on these terms to be granted now: nobody waits there, and
    /// the limit is not reached.
    pub(super) fn fits_lane(&self, terms: &PermitTerms) -> bool {
        let bounded = self.state.lane_bounds(terms);
        bounded.is_none_or(|bounded| !bounded.is_full_for(terms.weight) && !self.state.waits_in(&terms.lane))
    }

    /// Returns true if a waiter stands before a newcomer on these terms. A newcomer in a short lane is behind
    /// the waiters of short lanes only, and any other newcomer is behind every waiter in line.
    pub(super) fn is_behind(&self, terms: &PermitTerms) -> bool {
        let is_short = |bounded: LaneBounds| bounded.side_for(terms.weight) == Side::Short;
        let passes = self.state.lane_bounds(terms).is_some_and(is_short);
        if passes { self.state.lanes.first_short().is_some() } else { self.state.head().is_some() }
    }

    /// The slot of the next grant: the lowest free one. While recovering, only a slot that this command
    /// freed: any other may belong to a holder that the store forgot, and that could then not be put back.
    pub(super) fn next_slot(&self, limit: u32) -> Option<u64> {
        if self.is_recovering() {
            self.freed_slots.first().copied().filter(|slot| *slot < limit.into())
        } else {
            Some(self.state.lowest_slot())
        }
    }

    /// Grants the head of the queue while it is alive and fits. A heavy head is not overtaken. A head heavier
    /// than the limit, or than the limit of its lane, is refused, and so is every head while the line is
    /// closed. While the store recovers, nothing is granted in a lane with a limit: a forgotten holder may be
    /// of that lane.
    pub(super) fn promote(&mut self) {
        self.state.settle();
        if let Some(reason) = self.state.closed.clone() {
            return self.refuse_waiters(&reason);
        }
        // A request that supersedes promotes a second time in one command, and may leave nothing to continue.
        self.promote_truncated = false;
        let limit = self.state.limit;
        let capacity = self.capacity(limit);
        for _ in 0..PROMOTE_MAX {
            if capacity <= self.state.held {
                return;
            }
            let Some(ticket) = self.state.head() else { return };
            let holder = self.state.queue[&ticket].clone();
            let entry = &self.state.entries[&holder];
            if self.reap_truncated && -entry.deadline <= signed(self.now_ms) {
                return;
            }
            let bounded = self.state.lanes.bounded().get(&entry.terms.lane).filter(|lane| lane.limit > 0);
            if entry.terms.weight > bounded.map_or(limit, |lane| lane.limit.min(limit)) {
                self.state.counts.refused += 1;
                self.emit(&holder, EventKind::Refused);
                self.forget(&holder);
            } else if self.fits(limit, entry.terms.weight) && (bounded.is_none() || !self.is_recovering()) {
                self.state.waits.add(self.now_us.saturating_sub(self.state.queued_us(&holder)));
                self.turn_is_new |= entry.terms.at_least_ms > 0;
                let terms = entry.terms.clone();
                self.begin_lease(terms.lease_ms);
                self.state.queue.remove(&ticket);
                self.state.leave(&terms, cost(&terms));
                let grant = self.grant(&holder);
                self.emit(&holder, EventKind::Granted(grant));
            } else {
                return;
            }
            self.state.settle();
        }
        self.promote_truncated = self.state.head().is_some() && self.state.held < capacity;
    }

    /// Makes a holder of an entry that fits and is not in the queue: token, slot, deadline.
    pub(super) fn grant(&mut self, holder: &Holder) -> Grant {
        let token = self.now_us.max(self.state.last_token + 1);
        self.state.last_token = token;
        self.state.counts.grants += 1;
        let slot = self.next_slot(self.state.limit).expect("it fits");
        self.take_slot(slot);
        let slot = u32::try_from(slot).expect("slots granted are below the limit, which is a u32");
        let grant = Grant { token, slot };
        self.state.hold(holder, grant);
        self.extend(holder);
        grant
    }

    /// Takes this very slot. Returns whether it was free.
    pub(super) fn take_slot(&mut self, slot: u64) -> bool {
        self.freed_slots.remove(&slot);
        self.state.take_slot(slot)
    }
}
