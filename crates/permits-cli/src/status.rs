//! `permits status`: the holders and waiters of a semaphore, as tables or as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use permits::{Alert, ChangeInfo, HolderInfo, Inspection, LaneInfo, WAIT_BOUNDS, WaiterInfo, Waits};
use serde::Serialize;

use crate::args::{Chosen, Common, Status};
use crate::connect::{self, Target};
use crate::each;
use crate::exit::{self, Failure};
use crate::inspected::{is_recovering, unlisted_waiters};
use crate::names;
use crate::table::{Row, Table, Text};
use crate::text::{columns, duration, paused};
use crate::units::{self, HeldUnits, unlisted_units};

/// The most holders, and the most waiters, that one inspection lists.
pub(crate) const MAX_LISTED: u32 = 1000;

/// The least number of waits of which there is a bound for 95 %.
const MANY: u64 = 20;

/// The column with the token of a holder, the widest and the least used one.
const TOKEN: usize = 3;

/// Prints the semaphores. One that the store does not know is printed, too, since that is its state, and is a
/// failure.
pub(crate) async fn status(common: &Common, options: &Status) -> Result<u8, Failure> {
    let chosen = options.names.chosen()?;
    let client = connect::viewer(common, options.json).await?;
    let inspections = each::inspect(&client, chosen, MAX_LISTED).await?;
    // The session ends with the process: it holds nothing.
    let mut code = exit::SUCCESS;
    if options.json {
        let store = Target::of(common)?.store;
        for inspection in &inspections {
            code = code.max(exit::print_json(&StatusJson { inspection, store: &store })?);
        }
    } else {
        let texts: Vec<String> = inspections.iter().map(human).collect();
        code = exit::print_lines(&texts.join("\n"));
    }
    match chosen {
        Chosen::One(name) if code == exit::SUCCESS && !names::is_used(&inspections[0]) => {
            Err(match options.json {
                true => names::unknown_failure_in_json(name),
                false => names::unknown_failure(&client, name).await,
            })
        }
        _ => Ok(code),
    }
}

/// The object that `--json` prints: an inspection, and the address of its store. Scripts depend on it: fields
/// may be added, never changed.
#[derive(Serialize)]
pub(crate) struct StatusJson<'a> {
    #[serde(flatten)]
    pub(crate) inspection: &'a Inspection,
    pub(crate) store: &'a str,
}

/// The use of a semaphore, as a part of a sentence. The inspection lists holders.
pub(crate) fn usage(inspection: &Inspection) -> String {
    let Inspection { limit, held, waiting, .. } = inspection;
    let units = HeldUnits::of(inspection);
    let in_use = units.in_use(*held);
    let units = units.text().map(|units| format!(", {units}")).unwrap_or_default();
    match limit {
        Some(limit) => format!("{in_use} of {limit} held{units}, {waiting} waiting"),
        None if *held == 0 && *waiting == 0 => "not in use, no limit is set".to_owned(),
        None => format!("{in_use} held{units}, {waiting} waiting, no limit is set"),
    }
}

/// The state of a closed line.
pub(crate) fn closed(reason: &str) -> String {
    if reason.is_empty() { "CLOSED".to_owned() } else { format!("CLOSED ({reason})") }
}

/// The thresholds beyond which a semaphore needs a look.
pub(crate) fn alerts(alert: Alert) -> String {
    if alert.is_set() { format!("alert beyond {alert}") } else { "no alert is set".to_owned() }
}

/// The waits of requests that were granted out of the line; `None` if there were none.
pub(crate) fn waits(waits: &Waits) -> Option<String> {
    let (number, mean) = (waits.number(), duration(waits.mean()?));
    let text = format!("{number} waited, {mean} on average");
    if number < MANY {
        return Some(text);
    }
    let bound = waits.within(0.95).map_or_else(
        || format!("more than {}", duration(WAIT_BOUNDS[WAIT_BOUNDS.len() - 1])),
        |bound| format!("at most {bound:?}"),
    );
    Some(format!("{text}, 95 % {bound}"))
}

/// The use and the state of a semaphore in a line.
pub(crate) fn summary(inspection: &Inspection) -> String {
    let mut text = format!("{}: {}", inspection.name, usage(inspection));
    if inspection.pinned {
        let _ = write!(text, ", limit pinned{}", by(inspection.pinned_by()));
    }
    if inspection.paused {
        let paused = paused(inspection.pause_remaining, inspection.pause_reason.as_deref());
        let _ = write!(text, ", {}{}", paused.replacen("paused", "PAUSED", 1), by(inspection.paused_by()));
    }
    if let Some(reason) = &inspection.closed {
        let _ = write!(text, ", {}{}", closed(reason), by(inspection.closed_by()));
    }
    if inspection.alert.is_set() {
        let _ = write!(text, ", {}", alerts(inspection.alert));
    }
    if is_recovering(inspection) {
        let _ = write!(text, ", recovering for {}", seconds(inspection.recovering));
    }
    text
}

fn human(inspection: &Inspection) -> String {
    let Described { lines, .. } = describe(inspection, columns());
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A semaphore as `status` prints it, and as `top` shows it.
#[derive(Default)]
pub(crate) struct Described {
    /// The first is the summary.
    pub(crate) lines: Vec<String>,
    /// The index of the line of each holder and waiter, in the order of [`listed`].
    pub(crate) rows: Vec<usize>,
}

impl Described {
    /// Adds a table below an empty line.
    fn add(&mut self, table: &str) {
        self.lines.push(String::new());
        self.lines.extend(table.lines().map(str::to_owned));
    }

    /// Adds a table of so many holders or waiters, and the number of those that are not listed.
    fn add_rows(&mut self, table: &str, rows: usize, unlisted: u64, noun: &str) {
        self.add(table);
        self.rows.extend(self.lines.len() - rows..self.lines.len());
        if unlisted > 0 {
            self.lines.push(format!("… and {unlisted} more {noun}"));
        }
    }
}

/// The holders, first those that still hold, since the others are no longer there.
fn holders(inspection: &Inspection) -> impl Iterator<Item = &HolderInfo> {
    let of = |cooling| inspection.holders.iter().filter(move |info| info.cooling == cooling);
    of(false).chain(of(true))
}

/// The names of the listed holders and waiters, in the order of their lines.
pub(crate) fn listed(inspection: &Inspection) -> impl Iterator<Item = &str> {
    let waiters = inspection.waiters.iter().map(|info| &*info.holder);
    holders(inspection).map(|info| &*info.holder).chain(waiters)
}

/// Describes a semaphore in lines of `columns`, apart from the summary, which may be wider.
pub(crate) fn describe(inspection: &Inspection, columns: usize) -> Described {
    let Inspection { waiters, lanes, .. } = inspection;
    let mut all = Described { lines: vec![summary(inspection)], rows: Vec::new() };
    if inspection.waiting > 0 {
        all.lines.extend(waits(&inspection.waits));
    }
    let title = if lanes.is_empty() { "LABEL" } else { "[LANE] LABEL" };
    if !inspection.holders.is_empty() {
        let row = |info: &HolderInfo| {
            let numbers = [u64::from(info.weight), u64::from(info.slot), info.token].map(|n| n.to_string());
            let [weight, slot, token] = numbers;
            let lease = units::lease(info, seconds);
            let cells = [info.holder.clone(), weight, slot, token, lease, duration(info.age)];
            Row { cells, text: Text::of(info.lane.as_deref(), info.label.as_deref()) }
        };
        let head = ["HOLDER", "WEIGHT", "SLOT", "TOKEN", "LEASE", "AGE"];
        let rows: Vec<_> = holders(inspection).map(row).collect();
        let (number, unlisted) = (rows.len(), unlisted_units(inspection));
        let table = Table { head, essential: head.len(), text: title, rows };
        all.add_rows(&table.print_sparing(TOKEN, columns), number, unlisted, "units held by others");
    }
    if !waiters.is_empty() {
        let row = |info: &WaiterInfo| {
            let [weight, position] = [u64::from(info.weight), info.position].map(|n| n.to_string());
            let cells = [info.holder.clone(), weight, position, duration(info.age)];
            Row { cells, text: Text::of(info.lane.as_deref(), info.label.as_deref()) }
        };
        let head = ["WAITER", "WEIGHT", "BEFORE", "AGE"];
        let rows = waiters.iter().map(row).collect();
        let table = Table { head, essential: head.len(), text: title, rows };
        all.add_rows(&table.print(columns), waiters.len(), unlisted_waiters(inspection), "waiting");
    }
    if !lanes.is_empty() {
        let has_floors = lanes.iter().any(|info| info.floor > 0);
        let has_limits = has_floors || lanes.iter().any(|info| info.limit.is_some());
        // A column that is empty in all rows is left out.
        let bound = |units: Option<u32>, is_shown| match units {
            Some(units) => units.to_string(),
            None => if is_shown { "-" } else { "" }.to_owned(),
        };
        let row = |info: &LaneInfo| {
            let name = info.lane.clone().unwrap_or_else(|| "(none)".to_owned());
            let [waiting, held] = [info.waiting, info.held].map(|n| n.to_string());
            let limit = bound(info.limit, has_limits);
            let floor = bound(Some(info.floor).filter(|floor| *floor > 0), has_floors);
            let text = if info.pinned { "pinned" } else { "" };
            Row { cells: [name, waiting, held, limit, floor], text: text.to_owned().into() }
        };
        let rows = lanes.iter().map(row).collect();
        let head = ["LANE", "WAITING", "HELD", "LIMIT", "FLOOR"];
        let table = Table { head, essential: 3, text: "", rows };
        all.add(&table.print(columns));
    }
    if !inspection.changes.is_empty() {
        let row = |info: &ChangeInfo| {
            let cells = [info.by.clone(), duration(info.age)];
            Row { cells, text: info.change.to_string().into() }
        };
        let rows = inspection.last_changes().map(row).collect();
        let table = Table { head: ["OPERATOR", "AGE"], essential: 2, text: "LAST CHANGES", rows };
        all.add(&table.print(columns));
    }
    all
}

/// The author and the age of a change that is in force, if the store remembers it.
pub(crate) fn by(change: Option<&ChangeInfo>) -> String {
    change.map_or_else(String::new, |info| format!(" by {} {} ago", info.by, duration(info.age)))
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
