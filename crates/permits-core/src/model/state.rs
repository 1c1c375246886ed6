//! The state of one semaphore, and the small moves by which it changes.
//!
//! Invariant: `queue`, `leases` and `held` agree with the entries, and every slot below `slots_made` is in
//! use or in `free`, once. Each method keeps it; `invariants` checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lanes::Lanes;
use crate::protocol::{
    Alert, CHANGE_RETRIED_MS, ChangeEffect, ChangeRecord, Counts, Grant, Holder, PermitTerms, ReleaseOutcome,
    RequestId, SessionId, SupersedeKey, Waits,
};

/// The number of operators' changes that are remembered at least: for operators to read.
pub const CHANGES_MIN: usize = 32;

/// The number of operators' changes that are remembered at most. Up to this number, every change of the last
/// [`CHANGE_RETRIED_MS`] is remembered: so a change that is sent again has one effect and one answer.
pub const CHANGES_MAX: usize = 256;

/// The number of tokens of a grant that its session may keep: the store's, and those behind it, which the
/// session gives to its own requests.
pub const KEPT_TOKENS: u64 = 4_096;

/// The time for which a request that may not wait is queued while other sessions release what they keep, in
/// microseconds.
pub const RECALL_US: u64 = 50_000;

/// The end of a pause without an end, in milliseconds.
pub const PAUSED: u64 = (1 << 53) - 1;

/// A refusal looks for cooling units among this number of leases, which are those that end first.
pub(super) const COOLING_MAX: usize = 128;

/// The time between the turns of waiters to ask whether time has granted something, in milliseconds.
pub(super) const TURN_MS: u64 = 200;

/// A waiter behind this many others gets no turn to ask when a lease ends: its own renewals come sooner.
pub const TURNS_BY_LEASE: usize = 1_000;

/// The clock and the identity of the server at the moment of a command.
#[derive(Debug, Clone, Copy)]
pub struct ServerClock<'a> {
    /// The clock, in microseconds since 1970.
    pub now_us: u64,
    /// A name that is new after each restart.
    pub run_id: &'a str,
    /// The uptime, in milliseconds.
    pub uptime_ms: u64,
}

/// The state of one semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct State {
    /// The units that may be held at once; 0 while no limit is declared.
    pub limit: u32,
    /// Rises with every change of the limit or its pin.
    pub limit_version: u64,
    /// True if an operator set the limit, so that declarations are ignored.
    pub pinned: bool,
    /// The end of the pause, in milliseconds: 0 without a pause, [`PAUSED`] for a pause without an end.
    pub paused_until_ms: u64,
    /// The reason for which the line is closed, if it is: waiters and newcomers are refused.
    pub closed: Option<Arc<str>>,
    /// The thresholds beyond which somebody should look at the semaphore.
    pub alert: Alert,
    /// Units held now.
    pub held: u64,
    /// Cooling units, included in `held`.
    pub cooling: u64,
    /// The highest token granted.
    pub last_token: u64,
    /// The last ticket given.
    pub last_ticket: u64,
    /// Slots `0..slots_made` are in use or in `free`.
    pub slots_made: u64,
    /// Counts the commands that left this state.
    pub sequence: u64,
    /// The server's identity at its last check.
    pub server: String,
    /// The time of the last check of the server's identity, in microseconds.
    pub checked_us: u64,
    /// The highest token known when the era began: 0 if there was no state,
    /// [`PARTLY_LOST`](super::PARTLY_LOST) if a part of it had vanished.
    pub era_known: u64,
    /// The beginning of the era, in microseconds.
    pub era_began_us: u64,
    /// The end of the recovery window, in milliseconds.
    pub recovering_until_ms: u64,
    /// The longest lease seen, in milliseconds.
    pub lease_max_ms: u64,
    /// The latest time until which a grant that its session may keep stands without renewal, in milliseconds.
    pub kept_until_ms: u64,
    /// The time at which an idle state is forgotten, in milliseconds. See [`State::never_expires`].
    pub expires_ms: u64,
    /// Holders and waiters.
    pub entries: BTreeMap<Holder, Entry>,
    /// The queue: ticket → holder.
    pub queue: BTreeMap<u64, Holder>,
    /// The lanes of the queue.
    pub lanes: Lanes,
    /// The holder that waits with each supersede key.
    pub by_key: BTreeMap<SupersedeKey, Holder>,
    /// Holders and waiters by deadline. A waiter's deadline is negative, so that the range `-now..=now` holds
    /// all expired entries, and holders can be listed without walking the waiters.
    pub leases: BTreeSet<(i64, Holder)>,
    /// Free slots, as ranges: first → last.
    pub free: BTreeMap<u64, u64>,
    /// How often things have happened since the store has the semaphore.
    pub counts: Counts,
    /// The waits that grants have ended.
    pub waits: Waits,
    /// The last changes by operators, oldest first; at most [`CHANGES_MAX`], the last of each part of the
    /// state among them.
    pub changes: Vec<ChangeRecord>,
    /// The loss of some parts, which the next command notices.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub damage: Option<Damage>,
}

/// The parts in which a store may keep a state, each of which may vanish alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The entries, and all fields that are in no other part.
    State,
    /// The queue.
    Queue,
    /// The deadlines.
    Leases,
    /// The free slots.
    Free,
    /// The lanes.
    Lanes,
}

/// A loss of some parts of a state, not of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// [`Part::State`] has vanished: the rest shows only that there was a state.
    StateLost,
    /// Another part has vanished: only [`Part::State`] can be relied on.
    OtherLost,
}

/// A holder or waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Entry {
    /// The acquisition.
    pub request: RequestId,
    /// The session that receives its events.
    pub session: SessionId,
    /// The terms of the request.
    pub terms: PermitTerms,
    /// The number of changes of the lease by its holder.
    pub lease_version: u32,
    /// The end of its lease, in milliseconds, negative for a waiter: its place in `leases`.
    pub deadline: i64,
    /// The state of the request: waiting, holding or cooling.
    pub place: EntryState,
    /// The time at which a waiter that names its lane or share was queued, in microseconds. For any other
    /// waiter the ticket is that time.
    pub queued_us: u64,
}

impl Entry {
    /// The time until which the units of the grant stay taken even if the holder leaves, in milliseconds.
    pub fn counts_until_ms(&self, now_ms: u64) -> u64 {
        match self.place {
            EntryState::Holding(grant) if self.terms.at_least_ms > 0 => {
                // A token is the time of its grant, or later: after the clock was set back.
                grant.token.div_ceil(1000).min(now_ms + 1) + self.terms.at_least_ms
            }
            _ => 0,
        }
    }
}

/// The state of an entry: waiting, holding or cooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EntryState {
    /// The request waits in the queue, with this ticket.
    Waiting(u64),
    /// The request holds this grant.
    Holding(Grant),
    /// The holder has left, and the units and the slot of its grant stay taken until the deadline. The key of
    /// the entry is [`Holder::cooling`].
    Cooling(Grant),
}

impl EntryState {
    /// The grant that takes units and a slot.
    pub fn taken(self) -> Option<Grant> {
        match self {
            Self::Waiting(_) => None,
            Self::Holding(grant) | Self::Cooling(grant) => Some(grant),
        }
    }
}

impl State {
    pub(super) fn new(server: &ServerClock<'_>) -> Self {
        Self {
            limit: 0,
            limit_version: 0,
            pinned: false,
            paused_until_ms: 0,
            closed: None,
            alert: Alert::default(),
            held: 0,
            cooling: 0,
            last_token: 0,
            last_ticket: 0,
            slots_made: 0,
            sequence: 0,
            server: server.run_id.to_owned(),
            checked_us: server.now_us,
            era_known: 0,
            era_began_us: server.now_us,
            recovering_until_ms: 0,
            lease_max_ms: 0,
            kept_until_ms: 0,
            expires_ms: 0,
            entries: BTreeMap::new(),
            queue: BTreeMap::new(),
            lanes: Lanes::default(),
            by_key: BTreeMap::new(),
            leases: BTreeSet::new(),
            free: BTreeMap::new(),
            counts: Counts::default(),
            waits: Waits::default(),
            changes: Vec::new(),
            damage: None,
        }
    }

    /// The effect of a change that was made before, if it is remembered.
    pub(super) fn change_made(&self, request: &RequestId) -> Option<&ChangeEffect> {
        self.changes.iter().find(|change| change.origin.request == *request).map(|change| &change.effect)
    }

    /// Remembers a change. If there are too many, it forgets the oldest ones that no session sends again, but
    /// never the last change of a part.
    pub(super) fn remember_change(&mut self, change: ChangeRecord) {
        let now_us = change.at_us;
        self.changes.push(change);
        while let Some(at) = (0..self.changes.len()).find(|at| self.is_followed(*at)) {
            let is_recent = now_us < self.changes[at].at_us + 1000 * CHANGE_RETRIED_MS;
            if self.changes.len() <= if is_recent { CHANGES_MAX } else { CHANGES_MIN } {
                break;
            }
            self.changes.remove(at);
        }
    }

    /// The last `max` changes and the last change of each part, newest first; nothing if `max` is 0.
    pub(super) fn last_changes(&self, max: usize) -> Vec<ChangeRecord> {
        let count = self.changes.len();
        let is_listed = |at: &usize| max > 0 && (count - at <= max || !self.is_followed(*at));
        (0..count).rev().filter(is_listed).map(|at| self.changes[at].clone()).collect()
    }

    fn is_followed(&self, at: usize) -> bool {
        let effect = &self.changes[at].effect;
        self.changes[at + 1..].iter().any(|later| later.effect.is_on_same_part(effect))
    }

    /// Returns true if the state does not expire, because an operator has pinned the limit or a lane, paused
    /// it without an end, closed the line, or set an alert. A pause with an end puts the expiry off instead.
    pub fn never_expires(&self) -> bool {
        let is_pinned = self.pinned || self.lanes.pins() > 0;
        is_pinned || self.paused_until_ms == PAUSED || self.closed.is_some() || self.alert.is_set()
    }

    /// Returns true if granting is stopped. The command that comes after the end of a pause ends it.
    pub fn is_paused(&self) -> bool {
        self.paused_until_ms > 0
    }

    /// The end of the pause, in milliseconds, if there is one and it has an end.
    pub fn pause_ends_ms(&self) -> Option<u64> {
        Some(self.paused_until_ms).filter(|until| (1..PAUSED).contains(until))
    }

    /// The reason of the last pause, empty without one.
    pub(super) fn pause_reason(&self) -> &str {
        let reason = self.changes.iter().rev().find_map(|change| match &change.effect {
            ChangeEffect::Pause { reason, .. } => Some(&**reason),
            _ => None,
        });
        reason.unwrap_or_default()
    }

    /// Returns true if the state is forgotten, because it was idle until `expires_ms`.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.damage != Some(Damage::StateLost) && !self.never_expires() && now_ms >= self.expires_ms
    }

    pub(super) fn remove(&mut self, holder: &Holder) -> ReleaseOutcome {
        let Some(entry) = self.entries.remove(holder) else { return ReleaseOutcome::Unknown };
        self.leases.remove(&(entry.deadline, holder.clone()));
        match entry.place {
            EntryState::Waiting(ticket) => {
                self.queue.remove(&ticket);
                self.leave(&entry.terms, 0.0);
                ReleaseOutcome::Waiting
            }
            EntryState::Holding(grant) | EntryState::Cooling(grant) => {
                self.held -= u64::from(entry.terms.weight);
                self.count_in_lane(&entry.terms, entry.terms.weight, 0);
                if matches!(entry.place, EntryState::Cooling(_)) {
                    self.cooling -= u64::from(entry.terms.weight);
                }
                self.free.insert(grant.slot.into(), grant.slot.into());
                ReleaseOutcome::Held
            }
        }
    }

    /// Ends a holder whose grant counts until `until_ms`: the entry stays, under another name.
    pub(super) fn cool(&mut self, holder: &Holder, grant: Grant, until_ms: u64) {
        if let Some(entry) = self.entries.remove(holder) {
            self.leases.remove(&(entry.deadline, holder.clone()));
            let deadline = signed(until_ms);
            let cooling = holder.cooling(grant.token);
            self.cooling += u64::from(entry.terms.weight);
            self.leases.insert((deadline, cooling.clone()));
            self.entries.insert(cooling, Entry { deadline, place: EntryState::Cooling(grant), ..entry });
        }
    }

    pub(super) fn hold(&mut self, holder: &Holder, grant: Grant) {
        if let Some(entry) = self.entries.get_mut(holder) {
            entry.place = EntryState::Holding(grant);
            entry.queued_us = 0;
            self.held += u64::from(entry.terms.weight);
            self.count_grant(holder);
        }
    }

    pub(super) fn set_deadline(&mut self, holder: &Holder, deadline_ms: u64) {
        if let Some(entry) = self.entries.get_mut(holder) {
            self.leases.remove(&(entry.deadline, holder.clone()));
            let deadline = signed(deadline_ms);
            entry.deadline = if entry.place.taken().is_some() { deadline } else { -deadline };
            self.leases.insert((entry.deadline, holder.clone()));
        }
    }

    pub(super) fn lowest_slot(&self) -> u64 {
        self.free.first_key_value().map_or(self.slots_made, |(first, _)| *first)
    }

    /// Takes this very slot. Returns whether it was free.
    pub(super) fn take_slot(&mut self, slot: u64) -> bool {
        if slot >= self.slots_made {
            if slot > self.slots_made {
                self.free.insert(self.slots_made, slot - 1);
            }
            self.slots_made = slot + 1;
            return true;
        }
        match self.free.range(..=slot).next_back() {
            Some((&first, &last)) if slot <= last => {
                self.free.remove(&first);
                if first < slot {
                    self.free.insert(first, slot - 1);
                }
                if slot < last {
                    self.free.insert(slot + 1, last);
                }
                true
            }
            _ => false,
        }
    }

    /// Passes over all tokens of a grant, if its session may have used them.
    pub(super) fn spend_tokens(&mut self, holder: &Holder) {
        if let Some(Entry { terms: PermitTerms { keep: true, .. }, place, .. }) = self.entries.get(holder)
            && let Some(grant) = place.taken()
        {
            self.last_token = self.last_token.max(last_kept(grant));
        }
    }

    /// The sessions that may keep grants.
    pub fn keepers(&self) -> BTreeSet<&SessionId> {
        let kept = self.entries.values().filter(|entry| entry.terms.keep && entry.place.taken().is_some());
        kept.map(|entry| &entry.session).collect()
    }

    /// Returns true if sessions may keep grants at `now_ms`.
    pub(super) fn may_be_kept(&self, now_ms: u64) -> bool {
        now_ms < self.kept_until_ms
    }

    /// Returns true if no request needs units at `now_ms`: sessions may keep what is released. The bounds
    /// that an operator pins to a lane hold for each grant, and sessions that keep permits do not know them.
    pub(super) fn is_keepable(&self, now_ms: u64) -> bool {
        self.queue.is_empty()
            && self.lanes.pins() == 0
            && self.held <= self.limit.into()
            && now_ms >= self.paused_until_ms
            && self.closed.is_none()
            && now_ms >= self.recovering_until_ms
    }

    /// The next moment at which time alone changes something: the earliest deadline, or the end of a pause or
    /// a recovery window.
    pub(super) fn next_change_ms(&self, now_ms: u64) -> u64 {
        let holder = self.leases.range((0, Holder::min())..).next();
        let waiter = self.leases.range(..(0, Holder::min())).next_back();
        let deadlines = [holder, waiter].into_iter().flatten().map(|(deadline, _)| deadline.unsigned_abs());
        let window = Some(self.recovering_until_ms).filter(|until| *until > now_ms);
        deadlines.chain(window).chain(self.pause_ends_ms()).min().unwrap_or(now_ms)
    }

    /// The time at which the session of a waiter should ask whether time alone has granted something, with
    /// `position` waiters before it. The head asks at the next change. A waiter behind it asks [`TURN_MS`]
    /// after the waiter before it, which may be dead, or when one more lease of a holder has ended than
    /// waiters are before it, if that is sooner and these are less than [`TURNS_BY_LEASE`].
    pub(super) fn turn_ms(&self, now_ms: u64, position: u64) -> u64 {
        let turn = self.next_change_ms(now_ms) + TURN_MS * position;
        let holders = self.leases.len() - self.queue.len();
        let nth = usize::try_from(position).ok().filter(|nth| *nth < holders.min(TURNS_BY_LEASE));
        let ended = nth.and_then(|nth| self.leases.range((0, Holder::min())..).nth(nth));
        ended.map_or(turn, |(deadline, _)| turn.min(deadline.unsigned_abs()))
    }
}

/// The last token that its session may use, if it may keep this grant.
fn last_kept(grant: Grant) -> u64 {
    grant.token + KEPT_TOKENS - 1
}

pub(super) fn signed(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds).expect("times stay below 2^53")
}
