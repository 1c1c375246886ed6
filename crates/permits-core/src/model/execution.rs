//! The execution of one command: from the state found to the reply.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::state::{EntryState, PAUSED, ServerClock, State, TURN_MS, signed};
use crate::protocol::{
    Answers, ChangeEffect, ChangeOrigin, ChangeRecord, Command, DeleteOutcome, Event, EventKind, Holder,
    LaneName, LanePin, MAX_BATCH, ReleaseOutcome, Reply,
};

/// The most expired entries that one command reaps.
pub const REAP_MAX: usize = 128;

/// The most sessions that one command asks to continue the work that a bound has cut off.
pub const TURNS_MAX: usize = 4;

/// A command in execution.
pub(super) struct Execution<'a> {
    pub(super) state: State,
    pub(super) existed: bool,
    pub(super) command: &'a Command,
    pub(super) now_us: u64,
    pub(super) now_ms: u64,
    /// The start of the server, in microseconds.
    pub(super) started_us: u64,
    /// The length of the recovery window that this command opens or keeps open, in milliseconds.
    pub(super) window_ms: u64,
    /// The units held after the reaping. While recovering, no more may be held after the command.
    pub(super) held_at_start: u64,
    /// The slots that this command freed (reaping not counted), and has not granted since.
    pub(super) freed_slots: BTreeSet<u64>,
    /// True if the reaping stopped at its bound.
    pub(super) reap_truncated: bool,
    /// True if the promotion stopped at its bound.
    pub(super) promote_truncated: bool,
    /// True if a waiter may have its turn to ask what time alone has granted, which no session knows.
    pub(super) turn_is_new: bool,
    /// The shortest lease, in milliseconds, of the permits that waiters were granted or that were put back:
    /// the waiters behind them know of no end of it.
    pub(super) begun_ms: Option<u64>,
    /// True once this command has found that a recall may free units that sessions keep.
    pub(super) recalls: Cell<bool>,
    /// True if the command has deleted the state.
    pub(super) deleted: bool,
    /// The limit that the declaration has replaced.
    pub(super) replaced_limit: Option<u32>,
    /// A lane and its bounds that a request has replaced.
    pub(super) replaced_bounds: Option<(LaneName, LanePin)>,
    pub(super) events: Vec<Event>,
}

impl<'a> Execution<'a> {
    /// Finds the state, or starts one, and opens the recovery window of a new era.
    pub(super) fn begin(state: Option<State>, server: &ServerClock<'_>, command: &'a Command) -> Self {
        let now_us = server.now_us;
        let now_ms = now_us / 1000;
        let state = state.filter(|state| !state.is_expired(now_ms));
        let damage = state.as_ref().and_then(|state| state.damage);
        let forgotten_until = |state: &State| state.forgotten_until_ms(now_ms, command);
        let forgotten_until_ms = state.as_ref().map_or(0, forgotten_until);
        let found = state.and_then(State::found);
        let existed = found.is_some();
        let mut execution = Self {
            state: found.unwrap_or_else(|| State::new(server)),
            existed: existed || damage.is_some(),
            command,
            now_us,
            now_ms,
            started_us: now_us.saturating_sub(server.uptime_ms.saturating_mul(1000)),
            held_at_start: 0,
            freed_slots: BTreeSet::new(),
            reap_truncated: false,
            promote_truncated: false,
            turn_is_new: false,
            begun_ms: None,
            recalls: Cell::new(false),
            window_ms: 0,
            deleted: false,
            replaced_limit: None,
            replaced_bounds: None,
            events: Vec::new(),
        };
        execution.open_window(server, existed, damage.map(|_| forgotten_until_ms));
        if execution.state.paused_until_ms <= now_ms {
            execution.state.paused_until_ms = 0;
        }
        execution.state.kept_until_ms = match command.kept_for_ms() {
            0 => execution.state.kept_until_ms,
            kept_for_ms => execution.state.kept_until_ms.max(now_ms + kept_for_ms),
        };
        execution
    }

    /// Removes expired entries: holders first, then waiters; at most `max`.
    pub(super) fn reap(&mut self, max: usize) {
        let now = signed(self.now_ms);
        let expired = self.state.leases.range((-now, Holder::min())..(now + 1, Holder::min()));
        let expired: Vec<Holder> = expired.rev().take(max).map(|(_, holder)| holder.clone()).collect();
        self.reap_truncated = expired.len() == max;
        for holder in expired {
            self.state.spend_tokens(&holder);
            self.state.counts.expired += u64::from(!holder.is_cooling());
            self.end(&holder);
        }
        // Reaped units are not handed on during a recovery: the store may remember a holder that has released
        // since, and have forgotten the holder that was granted its units.
        self.held_at_start = self.state.held;
    }

    /// Forgets an entry: a waiter leaves the queue; a holder frees its units and slot, or cools.
    pub(super) fn forget(&mut self, holder: &Holder) -> ReleaseOutcome {
        let Some(entry) = self.state.entries.get(holder) else { return ReleaseOutcome::Unknown };
        let (taken, is_withheld, weight) = (entry.place.taken(), self.is_withheld(entry), entry.terms.weight);
        let was = self.end(holder);
        match taken {
            Some(grant) if self.state.entries.contains_key(&holder.cooling(grant.token)) => {}
            // If the clock has jumped back, this very command may have made the entry.
            Some(_) if is_withheld => {
                self.held_at_start = self.held_at_start.saturating_sub(u64::from(weight));
            }
            Some(grant) => drop(self.freed_slots.insert(grant.slot.into())),
            None => {}
        }
        was
    }

    /// Ends an entry: removes it, unless its grant is to count for longer.
    fn end(&mut self, holder: &Holder) -> ReleaseOutcome {
        let place = self.state.entries.get(holder).map(|entry| entry.place);
        self.turn_is_new |= matches!(place, Some(EntryState::Waiting(_) | EntryState::Cooling(_)));
        match self.state.entries.get(holder) {
            Some(entry) if entry.counts_until_ms(self.now_ms) > self.now_ms => {
                let until_ms = entry.counts_until_ms(self.now_ms);
                let Some(grant) = entry.place.taken() else { return ReleaseOutcome::Unknown };
                self.state.cool(holder, grant, until_ms);
                self.turn_is_new = true;
                ReleaseOutcome::Held
            }
            _ => self.state.remove(holder),
        }
    }

    /// Sets a new deadline, one lease from now.
    pub(super) fn extend(&mut self, holder: &Holder) {
        let lease_ms = self.state.entries[holder].terms.lease_ms;
        self.state.set_deadline(holder, self.now_ms + lease_ms);
    }

    /// Remembers a change by an operator that has had an effect.
    pub(super) fn remember(&mut self, origin: &ChangeOrigin, effect: ChangeEffect) {
        self.state.remember_change(ChangeRecord { origin: origin.clone(), at_us: self.now_us, effect });
    }

    /// Adds an event for the session of an entry.
    pub(super) fn emit(&mut self, holder: &Holder, kind: EventKind) {
        let entry = &self.state.entries[holder];
        self.events.push(Event {
            session: entry.session.clone(),
            semaphore: self.command.semaphore.clone(),
            holder: holder.clone(),
            request: entry.request.clone(),
            kind,
        });
    }

    /// Tells sessions of waiters when it is their turn to ask, where no other session would. If a bound has
    /// cut off work, the head's session asks at once, and some others ask one after the other, since the
    /// head's may be dead. If time alone changes something, the head's session asks for that. No turn is
    /// needed after a plain hand-over: there a release comes before a lease ends, or the head renews before
    /// that, unless its own lease is longer.
    fn announce_turns(&mut self) {
        if self.is_cut() {
            let (mut heads, mut sessions) = (Vec::new(), BTreeSet::new());
            let max = if self.state.lanes.last == 0 { MAX_BATCH } else { 2 * TURNS_MAX };
            for holder in self.state.heads(max) {
                let session = &self.state.entries[holder].session;
                if heads.len() < TURNS_MAX && sessions.insert(session.as_str()) {
                    heads.push(holder.clone());
                }
            }
            for (position, head) in (0..).zip(&heads) {
                self.emit(head, EventKind::Turn((1000 * TURN_MS * position).max(1)));
            }
        } else if let Some(head) = self.state.heads(1).first().copied().cloned()
            && (self.turn_is_new || self.ends_before_a_renewal_of(&head))
            && self.state.paused_until_ms < PAUSED
        {
            let at_us = 1000 * self.state.next_change_ms(self.now_ms);
            self.emit(&head, EventKind::Turn(at_us.saturating_sub(self.now_us).max(1)));
        }
    }

    /// Returns true if a permit that began with this command may end before this waiter is renewed.
    fn ends_before_a_renewal_of(&self, head: &Holder) -> bool {
        let lease_ms = self.state.entries[head].terms.lease_ms.min(self.state.lease_max_ms);
        self.begun_ms.is_some_and(|begun_ms| begun_ms < lease_ms)
    }

    /// Notes that a permit with this lease begins.
    pub(super) fn begin_lease(&mut self, lease_ms: u64) {
        self.begun_ms = Some(self.begun_ms.map_or(lease_ms, |begun_ms| begun_ms.min(lease_ms)));
    }

    /// Returns true if a bound has cut off work of this command.
    fn is_cut(&self) -> bool {
        self.reap_truncated || self.promote_truncated
    }

    /// Ends the command: sequence number, expiry, and the reply.
    pub(super) fn finish(mut self, answers: Answers) -> (Option<State>, Reply, Vec<Event>) {
        self.state.settle_all();
        self.announce_turns();
        let is_cut = self.is_cut();
        let state = &mut self.state;
        if state.held == 0 {
            state.slots_made = 0;
            state.free.clear();
        }
        if state.expires_ms < self.now_ms + 2 * state.lease_max_ms {
            state.expires_ms = self.now_ms + 4 * state.lease_max_ms;
        }
        let is_used = state.limit > 0 || state.held > 0 || state.is_paused() || state.never_expires();
        let stays = !self.deleted && (self.existed || is_used);
        state.sequence = if stays || self.deleted { state.sequence + 1 } else { 0 };
        let recheck_ms = if is_cut {
            Some(0)
        } else {
            let turn = answers.foremost().map(|position| state.turn_ms(self.now_ms, position));
            turn.map(|at| at.saturating_sub(self.now_ms).max(1))
        };
        let reply = Reply { recheck_ms, ..self.reply(answers) };
        (stays.then_some(self.state), reply, self.events)
    }

    /// The reply, without the time of the next renewal.
    pub(super) fn reply(&self, answers: Answers) -> Reply {
        let state = &self.state;
        let is_in_the_way = matches!(answers, Answers::Delete(DeleteOutcome::InUse { .. }));
        Reply {
            now_us: self.now_us.max(state.last_token),
            sequence: state.sequence,
            recheck_ms: None,
            limit: state.limit,
            limit_version: state.limit_version,
            pinned: state.pinned,
            recovering_ms: state.recovering_until_ms.saturating_sub(self.now_ms),
            replaced_limit: self.replaced_limit,
            replaced_bounds: self.replaced_bounds.clone(),
            keepable: state.is_keepable(self.now_ms) && !is_in_the_way,
            answers,
        }
    }
}
