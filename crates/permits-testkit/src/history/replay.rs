//! The replay: the commands of a recorded history, executed by the model.
//!
//! The commands of each semaphore run through the model in the order of their execution, each with the clock
//! and the identity that the server had then. Every reply must be equal, and every event; then the checks of
//! one command compare the states before and after it.
//!
//! Where a store lost state, the sequence number in the reply identifies the state that the command found:
//! one more than before, if nothing was lost; 1 (or 0, where nothing was left), if all was; something in
//! between, if a restart or a failover brought an earlier state back. That state is made by a replay of the
//! commands that led to it. A state from before a deletion is not found again.

use std::collections::BTreeMap;

use permits_core::model::{EntryState, KEPT_TOKENS, ServerClock, State, apply, keepable_limit, recalls};
use permits_core::protocol::{Event, Grant, SessionId};

use super::checks::check;
use super::client_checks::Granted;
use super::client_event::{now, wall_offset_us};
use super::step::Step;
use super::{Record, Violation};

/// The drift of two clocks of one host in the time of a test, in milliseconds.
const APART_MS: u64 = 10;

/// A loss of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The state key of the semaphore.
    pub semaphore: String,
    /// The first record after the loss.
    pub record: usize,
    /// The sequence number before.
    pub from: u64,
    /// The sequence number to which the state went back; 0 if all was lost.
    pub to: u64,
    /// True if the run of the server changed: a restart or a failover. Otherwise the server was flushed.
    pub restarted: bool,
}

/// A history that agrees with the model.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// The number of commands.
    pub commands: usize,
    /// The number of events.
    pub events: usize,
    /// The losses of state.
    pub losses: Vec<Loss>,
    /// The last state of each semaphore, by state key; `None` without a state.
    pub states: BTreeMap<String, Option<State>>,
    /// The permits of one semaphore, by slot and token.
    pub permits: BTreeMap<(u32, u64), StoredPermit>,
}

/// A permit as the store granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPermit {
    /// Its last deadline in the store, in milliseconds of the server's clock.
    pub deadline_ms: u64,
    /// The session of its holder may keep it.
    pub keep: bool,
}

/// Replays a history through the model.
///
/// # Errors
///
/// A reply or an event that differs from the model's, a record that is missing or out of order, or a property
/// that does not hold.
pub fn replay(records: &[Record]) -> Result<Replayed, Violation> {
    let mut lines: BTreeMap<&str, SemaphoreReplay<'_>> = BTreeMap::new();
    let mut replayed = Replayed { commands: records.len(), ..Replayed::default() };
    for (number, record) in records.iter().enumerate() {
        let line = lines.entry(&record.semaphore).or_default();
        let step = line
            .step(record, number, &mut replayed.losses)
            .map_err(|violation| explained(violation, records, number))?;
        replayed.events += step.events.len();
        for entry in step.after.iter().flat_map(|after| after.entries.values()) {
            if let EntryState::Holding(Grant { token, slot }) = entry.place {
                let deadline_ms = entry.deadline.unsigned_abs();
                let keep = entry.terms.keep;
                replayed.permits.insert((slot, token), StoredPermit { deadline_ms, keep });
            }
        }
    }
    replayed.states = lines.into_iter().map(|(key, line)| (key.to_owned(), line.state)).collect();
    Ok(replayed)
}

/// Adds the last commands before it.
fn explained(violation: Violation, records: &[Record], number: usize) -> Violation {
    let semaphore = &records[number].semaphore;
    let earlier = records[..=number].iter().enumerate().filter(|(_, record)| record.semaphore == *semaphore);
    let mut earlier: Vec<String> =
        earlier.rev().take(8).map(|(number, record)| format!("{number}: {record:?}")).collect();
    earlier.reverse();
    let Violation { rule, what } = violation;
    Violation::new(rule, format!("record {number} of {semaphore}: {what}\n{}", earlier.join("\n")))
}

impl Replayed {
    /// No state was lost.
    ///
    /// # Errors
    ///
    /// The first loss.
    pub fn check_kept(&self) -> Result<(), Violation> {
        match self.losses.first() {
            None => Ok(()),
            Some(loss) => Err(Violation::new("kept", format!("the store went back: {loss:?}"))),
        }
    }

    /// P10: the semaphores are idle. The servers must have this host's clock.
    ///
    /// # Errors
    ///
    /// The entries that are left.
    pub fn check_at_rest(&self) -> Result<(), Violation> {
        let now_ms = (now() + wall_offset_us()) / 1000;
        for (semaphore, state) in &self.states {
            let state = state.as_ref().filter(|state| !state.is_expired(now_ms));
            if let Some(state) = state.filter(|state| !state.entries.is_empty()) {
                return Err(Violation::new("P10", format!("left in {semaphore}: {:?}", state.entries)));
            }
        }
        Ok(())
    }

    /// P3: each of these permits was granted by the store, and its holder stops by itself before the store's
    /// deadline. For one semaphore; the server must have this host's clock, which must not have been set
    /// since.
    ///
    /// A server that was killed and kept nothing may have answered without publishing: a permit that it
    /// granted in its last moment may be unknown then.
    ///
    /// # Errors
    ///
    /// The permit that was not granted, or whose deadline is too late.
    pub fn check_deadlines(&self, grants: &[Granted]) -> Result<(), Violation> {
        let offset_us = wall_offset_us();
        for granted in grants {
            let Some(StoredPermit { deadline_ms, .. }) = self.permit_of(granted) else {
                if self.losses.iter().any(|loss| loss.restarted) {
                    continue;
                }
                return Err(Violation::new("P3", format!("no command granted this: {granted:#?}")));
            };
            let stops_ms = (granted.until + offset_us) / 1000;
            if stops_ms > deadline_ms + APART_MS && !granted.is_empty() {
                let late = format!("until {stops_ms}, and in the store until {deadline_ms}: {granted:#?}");
                return Err(Violation::new("P3", late));
            }
        }
        Ok(())
    }
}

impl Replayed {
    /// The permit of the store that a client had with this grant: granted by the store, or out of what the
    /// client kept, with one of the tokens that follow that of the store.
    fn permit_of(&self, granted: &Granted) -> Option<StoredPermit> {
        let Granted { token, slot, again, .. } = *granted;
        if !again {
            return self.permits.get(&(slot, token)).copied();
        }
        let tokens = (slot, token.saturating_sub(KEPT_TOKENS - 1))..(slot, token);
        let (_, permit) = self.permits.range(tokens).next_back()?;
        permit.keep.then_some(*permit)
    }
}

/// One semaphore.
#[derive(Default)]
struct SemaphoreReplay<'a> {
    state: Option<State>,
    /// The commands that led from nothing to the state: as many as its sequence number says.
    led_here: Vec<&'a Record>,
    /// The run id of the server that executed the last command.
    run_id: &'a str,
    /// The highest token granted so far, including tokens that the store has forgotten.
    last_token: u64,
}

impl<'a> SemaphoreReplay<'a> {
    fn step(&mut self, record: &'a Record, number: usize, losses: &mut Vec<Loss>) -> Result<Step, Violation> {
        self.go_back(record, number, losses)?;
        let before = self.state.clone();
        let events = self.apply(record)?;
        let (command, reply, after) = (record.command.clone(), record.reply.clone(), self.state.clone());
        let step = Step { now_us: record.now_us, before, command, reply, events, after };
        check(&step)?;
        for fresh in step.fresh() {
            if fresh.grant.token <= self.last_token {
                let what = format!("{fresh:?} after the token {}", self.last_token);
                return Err(Violation::new("P4", what));
            }
            self.last_token = fresh.grant.token;
        }
        Ok(step)
    }

    /// Finds the state that the command found.
    fn go_back(
        &mut self,
        record: &'a Record,
        number: usize,
        losses: &mut Vec<Loss>,
    ) -> Result<(), Violation> {
        if self.state.as_ref().is_some_and(|state| state.is_expired(record.now_us / 1000)) {
            self.forget();
        }
        let from = self.led_here.len() as u64;
        let restarted = self.run_id != record.run_id;
        self.run_id = &record.run_id;
        // An inspection has the number of the command before it.
        let counts = u64::from(!record.command.only_looks());
        let to = record.reply.sequence.saturating_sub(counts);
        if to == from {
            return Ok(());
        }
        if to > from {
            let what = format!("sequence {} after {from}: a record is missing", record.reply.sequence);
            return Err(Violation::new("sequence", what));
        }
        if to > 0 && !restarted {
            let what =
                format!("sequence {} after {from}, by the same run of the server", record.reply.sequence);
            return Err(Violation::new("sequence", what));
        }
        losses.push(Loss { semaphore: record.semaphore.clone(), record: number, from, to, restarted });
        let again = self.led_here[..usize::try_from(to).expect("it is less than what there is")].to_vec();
        self.forget();
        for record in again {
            self.apply(record)?;
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.state = None;
        self.led_here.clear();
    }

    /// Executes the command on the model, and compares reply and events.
    fn apply(&mut self, record: &'a Record) -> Result<Vec<Event>, Violation> {
        let Record { now_us, run_id, uptime_ms, command, .. } = record;
        let server = ServerClock { now_us: *now_us, run_id, uptime_ms: *uptime_ms };
        let keepable = keepable_limit(self.state.as_ref(), *now_us);
        let (reply, events) = apply(&mut self.state, &server, command);
        if reply != record.reply {
            let what = format!("the store replied {:?}\nand the model {reply:?}", record.reply);
            return Err(Violation::new("reply", what));
        }
        if by_session(&events) != by_session(&record.events) {
            let what = format!("the store published {:?}\nand the model {events:?}", record.events);
            return Err(Violation::new("events", what));
        }
        let recalled = recalls(keepable, self.state.as_ref(), &reply, *now_us);
        if recalled != record.recalled {
            let what = format!("the store recalled: {}, and the model: {recalled}", record.recalled);
            return Err(Violation::new("events", what));
        }
        match &self.state {
            _ if command.only_looks() => {}
            Some(_) => self.led_here.push(record),
            None => self.forget(),
        }
        Ok(events)
    }
}

/// The events of each session, in order. Between sessions there is no order.
fn by_session(events: &[Event]) -> BTreeMap<&str, Vec<&Event>> {
    let mut sessions: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events {
        sessions.entry(SessionId::as_str(&event.session)).or_default().push(event);
    }
    sessions
}
