//! The figures as a page: the machine and the versions, and a table for each workload; and the aims.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::Failure;
use crate::compare::aims::{Aim, Bound};
use crate::compare::results::{Results, Spread};
use crate::compare::system::System;
use crate::compare::workloads::Scale;

/// The markers of a part of a page that this program writes.
pub(crate) struct Part {
    begin: &'static str,
    end: &'static str,
}

/// The tables of the comparison.
pub(crate) const FIGURES: Part =
    Part { begin: "<!-- figures: written by scripts/bench compare -->", end: "<!-- end of figures -->" };

/// The table of aims, in the page on performance.
pub(crate) const AIMS: Part =
    Part { begin: "<!-- aims: figures of scripts/bench compare -->", end: "<!-- end of aims -->" };

/// A table: its workload, under which reasons are kept, and its columns.
struct Table {
    title: &'static str,
    workload: &'static str,
    plot: Option<&'static str>,
    /// Figure, heading, divisor.
    columns: &'static [(&'static str, &'static str, f64)],
}

const TABLES: &[Table] = &[
    Table {
        title: "A. One task, uncontended: a cycle of acquire and release",
        workload: "A",
        plot: Some("a.svg"),
        columns: &[
            ("A.p50_us", "p50, µs", 1.0),
            ("A.p99_us", "p99, µs", 1.0),
            ("A.cycle_us", "mean, µs", 1.0),
        ],
    },
    Table {
        title: "B. 64 tasks of one process, within the limit",
        workload: "A",
        plot: Some("b.svg"),
        columns: &[
            ("B64.per_s", "1,000 cycles/s", 1e3),
            ("B64.client_us", "client µs/cycle", 1.0),
            ("B64.server_us", "server µs/cycle", 1.0),
            ("B64.commands", "commands/cycle, in scripts too", 1.0),
        ],
    },
    Table {
        title: "B. 512 tasks of one process, within the limit",
        workload: "A",
        plot: None,
        columns: &[
            ("B512.per_s", "1,000 cycles/s", 1e3),
            ("B512.client_us", "client µs/cycle", 1.0),
            ("B512.server_us", "server µs/cycle", 1.0),
        ],
    },
    Table {
        title: "C. 4 processes of 16 tasks, limit 4, held for 1 ms",
        workload: "C",
        plot: Some("c.svg"),
        columns: &[
            ("C.of_ideal", "of the ideal", 1.0),
            ("C.per_s", "grants/s", 1.0),
            ("C.wait_p50_ms", "wait p50, ms", 1.0),
            ("C.wait_p99_ms", "p99", 1.0),
            ("C.wait_max_ms", "max", 1.0),
            ("C.inversions", "inversions", 1.0),
            ("C.calls", "calls/grant", 1.0),
            ("C.server_us", "server µs/grant", 1.0),
        ],
    },
    Table {
        title: "D. Hand-off: from the release call to the acquire of another process returning",
        workload: "D",
        plot: Some("d.svg"),
        columns: &[("D.p50_us", "p50, µs", 1.0), ("D.p99_us", "p99, µs", 1.0)],
    },
    Table {
        title: "E. 10,000 permits held idle by one process",
        workload: "E",
        plot: None,
        columns: &[("E.calls_per_min", "calls/min", 1.0), ("E.server_ms_per_min", "server ms/min", 1.0)],
    },
    Table {
        title: "F. A grant out of a line of 10",
        workload: "F10",
        plot: Some("f.svg"),
        columns: FIGURES_10,
    },
    Table {
        title: "F. A grant out of a line of 1,000",
        workload: "F1000",
        plot: None,
        columns: FIGURES_1000,
    },
    Table {
        title: "F. A grant out of a line of 100,000",
        workload: "F100000",
        plot: None,
        columns: FIGURES_100000,
    },
    Table {
        title: "G. Bytes in the server, of each holder",
        workload: "E",
        plot: None,
        columns: &[("G.holder_bytes", "bytes/holder", 1.0)],
    },
    Table {
        title: "G. Bytes in the server, of each waiter",
        workload: "G",
        plot: None,
        columns: &[("G.waiter_bytes", "bytes/waiter", 1.0)],
    },
    Table {
        title: "H. 10,000 semaphores in turn",
        workload: "A",
        plot: None,
        columns: &[("H.cycle_us", "µs/cycle", 1.0), ("H.left_bytes", "bytes left of each", 1.0)],
    },
    Table {
        title: "I. A holder is killed: until the waiter has the permit",
        workload: "I",
        plot: None,
        columns: &[
            ("I.after_ms", "after the kill, ms", 1.0),
            ("I.beyond_lease_ms", "beyond the lease, ms", 1.0),
        ],
    },
    Table {
        title: "J. Start: from connect to the first permit, in a process that runs already",
        workload: "A",
        plot: None,
        columns: &[("J.ms", "ms", 1.0)],
    },
];

const FIGURES_10: &[(&str, &str, f64)] = &[
    ("F10.server_us", "server µs/grant", 1.0),
    ("F10.calls", "calls/grant", 1.0),
    ("F10.per_s", "grants/s", 1.0),
];
const FIGURES_1000: &[(&str, &str, f64)] = &[
    ("F1000.server_us", "server µs/grant", 1.0),
    ("F1000.calls", "calls/grant", 1.0),
    ("F1000.per_s", "grants/s", 1.0),
];
const FIGURES_100000: &[(&str, &str, f64)] = &[
    ("F100000.server_us", "server µs/grant", 1.0),
    ("F100000.calls", "calls/grant", 1.0),
    ("F100000.per_s", "grants/s", 1.0),
];

/// The page, without its markers.
pub(crate) fn page(about: &Value, systems: &[System], results: &Results, scale: Scale) -> String {
    let mut page = String::new();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let _ = writeln!(
        page,
        "Measured on {} processors ({}), Linux {}, redis-server {}, which keeps nothing on disk, all on one machine \
         over TCP. Median of {} rounds (least–most); {} s of warm-up in each process. A dash: the system cannot run \
         the workload, or was not installed; the reason is below the table.\n",
        about["processors"],
        text(&about["processor"]),
        text(&about["kernel"]),
        text(&about["server"]),
        about["rounds"],
        scale.warm_up,
    );
    let _ = writeln!(page, "| system | version |\n|---|---|");
    for system in systems {
        let _ = writeln!(page, "| {} | {} |", system.title, text(&about["versions"][system.name]));
    }
    for table in TABLES {
        one_table(&mut page, table, systems, results);
    }
    page
}

/// The aims with their figures.
pub(crate) fn table_of_aims(aims: &[Aim]) -> String {
    let mut table = "| | figure | measured | aim | |\n|---|---|---:|---:|---|\n".to_owned();
    for aim in aims {
        let bound = match aim.bound {
            Bound::AtMost(bound) => format!("≤ {bound}"),
            Bound::AtLeast(bound) => format!("≥ {bound}"),
        };
        let verdict = aim.is_met().map_or("not measured", |met| if met { "met" } else { "**not met**" });
        let value = aim.value.map_or_else(|| "–".to_owned(), digits);
        let _ = writeln!(table, "| {} | {} | {value} | {bound} | {verdict} |", aim.workload, aim.what);
    }
    table
}

fn one_table(page: &mut String, table: &Table, systems: &[System], results: &Results) {
    let (mut rows, mut reasons) = (String::new(), String::new());
    let all = systems.iter().map(|system| (system.name, system.title, system.takes_part(table.workload)));
    for (name, title, takes_part) in
        all.chain([("redis-benchmark", "the same by redis-benchmark (C)", false)])
    {
        let cells: Vec<_> =
            table.columns.iter().map(|(figure, _, by)| (results.get(name, figure), *by)).collect();
        // A system that takes part in few workloads has rows only there.
        if !takes_part && cells.iter().all(|(spread, _)| spread.is_none()) {
            continue;
        }
        let cells =
            cells.into_iter().map(|(spread, by)| spread.map_or_else(|| "–".to_owned(), |it| shown(it, by)));
        let _ = writeln!(rows, "| {title} | {} |", cells.collect::<Vec<_>>().join(" | "));
        if let Some(reason) = results.why_not(name, table.workload) {
            let _ = writeln!(reasons, "- {title}: {reason}.");
        }
    }
    if let Some(plot) = table.plot {
        let _ = writeln!(page, "\n![{}]({plot})", table.title);
    }
    let headings: Vec<_> = table.columns.iter().map(|(_, heading, _)| *heading).collect();
    let _ = writeln!(page, "\n### {}\n\n| | {} |", table.title, headings.join(" | "));
    let _ = writeln!(page, "|---|{}\n{}", "---:|".repeat(headings.len()), rows.trim_end());
    if !reasons.is_empty() {
        let _ = writeln!(page, "\n{}", reasons.trim_end());
    }
}

fn shown(spread: Spread, by: f64) -> String {
    let [median, low, high] = [spread.median, spread.low, spread.high].map(|value| digits(value / by));
    if low == high { median } else { format!("{median} ({low}–{high})") }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

impl Part {
    /// Puts text between the markers of a file, or into a new file.
    pub(crate) fn put(&self, text: &str, path: &Path) -> Result<(), Failure> {
        let Self { begin, end } = self;
        let old = std::fs::read_to_string(path).unwrap_or_else(|_| format!("{begin}\n{end}\n"));
        let parts = old.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
        let (head, tail) = parts.ok_or_else(|| format!("no markers in {}", path.display()))?;
        Ok(std::fs::write(path, format!("{head}{begin}\n\n{}\n\n{end}{tail}", text.trim_end()))?)
    }
}
