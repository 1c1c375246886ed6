//! The lines of `permits watch` for people.

use std::time::{Duration, SystemTime};

use permits::Counts;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::event::{Cause, WatchEvent};
use crate::holder::told;
use crate::inspected::counted;
use crate::status::closed;
use crate::text::{duration, paused};

/// False for an event that repeats other lines: counts, and the effect of a change by an operator, which is
/// among the events of the same inspection if they are `authored`. In JSON they are exact.
pub(super) fn is_worth_a_line(event: &WatchEvent, authored: bool) -> bool {
    match event {
        WatchEvent::Pinned
        | WatchEvent::Unpinned
        | WatchEvent::Paused { .. }
        | WatchEvent::Resumed
        | WatchEvent::Closed { .. }
        | WatchEvent::Opened => !authored,
        WatchEvent::Counts { rise, unseen } => {
            let mut others = *rise;
            others.grants = 0;
            (others, *unseen) != (Counts::default(), Some(0))
        }
        _ => true,
    }
}

/// The line of `event` at `at`. `state` is the text of the whole state, which has the name of the semaphore;
/// other events get `name` before them, if several are watched.
pub(super) fn line(
    event: &WatchEvent,
    at: SystemTime,
    name: Option<&str>,
    state: impl FnOnce() -> String,
) -> String {
    let text = match (event, name) {
        (WatchEvent::State, _) => state(),
        (event, Some(name)) => format!("{name}: {}", sentence(event)),
        (event, None) => sentence(event),
    };
    format!("{}  {text}", timestamp(at))
}

/// The time to the second, in UTC, because lines of several machines are read together.
fn timestamp(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    let at = at.replace_nanosecond(0).unwrap_or(at);
    at.format(&Rfc3339).unwrap_or_default()
}

fn sentence(event: &WatchEvent) -> String {
    let from_ms = |ms: u64| duration(Duration::from_millis(ms));
    match event {
        WatchEvent::State => String::new(),
        WatchEvent::Granted { holder, weight, slot, label, .. } => {
            format!("{} was granted{} slot {slot}", who(label, holder), units(*weight))
        }
        WatchEvent::Restored { holder, weight, slot, label, .. } => {
            format!("{} put its permit back{} slot {slot}", who(label, holder), units(*weight))
        }
        WatchEvent::Cooling { holder, lease_remaining_ms, label, .. } => {
            let left = from_ms(*lease_remaining_ms);
            format!("{} left, its units stay taken for {left}", who(label, holder))
        }
        WatchEvent::Left { holder, cause, label, held_ms, .. } => {
            let cause = match cause {
                Cause::Expired => "its lease ended",
                Cause::Revoked => "revoked",
                Cause::Unknown => "released, expired or revoked",
                _ => "released",
            };
            format!("{} left after {}, {cause}", who(label, holder), from_ms(*held_ms))
        }
        WatchEvent::Queued { holder, weight, position, label } => {
            let before = match position {
                0 => "first in line".to_owned(),
                before => format!("{before} before it"),
            };
            format!("{} joined the queue{} {before}", who(label, holder), units(*weight))
        }
        WatchEvent::LeftQueue { holder, cause, label, waited_ms, .. } => {
            let cause = match cause {
                Cause::Expired => "its lease ended",
                Cause::Revoked => "revoked",
                Cause::Refused => "refused",
                Cause::Unknown => "for one of several causes",
                _ => "cancelled",
            };
            format!("{} left the queue after {}, {cause}", who(label, holder), from_ms(*waited_ms))
        }
        WatchEvent::Limit { limit, before, limit_version } => {
            let [limit, before] =
                [limit, before].map(|limit| limit.map_or("none".to_owned(), |limit| limit.to_string()));
            format!("limit {limit}, before {before} (version {limit_version})")
        }
        WatchEvent::Pinned => "limit pinned".to_owned(),
        WatchEvent::Unpinned => "limit no longer pinned".to_owned(),
        WatchEvent::Paused { reason, pause_remaining_ms } => {
            paused(pause_remaining_ms.map(Duration::from_millis), Some(reason))
                .replacen("paused", "PAUSED", 1)
        }
        WatchEvent::Resumed => "resumed".to_owned(),
        WatchEvent::Closed { reason } => closed(reason),
        WatchEvent::Opened => "opened".to_owned(),
        WatchEvent::Changed { by, change } => format!("{by} {change}"),
        WatchEvent::Recovering { recovering_ms } => format!("recovering for {}", from_ms(*recovering_ms)),
        WatchEvent::Recovered => "recovered".to_owned(),
        WatchEvent::Counts { rise, unseen } => counts(*rise, *unseen),
        WatchEvent::Reset => "the store forgot the semaphore or lost its state".to_owned(),
        WatchEvent::Partial { holders, waiters } => match (holders, waiters) {
            (false, false) => "holders and waiters are followed one by one again".to_owned(),
            (true, false) => "too many holders: only their number is followed".to_owned(),
            (false, true) => "too many waiters: only their number is followed".to_owned(),
            (true, true) => "too many holders and waiters: only their numbers are followed".to_owned(),
        },
        WatchEvent::Unreachable { reason } => format!("unreachable: {reason}"),
        WatchEvent::Back => "reachable again".to_owned(),
    }
}

/// The weight, if it is not the usual one.
fn units(weight: u32) -> String {
    if weight == 1 { ",".to_owned() } else { format!(", {weight} units,") }
}

fn who(label: &Option<String>, name: &str) -> String {
    told(label.as_deref().unwrap_or_default(), name)
}

fn counts(rise: Counts, unseen: Option<u64>) -> String {
    let texts = counted(rise);
    let counted =
        if texts.is_empty() { "counted".to_owned() } else { format!("counted: {}", texts.join(", ")) };
    match unseen {
        Some(unseen @ 1..) => format!("{counted}, of which {unseen} ended between two reads"),
        _ => counted,
    }
}
