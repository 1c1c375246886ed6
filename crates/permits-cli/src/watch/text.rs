//! The lines of `permits watch` for people.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::event::{Cause, WatchEvent};
use crate::status::closed;
use crate::text::duration;

/// False for an event that repeats other lines: counts, and the effect of a change by an operator, which is among the events
/// of the same inspection if they are `authored`. In JSON they are exact.
pub(super) fn is_worth_a_line(event: &WatchEvent, authored: bool) -> bool {
    match event {
        WatchEvent::Pinned
        | WatchEvent::Unpinned
        | WatchEvent::Paused
        | WatchEvent::Resumed
        | WatchEvent::Closed { .. }
        | WatchEvent::Opened => !authored,
        WatchEvent::Counts { refused, expired, revoked, unseen, .. } => {
            (*refused, *expired, *revoked, *unseen) != (0, 0, 0, Some(0))
        }
        _ => true,
    }
}

/// The line of `event` at `at`. `state` is the text of the whole state.
pub(super) fn line(event: &WatchEvent, at: SystemTime, state: impl FnOnce() -> String) -> String {
    let text = match event {
        WatchEvent::State => state(),
        event => sentence(event),
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
            format!("{holder} was granted{} slot {slot}{}", units(*weight), labelled(label.as_deref()))
        }
        WatchEvent::Restored { holder, weight, slot, label, .. } => {
            format!(
                "{holder} put its permit back{} slot {slot}{}",
                units(*weight),
                labelled(label.as_deref())
            )
        }
        WatchEvent::Cooling { holder, lease_remaining_ms, .. } => {
            format!("{holder} left, its units stay taken for {}", from_ms(*lease_remaining_ms))
        }
        WatchEvent::Left { holder, cause, .. } => match cause {
            Cause::Expired => format!("{holder} left: its lease ended"),
            Cause::Revoked => format!("{holder} left: its permit was revoked"),
            Cause::Unknown => format!("{holder} left: released, expired or revoked"),
            _ => format!("{holder} left"),
        },
        WatchEvent::Queued { holder, weight, position, label } => {
            let label = labelled(label.as_deref());
            format!("{holder} joined the queue{} position {position}{label}", units(*weight))
        }
        WatchEvent::LeftQueue { holder, cause, .. } => match cause {
            Cause::Expired => format!("{holder} left the queue: its lease ended"),
            Cause::Revoked => format!("{holder} left the queue: its place was revoked"),
            Cause::Refused => format!("{holder} left the queue: it was refused"),
            Cause::Unknown => format!("{holder} left the queue: for one of several causes"),
            _ => format!("{holder} left the queue"),
        },
        WatchEvent::Limit { limit, before, limit_version } => {
            let [limit, before] =
                [limit, before].map(|limit| limit.map_or("none".to_owned(), |limit| limit.to_string()));
            format!("limit {limit}, before {before} (version {limit_version})")
        }
        WatchEvent::Pinned => "limit pinned".to_owned(),
        WatchEvent::Unpinned => "limit no longer pinned".to_owned(),
        WatchEvent::Paused => "PAUSED".to_owned(),
        WatchEvent::Resumed => "resumed".to_owned(),
        WatchEvent::Closed { reason } => closed(reason),
        WatchEvent::Opened => "opened".to_owned(),
        WatchEvent::Changed { by, text, .. } => format!("{by} {text}"),
        WatchEvent::Recovering { recovering_ms } => format!("recovering for {}", from_ms(*recovering_ms)),
        WatchEvent::Recovered => "recovered".to_owned(),
        WatchEvent::Counts { grants, refused, expired, revoked, unseen } => {
            counts([*grants, *refused, *expired, *revoked], *unseen)
        }
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

fn labelled(label: Option<&str>) -> String {
    label.map(|label| format!(" ({label})")).unwrap_or_default()
}

fn counts([grants, refused, expired, revoked]: [u64; 4], unseen: Option<u64>) -> String {
    let mut text = String::from("counted:");
    for (count, what) in
        [(grants, "granted"), (refused, "refused"), (expired, "expired"), (revoked, "revoked")]
    {
        if count > 0 {
            let _ = write!(text, " {count} {what},");
        }
    }
    match unseen {
        Some(unseen @ 1..) => {
            let _ = write!(text, " of which {unseen} ended between two reads");
        }
        _ => drop(text.pop()),
    }
    text
}
