//! The lines of `permits watch`: a state, or a change by an operator, as JSON and as text.
//!
//! All of it is what an inspection has. What happened between two inspections is not inferred: the counters
//! in the state have it.

use std::collections::BTreeSet;
use std::time::SystemTime;

use permits::{ChangeInfo, HolderInfo, Inspection};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::inspected::{counted, is_recovering};
use crate::status::{StatusJson, summary};

/// The most holders in the text of a state.
const SHOWN: usize = 3;

/// A line of `--json`. Programs depend on it: events and fields may be added, never changed.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Line<'a> {
    State {
        at_ms: u64,
        #[serde(flatten)]
        status: StatusJson<'a>,
    },
    Changed {
        name: &'a str,
        #[serde(flatten)]
        change: &'a ChangeInfo,
    },
    Unreachable {
        at_ms: u64,
        name: &'a str,
        reason: &'a str,
    },
}

/// The changes by operators that `before` does not have, the oldest first. The store forgets old ones.
pub(super) fn new_changes<'a>(before: &'a Inspection, now: &'a Inspection) -> Vec<&'a ChangeInfo> {
    let is_known = |change: &&ChangeInfo| {
        before.changes.iter().any(|known| (known.at, &known.change) == (change.at, &change.change))
    };
    now.changes.iter().rev().filter(|change| !is_known(change)).collect()
}

/// Returns true if the states differ in more than the times that pass by themselves.
pub(super) fn differ(before: &Inspection, now: &Inspection) -> bool {
    let state = |seen: &Inspection| {
        let settings = (seen.limit, seen.limit_version, seen.pinned, seen.paused, is_recovering(seen));
        let holders = seen.holders.iter().map(|info| (info.token, info.weight, info.cooling));
        let waiters: Vec<_> = seen.waiters.iter().map(|info| (info.holder.clone(), info.weight)).collect();
        let texts = (seen.pause_reason.clone(), seen.closed.clone(), seen.alert);
        let pinned = seen.lanes.iter().filter(|lane| lane.pinned);
        let pins: BTreeSet<_> = pinned.map(|info| (info.lane.clone(), info.limit, info.floor)).collect();
        (
            settings,
            texts,
            pins,
            holders.collect::<BTreeSet<_>>(),
            waiters,
            (seen.held, seen.waiting, seen.counts),
        )
    };
    state(before) != state(now)
}

/// A state for people: the use, the holders by their grants, and what was counted since `before`.
pub(super) fn state(before: Option<&Inspection>, now: &Inspection) -> String {
    let mut holders: Vec<&HolderInfo> = now.holders.iter().filter(|info| !info.cooling).collect();
    holders.sort_unstable_by_key(|info| info.token);
    let shown = holders.iter().take(SHOWN);
    let mut names: Vec<_> = shown.map(|info| info.to_string()).collect();
    if holders.len() > SHOWN {
        names.push(format!("{} more", holders.len() - SHOWN));
    }
    let mut text = summary(now);
    if !names.is_empty() {
        text += &format!("; held by {}", names.join(", "));
    }
    // Counts that are lower begin again: the store forgot the semaphore, or lost its state.
    let risen = before.map(|before| counted(now.counts.since(before.counts).unwrap_or(now.counts)));
    if let Some(risen) = risen.filter(|risen| !risen.is_empty()) {
        text += &format!("; {}", risen.join(", "));
    }
    text
}

/// The time to the second, in UTC, because lines of several machines are read together.
pub(super) fn timestamp(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    let at = at.replace_nanosecond(0).unwrap_or(at);
    at.format(&Rfc3339).unwrap_or_default()
}
