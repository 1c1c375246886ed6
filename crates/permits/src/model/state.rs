//! What a store knows of one semaphore, and the small moves by which it changes.
//!
//! Invariant: `queue`, `leases` and `held` say of the entries what the entries say themselves, and every slot
//! below `slots_made` is in use or in `free`, once. Each method keeps it.

use std::collections::{BTreeMap, BTreeSet};

use super::ServerClock;
use crate::protocol::{
    Grant, Holder, Label, LimitOutcome, MAX_LEASE_MS, ReleaseOutcome, RequestId, SessionId,
};

/// How many changes by operators are remembered, so that one that is sent again has one effect and one answer.
pub const CHANGES_MAX: usize = 32;

/// All that a store knows of one semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    /// Units that may be held at once; 0 while none is declared.
    pub limit: u32,
    /// Rises with every change of the limit or its pin.
    pub limit_version: u64,
    /// Whether an operator set the limit, so that declarations are ignored.
    pub pinned: bool,
    /// Whether granting is stopped.
    pub paused: bool,
    /// Units held now.
    pub held: u64,
    /// The highest token granted.
    pub last_token: u64,
    /// The last ticket given.
    pub last_ticket: u64,
    /// Slots `0..slots_made` are in use or in `free`.
    pub slots_made: u64,
    /// Counts the commands that left this state.
    pub sequence: u64,
    /// The server's identity when last looked up, and when that was, in microseconds.
    pub server: String,
    /// When the server's identity was last looked up, in microseconds.
    pub checked_us: u64,
    /// The highest token known when the era began.
    pub era_known: u64,
    /// When the era began, in microseconds.
    pub era_began_us: u64,
    /// Until when free capacity is held back, in milliseconds.
    pub recovering_until_ms: u64,
    /// The longest lease seen, in milliseconds.
    pub lease_max_ms: u64,
    /// When an idle state is forgotten, in milliseconds. A pinned or paused one is not.
    pub expires_ms: u64,
    /// Everybody who holds or waits.
    pub entries: BTreeMap<Holder, Entry>,
    /// Waiters in line: ticket → holder.
    pub queue: BTreeMap<u64, Holder>,
    /// Everybody by deadline. A waiter's deadline is negative, so that one range, `-now..=now`, is all the
    /// expired, and holders can be listed without walking the waiters.
    pub leases: BTreeSet<(i64, Holder)>,
    /// Slots given back, as ranges: first → last.
    pub free: BTreeMap<u64, u64>,
    /// The last changes by operators, oldest first; at most [`CHANGES_MAX`].
    #[cfg_attr(feature = "local", serde(default))]
    pub changes: Vec<Change>,
    /// A part of what the store knew has vanished, which the next command notices.
    #[cfg_attr(feature = "local", serde(skip))]
    pub damage: Option<Damage>,
}

/// A change by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub struct Change {
    /// Its request.
    pub request: RequestId,
    /// Its answer.
    pub answer: ChangeAnswer,
}

/// The answer to a change that had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub enum ChangeAnswer {
    /// To a change of the limit.
    Limit(LimitOutcome),
    /// To a revocation.
    Revoked(ReleaseOutcome),
}

/// The parts in which a store may keep a state, each of which may vanish alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All but the others.
    State,
    /// The entries.
    Entries,
    /// The line.
    Queue,
    /// The deadlines.
    Leases,
    /// The slots given back.
    Free,
}

/// A loss of some parts of a state, not of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// What is left says that there was a state, and nothing else.
    StateLost,
    /// Only what stands in [`Part::State`] can be relied on.
    OtherLost,
}

/// One who holds or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// The acquisition.
    pub request: RequestId,
    /// The session that hears of it.
    pub session: SessionId,
    /// A note for people.
    #[cfg_attr(feature = "local", serde(default))]
    pub label: Label,
    /// Units.
    pub weight: u32,
    /// How long a renewal lasts, in milliseconds.
    pub lease_ms: u64,
    /// Its score in `leases`.
    pub deadline: i64,
    /// Where it stands.
    pub place: EntryState,
}

/// Where an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "local", derive(serde::Serialize, serde::Deserialize))]
pub enum EntryState {
    /// In line, with this ticket.
    Waiting(u64),
    /// Granted.
    Holding(Grant),
}

impl State {
    pub(super) fn new(server: &ServerClock<'_>) -> Self {
        Self {
            limit: 0,
            limit_version: 0,
            pinned: false,
            paused: false,
            held: 0,
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
            expires_ms: 0,
            entries: BTreeMap::new(),
            queue: BTreeMap::new(),
            leases: BTreeSet::new(),
            free: BTreeMap::new(),
            changes: Vec::new(),
            damage: None,
        }
    }

    /// What is left after `parts` have vanished: the next command treats it as a loss of state.
    pub fn lose(mut self, parts: &[Part]) -> Option<Self> {
        let exists = |part: Part| match part {
            Part::State => self.damage != Some(Damage::StateLost),
            Part::Entries | Part::Leases => !self.entries.is_empty(),
            Part::Queue => !self.queue.is_empty(),
            Part::Free => !self.free.is_empty(),
        };
        let all = [Part::State, Part::Entries, Part::Queue, Part::Leases, Part::Free];
        let (lost, left): (Vec<Part>, Vec<Part>) =
            all.into_iter().filter(|part| exists(*part)).partition(|part| parts.contains(part));
        if left.is_empty() {
            return None;
        }
        if lost.contains(&Part::State) {
            self.damage = Some(Damage::StateLost);
        } else if !lost.is_empty() {
            self.damage = self.damage.or(Some(Damage::OtherLost));
        }
        Some(self)
    }

    /// What a command finds of it: no more than has not vanished.
    pub fn found(mut self) -> Option<Self> {
        match self.damage.take() {
            Some(Damage::StateLost) => return None,
            Some(Damage::OtherLost) => self.end_all(),
            None => {}
        }
        Some(self)
    }

    /// The answer to a change that was made before, if that is remembered.
    pub(super) fn change_made(&self, request: &RequestId) -> Option<ChangeAnswer> {
        self.changes.iter().find(|change| change.request == *request).map(|change| change.answer)
    }

    pub(super) fn remember_change(&mut self, request: &RequestId, answer: ChangeAnswer) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.remove(0);
        }
        self.changes.push(Change { request: request.clone(), answer });
    }

    /// Forgets every entry: for a store that knows that none of them can be alive.
    pub fn end_all(&mut self) {
        self.held = 0;
        self.slots_made = 0;
        self.entries.clear();
        self.queue.clear();
        self.leases.clear();
        self.free.clear();
    }

    /// What does not add up, if anything does not: units, slots, line, leases and entries say the same, and no number
    /// is beyond what is ever counted. A state that was kept elsewhere may have been damaged there.
    pub fn check_invariants(&self) -> Option<String> {
        self.unsound_numbers().or_else(|| self.unsound_entries()).or_else(|| self.unsound_slots())
    }

    fn unsound_numbers(&self) -> Option<String> {
        const MAX: u64 = 1 << 53;
        let counted = [
            self.limit_version,
            self.last_token,
            self.last_ticket,
            self.slots_made,
            self.sequence,
            self.checked_us,
            self.era_known,
            self.era_began_us,
            self.recovering_until_ms,
            self.lease_max_ms,
            self.expires_ms,
        ];
        counted
            .into_iter()
            .find(|number| *number >= MAX)
            .map(|number| format!("{number} is beyond all counts"))
    }

    fn unsound_entries(&self) -> Option<String> {
        let (mut held, mut waiting) = (0, 0);
        for (holder, entry) in &self.entries {
            let known = match entry.place {
                EntryState::Waiting(ticket) => {
                    waiting += 1;
                    entry.deadline < 0
                        && ticket <= self.last_ticket
                        && self.queue.get(&ticket) == Some(holder)
                }
                EntryState::Holding(grant) => {
                    held += u64::from(entry.weight);
                    entry.deadline > 0 && grant.token <= self.last_token
                }
            };
            let bounded = entry.deadline.unsigned_abs() < 1 << 53 && entry.lease_ms <= MAX_LEASE_MS;
            let leased = self.leases.contains(&(entry.deadline, holder.clone()));
            if !known || !bounded || !leased || entry.weight == 0 {
                return Some(format!("{holder} does not stand as it says: {entry:?}"));
            }
        }
        let counts = (self.held, self.queue.len(), self.leases.len());
        (counts != (held, waiting, self.entries.len())).then(|| {
            format!("{counts:?} units held, waiters and leases, but {held} and {waiting} in entries")
        })
    }

    /// Slots in use and free ones are all that were made, each once.
    fn unsound_slots(&self) -> Option<String> {
        let held = self.entries.values().filter_map(|entry| match entry.place {
            EntryState::Holding(grant) => Some((u64::from(grant.slot), u64::from(grant.slot))),
            EntryState::Waiting(_) => None,
        });
        let mut ranges: Vec<(u64, u64)> =
            held.chain(self.free.iter().map(|(&first, &last)| (first, last))).collect();
        ranges.sort_unstable();
        let mut next = 0;
        for (first, last) in ranges {
            if first != next || last < first || last >= self.slots_made {
                return Some(format!("the slots {first}-{last} are out of place: {next} is next"));
            }
            next = last + 1;
        }
        let left = if self.held == 0 { 0 } else { next };
        (next != self.slots_made || self.slots_made != left)
            .then(|| format!("of {} slots {next} are accounted for", self.slots_made))
    }

    /// Whether nobody has used it for so long that it is forgotten.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.damage != Some(Damage::StateLost) && !self.pinned && !self.paused && now_ms >= self.expires_ms
    }

    pub(super) fn remove(&mut self, holder: &Holder) -> ReleaseOutcome {
        let Some(entry) = self.entries.remove(holder) else { return ReleaseOutcome::Unknown };
        self.leases.remove(&(entry.deadline, holder.clone()));
        match entry.place {
            EntryState::Waiting(ticket) => {
                self.queue.remove(&ticket);
                ReleaseOutcome::Waiting
            }
            EntryState::Holding(grant) => {
                self.held -= u64::from(entry.weight);
                self.free.insert(grant.slot.into(), grant.slot.into());
                ReleaseOutcome::Held
            }
        }
    }

    pub(super) fn hold(&mut self, holder: &Holder, grant: Grant) {
        if let Some(entry) = self.entries.get_mut(holder) {
            entry.place = EntryState::Holding(grant);
            self.held += u64::from(entry.weight);
        }
    }

    pub(super) fn set_deadline(&mut self, holder: &Holder, deadline_ms: u64) {
        if let Some(entry) = self.entries.get_mut(holder) {
            self.leases.remove(&(entry.deadline, holder.clone()));
            let deadline = signed(deadline_ms);
            entry.deadline = if matches!(entry.place, EntryState::Holding(_)) { deadline } else { -deadline };
            self.leases.insert((entry.deadline, holder.clone()));
        }
    }

    pub(super) fn lowest_slot(&self) -> u64 {
        self.free.first_key_value().map_or(self.slots_made, |(first, _)| *first)
    }

    /// Takes this very slot, if it is free.
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

    /// How many waiters stand before this ticket.
    pub(super) fn position(&self, ticket: u64) -> u64 {
        self.queue.range(..ticket).count() as u64
    }

    /// When time alone will next change something: the earliest deadline, or the end of a recovery window.
    pub(super) fn next_change_ms(&self, now_ms: u64) -> u64 {
        let holder = self.leases.range((0, Holder::min())..).next();
        let waiter = self.leases.range(..(0, Holder::min())).next_back();
        let deadlines = [holder, waiter].into_iter().flatten().map(|(deadline, _)| deadline.unsigned_abs());
        let window = Some(self.recovering_until_ms).filter(|until| *until > now_ms);
        deadlines.chain(window).min().unwrap_or(now_ms)
    }
}

pub(super) fn signed(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds).expect("times stay below 2^53")
}
