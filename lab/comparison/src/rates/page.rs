//! The table and the aims of `scripts/lab rates`.

use permits_bench::aims::{Aim, Bound};
use permits_bench::modes::Mode;
use permits_bench::page::digits;
use permits_bench::results::Results;
use permits_bench::system::System;

use super::{OURS, WORKLOADS, Workload};

/// The rows of a workload: the figure, or its two percentiles, and its name.
const ROWS: [(&[&str], &str); 10] = [
    (&["rate"], "grants/s"),
    (&["wait_p50", "wait_p99"], "from the request to the permit, p50 / p99, ms"),
    (&["granted_late_p50", "granted_late_p99"], "grant after it became possible, p50 / p99, ms"),
    (&["got_late_p50", "got_late_p99"], "caller has the permit after that moment, p50 / p99, ms"),
    (&["callers_late_p50", "callers_late_p99"], "the same by the callers' clock alone, p50 / p99, ms"),
    (&["calls"], "server calls a grant"),
    (&["commands"], "server commands a grant, those of scripts included"),
    (&["most"], "most grants in any window, by the server's clock"),
    (&["callers_most"], "most grants in any window, by the callers' clock"),
    (&["inversions"], "order inversions"),
];

/// A row for each workload and figure, a column for each system.
pub(super) fn table(results: &Results, systems: &[System]) -> String {
    let titles: Vec<_> = systems.iter().map(|system| system.title).collect();
    let mut lines =
        vec![format!("| | {} |", titles.join(" | ")), format!("|---|{}", "---:|".repeat(systems.len()))];
    for workload in &WORKLOADS {
        let Workload { name, limit, window_ms, .. } = workload;
        for (figures, what) in ROWS {
            let cells: Vec<_> = systems.iter().map(|system| cell(results, system, name, figures)).collect();
            if cells.iter().any(Option::is_some) {
                let cells: Vec<_> = cells.into_iter().map(|cell| cell.unwrap_or("–".to_owned())).collect();
                let what = format!("{name}, {limit} in {window_ms} ms: {what}");
                lines.push(format!("| {what} | {} |", cells.join(" | ")));
            }
        }
    }
    lines.extend(systems.iter().filter_map(|system| missing(results, system)));
    lines.join("\n") + "\n"
}

/// The medians of the rounds; of figures that no run may exceed, the most.
fn cell(results: &Results, system: &System, workload: &str, figures: &[&str]) -> Option<String> {
    let shown = |figure: &&str| {
        let spread = results.get(Mode::Quiet, system.name, &format!("{workload}.{figure}"))?;
        let is_bound = matches!(*figure, "most" | "callers_most" | "inversions");
        Some(digits(if is_bound { spread.high } else { spread.median }))
    };
    let all: Option<Vec<_>> = figures.iter().map(shown).collect();
    Some(all?.join(" / "))
}

/// The reasons for figures that a system lacks.
fn missing(results: &Results, system: &System) -> Option<String> {
    if let Some(reason) = system.absent() {
        return Some(format!("\n{} is missing: {reason}.", system.title));
    }
    let reason = |workload: &Workload| {
        let reason = results.why_not(Mode::Quiet, system.name, workload.name)?;
        Some(format!("\n{}, {}: {reason}.", system.title, workload.name))
    };
    let reasons: Vec<_> = WORKLOADS.iter().filter_map(reason).collect();
    (!reasons.is_empty()).then(|| reasons.join("\n"))
}

/// The aims for `permits`.
pub(super) fn aims(results: &Results) -> Vec<Aim> {
    let mut aims = Vec::new();
    let mut add = |workload, what: &str, value, bound| {
        let bound = Bound::AtMost(bound);
        aims.push(Aim { workload, what: what.to_owned(), mode: Mode::Quiet, value, bound });
    };
    for Workload { name, limit, is_queued, .. } in &WORKLOADS {
        let figure = |figure: &str| results.get(Mode::Quiet, OURS, &format!("{name}.{figure}"));
        let median = |name: &str| figure(name).map(|spread| spread.median);
        let most = |name: &str| figure(name).map(|spread| spread.high);
        if *is_queued {
            add(name, "server calls a grant", median("calls"), 2.5);
            add(name, "grant after it became possible, p99, ms", median("granted_late_p99"), 10.0);
            add(name, "caller has the permit after that moment, p99, ms", median("got_late_p99"), 10.0);
            add(name, "order inversions, most of all rounds", most("inversions"), 0.0);
        }
        let ratio = most("most").map(|most| most / *limit as f64);
        add(name, "most grants in any window / the limit", ratio, 1.0);
    }
    aims
}
