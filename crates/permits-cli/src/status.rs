//! `permits status`: who holds and who waits, for people or as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use permits::{HolderInfo, Inspection, WaiterInfo};
use serde::Serialize;

use crate::args::Status;
use crate::connect;
use crate::exit::{self, Failure};
use crate::table::{Side, table};

/// Shows one semaphore. One that nobody has used is shown as unused, which is no failure.
pub(crate) async fn status(url: Option<&str>, options: &Status) -> Result<u8, Failure> {
    let client = connect::operator(url).await?;
    let inspection = client.open(&options.name).inspect().await?;
    // The session has nothing to give back; it ends with the process.
    if options.json {
        return exit::print_json(&Json::from(&inspection));
    }
    Ok(exit::print(for_people(&inspection)))
}

/// What `--json` prints. Scripts depend on it: fields may be added, never changed.
#[derive(Serialize)]
struct Json<'a> {
    name: &'a str,
    limit: Option<u32>,
    held: u64,
    paused: bool,
    holders: Vec<JsonHolder<'a>>,
    waiters: Vec<JsonWaiter<'a>>,
}

#[derive(Serialize)]
struct JsonHolder<'a> {
    holder: &'a str,
    weight: u32,
    slot: u32,
    token: u64,
    lease_remaining_ms: u64,
}

#[derive(Serialize)]
struct JsonWaiter<'a> {
    holder: &'a str,
    weight: u32,
    position: u64,
}

impl<'a> From<&'a Inspection> for Json<'a> {
    fn from(inspection: &'a Inspection) -> Self {
        let Inspection { name, limit, held, paused, holders, waiters, .. } = inspection;
        let holder = |info: &'a HolderInfo| JsonHolder {
            holder: &info.holder,
            weight: info.weight,
            slot: info.slot,
            token: info.token,
            lease_remaining_ms: u64::try_from(info.lease_remaining.as_millis()).unwrap_or(u64::MAX),
        };
        let waiter = |info: &'a WaiterInfo| JsonWaiter {
            holder: &info.holder,
            weight: info.weight,
            position: info.position,
        };
        Self {
            name,
            limit: *limit,
            held: *held,
            paused: *paused,
            holders: holders.iter().map(holder).collect(),
            waiters: waiters.iter().map(waiter).collect(),
        }
    }
}

/// How much of a semaphore is in use, as a part of a sentence.
pub(crate) fn usage(inspection: &Inspection) -> String {
    let Inspection { limit, held, waiting, .. } = inspection;
    match limit {
        Some(limit) => format!("{held} of {limit} held, {waiting} waiting"),
        None if *held == 0 && *waiting == 0 => "not in use, no limit is set".to_owned(),
        None => format!("{held} held, {waiting} waiting, no limit is set"),
    }
}

fn for_people(inspection: &Inspection) -> String {
    let Inspection { name, limit, held, waiting, holders, waiters, .. } = inspection;
    let mut text = format!("{name}: {}", usage(inspection));
    if inspection.pinned {
        text.push_str(", limit pinned");
    }
    if inspection.paused {
        text.push_str(", PAUSED");
    }
    if limit.is_some() && !inspection.recovering.is_zero() {
        let _ = write!(text, ", recovering for {}", seconds(inspection.recovering));
    }
    text.push('\n');
    if !holders.is_empty() {
        let row = |info: &HolderInfo| {
            let numbers = [u64::from(info.weight), u64::from(info.slot), info.token].map(|n| n.to_string());
            let [weight, slot, token] = numbers;
            [info.holder.clone(), weight, slot, token, seconds(info.lease_remaining)]
        };
        let [weight, slot, token, lease] =
            ["WEIGHT", "SLOT", "TOKEN", "LEASE"].map(|title| (title, Side::Right));
        let head = [("HOLDER", Side::Left), weight, slot, token, lease];
        let _ = write!(text, "\n{}", table(head, holders.iter().map(row)));
        let listed: u64 = holders.iter().map(|info| u64::from(info.weight)).sum();
        more(&mut text, held.saturating_sub(listed), "units held by others");
    }
    if !waiters.is_empty() {
        let head = [("WAITER", Side::Left), ("WEIGHT", Side::Right), ("POSITION", Side::Right)];
        let row =
            |info: &WaiterInfo| [info.holder.clone(), info.weight.to_string(), info.position.to_string()];
        let _ = write!(text, "\n{}", table(head, waiters.iter().map(row)));
        more(&mut text, waiting.saturating_sub(waiters.len() as u64), "waiting");
    }
    text
}

fn more(text: &mut String, count: u64, what: &str) {
    if count > 0 {
        let _ = writeln!(text, "… and {count} more {what}");
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
