//! Checks of the events that clients saw, by the one clock of this host.
//!
//! M is, for each permit, the interval from the return of the acquisition to the first of: the call of the
//! release, the signal of the loss, the last deadline that the permit has stated. So a holder that was killed
//! or paused counts until its last report, and no longer.
//!
//! The checks do not depend on the speed of the machine: a late report may hide a violation, but never makes
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Violation;
use super::client_event::{ClientEvent, ClientRecord};

/// An acquisition that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The client's number.
    pub worker: usize,
    /// The acquisition, among those of its client.
    pub tag: String,
    /// The units that were granted.
    pub weight: u32,
    /// The semaphore; empty for the semaphore of the workers.
    pub semaphore: String,
    /// The lane and its limit; `None` for a request without a lane.
    pub lane: Option<(String, u32)>,
    /// The fencing token.
    pub token: u64,
    /// The slot.
    pub slot: u32,
    /// True if the client itself granted the permit, from those that it kept.
    pub again: bool,
    /// The time of the request.
    pub asked: u64,
    /// The time at which it was seen in the queue, if it was.
    pub enqueued: Option<u64>,
    /// The time at which the acquisition returned.
    pub acquired: u64,
    /// The last deadline that the permit stated.
    pub until: u64,
    /// The time at which the release was called, if it was.
    pub releasing: Option<u64>,
    /// The time at which the holder learned of the loss, if it has.
    pub lost: Option<u64>,
}

impl Granted {
    /// The end of M.
    pub fn end(&self) -> u64 {
        [Some(self.until), self.releasing, self.lost].into_iter().flatten().min().unwrap_or(self.until)
    }

    /// The name of its lane; empty without one.
    fn lane(&self) -> &str {
        self.lane.as_ref().map_or("", |(lane, _)| lane)
    }

    /// Returns whether the permit was over when its client got it: the client's own report says that it was
    /// never held.
    pub(super) fn is_empty(&self) -> bool {
        self.end() <= self.acquired
    }
}

/// All records, each with the number of its client, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The number of the client, and the record.
    pub events: Vec<(usize, ClientRecord)>,
}

impl History {
    /// Notes an event of an acquisition of this client that happens now.
    pub fn note(&mut self, worker: usize, tag: &str, what: ClientEvent) {
        self.note_at(super::now(), worker, tag, what);
    }

    /// Notes an event of an acquisition of this client that happened `at`, by [`now`](super::now).
    pub fn note_at(&mut self, at: u64, worker: usize, tag: &str, what: ClientEvent) {
        self.events.push((worker, ClientRecord { at, tag: tag.to_owned(), event: what }));
    }

    /// The records of this acquisition.
    pub fn of<'a>(&'a self, worker: usize, tag: &'a str) -> impl Iterator<Item = &'a ClientRecord> {
        let ours = move |(number, event): &&(usize, ClientRecord)| *number == worker && event.tag == tag;
        self.events.iter().filter(ours).map(|(_, event)| event)
    }

    /// All grants, in the order of their requests.
    pub fn grants(&self) -> Vec<Granted> {
        let mut asked: BTreeMap<(usize, &str), (u64, u32)> = BTreeMap::new();
        let mut lanes: BTreeMap<(usize, &str), (String, u32)> = BTreeMap::new();
        let mut semaphores: BTreeMap<(usize, &str), String> = BTreeMap::new();
        let mut enqueued: BTreeMap<(usize, &str), u64> = BTreeMap::new();
        let mut grants: BTreeMap<(usize, &str), Granted> = BTreeMap::new();
        for (worker, ClientRecord { at, tag, event: what }) in &self.events {
            let key = (*worker, tag.as_str());
            match *what {
                ClientEvent::Asked { weight } => drop(asked.insert(key, (*at, weight))),
                ClientEvent::InLane { ref lane, limit } => drop(lanes.insert(key, (lane.clone(), limit))),
                ClientEvent::InLine(ref semaphore) => drop(semaphores.insert(key, semaphore.clone())),
                ClientEvent::Enqueued => drop(enqueued.insert(key, *at)),
                ClientEvent::Acquired { token, slot, until, again } => {
                    let (asked, weight) = asked.get(&key).copied().unwrap_or((*at, 1));
                    let granted = Granted {
                        worker: *worker,
                        tag: tag.clone(),
                        weight,
                        semaphore: semaphores.get(&key).cloned().unwrap_or_default(),
                        lane: lanes.get(&key).cloned(),
                        token,
                        slot,
                        again,
                        asked,
                        enqueued: None,
                        acquired: *at,
                        until,
                        releasing: None,
                        lost: None,
                    };
                    grants.insert(key, granted);
                }
                _ => {}
            }
            let Some(granted) = grants.get_mut(&key) else { continue };
            match what {
                ClientEvent::Held { until } => granted.until = granted.until.max(*until),
                ClientEvent::Releasing => granted.releasing = Some(*at),
                ClientEvent::Lost(_) | ClientEvent::NotHeld => {
                    granted.lost = Some(granted.lost.unwrap_or(*at).min(*at))
                }
                _ => {}
            }
        }
        for (key, at) in enqueued {
            if let Some(granted) = grants.get_mut(&key) {
                granted.enqueued = Some(at);
            }
        }
        let mut grants: Vec<Granted> = grants.into_values().collect();
        grants.sort_by_key(|granted| granted.asked);
        grants
    }

    /// The last records except steps, to explain a failure.
    pub fn tail(&self) -> String {
        let steps = |(_, event): &&(usize, ClientRecord)| !matches!(event.event, ClientEvent::Held { .. });
        let events: Vec<_> = self.events.iter().filter(steps).collect();
        let mut text = String::new();
        for (worker, event) in &events[events.len().saturating_sub(60)..] {
            let _ = writeln!(text, "worker {worker}: {event}");
        }
        text
    }
}

/// Verifies the events of all clients of one semaphore, of which at most `limit` units may be held at once:
/// the highest limit, if it changed.
///
/// # Errors
///
/// The first violation found: of P2, P3, P4, P6, P25, of slots (`slots`), of a request or permit left open by
/// a client that lives (`served`), or of the order of a client's own events (`form`).
pub fn verify(history: &History, limit: u32) -> Result<(), Violation> {
    check_well_formed(history)?;
    let grants = history.grants();
    check_bound(&grants, limit)?;
    check_stops(history)?;
    check_tokens(&grants)?;
    check_slots(&grants, limit)?;
    check_lanes(&grants)?;
    check_queue_order(&grants)?;
    check_served(history)
}

/// Each client's events are in order: one request before each grant, and a grant before each step, loss and
/// release.
///
/// # Errors
///
/// The first event that is out of order.
pub fn check_well_formed(history: &History) -> Result<(), Violation> {
    let (mut asked, mut acquired) = (BTreeSet::new(), BTreeSet::new());
    for (worker, event) in &history.events {
        let key = (*worker, event.tag.as_str());
        let is_sound = match &event.event {
            ClientEvent::Asked { .. } => asked.insert(key),
            ClientEvent::Acquired { .. } => asked.contains(&key) && acquired.insert(key),
            ClientEvent::Held { .. }
            | ClientEvent::NotHeld
            | ClientEvent::Lost(_)
            | ClientEvent::Releasing
            | ClientEvent::Released(_) => acquired.contains(&key),
            ClientEvent::InLane { .. }
            | ClientEvent::InLine(_)
            | ClientEvent::Failed(_)
            | ClientEvent::GaveUp(_) => asked.contains(&key),
            ClientEvent::Rejected => acquired.contains(&key),
            // An observer's record, which may come before the client's own.
            ClientEvent::Enqueued | ClientEvent::Waiting => {
                history.of(*worker, &event.tag).any(|other| matches!(other.event, ClientEvent::Asked { .. }))
            }
            _ => true,
        };
        if !is_sound {
            return Err(Violation::new("form", format!("client {worker}, out of order: {event}")));
        }
    }
    Ok(())
}

/// P2: never more than `limit` units at once.
///
/// # Errors
///
/// The permits that were held at once.
pub fn check_bound(grants: &[Granted], limit: u32) -> Result<(), Violation> {
    let overlap = most_at_once(grants);
    let units = units(&overlap);
    if units <= u64::from(limit) {
        return Ok(());
    }
    Err(Violation::new("P2", format!("{units} units at once, with a limit of {limit}: {overlap:#?}")))
}

/// P25: the permits of a lane are never more units than its limit.
///
/// # Errors
///
/// The permits that were held at once.
pub fn check_lanes(grants: &[Granted]) -> Result<(), Violation> {
    let limits: BTreeMap<&str, u32> = grants
        .iter()
        .filter_map(|granted| granted.lane.as_ref())
        .map(|(lane, limit)| (&**lane, *limit))
        .collect();
    limits.into_iter().try_for_each(|(lane, limit)| {
        let of_lane = grants.iter().filter(|granted| granted.lane() == lane);
        let overlap = most_at_once(&of_lane.cloned().collect::<Vec<_>>());
        let units = units(&overlap);
        if units <= u64::from(limit) {
            return Ok(());
        }
        Err(Violation::new(
            "P25",
            format!("{units} units of {lane} at once, with a limit of {limit}: {overlap:#?}"),
        ))
    })
}

fn units(grants: &[Granted]) -> u64 {
    grants.iter().map(|granted| u64::from(granted.weight)).sum()
}

/// The permits with the most units that were held at the same time.
fn most_at_once(grants: &[Granted]) -> Vec<Granted> {
    let mut edges: Vec<(u64, bool, usize)> = Vec::new();
    for (index, granted) in grants.iter().enumerate().filter(|(_, granted)| !granted.is_empty()) {
        // If two edges have the same microsecond, the end comes first: M does not contain its end.
        edges.push((granted.acquired, true, index));
        edges.push((granted.end(), false, index));
    }
    edges.sort_unstable();
    let (mut open, mut open_units, mut most, mut most_units) = (Vec::new(), 0, Vec::new(), 0);
    for (_, begins, index) in edges {
        let weight = u64::from(grants[index].weight);
        if begins {
            open.push(index);
            open_units += weight;
        } else {
            open.retain(|other| *other != index);
            open_units -= weight;
        }
        if open_units > most_units {
            most_units = open_units;
            most.clone_from(&open);
        }
    }
    most.into_iter().map(|index| grants[index].clone()).collect()
}

/// P3: a permit that says that it is held has not passed its deadline; and a lost permit stays lost.
///
/// # Errors
///
/// The event that came too late.
pub fn check_stops(history: &History) -> Result<(), Violation> {
    let mut lost = BTreeMap::new();
    for (worker, event) in &history.events {
        let key = (*worker, event.tag.as_str());
        let late = match event.event {
            ClientEvent::Held { until } => {
                until <= event.at || lost.get(&key).is_some_and(|lost| *lost < event.at)
            }
            ClientEvent::Lost(_) | ClientEvent::NotHeld => {
                lost.entry(key).or_insert(event.at);
                false
            }
            _ => false,
        };
        if late {
            let lost = lost.get(&key);
            return Err(Violation::new("P3", format!("client {worker}: {event}, lost at {lost:?}")));
        }
    }
    Ok(())
}

/// P4: tokens are distinct, and a request sent after another had its permit gets a higher one. Among the
/// grants of the store that holds over all slots. The grants that clients made themselves, out of what they
/// kept, have the next tokens of a grant of the store: for them it holds within each slot.
///
/// # Errors
///
/// Tokens that repeat or fall.
pub fn check_tokens(grants: &[Granted]) -> Result<(), Violation> {
    let stored: Vec<&Granted> = grants.iter().filter(|granted| !granted.again).collect();
    check_distinct_and_rising(stored)?;
    let mut slots: BTreeMap<u32, Vec<&Granted>> = BTreeMap::new();
    for granted in grants {
        slots.entry(granted.slot).or_default().push(granted);
    }
    slots.into_values().try_for_each(check_distinct_and_rising)
}

fn check_distinct_and_rising(mut grants: Vec<&Granted>) -> Result<(), Violation> {
    grants.sort_by_key(|granted| granted.token);
    if let Some(pair) = grants.windows(2).find(|pair| pair[0].token == pair[1].token) {
        return Err(Violation::new("P4", format!("one token twice: {pair:#?}")));
    }
    check_rising(&grants, |granted| Some(granted.acquired))
        .map_err(|fell| Violation::new("P4", format!("a token that fell: {fell}")))
}

/// P6: a request sent after another of its lane was seen in the queue is granted after that one, for any
/// weights. The grants that clients made themselves, out of what they kept, are left out.
///
/// # Errors
///
/// The waiter that was overtaken.
pub fn check_queue_order(grants: &[Granted]) -> Result<(), Violation> {
    let lanes: BTreeSet<&str> = grants.iter().map(Granted::lane).collect();
    lanes.into_iter().try_for_each(|lane| {
        let grants: Vec<&Granted> =
            grants.iter().filter(|granted| !granted.again && granted.lane() == lane).collect();
        check_rising(&grants, |granted| granted.enqueued)
            .map_err(|overtaken| Violation::new("P6", format!("overtaken in line: {overtaken}")))
    })
}

/// A request sent after the moment `known` of another has the higher token.
fn check_rising(grants: &[&Granted], known: impl Fn(&Granted) -> Option<u64>) -> Result<(), String> {
    let mut earlier: Vec<(u64, &Granted)> =
        grants.iter().filter_map(|granted| Some((known(granted)?, *granted))).collect();
    earlier.sort_by_key(|(at, _)| *at);
    let mut by_asked = grants.to_vec();
    by_asked.sort_by_key(|granted| granted.asked);
    let mut earlier = earlier.into_iter().peekable();
    let mut highest: Option<&Granted> = None;
    for granted in by_asked {
        while let Some((_, before)) = earlier.next_if(|(at, _)| *at < granted.asked) {
            highest = highest.filter(|highest| highest.token > before.token).or(Some(before));
        }
        if let Some(before) = highest.filter(|before| before.token > granted.token) {
            return Err(format!("{before:#?} and later {granted:#?}"));
        }
    }
    Ok(())
}

/// Slots are below the limit, no two permits have one at the same time, and in each the tokens rise. So a
/// resource that remembers the highest token of each slot rejects no holder.
///
/// # Errors
///
/// The slots for which this does not hold.
pub fn check_slots(grants: &[Granted], limit: u32) -> Result<(), Violation> {
    let violation = |what| Err(Violation::new("slots", what));
    let mut slots: BTreeMap<u32, Vec<&Granted>> = BTreeMap::new();
    for granted in grants.iter().filter(|granted| !granted.is_empty()) {
        slots.entry(granted.slot).or_default().push(granted);
    }
    for (slot, mut users) in slots {
        if slot >= limit {
            return violation(format!("a slot beyond the limit of {limit}: {users:#?}"));
        }
        users.sort_by_key(|granted| granted.acquired);
        for pair in users.windows(2) {
            if pair[1].acquired < pair[0].end() {
                return violation(format!("two in one slot: {pair:#?}"));
            }
            if pair[1].token <= pair[0].token {
                return violation(format!("a token that fell within a slot: {pair:#?}"));
            }
        }
    }
    Ok(())
}

/// Every client that was closed, and so lived, has an answer to each of its requests, and released or lost
/// each of its permits.
///
/// # Errors
///
/// The request or permit that was left open.
pub fn check_served(history: &History) -> Result<(), Violation> {
    let closed = |(worker, event): &(usize, ClientRecord)| {
        matches!(event.event, ClientEvent::Closed(_)).then_some(*worker)
    };
    let alive: BTreeSet<usize> = history.events.iter().filter_map(closed).collect();
    let mut open: BTreeMap<(usize, &str), &ClientRecord> = BTreeMap::new();
    for (worker, event) in history.events.iter().filter(|(worker, _)| alive.contains(worker)) {
        let key = (*worker, event.tag.as_str());
        match event.event {
            ClientEvent::Asked { .. } | ClientEvent::Acquired { .. } => drop(open.insert(key, event)),
            ClientEvent::Failed(_)
            | ClientEvent::GaveUp(_)
            | ClientEvent::Released(_)
            | ClientEvent::Lost(_) => {
                open.remove(&key);
            }
            _ => {}
        }
    }
    match open.first_key_value() {
        None => Ok(()),
        Some(((worker, _), event)) => {
            Err(Violation::new("served", format!("client {worker} was closed, and this left open: {event}")))
        }
    }
}

/// The fenced resource accepts every write of a holder.
///
/// # Errors
///
/// A holder whose write it refused.
pub fn check_writes(history: &History) -> Result<(), Violation> {
    match history.events.iter().find(|(_, record)| record.event == ClientEvent::Rejected) {
        None => Ok(()),
        Some((worker, record)) => {
            Err(Violation::new("fence", format!("refused a write of a holder, client {worker}: {record}")))
        }
    }
}
